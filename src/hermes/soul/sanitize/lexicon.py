"""The words for each concept, language by language. The words are in words/, one file for each language.

An entry is a word or a phrase: `(a|b|)` are alternatives, `*` is any ending, `$` is the end of the clause. In languages that do
not separate words by spaces (zh, ja, th) or attach particles to them (ko), an entry is found anywhere, and is a regular expression
without loops, so that the search stays linear.

Does not know what a combination of concepts means."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

from hermes.soul.sanitize.views import fold

ALL_LANGUAGES = "any"
"""The pseudo-language of technical words that are the same in all languages."""
SPACED = ("en", "id", "es", "fr", "de", "it", "pt", "nl", "ru", "ar", "hi", "tr")
UNSPACED = ("zh", "ja", "ko", "th")
CHARACTERS_PER_WORD = {"zh": 2, "ja": 3, "ko": 3, "th": 5}
"""How many characters count as one unknown word."""
CLAUSE_END = "¶"
"""Stands between the words of two clauses."""
MIN_MISSPELLED_LETTERS = 6
QUOTES = frozenset("\"'“”„«»「」『』")


@dataclass(frozen=True, slots=True)
class Phrase:
    """Several words, or alternatives of them; indexed by each first word that it may begin with."""

    language: str
    concept: str
    entry: str


@dataclass(frozen=True, slots=True)
class KnownWord:
    """What the lexicon knows about one written word."""

    form: str
    """The word as the lists have it: English with typing errors corrected, Arabic without a prefixed "and"."""
    concepts: tuple[tuple[str, str], ...]
    """Language and concept of what the word says by itself."""
    languages: frozenset[str]
    """The languages that know it, even if only as a filler."""
    phrases: tuple[tuple[Callable[[str, int], re.Match[str] | None], str, str], ...]
    """The phrases that may begin with it: matcher, language and concept."""


@dataclass(frozen=True, slots=True, repr=False)
class SpacedLexicon:
    """The words of all languages that separate words by spaces, indexed for one look-up each."""

    words: dict[str, tuple[tuple[str, str], ...]]
    """Language and concept of whole words."""
    stems: dict[str, tuple[tuple[str, str], ...]]
    """The same for beginnings of words."""
    phrases: dict[str, tuple[Phrase, ...]]
    """Phrases by their first word, if that is a whole word."""
    stem_phrases: dict[str, tuple[Phrase, ...]]
    stem_lengths: range
    misspelled: dict[str, str]
    """English words by the signatures of their possible typing errors; see `signatures`."""
    parts: frozenset[str]
    """Every word of every entry, also inside phrases."""
    english: frozenset[str]
    longest_english: int


@lru_cache(maxsize=1 << 15)
def find_word(word: str) -> KnownWord:
    """What the lexicon knows about a folded word. Cached, because texts repeat the same words."""
    if word in QUOTES:
        return KnownWord(word, ((ALL_LANGUAGES, "quote"),), frozenset(), ())
    if word == CLAUSE_END:
        return KnownWord(word, (), frozenset(), ())
    book = spaced_lexicon()
    form = known_form(book, word)
    hits = list(dict.fromkeys(look_up(book, form)))
    return KnownWord(
        form,
        tuple((language, concept) for language, concept in hits if concept not in ("filler", "plain")),
        frozenset(language for language, _ in hits),
        tuple((compile_phrase(phrase.entry).match, phrase.language, phrase.concept) for phrase in phrases_from(book, form)),
    )


def phrases_from(book: SpacedLexicon, word: str) -> Iterator[Phrase]:
    yield from book.phrases.get(word, ())
    for length in book.stem_lengths:
        if length > len(word):
            break
        yield from book.stem_phrases.get(word[:length], ())


def look_up(book: SpacedLexicon, word: str) -> Iterator[tuple[str, str]]:
    """Language and concept of a word, or of its beginning; in Arabic also without a prefixed article or preposition."""
    for form in dict.fromkeys((word, _ARABIC_PREFIX.sub("", word))):
        yield from book.words.get(form, ())
        for length in book.stem_lengths:
            if length > len(form):
                break
            yield from book.stems.get(form[:length], ())


def known_form(book: SpacedLexicon, word: str) -> str:
    """The form of a word that the lists have; the word itself if they have none."""
    if word in book.parts:
        return word
    is_known = any(True for _ in look_up(book, word))
    if word[0] in "وف" and len(word) > 2 and (word[1:] in book.parts or not is_known):
        return word[1:]
    if not is_known and MIN_MISSPELLED_LETTERS <= len(word) <= book.longest_english + 1 and word.isascii() and word.isalpha():
        return next((book.misspelled[sign] for sign in (f"-{word}", *signatures(word)) if sign in book.misspelled), word)
    return word


@cache
def spaced_lexicon() -> SpacedLexicon:
    """The lexicon of the languages that separate words by spaces. The first call reads the files."""
    words: dict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    stems: dict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    phrases: dict[str, dict[Phrase, None]] = defaultdict(dict)
    stem_phrases: dict[str, dict[Phrase, None]] = defaultdict(dict)
    for language in (*SPACED, ALL_LANGUAGES):
        for concept, entry in entries(language):
            if re.fullmatch(r"[^ ()*$]+", entry):
                words[entry][language, concept] = None
            elif re.fullmatch(r"[^ ()*$]+\*", entry):
                stems[entry[:-1]][language, concept] = None
            else:
                phrase = Phrase(language, concept, entry)
                for first in first_words(entry):
                    if first.endswith("*"):
                        stem_phrases[first[:-1]][phrase] = None
                    else:
                        phrases[first][phrase] = None
    lengths = {len(stem) for stem in (*stems, *stem_phrases)}
    single = {word for word in words if any(language == "en" for language, _ in words[word])}
    english = single | {word for concept, entry in entries("en") for word in re.findall(r"[a-z]{2,}", entry) if concept != "plain"}
    return SpacedLexicon(
        words={word: tuple(found) for word, found in words.items()},
        stems={stem: tuple(found) for stem, found in stems.items()},
        phrases={word: tuple(found) for word, found in phrases.items()},
        stem_phrases={stem: tuple(found) for stem, found in stem_phrases.items()},
        stem_lengths=range(min(lengths), max(lengths) + 1),
        misspelled=index_misspellings(
            sorted(english - {word for word, found in words.items() if set(found) <= {("en", "filler"), ("en", "plain")}})
        ),
        parts=frozenset(part for language in SPACED for _, entry in entries(language) for part in re.split(r"[ ()|*$]+", entry)),
        english=frozenset(english),
        longest_english=max(map(len, english)),
    )


@cache
def unspaced_patterns(language: str) -> dict[str, re.Pattern[str]]:
    """Each concept of a language without spaces between words, as one pattern of all its entries, longer ones first."""
    concepts: dict[str, list[str]] = defaultdict(list, quote=sorted(QUOTES))
    for source in (ALL_LANGUAGES, language):
        for concept, entry in entries(source):
            concepts[concept].append(entry.removesuffix("*") if source == ALL_LANGUAGES else entry)
    return {
        concept: re.compile("|".join(sorted(found, key=len, reverse=True)).replace("(", "(?:").replace("(?:?", "(?"))
        for concept, found in concepts.items()
    }


def signatures(word: str) -> Iterator[str]:
    """Keys that two words share if they differ by one letter, or by the order of the letters between the first and the last."""
    yield f"{word[0]}{''.join(sorted(word[1:-1]))}{word[-1]}"
    for place in range(1, len(word)):
        yield f"-{word[:place]}{word[place + 1 :]}"


# --- reading the files


def entries(language: str) -> Iterator[tuple[str, str]]:
    """Concepts and their entries, folded in the same way as the texts that are searched."""
    source = (resources.files(__package__) / "words" / f"{language}.toml").read_text(encoding="utf-8")
    for concept, line in tomllib.loads(source).items():
        for entry in re.split(r",(?![^()]*\))", line):
            if entry.strip():
                yield concept, split_contractions(fold(" ".join(entry.split())))


def split_contractions(text: str) -> str:
    """The text with an English contraction as one word, and an elided article as a word of its own."""
    return _ELISION.sub(" ", _CONTRACTION.sub(r"\1", text))


@cache
def compile_phrase(entry: str) -> re.Pattern[str]:
    """The pattern of a phrase; it ends with a whole word. Compiled when a text first has its first word: there are thousands."""
    source = entry.replace(" $", f"(?= {CLAUSE_END}|$)").replace("*", "[^ ]*")
    return re.compile(f"(?:{source})(?= |$)")


def first_words(entry: str) -> set[str]:
    """The words that a phrase may begin with: `(not|no more) at*` begins with "not" or "no"."""
    return {text.partition(" ")[0] for text in beginnings(entry)}


def beginnings(entry: str) -> Iterator[str]:
    """The entry with its alternatives written out, each as far as the end of its first word."""
    head, bracket, rest = entry.partition("(")
    if " " in head or not bracket:
        yield head
        return
    inside, after = split_at_bracket(rest)
    for choice in alternatives(inside):
        yield from beginnings(f"{head}{choice}{after}") if "(" in f"{choice}{after}" else (f"{head}{choice}{after}",)


def split_at_bracket(text: str) -> tuple[str, str]:
    """The text before the closing bracket, and the text after it."""
    depth = 1
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[:place], text[place + 1 :]
    raise ValueError(f"a bracket is not closed in {text!r}")


def alternatives(text: str) -> list[str]:
    """The parts between bars, leaving inner brackets whole."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def index_misspellings(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        if len(word) >= MIN_MISSPELLED_LETTERS and word.isascii():
            for signature in signatures(word):
                found.setdefault(signature, word)
    return found


_ARABIC_PREFIX = re.compile(r"^(?:[وف]?(?:[بلك]?ال|لل)|[بلك])(?=[\u0621-\u064a]{2})")
_CONTRACTION = re.compile(r"(?<=\w)'(t|s|re|ve|ll|m|d)(?!\w)")
_ELISION = re.compile(r"(?<=\w)'(?=\w)")
