"""Is this text an attack? The one question that stored values, tool results and captions have in common.

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
    """An attack: of which family, in which language (`*` for none in particular), and in which reading of the text."""

    family: AttackFamily
    language: str
    where: str
    """`text` as it is written, `hidden` where it had to be decoded, unfolded or put together first."""


def scan(text: str) -> AttackFinding | None:
    """The first attack found in a text; None for an innocent one. The text itself is not changed."""
    if has_marker(text):
        return AttackFinding(AttackFamily.ROLE_MARKER, ANY_LANGUAGE, "text")
    written = fold(text)
    for view in views(text):
        where = "text" if view == written else "hidden"
        if where == "hidden" and has_marker(view):
            return AttackFinding(AttackFamily.ROLE_MARKER, ANY_LANGUAGE, where)
        if _JAILBREAK.search(view):
            return AttackFinding(AttackFamily.JAILBREAK, ANY_LANGUAGE, where)
        if (met := find_rule(view)) is not None:
            return AttackFinding(met[0].family, met[1], where)
        if (met := find_rule_squeezed(view)) is not None:
            return AttackFinding(met[0].family, met[1], "hidden")
    return None


def load_word_lists() -> None:
    """Read the word lists now, so that the first message does not wait for them."""
    spaced_lexicon()
    for language in UNSPACED:
        unspaced_patterns(language)


# Inside a word too: cutting it out of "ignore prevjailbreakious instructions" must not be worth trying.
_JAILBREAK = re.compile("jail ?break|jailbr[oa]k|(?<![a-z])do anything now(?![a-z])")
