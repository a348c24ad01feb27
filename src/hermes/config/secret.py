"""A text that no log line, traceback, error message or dump shows by accident."""

from __future__ import annotations

import hmac
from typing import NoReturn

HIDDEN = "***"
"""Shown instead of a secret."""


class Secret:
    """A text that only `reveal()` returns.

    Not a dataclass: dataclasses.asdict would open it. Pickling and copying raise TypeError, and JSON does not know it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself. Call it where the text is used, and pass the Secret everywhere else."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        """Takes the same time wherever two texts of one length differ, so that the time does not tell an attacker how much was right."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(as_bytes(self), as_bytes(other))

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is neither pickled nor copied; pass the Secret itself, or reveal() it where it is used")


def as_bytes(secret: Secret) -> bytes:
    # A variable may hold bytes that are no text; Python keeps those as lone surrogates.
    return secret.reveal().encode("utf-8", "surrogatepass")
