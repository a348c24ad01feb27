"""Read from a caption what the user wants of an image.

The rule is precise rather than complete. A caption that decides makes the model call a tool, whatever the image shows. A caption that
does not decide costs nothing: the model is offered both tools and decides itself. So a caption decides only if it is short, has one wish,
and has no word that negates it or that belongs to another tool:

    how many calories is this?                     calorie_scan
    where can I buy something like it, cheaper?    dupe_search
    a cheaper dupe, and its calories               undecided: two wishes
    no need for calories, just the name            undecided: negated
    a cheaper place like this in Canggu            undecided: a place"""

from __future__ import annotations

from hermes.ports.tools import ImageIntent
from hermes.tools.gate.words import BOOKING, VENUE
from hermes.tools.vocabulary import GLUED, Lexicon, fold, read_words, words_of

WORDS = read_words(__package__, "captions.toml")
CALORIES, DUPES, EXCLUDING_WORDS = (Lexicon(words_of(WORDS[name])) for name in ("calories", "dupes", "unless"))
MAX_CAPTION_CHARS, MAX_CAPTION_WORDS, MAX_GLUED_CHARS = 400, 25, 60
"""A longer caption tells a story, and a single word of it does not show the wish."""


def intent_of(caption: str) -> ImageIntent | None:
    """Return what a caption asks for; None if that is not certain."""
    if len(caption) > MAX_CAPTION_CHARS or is_long(folded := fold(caption)):
        return None
    is_about_food, is_about_goods = CALORIES.is_in(folded), DUPES.is_in(folded)
    if is_about_food == is_about_goods or any(words.is_in(folded) for words in (EXCLUDING_WORDS, BOOKING, VENUE)):
        return None
    return ImageIntent.CALORIE_SCAN if is_about_food else ImageIntent.DUPE_SEARCH


def is_long(folded: str) -> bool:
    return len(folded) > MAX_GLUED_CHARS if GLUED.search(folded) else len(folded.split()) > MAX_CAPTION_WORDS
