"""Pictures that users send, and tools that a model may call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, Self
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
# that costs money, orders or cancels something only makes an offer. The user concerned approves it with a button or a code, outside any
# model.


UNKNOWN_TOOL = "an unknown tool"
"""In the place of a name that a model made up: it is the model's own words, and names are read by operators who opened nothing."""


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
    has_private_chat: bool = True
    """Whether Hermes can show this user an offer that no other person reads."""


@dataclass(frozen=True, slots=True)
class OfferNotice:
    """An offer that a tool call made, for the code that shows it to its user. No model is shown the code."""

    code: str
    tool: str
    text: str
    """What will be done, exactly."""
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a tool call ended, in words for the model."""

    call_id: str
    name: str
    """Of the tool; UNKNOWN_TOOL if there is none of the name that the model called."""
    text: str
    is_error: bool
    ms: int
    offer: OfferNotice | None = None
    """What the call offered instead of doing it."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        offer = fields.get("offer")
        notice = None if offer is None else OfferNotice(**{**offer, "expires_at": datetime.fromisoformat(offer["expires_at"])})
        return cls(**{**fields, "offer": notice})

    @classmethod
    def from_bytes(cls, body: bytes) -> Self:
        return cls.from_json(json.loads(body))

    def to_json(self) -> dict[str, Any]:
        offer = self.offer and {**asdict(self.offer), "expires_at": self.offer.expires_at.isoformat()}
        fields = {"call_id": self.call_id, "name": self.name, "text": self.text, "is_error": self.is_error, "ms": self.ms}
        return fields if offer is None else {**fields, "offer": offer}

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_json()).encode()


@dataclass(frozen=True, slots=True)
class GatedTools:
    """The tools that go with a message: one of a few fixed subsets, always in the same order."""

    name: str
    """`none`, `full`, or the name of a set that a pack brings."""
    schemas: Sequence[Mapping[str, Any]]
    """As the gateway takes them: `{"type": "function", "function": {…}}`."""
    is_needed: bool = False
    """The message has words of an intent that needs a tool. False for small talk, and where the tools go along in doubt."""


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
        """Return the tools for a room that several people share: those that neither read nor do anything for one person, and those that
        only make an offer, which its user is shown in private.

        A call of any other tool is refused, and the result says that nothing was done."""
        ...

    async def run(self, call: ToolCall, index: int, user: ToolUser) -> ToolResult:
        """Run a call, within 5 seconds. `index` is its place among the calls of the turn.

        A call that changes something does so once per turn and index; a repeated call returns the result of the first one."""
        ...

    async def carry_out(self, code: str, call: ToolCall, user: ToolUser) -> ToolResult:
        """Carry out an offer that its user has approved, on exactly the stored terms, once, whichever turn or attempt asks for it.
        `call` names its tool."""
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
class ShareableFact:
    """A fact that its user could share with a group, as the others would read it."""

    id: UUID
    line: str


class FactSharing(Protocol):
    """Which single facts users share with which groups. The group is that of the turn in which the user asked for it."""

    async def find(self, tx: Transaction, user: ToolUser, what: str) -> Sequence[ShareableFact]:
        """Return the few facts that a key or some words name; none for words that name many."""
        ...

    async def share(self, tx: Transaction, user: ToolUser, asked_in: UUID, fact_ids: Sequence[UUID]) -> Sequence[str]:
        """Share facts of the user; return those that still hold, as the others read them. Repeating it changes nothing."""
        ...

    async def take_back(self, tx: Transaction, user: ToolUser, asked_in: UUID, fact_ids: Sequence[UUID]) -> None:
        """Share them no more."""
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


# --- offers: what a tool would do for a user, until the user approves or refuses it. No model reads the approval, and none gives it.


