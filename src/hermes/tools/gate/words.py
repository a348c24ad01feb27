"""The words by which the gate decides: from `words.toml`, and the words for places."""

from __future__ import annotations

from hermes.tools.concierge.place_words import AREA_NAMES, CATEGORIES, TAGS
from hermes.tools.vocabulary import Lexicon, fold, read_words, words_of

WORDS = read_words(__package__, "words.toml")
CUISINES = ("italian", "japanese", "mexican", "indian", "seafood", "indonesian", "vegan")
SCENES = ("sunset", "beach", "rooftop", "live_music")

MEALS = Lexicon([*words_of(WORDS["meals"]), *(word for tag in CUISINES for word in words_of(TAGS[tag]))])
"""Words that may mean a place or a dish."""
FOOD = Lexicon(words_of(WORDS["food"]))
BOOKING = Lexicon(words_of(WORDS["booking"]))
VENUE = Lexicon(
    [
        *(word for table in CATEGORIES.values() for word in words_of(table) if not MEALS.is_in(fold(word.removesuffix("*")))),
        *(word for tag in SCENES for word in words_of(TAGS[tag])),
        *AREA_NAMES,
        *words_of(AREA_NAMES),
    ]
)
"""Words for places and areas, without the words for meals."""
OTHER = Lexicon([*words_of(WORDS["other"]), *words_of(WORDS["venue"])])
"""Words for tools other than places, bookings and food, and words such as "recommend" and "where can I", which may mean any tool."""
