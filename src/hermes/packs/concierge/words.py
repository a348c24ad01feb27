"""The concierge's words in sixteen languages: what people call places, and by which words the gate and captions know what is wanted."""

from __future__ import annotations

from collections.abc import Mapping

from hermes.tools.vocabulary import Lexicon, fold, read_words, words_of

PLACES = read_words(__package__, "places.toml")

CATEGORIES: Mapping[str, Mapping[str, str]] = PLACES["categories"]
TAGS: Mapping[str, Mapping[str, str]] = PLACES["tags"]
AREA_NAMES: Mapping[str, str] = PLACES["areas"]

CATEGORY_WORDS: Mapping[str, Lexicon] = {name: Lexicon([name.replace("_", " "), *words_of(table)]) for name, table in CATEGORIES.items()}
TAG_WORDS: Mapping[str, Lexicon] = {name: Lexicon([name.replace("_", " "), *words_of(table)]) for name, table in TAGS.items()}
AREA_WORDS: Mapping[str, Lexicon] = {name: Lexicon([name, *words_of({"": names})]) for name, names in AREA_NAMES.items()}
FILLER_WORDS = Lexicon(words_of(PLACES["empty"]))
"""Words that do not describe a place."""


WORDS, CAPTIONS = (read_words(__package__, file) for file in ("gate_words.toml", "captions.toml"))
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
CALORIES, DUPES, NEGATED = (Lexicon(words_of(CAPTIONS[name])) for name in ("calories", "dupes", "unless"))
"""Words of captions: about food, about goods, and those beside which a caption does not decide."""
