"""Tell whether a text is an attack: for stored values, tool results and captions alike.

Pure, and linear in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hermes.soul.sanitize.clauses import find_rule, find_rule_squeezed
from hermes.soul.sanitize.families import AttackFamily
from hermes.soul.sanitize.fold import fold
from hermes.soul.sanitize.lexicon import UNSPACED, spaced_lexicon, unspaced_patterns
from hermes.soul.sanitize.markers import has_marker
from hermes.soul.sanitize.views import views

ANY_LANGUAGE = "*"


@dataclass(frozen=True, slots=True)
class AttackFinding:
    """An attack: its family, its language (`*` for none in particular), and the reading of the text in which it was found."""

    family: AttackFamily
    language: str
    where: str
    """`text` if it is there as written, `hidden` if it had to be decoded or joined first."""


def scan(text: str) -> AttackFinding | None:
    """The first attack found in a text; None if there is none."""
    if has_marker(text):
        return AttackFinding(AttackFamily.ROLE_MARKER, ANY_LANGUAGE, "text")
    written = fold(text)
    for view in views(text):
        where = "text" if view == written else "hidden"
        if where == "hidden" and has_marker(view):
            return AttackFinding(AttackFamily.ROLE_MARKER, ANY_LANGUAGE, where)
        if _JAILBREAK.search(view):
            return AttackFinding(AttackFamily.JAILBREAK, ANY_LANGUAGE, where)
        if (found := find_rule(view)) is not None:
            return AttackFinding(found[0].family, found[1], where)
        if (found := find_rule_squeezed(view)) is not None:
            return AttackFinding(found[0].family, found[1], "hidden")
    return None


def load_word_lists() -> None:
    """Read the word lists now, so that the first message does not wait for them."""
    spaced_lexicon()
    for language in UNSPACED:
        unspaced_patterns(language)


# Inside a word too: else an attacker writes "ignore prevjailbreakious instructions", and cutting the word out completes the attack.
_JAILBREAK = re.compile("jail ?break|jailbr[oa]k|(?<![a-z])do anything now(?![a-z])")
