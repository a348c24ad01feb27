# ruff: noqa: RUF001  # letters of other scripts are what this file is about
"""Find words of sixteen languages in a text: `fold` makes a form for matching, and a `Lexicon` is a set of words to find in it.

An entry is a word (`bar`), the beginning of one (`restoran*`), or several words (`beach club`). Chinese, Japanese, Thai and Korean write
words without spaces, so an entry there matches anywhere. In Arabic an entry also matches with the article, a preposition and an ending.
The entries are data: TOML files beside the modules that use them."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

LANGUAGES = ("en", "id", "es", "fr", "de", "it", "pt", "nl", "ru", "zh", "ja", "ko", "ar", "hi", "th", "tr")

ACCENTS = re.compile("[\u0300-\u036f]")
ARABIC = str.maketrans({"أ": "ا", "إ": "ا", "آ": "ا", "ى": "ي", "ة": "ه", "ـ": None} | {chr(mark): None for mark in range(0x64B, 0x653)})
GLUED = re.compile(r"[\u0e00-\u0e7f\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
SEMITIC = re.compile(r"[\u0600-\u06ff]")
PROCLITICS = "(?:[وفبلك]?ال|لل|[وفبلك])?"
LETTER = r"[\w\u0900-\u0963]"
"""Includes the vowel signs of Hindi: Python counts them as marks, not as letters."""
BEGINNING = rf"(?<!{LETTER})"
TOKEN = re.compile(rf"{LETTER}+")
INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe0e\ufe0f]")
MAX_READ_CHARS = 2_000
"""How much of a message is searched for words: users do not put a wish behind two pages of text."""


@lru_cache(2_048)
def fold(text: str) -> str:
    """Return a text for matching: lower case, no accents, one form for letters that people mix up, single spaces, straight apostrophes."""
    plain = unicodedata.normalize("NFKC", text[:MAX_READ_CHARS]).casefold().replace("’", "'").replace("ı", "i")
    plain = unicodedata.normalize("NFC", ACCENTS.sub("", unicodedata.normalize("NFD", plain)))
    return " ".join(INVISIBLE.sub("", plain.translate(ARABIC)).split())


class Lexicon:
    """A set of words with about the same meaning, in all the languages."""

    def __init__(self, words: Iterable[str]) -> None:
        self._entries = sorted({fold(word) for word in words if word.strip()}, key=len, reverse=True)  # the longest entry wins
        # Most entries are single words, and looking those up is much faster than searching for all of them at every letter.
        single = {entry for entry in self._entries if TOKEN.fullmatch(entry.removesuffix("*")) and not is_special(entry)}
        self._words = frozenset(entry for entry in single if not entry.endswith("*"))
        self._beginnings = tuple(entry.removesuffix("*") for entry in single if entry.endswith("*"))
        self._others = [entry for entry in self._entries if entry not in single]

    # A pattern of hundreds of words takes a while to compile, so it is compiled at its first use.

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return alternatives(self._entries)

    @cached_property
    def _glued(self) -> re.Pattern[str]:
        return alternatives(entry for entry in self._others if GLUED.search(entry))

    @cached_property
    def _phrases(self) -> re.Pattern[str]:
        return alternatives(entry for entry in self._others if not GLUED.search(entry) and not SEMITIC.search(entry))

    @cached_property
    def _semitic(self) -> re.Pattern[str]:
        return alternatives(entry for entry in self._others if SEMITIC.search(entry))

    def is_in(self, folded: str) -> bool:
        """Whether a folded text has one of the words."""
        tokens = tokens_of(folded)
        return (
            not self._words.isdisjoint(tokens)
            or any(token.startswith(self._beginnings) for token in tokens)
            or (GLUED.search(folded) is not None and self._glued.search(folded) is not None)
            or (len(tokens) > 1 and self._phrases.search(folded) is not None)
            or (SEMITIC.search(folded) is not None and self._semitic.search(folded) is not None)
        )

    def without(self, folded: str) -> str:
        """Return a folded text without the words."""
        return " ".join(self._whole.sub(" ", folded).split())


@lru_cache(512)
def tokens_of(folded: str) -> tuple[str, ...]:
    """Return the words of a folded text."""
    return tuple(TOKEN.findall(folded))


def is_special(entry: str) -> bool:
    """Whether an entry needs a pattern, because its script does not put spaces between words, or is Arabic."""
    return GLUED.search(entry) is not None or SEMITIC.search(entry) is not None


def alternatives(entries: Iterable[str]) -> re.Pattern[str]:
    """Return one pattern for all entries. The look-behind that most entries share stands before them, so it runs once at each letter."""
    patterns = [pattern_of(entry) for entry in entries]
    words = [pattern.removeprefix(BEGINNING) for pattern in patterns if pattern.startswith(BEGINNING)]
    parts = [rf"{BEGINNING}(?:{'|'.join(words)})"] if words else []
    return re.compile("|".join([*parts, *(pattern for pattern in patterns if not pattern.startswith(BEGINNING))]) or r"(?!)")


def pattern_of(entry: str) -> str:
    if GLUED.search(entry):
        return re.escape(entry.removesuffix("*"))
    if SEMITIC.search(entry):
        # A short word with an ending is usually another word.
        ending = rf"{LETTER}{{0,3}}" if len(entry) > 3 else ""
        return rf"{BEGINNING}{PROCLITICS}{re.escape(entry)}{ending}(?!{LETTER})"
    # Users type spaces and hyphens alike.
    word = re.escape(entry.removesuffix("*")).replace(r"\ ", r"[\s-]").replace(r"\-", r"[\s-]?")
    return rf"{BEGINNING}{word}{LETTER}*" if entry.endswith("*") else rf"{BEGINNING}{word}(?!{LETTER})"


def words_of(table: Mapping[str, str]) -> list[str]:
    """Return all entries of a table that maps a language to words with commas between them."""
    return [word.strip() for line in table.values() for word in line.split(",")]


def read_words(package: str, file: str) -> dict[str, Any]:
    """Return the tables of a word file that lies beside a module."""
    return tomllib.loads((resources.files(package) / file).read_text(encoding="utf-8"))
