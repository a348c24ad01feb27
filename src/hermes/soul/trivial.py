"""Tell trivial messages: greetings, thanks, agreement, farewells, laughter and single emoji, in sixteen languages. All words of such a
message are in the phrase book of one language, `trivial.toml`.

Hermes recalls nothing for them and learns nothing from them. A message that is wrongly taken as trivial gets a worse answer; a trivial
message that is not recognised costs an embedding. So a digit, a question mark or one unknown word makes a message not trivial."""

# ruff: noqa: RUF001  # laughter in sixteen languages

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

from hermes.soul.sanitize.views import fold

MAX_CHARS = 80
"""A longer message is not trivial."""
UNSPACED = ("zh", "ja", "ko", "th")
"""Languages whose phrases are searched in the text without its spaces."""


def is_trivial(text: str, language: str | None = None) -> bool:
    """Whether a message is trivial in the given language, or without one in any of the sixteen; English phrases count in all.

    Emoji, punctuation, case, accents, stretching ("okkkk") and laughter ("haahaha", "kkkk", "555", "wkwkwk") do not count."""
    return len(text) <= MAX_CHARS and is_trivial_cached(text, language)


@lru_cache(maxsize=1024)  # a turn asks more than once: before recall, and before learning
def is_trivial_cached(text: str, language: str | None) -> bool:
    if _QUESTION.search(text):
        return False
    if is_laughing_number(text, language):
        return True
    plain = plain_of(text)
    if _DIGIT.search(plain):
        return False
    words = words_of(plain)
    languages = phrase_books() if language is None else (language,)
    return not words or any(has_only_phrases(words, known) for known in languages if known in phrase_books())


def trivial_languages(text: str) -> frozenset[str]:
    """The languages in which a message is trivial, each by its own words alone: "danke" is German, "hello" is English and others."""
    words = words_of(plain_of(text))
    return frozenset(
        language
        for language, book in phrase_books().items()
        if words and book.words.issuperset(words) and is_phrase_row(words, book.own_alone, book.own_beside, book.longest, " ")
    )


def has_only_phrases(words: Sequence[str], language: str) -> bool:
    """Whether words are a row of trivial phrases of a language, at least one of which may stand alone."""
    book = phrase_books()[language]
    if language in UNSPACED and is_phrase_row("".join(words), book.alone_unspaced, book.beside_unspaced, book.longest_unspaced, ""):
        return True
    if not all(word in book.words or any(form in book.words for form in unstretched_forms(word)) for word in words):
        return False  # by far the most messages end here: one unknown word is enough
    return is_phrase_row(words, book.alone, book.beside, book.longest, " ")


def plain_of(text: str) -> str:
    """A message without its emoji and emoticons, folded."""
    return fold(_EMOTICON.sub(" ", _EMOJI.sub(" ", text)))


def words_of(plain: str) -> list[str]:
    """The words of a folded message, without laughter."""
    return [word for word in _WORD.findall(_CONTRACTION.sub("", plain)) if not _LAUGHTER.fullmatch(word)]


def is_phrase_row(parts: Sequence[str], alone: frozenset[str], beside: frozenset[str], longest: int, between: str) -> bool:
    """Whether parts can be divided into phrases of the two sets, with at least one phrase of `alone`."""
    # For each place: None if no division into phrases ends there, else whether one of those phrases may stand alone.
    reached: list[bool | None] = [False, *[None] * len(parts)]
    for end in range(1, len(parts) + 1):
        starts = [start for start in range(max(0, end - longest), end) if reached[start] is not None]
        if not starts:
            return False
        for start in starts:
            piece = between.join(parts[start:end])
            if piece in alone or (between and any(form in alone for form in unstretched_forms(piece))):
                reached[end] = True
            elif piece in beside:
                reached[end] = reached[end] or reached[start]
    return reached[-1] is True


def unstretched_forms(piece: str) -> Iterable[str]:
    """The forms that a stretched word may have: "hellooo" is "hello", "okk" is "ok", "thaaanks" is "thanks"."""
    if (short := _LONG_RUN.sub(r"\1", piece)) != piece:
        yield short
        yield _LONG_RUN.sub(r"\1\1", piece)
        yield _SQUEEZED + _RUN.sub(r"\1", piece)
    if _DOUBLE_END.search(piece):
        yield piece[:-1]


def is_laughing_number(text: str, language: str | None) -> bool:
    """Whether a number stands for a sound: 555 is laughter in Thai; 666, 233 and 88 are praise, laughter and goodbye in Chinese."""
    return (language in (None, "th") and _THAI_LAUGHTER.fullmatch(text) is not None) or (
        language == "zh" and _CHINESE_SOUNDS.fullmatch(text) is not None
    )


# --- the words


