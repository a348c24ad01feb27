"""The words by which the gate decides, out of `words.toml` and of what people call places."""

from __future__ import annotations

from hermes.tools.concierge.place_words import AREA_NAMES, CATEGORIES, TAGS
from hermes.tools.vocabulary import Lexicon, fold, read_words, words_of

WORDS = read_words(__package__, "words.toml")
CUISINES = ("italian", "japanese", "mexican", "indian", "seafood", "indonesian", "vegan")
SCENES = ("sunset", "beach", "rooftop", "live_music")

MEALS = Lexicon([*words_of(WORDS["meals"]), *(word for tag in CUISINES for word in words_of(TAGS[tag]))])
"""Words that go with a place as well as with what is on the plate."""
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
"""Words for places and where they are, less those for meals."""
OTHER = Lexicon([*words_of(WORDS["other"]), *words_of(WORDS["venue"])])
"""Words of tools beyond places, bookings and food, and words such as "recommend" and "where can I", which may be about anything."""
