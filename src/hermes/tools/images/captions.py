"""What somebody wants of a picture, by the words beside it.

The rule is precise rather than complete. Words that decide make the model call a tool, whatever it sees; words that do not decide cost
nothing, because the model is offered both tools and decides by itself. So the words must be few, of one wish only, and beside nothing that
turns them round, or that other tools are for:

    how many calories is this?                     calorie_scan
    where can I buy something like it, cheaper?    dupe_search
    a cheaper dupe, and its calories               undecided: two wishes
    no need for calories, just the name            undecided: turned round
    a cheaper place like this in Canggu            undecided: a place"""

from __future__ import annotations

from hermes.ports.images import ImageIntent
from hermes.tools.gate.words import BOOKING, VENUE
from hermes.tools.vocabulary import GLUED, Lexicon, fold, read_words, words_of

WORDS = read_words(__package__, "captions.toml")
CALORIES, DUPES, EXCLUDING_WORDS = (Lexicon(words_of(WORDS[name])) for name in ("calories", "dupes", "unless"))
MAX_CAPTION_CHARS, MAX_CAPTION_WORDS, MAX_GLUED_CHARS = 400, 25, 60
"""A longer caption tells a story, and one word of it does not say how it ends."""


def intent_of(caption: str) -> ImageIntent | None:
    """What a caption asks for; None where it does not say so beyond doubt."""
    if len(caption) > MAX_CAPTION_CHARS or is_long(folded := fold(caption)):
        return None
    is_about_food, is_about_goods = CALORIES.is_in(folded), DUPES.is_in(folded)
    if is_about_food == is_about_goods or any(words.is_in(folded) for words in (EXCLUDING_WORDS, BOOKING, VENUE)):
        return None
    return ImageIntent.CALORIE_SCAN if is_about_food else ImageIntent.DUPE_SEARCH


def is_long(folded: str) -> bool:
    return len(folded) > MAX_GLUED_CHARS if GLUED.search(folded) else len(folded.split()) > MAX_CAPTION_WORDS
