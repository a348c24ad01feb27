"""Pictures that come with messages: fetched safely, looked at once, and sent where they can be answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from hermes.ports.channels import PlatformClient, PlatformRequest, PlatformResponse
from hermes.ports.errors import PortError
from hermes.turn import MessageEvent


class ImageIntent(StrEnum):
    """What somebody wants to know about a picture."""

    DUPE_SEARCH = "dupe_search"
    """Where to buy something like it, for less."""
    CALORIE_SCAN = "calorie_scan"
    """What is on the plate."""
    GENERAL = "general"
    """Neither, or nobody can say who has not seen it: then the model may still choose one of the two."""


class ImageTooLarge(PortError):
    """The picture is larger than it may be."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the picture is larger than {max_bytes} bytes")
        self.max_bytes = max_bytes


class ImageUnreadable(PortError):
    """The picture cannot be fetched, or is none."""


@dataclass(frozen=True, slots=True)
class ImagePrompt:
    """A picture as a model is shown it, and what is wanted of it."""

    intent: ImageIntent
    parts: Sequence[Mapping[str, Any]]
    """`image_url` parts of a user message; none where there is something that no model here can see, and only the question says so."""
    question: str
    """What the model is told beside the user's own words."""
    tools: Sequence[str] = ()
    """The tools that a model may need for it, by name."""
    must_call: str | None = None
    """The one of them that the model must call: its arguments are what the model sees. None leaves it to the model."""


@dataclass(frozen=True, slots=True)
class FetchedMedia:
    """What an address holds."""

    body: bytes
    media_type: str
    """As whoever sent it says; `application/octet-stream` where nobody does. Not to be believed."""


class MediaFetcher(Protocol):
    """Gets what an address holds, for whoever cannot trust the address."""

    async def fetch(self, url: str) -> FetchedMedia:
        """Return what is there. Raises ImageTooLarge, and ImageUnreadable for whatever else keeps it from coming.

        Beside addresses of the web there are references to files at platforms (`telegram:ACCOUNT/FILE_ID`), for who has their accounts.

        No address of a private network is asked, however it is named and whoever sends us there; no more bytes are read than allowed, and
        it takes no longer than a step may take."""
        ...


class PlatformFiles(PlatformClient, Protocol):
    """Brings calls to platforms, and files from them."""

    async def fetch(self, request: PlatformRequest, *, timeout_s: float, max_bytes: int) -> PlatformResponse:
        """Return the whole answer, whatever its status; its body as it is kept there, packed by nobody.

        Raises ImageTooLarge for one of more than `max_bytes`, which is not read to its end, and else what `send` raises. No redirect is
        followed: the key would go along."""
        ...


class Images(Protocol):
    """Looks at pictures."""

    async def look(self, event: MessageEvent, *, more: Sequence[str] = (), is_shared: bool = False) -> ImagePrompt | None:
        """Return the picture of a message; None for a message without one. `more` are references to what else came with it: further
        pictures of an album. What of them cannot be shown is left out, and the model is told so.

        In a room that several people share (`is_shared`) it is answered from the picture itself, and no tool is wanted for it.

        Raises ImageTooLarge and ImageUnreadable, and nothing else: where nobody can say what it is for, it is GENERAL.

        Something else than a picture (a voice message, a file) beside words is a Picture without parts; alone it is unreadable."""
        ...