class OfferState(StrEnum):
    """How far an offer is. Only an open offer can be approved, and it is approved once."""

    OFFERED = "offered"
    APPROVED = "approved"
    """Its user approved it; it was carried out, or was begun."""
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class NewOffer:
    """What a tool would do, in words for its user, and the terms on which it would do it."""

    tool: str
    text: str
    terms: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OfferDecision:
    """What a user decided about an offer: with a button, or with its code. Read by code, never by a model."""

    code: str
    is_approved: bool
    is_certain: bool = True
    """False: the message may only look like a code. If its user has no such offer, it is an ordinary message."""


@dataclass(frozen=True, slots=True)
class OfferView:
    """An offer as the turn of its user sees it."""

    tool: str
    text: str
    state: OfferState
    """OFFERED also if this very turn approved it: the turn was cut off, and goes on."""


@dataclass(frozen=True, slots=True)
class TakenOffer:
    """An offer that its user approved: exactly this is carried out, once."""

    tool: str
    terms: Mapping[str, Any]
    key: str
    """The idempotency key for outside services: the same for this offer, whichever turn carries it out."""
    is_new: bool
    """It was not begun before."""
    result: str | None
    """What it brought. None and not new: it was begun and cut off, so it may have happened."""


class OfferNotOpen(PortError):
    """The offer cannot be approved or refused any more."""

    def __init__(self, state: OfferState | None) -> None:
        super().__init__("there is no such offer" if state is None else f"the offer is {state}")
        self.state = state
        """None: this user has no such offer."""


class Offers(Protocol):
    """Offers, sealed. Each is for one user. The turn that made an offer has its events in the journal: offer_made, and then
    offer_approved, offer_refused or offer_expired. Fails closed."""

    async def put(self, tx: Transaction, user: ToolUser, index: int, offer: NewOffer, *, valid_s: float) -> OfferNotice:
        """Store an offer that the call at this place of the turn made. Its code is short enough to be typed."""
        ...

    async def look(self, tx: Transaction, user: ToolUser, code: str) -> OfferView | None:
        """Return an offer of this user as it stands; None if they have none with this code."""
        ...

    async def take(self, tx: Transaction, user: ToolUser, code: str) -> TakenOffer:
        """Note that the user approved the offer in this turn, and return it; a repeated call of the same turn returns it again, not new.

        Waits for an open transaction that takes the same offer. Raises OfferNotOpen; also in the turn that made the offer."""
        ...

    async def finish(self, tx: Transaction, user: ToolUser, code: str, result: str) -> None:
        """Note what the approved offer brought."""
        ...

    async def refuse(self, tx: Transaction, user: ToolUser, code: str) -> None:
        """Note that the user refused the offer; repeating it in the same turn changes nothing. Raises OfferNotOpen."""
        ...

    async def expire(self, tx: Transaction, now: datetime, *, limit: int = 500) -> int:
        """Note which open offers are too old now; return how many."""
        ...


# --- pins: what the tools of other programs looked like when they were first used


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a server describes it: name, description, schema and hints."""

    name: str
    definition: Mapping[str, Any]

    @property
    def digest(self) -> str:
        canonical = json.dumps(self.definition, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class ToolPin:
    """A tool of a server as it is pinned, and a change that waits for the operator."""

    server: str
    tool: str
    digest: str
    definition: Mapping[str, Any]
    pinned_at: datetime
    pinned_by: str
    """The operator who accepted it; empty: it was pinned at its first use."""
    waiting: str | None = None
    """The digest of the change; None: nothing waits."""
    waiting_definition: Mapping[str, Any] | None = None
    changed_at: datetime | None = None


class ToolPins(Protocol):
    """The tools of servers as they were first used. Fails closed: a tool that cannot be compared is not offered."""

    async def check(self, tx: Transaction, server: str, tool: ToolDefinition) -> bool:
        """Whether a tool is as it is pinned; a tool that is new here is pinned. A changed one is kept beside the pin, and waits."""
        ...

    async def list(self, tx: Transaction) -> Sequence[ToolPin]:
        """Return all pins, by server and tool."""
        ...

    async def accept(self, tx: Transaction, server: str, tool: str, *, digest: str, by: str) -> bool:
        """Pin the change that waits, if it is the one with this digest; False, and no change, if it is not."""
        ...
