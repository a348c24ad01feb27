"""Tell which of the sixteen languages a user writes in: what the letters alone say, the language of one message, the language of a user.

The script decides where it can. For the nine languages in Latin letters py3langid does, and for greetings and thanks the phrase books: one
short word is too little for statistics, and most users begin with one. Two messages in another language change a user's language, one
does not.

The model is read at the first message in Latin letters, or by `load_language_model`: about a third of a second, once."""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any
from uuid import UUID

from py3langid.langid import MODEL_FILE, LanguageIdentifier  # type: ignore[import-untyped]  # it has no types

from hermes.ports.users import User
from hermes.soul.trivial import trivial_languages


class WritingScript(StrEnum):
    """The scripts of the sixteen languages. Seven languages have a script of their own; nine share the Latin one, so it decides nothing."""

    LATIN = "latin"
    CYRILLIC = "cyrillic"
    ARABIC = "arabic"
    DEVANAGARI = "devanagari"
    THAI = "thai"
    HANGUL = "hangul"
    JAPANESE = "japanese"
    HAN = "han"


def script_of(text: str) -> WritingScript | None:
    """The script of most of a text's letters; None if it has no letter of these scripts. One kana makes it Japanese: Chinese has none."""
    counts = {script: len(pattern.findall(text)) for script, pattern in _LETTERS.items()}
    # Names and brands are in Latin letters in every language, and one letter of the other scripts often says as much as several Latin ones.
    for script in counts.keys() - {WritingScript.LATIN}:
        counts[script] *= 4
    if counts[WritingScript.JAPANESE]:
        counts[WritingScript.JAPANESE] += counts[WritingScript.HAN]
        counts[WritingScript.HAN] = 0
    best = max(counts, key=lambda script: counts[script])
    return best if counts[best] else None


def is_another_language(text: str, script: WritingScript) -> bool:
    """Whether a text in this script is in a language that Hermes does not speak, by letters that the spoken language does not have."""
    strange = _STRANGE.get(script)
    return strange is not None and len(strange.findall(text)) >= 2  # one letter may come from a name or a dialect


_LETTERS = {
    WritingScript.LATIN: re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]"),
    WritingScript.CYRILLIC: re.compile(r"[\u0400-\u04ff]"),
    WritingScript.ARABIC: re.compile(r"[\u0620-\u064a\u066e-\u06d3\u06fa-\u06ff]"),
    WritingScript.DEVANAGARI: re.compile(r"[\u0904-\u0939\u0958-\u0961]"),
    WritingScript.THAI: re.compile(r"[\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46]"),
    WritingScript.HANGUL: re.compile(r"[\uac00-\ud7a3\u3131-\u318e]"),
    WritingScript.JAPANESE: re.compile(r"[\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d]"),
    WritingScript.HAN: re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"),
}
_STRANGE = {
    WritingScript.ARABIC: re.compile(r"[\u067e\u0686\u0698\u06a9\u06af\u06cc\u0679\u0688\u0691\u06ba\u06be\u06d2]"),
    WritingScript.CYRILLIC: re.compile(
        r"[\u0404\u0406\u0407\u0454\u0456\u0457\u0490\u0491\u0402\u0452\u040f\u045f\u0409\u0459\u040e\u045e]"
    ),
    WritingScript.DEVANAGARI: re.compile(r"\u0933"),
}


LANGUAGES = ("en", "id", "es", "fr", "de", "it", "pt", "nl", "ru", "zh", "ja", "ko", "ar", "hi", "th", "tr")
"""The languages that Hermes answers in."""
LATIN = ("en", "id", "es", "fr", "de", "it", "pt", "nl", "tr")
_BY_SCRIPT = {
    WritingScript.CYRILLIC: "ru",
    WritingScript.ARABIC: "ar",
    WritingScript.DEVANAGARI: "hi",
    WritingScript.THAI: "th",
    WritingScript.HANGUL: "ko",
    WritingScript.JAPANESE: "ja",
    WritingScript.HAN: "zh",
}
KNOWN_LANGUAGE_FACTOR = 4.0
"""How many times as likely as the user's known language another one must be. Short messages say little."""
MAX_GREETING_CHARS = 80
MAX_READ_CHARS = 2_000
"""Characters that are read: more do not make the result surer."""
MIN_LIKELIHOOD, MIN_SHORT_LIKELIHOOD = 0.2, 0.7
"""The least likelihood for a user without a known language; the second for a message of fewer than MIN_LONG_LETTERS letters."""
MIN_LONG_LETTERS = 12


