"""The catalogues: one file of sentences for each language, read when Hermes first replies in that language."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from babel import Locale

from hermes.router.replies.kinds import ReplyKind

LANGUAGES = ("en", "id", "es", "fr", "de", "it", "pt", "nl", "ru", "zh", "ja", "ko", "ar", "hi", "th", "tr")
"""The languages that Hermes speaks. Each is the name of a file."""


@dataclass(frozen=True, slots=True)
class ReplyCatalogue:
    """All sentences of one language.

    A reply has parts, and each part is a complete text. The first one needs no value; a later one is left out if its value is missing. So
    there is always something to say, and always in the user's own language."""

    locale: Locale
    parts: Mapping[str, tuple[str, ...]]
    """By kind."""
    credits: Mapping[str, str]
    """A number of credits, by CLDR's plural category: {"one": "{count} credit", "other": "{count} credits"}."""

    @property
    def is_right_to_left(self) -> bool:
        return self.locale.text_direction == "rtl"


def nearest_language(tag: str | None) -> str:
    """The nearest language that Hermes speaks: `pt-BR` gives `pt`, `zh_Hant_TW` gives `zh`; any other tag and None give `en`."""
    subtags = (tag or "").replace("_", "-").lower().split("-")
    nearest = ("-".join(subtags[:length]) for length in range(len(subtags), 0, -1))
    return next((language for language in nearest if language in LANGUAGES), "en")


@cache
def load_catalogue(language: str) -> ReplyCatalogue:
    """The catalogue of one of LANGUAGES."""
    text = (resources.files(__package__) / "languages" / f"{language}.toml").read_text(encoding="utf-8")
    return parse_catalogue(Locale.parse(language), tomllib.loads(text))


def parse_catalogue(locale: Locale, table: Mapping[str, Any]) -> ReplyCatalogue:
    """Make a catalogue from the table of its file. Raises KeyError if a kind has no sentence."""
    return ReplyCatalogue(locale, {kind: tuple(table[kind]) for kind in ReplyKind}, dict(table["credits"]))
