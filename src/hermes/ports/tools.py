"""Pictures that users send, and tools that a model may call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.channels import PlatformClient, PlatformRequest, PlatformResponse
from hermes.ports.errors import PortError
from hermes.ports.runtime import Transaction
from hermes.turn import MessageEvent

# --- pictures that come with messages: how they are fetched safely, and what a model is shown of them


GENERAL_INTENT = "general"
"""The user wants nothing of a picture that a tool is for, or only a model that sees it can tell: then the model may still choose a tool."""


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

    intent: str
    """GENERAL_INTENT, or the name of the tool that the caption asks for."""
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

        Raises ImageTooLarge and ImageUnreadable, and nothing else: if the intent cannot be recognised, it is GENERAL_INTENT.

        Another kind of file (a voice message, a document) with words is an ImagePrompt without parts; without words it is unreadable."""
        ...


# --- tools: what a model can do for the user, how a tool call ends, and how Hermes keeps an effect from happening twice
#
# A model's tool call is a request. Hermes checks it, limits its arguments, and runs it at most once per turn and place in the turn. A call
# that costs money or orders something is first only offered, under a code that the user's next message can confirm.


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model wrote it."""

    id: str
    name: str
    arguments: str
    """A JSON object, if the model wrote it correctly."""


@dataclass(frozen=True, slots=True)
class ToolUser:
    """The user of a tool call, and the time."""

    user_id: UUID
    account: str
    language: str
    timezone: str
    """An IANA name; an unknown one counts as UTC."""
    turn_id: UUID
    now: datetime
    """With its zone."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a tool call ended, in words for the model."""

    call_id: str
    name: str
    text: str
    is_error: bool
    ms: int


@dataclass(frozen=True, slots=True)
class GatedTools:
    """The tools that go with a message: one of a few fixed subsets, always in the same order."""

    name: str
    """`none`, `full`, or the name of a set that a pack brings."""
    schemas: Sequence[Mapping[str, Any]]
    """As the gateway takes them: `{"type": "function", "function": {…}}`."""


class Tools(Protocol):
    """The tools that a model may call. No method raises."""

    def gate(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> GatedTools:
        """Choose the tools for a message; all of them if in doubt, because without a needed tool the message fails.

        `warm` is the subset that was last sent in this session, if the vendor's prompt cache may still hold it: sent within the cache's
        life, in a prompt above the model's floor. It is kept as long as it has what the message needs; None chooses afresh.
        `has_tool_history` says that the messages to send have tool calls, or that our last message asked a question: vendors demand the
        tools whose calls they are shown, and a "yes" then answers a question. Then some tools are included, whatever the message says."""
        ...

    def for_room(self) -> Tools:
        """Return only the tools that neither read nor do anything for one person, for a room that several people share.

        A call of any other tool is refused, and the result says that nothing was done."""
        ...

    async def run(self, call: ToolCall, index: int, user: ToolUser) -> ToolResult:
        """Run a call, within 5 seconds. `index` is its place among the calls of the turn.

        A call that changes something does so once per turn and index; a repeated call returns the result of the first one."""
        ...


@dataclass(frozen=True, slots=True)
class PreferenceChange:
    """The value of a key before and after a save; None for no value."""

    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class ErasedFacts:
    """The facts that were erased, a line each; and whether messages that models were shown mention them."""

    lines: Sequence[str]
    was_said: bool


class Notebook(Protocol):
    """What tools may note about a user and look up again. The notebook decides what is stored, and how it is found.

    `save`, `forget` and `search` open transactions of their own. The caller must hold none: connections that wait for other connections
    exhaust the pool."""

    async def save(self, user: ToolUser, key: str, value: str, *, no_longer: bool = False) -> PreferenceChange:
        """Store a preference in place of an older one with the same key; `no_longer`: this value does not hold any more.

        Repeating it changes nothing. Raises ValueError with what is wrong."""
        ...

    async def forget(self, user: ToolUser, what: str) -> ErasedFacts:
        """Erase what is known about something, by its key or by words; without any, everything. The session in which the user told it ends
        too: the user's next message begins a new session. Repeating it changes nothing."""
        ...

    async def search(self, user: ToolUser, query: str) -> Sequence[str]:
        """Return the facts that are nearest to the query, a line each, the nearest first."""
        ...

    async def observe(self, tx: Transaction, user: ToolUser, facts: Mapping[str, str]) -> None:
        """Store facts that follow from what Hermes did for the user, in the same transaction. A key that the user stated stays as it is."""
        ...


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """What is known of a tool call's effect."""

    is_new: bool
    """It was never begun before; it is noted as begun now."""
    text: str | None
    """Its result. None and not new: an earlier run began it and did not note how it ended, so it may have happened."""


class EffectRecords(Protocol):
    """The effects of tools, by turn and index, sealed. Fails closed: an effect that cannot be noted is not begun."""

    async def begin(self, tx: Transaction, user: ToolUser, index: int, name: str) -> EffectRecord:
        """Note that an effect begins, or return what is known of it. Waits for an open transaction that has begun the same effect."""
        ...

    async def finish(self, tx: Transaction, user: ToolUser, index: int, text: str) -> None:
        """Note the result of an effect."""
        ...


@dataclass(frozen=True, slots=True)
class PendingOffer:
    """A purchase or an order as it was offered to the user: exactly this is carried out later."""

    tool: str
    terms: Mapping[str, Any]


class Offers(Protocol):
    """Offers that wait for the user's confirmation, sealed."""

    async def put(self, tx: Transaction, user: ToolUser, pending: PendingOffer, *, valid_s: float) -> str:
        """Store an offer; return its code, which is short enough to be said."""
        ...

    async def take(self, tx: Transaction, user: ToolUser, tool: str, code: str) -> PendingOffer:
        """Return the offer, once. Raises NotFound for a code that is unknown, used, too old, another user's or another tool's, and for a
        code of the same turn: between the offer and the order the user must have written a message."""
        ...