def detect_language(text: str, *, known: str | None = None) -> str | None:
    """The language of a message, one of the sixteen; if the message does not show one, `known`.

    Names, links and numbers show none. If `known` is Japanese, Chinese characters alone stay Japanese."""
    return detect_cached(text[:MAX_READ_CHARS], known)


@lru_cache(maxsize=1024)  # a turn calls it twice: for the language to answer in, and for the user's stored language
def detect_cached(text: str, known: str | None) -> str | None:
    words = _NOT_WORDS.sub(" ", text)
    script = script_of(words)
    if script is None or is_another_language(words, script):
        return known
    if script is WritingScript.HAN and known == "ja":
        return "ja"
    if script is not WritingScript.LATIN:
        return _BY_SCRIPT[script]
    if len(_LETTER.findall(words)) < 2:
        return known
    return likeliest_language(words, known)


def likeliest_language(words: str, known: str | None) -> str | None:
    greeting_languages = trivial_languages(words).intersection(LATIN) if len(words) <= MAX_GREETING_CHARS else frozenset[str]()
    if known in greeting_languages:
        return known
    if "en" in greeting_languages:
        return known or "en"  # "hello" and "ok" are used in every language
    likely = dict(_identifier().rank(words))
    if greeting_languages:
        return max(greeting_languages, key=lambda language: likely[language])
    best = max(likely, key=lambda language: likely[language])
    if known in likely:
        return known if likely[known] * KNOWN_LANGUAGE_FACTOR >= likely[best] else str(best)
    enough = MIN_LIKELIHOOD if len(_LETTER.findall(words)) >= MIN_LONG_LETTERS else MIN_SHORT_LIKELIHOOD
    return str(best) if likely[best] >= enough else known


def load_language_model() -> None:
    """Read the model now, so that the first message does not wait for it."""
    _identifier()


@cache
def _identifier() -> Any:
    every = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    every.set_languages(LATIN)
    # One that never knew the other hundred languages: they take 28 MB, and are not asked for.
    return LanguageIdentifier(
        every.nb_ptc, every.nb_pc, every.nb_classes, every.tk_nextmove, every.tk_output, norm_probs=True, tk_row=every.tk_row
    )


_NOT_WORDS = re.compile(r"https?://\S+|www\.\S+|[\w.+-]{1,64}@\S+|[@#]\w+|\d+")
_LETTER = re.compile(r"[^\W\d_]")


MIN_CHANGE_LETTERS = 12
"""Letters that a message needs to change a preference. A wide letter (中, あ, 한) counts as three."""


@dataclass(frozen=True, slots=True)
class LanguagePreference:
    """The language in which a user is answered and, if their last long message was in another language, that one as `seen`.

    LanguagePreference("en").after("dónde puedo cenar hoy?")                            still "en", with "es" seen once
    LanguagePreference("en", seen="es").after("una mesa para dos, por favor")           "es"
    LanguagePreference("en", seen="es").after("thank you so much for that")             "en", and "es" no longer seen
    """

    language: str | None = None
    seen: str | None = None

    def after(self, text: str) -> LanguagePreference:
        """The preference after one more message. A user without one takes the language of the first message that shows one."""
        found = detect_language(text, known=self.language)
        if found is None or (self.language is not None and weighted_letters(text) < MIN_CHANGE_LETTERS):
            return self
        if self.language is None or found in (self.language, self.seen):
            return LanguagePreference(found)
        return LanguagePreference(self.language, seen=found)


def weighted_letters(text: str) -> int:
    """The letters of a message, a wide one counted as three; of a long message, those of its beginning."""
    return sum(3 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text[:MAX_READ_CHARS] if character.isalpha())


DEFAULT_LANGUAGE = "en"
MAX_USERS = 10_000


class UserLanguages:
    """Implements the port Languages. It remembers a language that was seen once in this process only: if another process answers the
    second message, the language changes one message later."""

    def __init__(self) -> None:
        self._seen: OrderedDict[UUID, str] = OrderedDict()

    def of(self, user: User, text: str) -> str:
        return detect_language(text, known=user.language) or user.language or DEFAULT_LANGUAGE

    def new_language(self, user: User, text: str) -> str | None:
        after = LanguagePreference(user.language, self._seen.get(user.id)).after(text)
        return after.language if after.language != user.language else None

    def note(self, user: User, text: str) -> None:
        after = LanguagePreference(user.language, self._seen.pop(user.id, None)).after(text)
        if after.seen is not None:
            self._seen[user.id] = after.seen
            while len(self._seen) > MAX_USERS:
                self._seen.popitem(last=False)
