# ruff: noqa: RUF001  # people laugh in other scripts, too
"""The gate: chooses which of a few fixed sets of tools goes with a message. In doubt, all of them.

Tools stand first in a prompt, so another set is another prefix, and everything behind it is paid for again. Therefore there are few sets,
in one fixed order, and a set stays as long as the vendor's prompt cache holds it and it has the tools that the message needs: a full
prompt from the cache costs a fifth of a small one that is not cached. Packs bring the sets, and the words of sixteen languages by which
they are chosen. In doubt the gate gives more tools: a tool too many costs a fraction of a cent, a tool too few makes a message fail.

    small talk and nothing else                 none
    words of one set                            that set
    words of several packs; no known word       full

There are two kinds of small talk. A greeting, thanks, a yes or a no is small talk if it stands alone: "thanks, and now the other one" is a
wish. A short question about Hermes itself, about a joke or the meaning of life is small talk, whatever other words it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hermes.tools.vocabulary import GLUED, Lexicon, fold, read_words, words_of

NO_TOOLS, ALL_TOOLS = "none", "full"
"""The names of the two sets that are always there."""
CODE_PATTERN = re.compile(r"\b[2-9A-HJKMNP-TV-Z]{6}\b")
"""The code of an offer, or of a thing that a tool stored for the user."""
FIRST_CHARS, LAST_CHARS = 700, 300
"""How many characters of a long message are searched: a wish stands before or after pasted text, and the gate has hundreds of words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """What a pack adds to the gate: sets of its tools, and the choice between them."""

    sets: Mapping[str, frozenset[str]]
    """The names of the tools in each set. No two packs use one name for a set."""
    choose: Callable[[str], str | None]
    """From a folded message: the smallest set that surely has what it needs, `full` in doubt; None for a message without a word of it."""

    @classmethod
    def for_words(cls, name: str, words: Iterable[str], tools: Iterable[str]) -> GateRules:
        """Return the rules of a pack that has one set: any of the words chooses it."""
        lexicon = Lexicon(words)
        return cls(sets={name: frozenset(tools)}, choose=lambda folded: name if lexicon.is_in(folded) else None)


@dataclass(frozen=True)
class Gate:
    """Chooses the set. Has no state: the caller says which set was sent last."""

    rules: Sequence[GateRules] = ()
    tools: frozenset[str] = frozenset()
    """The names of all our own tools."""
    common: frozenset[str] = frozenset()
    """Tools that go with every set but `none`."""

    @cached_property
    def subsets(self) -> Mapping[str, frozenset[str]]:
        """The names of the tools in each set."""
        sets = {name: members | self.common for rules in self.rules for name, members in rules.sets.items()}
        return {NO_TOOLS: frozenset(), **sets, ALL_TOOLS: self.tools | self.common}

    def choose(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> str:
        """Return the name of the set for a message. See `Tools.gate` for what the arguments mean."""
        return self.decide(text, language=language, warm=warm, has_tool_history=has_tool_history)[0]

    def decide(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> tuple[str, bool]:
        """Return what `choose` and `finds_intent` return, and look for the words once."""
        found = self._sets_in(text)
        needed = self._smallest_of(found, text, language)
        return self._widen(needed, warm, has_tool_history=has_tool_history), bool(found)

    def _widen(self, needed: str, warm: str | None, *, has_tool_history: bool) -> str:
        if needed == NO_TOOLS and has_tool_history:
            # "Yes" after an offer is an order, and "thanks" after a search still has the search in its history.
            needed = warm if warm not in {None, NO_TOOLS} and warm in self.subsets else ALL_TOOLS
        if warm is None or warm not in self.subsets:
            return needed
        # A session that outgrows its set gets all tools at once: the next change of topic then costs nothing.
        return warm if self.subsets[warm] >= self.subsets[needed] else ALL_TOOLS

    def members(self, name: str) -> frozenset[str]:
        """Return the names of the tools in a set; for an unknown set, those of all tools."""
        return self.subsets.get(name, self.subsets[ALL_TOOLS])

    def finds_intent(self, text: str) -> bool:
        """Whether a message has words that need a tool; not whether a tool goes along in doubt."""
        return bool(self._sets_in(text))

    def smallest_set(self, text: str, *, language: str) -> str:
        """Return the smallest set that surely has the tools that a message needs."""
        return self._smallest_of(self._sets_in(text), text, language)

    def _sets_in(self, text: str) -> set[str]:
        """The sets that a message's words choose."""
        text = ends_of(text)
        if CODE_PATTERN.search(text):
            return {ALL_TOOLS}
        folded = fold(text)
        return {name for rules in self.rules if (name := rules.choose(folded)) is not None}

    def _smallest_of(self, found: set[str], text: str, language: str) -> str:
        if found:
            return next(iter(found)) if len(found) == 1 else ALL_TOOLS
        return NO_TOOLS if is_small_talk(fold(ends_of(text)), language) else ALL_TOOLS


def ends_of(text: str) -> str:
    """The part of a message that is searched."""
    return text if len(text) <= FIRST_CHARS + LAST_CHARS else f"{text[:FIRST_CHARS]}\n{text[-LAST_CHARS:]}"


# --- small talk

SMALL_TALK = read_words(__package__, "smalltalk.toml")
MAX_CHARS, MAX_TOPIC_WORDS, MAX_GLUED_CHARS = 300, 16, 40
"""Longest small talk, in characters; longest question about Hermes itself, in words, or in characters if the script has no spaces."""
LETTER_OR_DIGIT = re.compile(r"[^\W_]")
LAUGH = re.compile(
    r"(?<!\w)(?:(?:ha|he|hi|ah|ja|je|xa|ха|хе){2,}h?|l+o+l+|lmao|rofl|(?:wk){2,}|k{3,}|5{3,}|mdr|x+d+)(?!\w)"
    r"|[ㅋㅎ\u110f\u1112]{2,}|哈{2,}|w{3,}|笑+|草+|ههه+"
)

PHRASES, TOPICS = Lexicon(words_of(SMALL_TALK["phrases"])), Lexicon(words_of(SMALL_TALK["topics"]))
SMALL_WORDS = {
    language: Lexicon([*words_of({"": fillers}), *words_of({"": SMALL_TALK["phrases"][language]})])
    for language, fillers in SMALL_TALK["fillers"].items()
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
