"""Channels: how a platform speaks to us, and how we speak to it. Pure codecs; who sends and who stores is somebody else.

    webhook  →  verify  →  parse  →  what was heard        one webhook may hold many things, and most of them are no message
    answer   →  render  →  parts  →  encode  →  sent  →  classify  →  outcome

A channel never raises for what a platform may send: what it does not know it passes over, because a platform that is answered with an
error sends the same again, and everything behind it waits. Nothing that a channel returns holds a token, but for the headers and the URL of
a call that is about to be sent, and those are never logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, Protocol, runtime_checkable

from hermes.ports.errors import PortError
from hermes.turn import Envelope, Platform

# --- in


class WebhookNotAuthentic(PortError):
    """The webhook was not sent by the platform, or not to this account. Says nothing of what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A request as it came in. Header names are in lower case."""

    headers: Mapping[str, str]
    body: bytes
    query: Mapping[str, str] = field(default_factory=dict)
    path_secret: str | None = None
    """What stood in the path behind the account, for platforms that sign nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A file that came with a message, as the platform names it; fetched late, and never by an address that holds a token."""

    reference: str
    """The platform's id of it, or its public address where it has no id."""
    kind: str
    """`image`, `audio`, `video`, `document`, `sticker`, …"""
    mime_type: str | None = None
    name: str | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """A message that starts a turn."""

    envelope: Envelope
    """Its event's `media_url` is the reference of the first media (`telegram:FILE_ID`, `whatsapp:MEDIA_ID`, or a public address)."""
    message_id: str
    """What the platform calls it: for replies, read marks and typing."""
    media: Sequence[Media] = ()
    album: str | None = None
    """The same for all items of an album, which are one turn together."""
    reply_to: str | None = None
    """The message it answers, as the platform names it."""
    name: str | None = None
    """How the sender calls themselves there."""
    alias: str | None = None
    """Another id of the sender, where the platform gives two: who comes with it alone, later on, is the same person."""

    @property
    def stored_envelope(self) -> Envelope:
        """The envelope with all that is to be known of the message later on."""
        return replace(self.envelope, message_id=self.message_id, album=self.album, sender_name=self.name or "")


class ReceiptRank(IntEnum):
    """How far a message of ours came; receipts arrive in any order, and only a higher one counts."""

    SENT = 1
    DELIVERED = 2
    READ = 3
    FAILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReceipt:
    """What became of a message of ours."""

    message_id: str
    rank: ReceiptRank
    at: datetime | None = None
    error: SendOutcome | None = None
    """Of a failed one."""
    detail: str = ""
    channel_id: str | None = None
    """Whom it was sent to, where the platform says so: it tells of a message whose id was lost with a connection."""
    text: str | None = None
    """What it says, where the platform repeats that: it may be what a person of ours wrote in the platform's own app."""
    reference: str | None = None
    """What we called it when we sent it, where the platform repeats that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What somebody thinks of a message of ours."""

    message_id: str
    sender_id: str
    emoji: str
    """Empty: taken back."""
    channel_id: str | None = None
    """Where, at platforms that number the messages of each channel for themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdChanged:
    """A sender or a channel has another id from now on: a new number, a rotated user id, a group that became a supergroup."""

    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachabilityChanged:
    """Somebody left, or can be reached again."""

    sender_id: str
    is_reachable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """Authentic, and nothing to do: an echo, an edit, a kind that nobody knows. Counted by its reason."""

    reason: str
    meant_for: str = ""
    """Of what is another account's: what the platform calls that account."""


InboundEvent = InboundMessage | DeliveryReceipt | Reaction | IdChanged | ReachabilityChanged | Ignored
"""One thing out of a webhook."""


# --- out


