"""What flows through the router: a message in, an answer out. Frozen values, no behaviour.

`MessageEvent` is all that the router sees of a platform. The `Envelope` around it holds what intake and delivery need: the receiving
account, the channel, and the event key, which is the same when the platform sends the message again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID


class Platform(StrEnum):
    """Where a message came from, and where its answer goes."""

    WHATSAPP = "whatsapp"
    TELEGRAM = "telegram"
    INSTAGRAM = "instagram"
    REST = "rest"
    WEB = "web"
    COMPLETIONS = "completions"
    """A client of the completions endpoint. It gets its answer in the HTTP response."""


SEND_PLATFORMS = frozenset({Platform.TELEGRAM, Platform.WHATSAPP, Platform.INSTAGRAM})
"""The platforms that Hermes sends its answers to. On the others clients fetch them."""


PROGRAM_PLATFORMS = frozenset({Platform.REST, Platform.COMPLETIONS})
"""The platforms on which programs write, and name users as they like. On the others people write."""


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
    """When it was sent, as the platform says; None if the platform does not say."""
    thread: str | None = None
    attachments: tuple[str, ...] = ()
    """References to media beyond the first, as the platform names them."""
    message_id: str = ""
    """The platform's id of the message, for replies, read marks and typing. Empty if it has none."""
    album: str | None = None
    """The same for all items of an album, which are one turn together."""
    is_shared: bool = False
    """Whether people other than the sender read this channel: a group. The channel's parser decides it from what the platform says."""
    is_own: bool = False
    """Whether the conversation is the sender's own: a client of the API named no channel. A private conversation belongs to its user."""
    sender_name: str = ""
    """The sender's display name at the platform. Senders choose it freely, so it proves nothing."""
    api_key_id: UUID | None = None
    """The API key with which a program sent it; None on platforms where people write."""
    choice: str = ""
    """The id of the button that the sender pressed, as Hermes gave it to the platform. No text that a person writes gets here."""

    @property
    def conversation_key(self) -> str:
        """The key of the conversation's history: one per platform, account and channel, so that no context leaks between them."""
        return f"{self.event.platform}:channel:{self.account}/{self.channel_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResponse:
    """The answer of a turn, with its cost."""

    turn_id: UUID
    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    tool_calls_made: int = 0
    backend: str = ""
    cache_hit: bool = False
    saved_usd: float = 0.0
    """What an answer from the cache would have cost."""
    offers: Sequence[Mapping[str, Any]] = ()
    """What waits for the user's approval: `code`, `tool`, `text`, `expires_at` and `buttons` of each."""


def response_json(response: AgentResponse) -> dict[str, Any]:
    """The answer as `POST /v1/messages` returns it."""
    fields = {**asdict(response), "turn_id": str(response.turn_id)}
    return fields if response.offers else {name: value for name, value in fields.items() if name != "offers"}
