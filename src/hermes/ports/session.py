"""A session: the part of a conversation between two long silences, recorded in one message graph."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Session:
    """One part of a conversation, recorded in one message graph."""

    id: UUID
    conversation_id: UUID
    user_id: UUID
    """The user whose key seals it."""
    previous: UUID | None
    """The session before it, joined by `continuation`."""
    head: str
    """The context id of its current list."""
    length: int
    """How many messages the current list has."""
    is_shared: bool = False
    """Whether several people read it: then it holds nothing private, and each message in it names its speaker."""
