"""Answers that may be given again."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class AnswerCache(Protocol):
    """Values by user and key, sealed, for a while. Fails open: what cannot be read is not there, what cannot be written is left out.

    Scoped to the user, so that nobody is ever answered with somebody else's words."""

    async def get(self, user_id: UUID, key: str) -> bytes | None:
        """Return what was put there; None if it is not there any more, or cannot be read."""
        ...

    async def put(self, user_id: UUID, key: str, value: bytes) -> None:
        """Keep a value for a while. Never raises."""
        ...
