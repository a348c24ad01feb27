"""Words for places in sixteen languages: categories, tags that describe a place, and the names of areas in other scripts."""

from __future__ import annotations

from collections.abc import Mapping

from hermes.tools.vocabulary import Lexicon, read_words, words_of

PLACES = read_words(__package__, "places.toml")

CATEGORIES: Mapping[str, Mapping[str, str]] = PLACES["categories"]
TAGS: Mapping[str, Mapping[str, str]] = PLACES["tags"]
AREA_NAMES: Mapping[str, str] = PLACES["areas"]

CATEGORY_WORDS: Mapping[str, Lexicon] = {name: Lexicon([name.replace("_", " "), *words_of(table)]) for name, table in CATEGORIES.items()}
TAG_WORDS: Mapping[str, Lexicon] = {name: Lexicon([name.replace("_", " "), *words_of(table)]) for name, table in TAGS.items()}
AREA_WORDS: Mapping[str, Lexicon] = {name: Lexicon([name, *words_of({"": names})]) for name, names in AREA_NAMES.items()}
FILLER_WORDS = Lexicon(words_of(PLACES["empty"]))
"""Words that do not describe a place."""
