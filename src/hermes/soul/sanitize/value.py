"""Clean a value that a user wrote, before it is stored and later enters a prompt.

A value that is an attack is dropped whole: an attacker may have planned for what is left after the attack is cut out."""

from __future__ import annotations

import re
from typing import Literal

from hermes.graphemes import grapheme_ends
from hermes.soul.sanitize.scan import scan

MAX_VALUE_CHARS, MAX_KEY_CHARS = 200, 50
"""Characters as a reader counts them."""
MAX_CLUSTER_CODE_POINTS = 32
"""The most code points of one character. A longer pile of marks counts as several, so that a limit in characters bounds bytes too."""
MAX_CODE_POINTS = MAX_VALUE_CHARS * MAX_CLUSTER_CODE_POINTS
"""The most code points that can be stored. Later ones are not scanned: they are cut off, and reach no prompt."""


def sanitize_memory_value(value: str, *, kind: Literal["value", "key"] = "value") -> str | None:
    """The value as it may be stored; None if it is an attack and must be dropped.

    Keeps the writer's characters: removes only control characters, tags, bidirectional embeddings and overrides, and halves of
    surrogate pairs; white space becomes single spaces. At most 200 characters, 50 for a key, never a part of a character.
    Idempotent, and the result is never an attack: it is scanned before it is cut, and again if cutting changed it."""
    value = value[:MAX_CODE_POINTS]
    if scan(value) is not None:
        return None
    limit = MAX_VALUE_CHARS if kind == "value" else MAX_KEY_CHARS
    stored = truncate(clean(value), limit).rstrip()
    return stored if stored == value or scan(stored) is None else None


def truncate(text: str, limit: int) -> str:
    """The first `limit` characters as a reader counts them; never a part of a character."""
    if len(text) <= limit:
        return text  # a character is at least one code point
    start = 0
    for end in grapheme_ends(text):
        counted = -(-(end - start) // MAX_CLUSTER_CODE_POINTS)
        if counted > limit:
            return text[: start + limit * MAX_CLUSTER_CODE_POINTS]
        limit, start = limit - counted, end
    return text


def clean(text: str) -> str:
    """The text on one line, without characters that control a screen or that a reader cannot see."""
    return " ".join(_UNWANTED.sub(lambda found: found[1] or "", text).split())


# The flag of a region is a black flag followed by tags: those tags belong to the emoji, all others are hidden text.
_UNWANTED = re.compile(
    "(\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f)"
    "|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\ud800-\udfff\U000e0000-\U000e007f]"
)
