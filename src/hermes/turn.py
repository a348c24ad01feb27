"""What flows through the router: a message in, an answer out. Frozen values, no behaviour.

`MessageEvent` is all that the router sees of a platform. The `Envelope` around it is what intake and delivery need: which account
received it, in which channel, under which key the platform would send it again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class Platform(StrEnum):
    """Where a message came from, and where its answer goes."""

    WHATSAPP = "whatsapp"
    TELEGRAM = "telegram"
    INSTAGRAM = "instagram"
    REST = "rest"
    WEB = "web"
    COMPLETIONS = "completions"
    """An OpenAI client, which gets its answer where it asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent:
    """One message as the router sees it, the same for every platform."""

    platform: Platform
    sender_id: str
    text: str
    media_url: str | None = None
    media_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A message with what intake and delivery need around it."""

    event: MessageEvent
    account: str
    """The receiving account: a bot, a number, a page, or the owner of an API key."""
    channel_id: str
    """Where the conversation takes place; in a group it is not the sender."""
    event_key: str
    """The same for every delivery of the same message, so that a repeated webhook is recognised. Unique within the account."""
    sent_at: datetime | None = None
    """When the platform says it was sent; None where it does not say."""
    thread: str | None = None
    attachments: tuple[str, ...] = ()
    """References to media beyond the first, as the platform names them."""
    message_id: str = ""
    """What the platform calls the message: for replies, read marks and typing. Empty where it has no name."""
    album: str | None = None
    """The same for all items of an album, which are one turn together."""
    is_shared: bool = False
    """Whether people other than the sender read this channel: a group. The channel's parser decides it, by what the platform says."""
    sender_name: str = ""
    """What the sender calls themselves there, as the platform says it; anyone may choose any name."""

    @property
    def conversation_key(self) -> str:
        """The session scope: one per platform, account and channel, so that no context leaks between them."""
        return f"{self.event.platform}:channel:{self.account}/{self.channel_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResponse:
    """What a turn gives back to whoever asked, with its price."""

    turn_id: UUID
    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    tool_calls_made: int = 0
    backend: str = ""
    cache_hit: bool = False
