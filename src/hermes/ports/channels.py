"""Messaging platforms: channels that read and write their messages, the accounts they speak for, and the client that sends.

Channels translate between a platform's messages and ours. They are pure codecs: they neither send nor store.

    webhook  →  verify  →  parse  →  inbound events        one webhook may hold many, and most of them are no message
    answer   →  render  →  parts  →  encode  →  sent  →  classify  →  outcome

A channel never raises for what a platform may send. It ignores what it does not know, because a platform that gets an error sends the same
webhook again, and everything behind it waits. Nothing that a channel returns holds a token, except the headers and the URL of a request
that is about to be sent, and those are never logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, Protocol, runtime_checkable
from uuid import UUID, uuid4

from hermes.ports.errors import PortError
from hermes.turn import Envelope, Platform

# --- accounts at platforms: a bot, a number, a page; with their credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAccount:
    """An account at a platform, under a name that the operator chose: `telegram`, `my-bot`."""

    platform: Platform
    account: str
    """The account of its conversations, and its name in the webhook's address."""
    about: Mapping[str, str] = field(repr=False)
    """What its channel needs: tokens, secrets, ids. Stored sealed, and never shown."""
    is_polled: bool = False
    """Hermes polls the platform for updates, because the platform cannot reach Hermes."""
    id: UUID = field(default_factory=uuid4)


# --- in


class WebhookNotAuthentic(PortError):
    """The webhook was not sent by the platform, or not to this account. Does not say what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook request as it came in. Header names are in lower case."""

    headers: Mapping[str, str]
    body: bytes
    query: Mapping[str, str] = field(default_factory=dict)
    path_secret: str | None = None
    """The part of the path after the account, for platforms that sign nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A file that came with a message. It is fetched later, and never by an address that holds a token."""

    reference: str
    """The platform's id of the file, or its public address if it has no id."""
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
    """The platform's id of the message, for replies, read marks and typing."""
    media: Sequence[Media] = ()
    album: str | None = None
    """The same for all items of an album, which are one turn together."""
    reply_to: str | None = None
    """The platform's id of the message that this one answers."""
    name: str | None = None
    """The sender's display name at the platform."""
    alias: str | None = None
    """A second id of the sender, if the platform gives two. A later message with this id alone is from the same person."""

    @property
    def stored_envelope(self) -> Envelope:
        """The envelope to store, with all that later steps need of the message."""
        return replace(self.envelope, message_id=self.message_id, album=self.album, sender_name=self.name or "")


class ReceiptRank(IntEnum):
    """How far a message of ours came. Receipts arrive in any order, and only a higher rank counts."""

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
    """Why it failed; None unless the rank is FAILED."""
    detail: str = ""
    channel_id: str | None = None
    """The channel it was sent to, if the platform says so. It identifies a message whose id was lost with a connection."""
    text: str | None = None
    """Its text, if the platform repeats it. A person of the business may have written it in the platform's own app."""
    reference: str | None = None
    """The reference that Hermes sent with it, if the platform repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """A user's reaction to a message of ours."""

    message_id: str
    sender_id: str
    emoji: str
    """Empty: the user took the reaction back."""
    channel_id: str | None = None
    """The channel, at platforms that number the messages of each channel separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdChanged:
    """A sender or a channel has a new id from now on: a new number, a rotated user id, a group that became a supergroup."""

    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachabilityChanged:
    """A user left, or can be reached again."""

    sender_id: str
    is_reachable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """Authentic, but there is nothing to do: an echo, an edit, an unknown kind. Counted by its reason."""

    reason: str
    meant_for: str = ""
    """If it is meant for another account: the platform's id of that account."""


InboundEvent = InboundMessage | DeliveryReceipt | Reaction | IdChanged | ReachabilityChanged | Ignored
"""One event of a webhook."""


# --- out


