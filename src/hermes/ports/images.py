"""Pictures that come with messages: how they are fetched safely, and what a model is shown of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from hermes.ports.channels import PlatformClient, PlatformRequest, PlatformResponse
from hermes.ports.errors import PortError
from hermes.turn import MessageEvent


class ImageIntent(StrEnum):
    """What the user wants to know about a picture."""

    DUPE_SEARCH = "dupe_search"
    """Where to buy something like it, for less."""
    CALORIE_SCAN = "calorie_scan"
    """What is on the plate."""
    GENERAL = "general"
    """Neither, or only a model that sees the picture can tell: then it may still choose one of the two."""


class ImageTooLarge(PortError):
    """The picture is too large."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the picture is larger than {max_bytes} bytes")
        self.max_bytes = max_bytes


class ImageUnreadable(PortError):
    """The picture cannot be fetched, or the file is no picture."""


@dataclass(frozen=True, slots=True)
class ImagePrompt:
    """A picture as a model is shown it, and what the user wants to know about it."""

    intent: ImageIntent
    parts: Sequence[Mapping[str, Any]]
    """`image_url` parts of a user message; none for a file that no model here can see: then only the question mentions it."""
    question: str
    """What Hermes tells the model beside the user's own words."""
    tools: Sequence[str] = ()
    """The tools that a model may need for it, by name."""
    must_call: str | None = None
    """The one of them that the model must call: its arguments are what the model sees. None leaves it to the model."""


@dataclass(frozen=True, slots=True)
class FetchedMedia:
    """What was fetched from an address."""

    body: bytes
    media_type: str
    """As the server says; `application/octet-stream` if it does not say. Not to be trusted."""


class MediaFetcher(Protocol):
    """Fetches files from addresses that cannot be trusted."""

    async def fetch(self, url: str) -> FetchedMedia:
        """Return the file. Raises ImageTooLarge, and ImageUnreadable for every other failure.

        Beside web addresses there are references to files at platforms (`telegram:ACCOUNT/FILE_ID`), for fetchers that have their accounts.

        Never connects to an address of a private network, whatever its name or the redirect that leads there. Reads no more bytes than
        allowed, and takes no longer than a step may take."""
        ...


class PlatformFiles(PlatformClient, Protocol):
    """Sends requests to platforms, and fetches files from them."""

    async def fetch(self, request: PlatformRequest, *, timeout_s: float, max_bytes: int) -> PlatformResponse:
        """Return the whole response, whatever its status; its body as it is stored there, without compression.

        Raises ImageTooLarge for a body of more than `max_bytes`, which is not read to its end, and otherwise what `send` raises. Follows no
        redirect: the account's token would go along."""
        ...


class Images(Protocol):
    """Prepares the pictures of messages for a model."""

    async def look(self, event: MessageEvent, *, more: Sequence[str] = (), is_shared: bool = False) -> ImagePrompt | None:
        """Return the picture of a message; None for a message without one. `more` are references to the other pictures of an album. Those
        that cannot be shown are left out, and the model is told so.

        In a room that several people share (`is_shared`) the model answers from the picture itself, and no tool is called for it.

        Raises ImageTooLarge and ImageUnreadable, and nothing else: if the intent cannot be recognised, it is GENERAL.

        Another kind of file (a voice message, a document) with words is an ImagePrompt without parts; without words it is unreadable."""
        ...
