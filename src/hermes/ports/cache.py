"""The cache of answers."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class AnswerCache(Protocol):
    """Values by user and key, sealed, for a limited time. Fails open: a value that cannot be read counts as missing, a value that cannot be
    written is left out.

    Each value belongs to one user, so that no user is ever answered with another user's words."""

    async def get(self, user_id: UUID, key: str) -> bytes | None:
        """Return the stored value; None if it is gone or cannot be read."""
        ...

    async def put(self, user_id: UUID, key: str, value: bytes) -> None:
        """Store a value for a limited time. Never raises."""
        ...