class SendOutcome(StrEnum):
    """How a send ended. `hermes.delivery.retry_policy` has the table of what follows from each."""

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
    """An HTTP request to a platform. Its URL and headers may hold a token, so it is neither logged nor stored."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return f"PlatformRequest({self.method} …)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformResponse:
    """The platform's response to a request."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What the platform's response to a send means."""

    outcome: SendOutcome
    message_id: str | None = None
    """The platform's id of the message that it accepted."""
    retry_after_s: float | None = None
    detail: str = ""
    """For the operator: the platform's code and words, without tokens and without the text that was sent."""
    moved_to: str | None = None
    """The channel's new id, if the platform reports one; then the message is sent again there."""
    plain_might_help: bool = False
    """The platform could not read the markup; the same text without markup may pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a message is sent."""

    channel_id: str
    thread: str | None = None
    reply_to: str | None = None
    reference: str | None = None
    """Our reference of the message, for platforms that repeat it in their receipts."""


# --- channels


class Channel(Protocol):
    """One account at one platform, as a pure codec."""

    @property
    def platform(self) -> Platform: ...

    @property
    def account(self) -> str: ...

    @property
    def has_receipts(self) -> bool:
        """Whether the platform sends receipts: then a send in doubt may yet be confirmed."""
        ...

    def verify(self, webhook: Webhook) -> None:
        """Raise WebhookNotAuthentic unless the platform signed the webhook for this account. Checks the raw bytes in constant time, before
        anything is parsed."""
        ...

    def parse(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        """Return the events of an authentic webhook, in its order. Never raises; a body that is not JSON gives `Ignored`."""
        ...

    def render(self, markdown: str) -> Sequence[Mapping[str, Any]]:
        """Return a model's answer as the bodies of this platform's messages, each within its limit: plain JSON, stored in the outbox.

        Each body has `text`, and what the platform needs beside it (`entities`). No body is empty; an empty answer has no parts."""
        ...

    def plain(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the same message without markup."""
        ...

    def encode(self, body: Mapping[str, Any], to: Destination) -> PlatformRequest:
        """Return the request that sends one rendered message."""
        ...

    def typing(self, to: Destination, *, message_id: str | None) -> PlatformRequest | None:
        """Return the request that shows the typing indicator; None if the platform has none."""
        ...

    def classify(self, response: PlatformResponse) -> SendResult:
        """Return what the response to the request of `encode` means. Never raises, whatever the body is."""
        ...


@runtime_checkable
class SupportsTemplates(Protocol):
    """A channel whose platform takes approved templates where it refuses free text."""

    def template(self, name: str, language: str, text: str) -> Mapping[str, Any] | None:
        """Return the body of a message from an approved template, with the text as its one variable; None if it cannot hold the text."""
        ...


@dataclass(frozen=True, slots=True)
class Button:
    """A button below a message."""

    id: str
    """What the platform sends back when it is pressed: `offer:approve:7KQ2MP`. At most 64 bytes. It comes back as `Envelope.choice`."""
    label: str
    """At most 20 characters."""


@runtime_checkable
class SupportsButtons(Protocol):
    """A channel whose platform has buttons. Without it, users type the code that the text names."""

    def with_buttons(self, text: str, buttons: Sequence[Button]) -> Sequence[Mapping[str, Any]]:
        """Return the bodies of messages with this plain text, without any markup, and the buttons below the last of them."""
        ...


@runtime_checkable
class SharesWebhook(Protocol):
    """A channel whose platform posts the webhooks of all accounts of an app to one URL, and signs them with the app's secret."""

    @property
    def webhook_id(self) -> str | None:
        """The id of this account in webhooks; None for an account that has a URL of its own."""
        ...

    def parse_shared(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        """Return the events of this account in a webhook that was posted to another account's URL, in its order. Otherwise as `parse`."""
        ...


class Channels(Protocol):
    """The channel accounts that are set up."""

    def get(self, platform: Platform, account: str) -> Channel | None:
        """Return the channel of an account; None if the account is not set up here."""
        ...


# --- the client that sends requests to platforms


class NotSent(PortError):
    """Proven not sent: no connection was made, or nothing was written to it. Says why, without addresses and headers."""


class MaybeSent(PortError):
    """The connection was lost or too slow after something was written: it may have arrived. Says why, without addresses and headers."""


class PlatformClient(Protocol):
    """Sends requests to platforms: each once, as it is. No retries, no redirects, no state between requests."""

    async def send(self, request: PlatformRequest, *, timeout_s: float) -> PlatformResponse:
        """Return the whole response, whatever its status. Raises NotSent and MaybeSent, and nothing else.

        `timeout_s` bounds everything, from the wait for a connection to the last byte of the response."""
        ...
