"""A text that is not shown by accident: in a log line, a traceback, an error message, a dump."""

from __future__ import annotations

import hmac
from typing import NoReturn

HIDDEN = "***"
"""What stands in the place of a secret wherever one is shown."""


class Secret:
    """A text that only `reveal()` gives away.

    Not a dataclass: dataclasses.asdict would open it. Pickling and copying raise TypeError, and JSON does not know it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself. Call it where the text is used, and keep the Secret everywhere else."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        """Takes the same time wherever two texts of one length differ, so that an answer's delay does not tell how much was right."""
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