@dataclass(frozen=True, slots=True, repr=False)
class PhraseBook:
    """The phrases of one language, with those of English."""

    alone: frozenset[str]
    """Phrases that make a trivial message alone."""
    beside: frozenset[str]
    """Phrases that are trivial only beside one of those."""
    own_alone: frozenset[str]
    own_beside: frozenset[str]
    """Both without the English phrases."""
    words: frozenset[str]
    """The single words of the phrases of both languages."""
    longest: int
    """Words in the longest phrase."""
    alone_unspaced: frozenset[str]
    beside_unspaced: frozenset[str]
    longest_unspaced: int
    """Characters in the longest phrase without its spaces."""


@cache
def phrase_books() -> dict[str, PhraseBook]:
    """A phrase book for each language. The first call reads the file."""
    tables = tomllib.loads((resources.files(__package__) / "trivial.toml").read_text(encoding="utf-8"))
    return {language: make_phrase_book(table, tables["en"]) for language, table in tables.items()}


def make_phrase_book(own: dict[str, str], english: dict[str, str]) -> PhraseBook:
    alone, beside = phrases(own["alone"]), phrases(own["beside"])
    both = alone | phrases(english["alone"])
    words = {word for phrase in both | beside | phrases(english["beside"]) for word in phrase.split()}
    close = frozenset(phrase.replace(" ", "") for phrase in alone)
    return PhraseBook(
        alone=both | {_SQUEEZED + _RUN.sub(r"\1", phrase) for phrase in both},
        beside=beside | phrases(english["beside"]),
        own_alone=alone,
        own_beside=beside,
        words=frozenset(words | {_SQUEEZED + _RUN.sub(r"\1", word) for word in words}),
        longest=max(phrase.count(" ") + 1 for phrase in both),
        alone_unspaced=close,
        beside_unspaced=frozenset(phrase.replace(" ", "") for phrase in beside),
        longest_unspaced=max(map(len, close)),
    )


@cache
def phrases(line: str) -> frozenset[str]:
    return frozenset(" ".join(_WORD.findall(_CONTRACTION.sub("", fold(phrase)))) for phrase in line.split(",")) - {""}


_SQUEEZED = "~"
"""Marks a phrase in which each run of a letter was reduced to one letter, so that only a stretched word finds it."""
_WORD = re.compile(r"[^\W_][\w\u0900-\u0963\u0e31-\u0e4e]*")
_DIGIT = re.compile(r"\d")
_QUESTION = re.compile("[?\u037e\u061f\u2047-\u2049\uff1f\u00bf]")
_CONTRACTION = re.compile(r"(?<=\w)'(?=(?:t|s|re|ve|ll|m|d)(?!\w))")
_RUN = re.compile(r"(\w)\1+")
_LONG_RUN = re.compile(r"(\w)\1{2,}")
_DOUBLE_END = re.compile(r"([^\W\d_])\1$")
_EMOJI = re.compile(
    "[\u00a9\u00ae\u200d\u203c\u20e3\u2139\u2190-\u21ff\u2300-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\ufe0e\ufe0f"
    "\U0001f000-\U0001faff\U000e0020-\U000e007f]"
)
_EMOTICON = re.compile(
    r"(?<!\w)(?:[:;=8xX][-'o^]?[)(\]\[dDpPoO3*|/\\]+|<3+|[\^tTuUoO>\-][_.\-]*[\^tTuUoO<\-]|[xX][dD]+|\(:|\\o/|:'\()(?!\w)"
)
_THAI_LAUGHTER = re.compile(r"\s*5{3,}\+*[\s!.ๆ]*")
_CHINESE_SOUNDS = re.compile(r"\s*(?:6{2,}|23{2,}|88+6?|3q|520)[\s!.~。]*", re.IGNORECASE)
_LAUGHTER = re.compile(
    r"(?=.*h.*h)[ha]{3,}|(?=.*h.*h)[he]{3,}|(?=.*h.*h)[hi]{3,}|(?=.*h.*h)[ho]{4,}|(?=.*h.*h)[hu]{3,}e*|(?:hue){2,}"
    r"|(?=.*j.*j)[ja]{3,}|(?=.*j.*j)[je]{3,}|(?=.*j.*j)[ji]{3,}|(?:wk)+w?|w?k(?:wk)+|k{2,}|(?:rs)+|(?:xi){2,}|(?:he){2,}|lo+l(?:ol)*z*|lma+o+|rofl"
    r"|(?:mdr)+|(?:ptdr)+|x+d+|w{2,}|(?=.*х.*х)[ха]{3,}|(?=.*х.*х)[хе]{3,}|(?=.*х.*х)[хи]{3,}|ло+л|ржу+|ه{2,}|(?:ها){2,}|(?:خ){3,}"
    r"|(?:हा){2,}|(?:हे){2,}|(?:ही){2,}|[ㅋㅎㅠㅜㅡᄏᄒ크킄]{1,}|하{2,}|호{2,}|히{2,}|헤{2,}|哈{1,}|呵{2,}|嘿{2,}|嘻{2,}|笑+|草+|w+|(?:ฮ่า|ฮา|อิ|หุ|คิ|ๆ)+|ถ{3,}"
)
