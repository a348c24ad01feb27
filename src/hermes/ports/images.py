"""Pictures that come with messages: fetched safely, looked at once, and sent where they can be answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from hermes.ports.errors import PortError
from hermes.ports.people import User
from hermes.turn import MessageEvent


class ImageIntent(StrEnum):
    """What somebody wants to know about a picture."""

    DUPE_SEARCH = "dupe_search"
    """Where to buy something like it, for less."""
    CALORIE_SCAN = "calorie_scan"
    """What is on the plate."""
    GENERAL = "general"


class ImageTooLarge(PortError):
    """The picture is larger than it may be."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the picture is larger than {max_bytes} bytes")
        self.max_bytes = max_bytes


class ImageUnreadable(PortError):
    """The picture cannot be fetched, or is none."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as a model is shown it, and what is wanted of it."""

    intent: ImageIntent
    parts: Sequence[Mapping[str, Any]]
    """`image_url` parts of a user message."""
    question: str
    """What the model is asked beside the user's own words; empty for a general picture."""


class Images(Protocol):
    """Looks at pictures."""

    async def look(self, event: MessageEvent, user: User, language: str) -> Picture | None:
        """Return the picture of a message; None for a message without one. Raises ImageTooLarge and ImageUnreadable.

        Nothing private is fetched: no address of a private network, however it is reached, and no more bytes than allowed."""
        ...
