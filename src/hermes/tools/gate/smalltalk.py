# ruff: noqa: RUF001  # people laugh in other scripts, too
"""Recognise small talk in sixteen languages: messages that need no tool at all.

There are two kinds. A greeting, thanks, a yes or a no is small talk if it stands alone: "thanks, and now the other one" is a wish. A short
question about Hermes itself, about a joke or the meaning of life is small talk, whatever other words it has."""

from __future__ import annotations

import re

from hermes.tools.vocabulary import GLUED, Lexicon, read_words, words_of

WORDS = read_words(__package__, "smalltalk.toml")
MAX_CHARS, MAX_TOPIC_WORDS, MAX_GLUED_CHARS = 300, 16, 40
"""Longest small talk, in characters; longest question about Hermes itself, in words, or in characters if the script has no spaces."""
LETTER_OR_DIGIT = re.compile(r"[^\W_]")
LAUGH = re.compile(
    r"(?<!\w)(?:(?:ha|he|hi|ah|ja|je|xa|ха|хе){2,}h?|l+o+l+|lmao|rofl|(?:wk){2,}|k{3,}|5{3,}|mdr|x+d+)(?!\w)"
    r"|[ㅋㅎ\u110f\u1112]{2,}|哈{2,}|w{3,}|笑+|草+|ههه+"
)

PHRASES, TOPICS = Lexicon(words_of(WORDS["phrases"])), Lexicon(words_of(WORDS["topics"]))
SMALL_WORDS = {
    language: Lexicon([*words_of({"": fillers}), *words_of({"": WORDS["phrases"][language]})])
    for language, fillers in WORDS["fillers"].items()
}
"""Phrases and the small words around them, by language: a filler in one language is a real word in another."""


def is_small_talk(folded: str, language: str) -> bool:
    """Whether a folded message is small talk and nothing else. `language` is tried first; greetings in the other languages count too."""
    if not LETTER_OR_DIGIT.search(folded):
        return True  # an emoji, a full stop
    if len(folded) > MAX_CHARS:
        return False
    return is_covered(folded, language) or (is_short(folded) and TOPICS.is_in(folded))


def is_covered(folded: str, language: str) -> bool:
    """Whether a message consists only of greetings, thanks, yes, no, and the small words around them."""
    plain = LAUGH.sub(" ", folded)
    if not LETTER_OR_DIGIT.search(plain):
        return True
    if not PHRASES.is_in(plain):
        return False
    own = SMALL_WORDS.get(language, SMALL_WORDS["en"])
    return not LETTER_OR_DIGIT.search(own.without(plain)) or not LETTER_OR_DIGIT.search(SMALL_WORDS["en"].without(own.without(plain)))


def is_short(folded: str) -> bool:
    return len(folded) <= MAX_GLUED_CHARS if GLUED.search(folded) else len(folded.split()) <= MAX_TOPIC_WORDS