class SendOutcome(StrEnum):
    """How a send ended. The table in the how-to says what follows from each."""

    SENT = "sent"
    RATE_LIMITED = "rate_limited"
    SERVICE_UNAVAILABLE = "service_unavailable"
    NETWORK_TIMEOUT = "network_timeout"
    """Proven not sent: no connection was made, or nothing was written to it."""
    AMBIGUOUS = "ambiguous"
    """It may have arrived: the connection was lost after something was written."""
    UNAUTHORIZED = "unauthorized"
    INVALID_RECIPIENT = "invalid_recipient"
    WINDOW_CLOSED = "window_closed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformRequest:
    """An HTTP request to a platform. Its URL and headers may hold a token: it is sent, and neither logged nor stored."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return f"PlatformRequest({self.method} …)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformResponse:
    """What the platform answered to a call."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What an answer means."""

    outcome: SendOutcome
    message_id: str | None = None
    """What the platform calls the message that it took."""
    retry_after_s: float | None = None
    detail: str = ""
    """For people: the platform's code and words, without tokens and without what was sent."""
    moved_to: str | None = None
    """The channel's new id, where the platform says that it has one; then it is sent again there."""
    plain_might_help: bool = False
    """The platform could not read the markup; the same text without any may pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a part goes."""

    channel_id: str
    thread: str | None = None
    reply_to: str | None = None
    reference: str | None = None
    """What we call the message, for platforms that repeat it in their receipts."""


class Channel(Protocol):
    """One account at one platform, as a pure codec."""

    @property
    def platform(self) -> Platform: ...

    @property
    def account(self) -> str: ...

    @property
    def has_receipts(self) -> bool:
        """Whether the platform tells what became of a message: then a send in doubt may yet be confirmed."""
        ...

    def verify(self, webhook: Webhook) -> None:
        """Raises NotAuthentic. Over the raw bytes, in constant time, before anything is read."""
        ...

    def parse(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        """Everything that an authentic webhook holds, in its order. Never raises; JSON that is none is `Passed`."""
        ...

    def render(self, markdown: str) -> Sequence[Mapping[str, Any]]:
        """A model's answer as the bodies of this platform's messages, each within its limit: plain JSON, kept in the outbox.

        Each has `text`, and what the platform needs beside it (`entities`). None is empty; an empty answer has no parts."""
        ...

    def plain(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same message without any markup."""
        ...

    def encode(self, body: Mapping[str, Any], to: Destination) -> PlatformRequest:
        """The call that sends one rendered message."""
        ...

    def typing(self, to: Destination, *, message_id: str | None) -> PlatformRequest | None:
        """The call that shows that an answer is on its way; None where there is no such thing."""
        ...

    def classify(self, response: PlatformResponse) -> SendResult:
        """What an answer to `encode`'s call means. Never raises, whatever the body is."""
        ...


@runtime_checkable
class SupportsTemplates(Protocol):
    """A channel whose platform takes approved templates where it refuses free text."""

    def template(self, name: str, language: str, text: str) -> Mapping[str, Any] | None:
        """The body of a message made of an approved template with the text as its one variable; None for a text that it cannot hold."""
        ...


@runtime_checkable
class SharesWebhook(Protocol):
    """A channel whose platform posts the webhooks of all accounts of an app to one URL, and signs them with the app's secret."""

    @property
    def webhook_id(self) -> str | None:
        """What webhooks call this account; None for one that has a URL to itself."""
        ...

    def parse_shared(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        """What names this account in a webhook that was posted to another account's URL, in its order. As `parse` otherwise."""
        ...


class Channels(Protocol):
    """The accounts that are set up."""

    def get(self, platform: Platform, account: str) -> Channel | None:
        """Return the channel of an account; None for one that is not set up here."""
        ...


class NotSent(PortError):
    """Proven not sent: no connection was made, or nothing was written to it. Says why, without addresses and headers."""


class MaybeSent(PortError):
    """The connection was lost, or took too long, after something was written: nobody knows. Says why, without addresses and headers."""


class PlatformClient(Protocol):
    """Brings calls to platforms: each once, as it is. No retries, no redirects, nothing remembered from one to the next."""

    async def send(self, request: PlatformRequest, *, timeout_s: float) -> PlatformResponse:
        """Return the whole answer, whatever its status. Raises NotSent and MaybeSent, and nothing else.

        `timeout_s` bounds everything, from the wait for a connection to the last byte of the answer."""
        ...
