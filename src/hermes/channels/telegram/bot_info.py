"""What Telegram says about a bot and its webhook, for the operator who sets it up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hermes.channels.meta import as_int, as_object, as_text, as_time, parse_object
from hermes.ports.channels import PlatformResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class BotProfile:
    """A bot, as users see it."""

    id: str
    username: str
    name: str
    hears_groups: bool
    """Whether Telegram sends it every message of its groups, or only those for it (@BotFather calls that privacy mode)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookState:
    """Where Telegram posts updates, and how that goes."""

    url: str
    """Empty: there is no webhook."""
    pending: int
    last_error: str
    last_error_at: datetime | None


def profile_in(reply: PlatformResponse) -> BotProfile | None:
    """The bot in a response to `me`; None if the response names none."""
    found = _result(reply)
    if not as_text(found.get("id")) or not as_text(found.get("username")):
        return None
    return BotProfile(
        id=as_text(found.get("id")),
        username=as_text(found.get("username")),
        name=as_text(found.get("first_name")),
        hears_groups=found.get("can_read_all_group_messages") is True,
    )


def webhook_state_in(reply: PlatformResponse, *, now: datetime) -> WebhookState | None:
    """The state in a response to `webhook_info`; None if the response holds none."""
    found = _result(reply)
    if not isinstance(found.get("url"), str):
        return None
    return WebhookState(
        url=as_text(found.get("url")),
        pending=as_int(found.get("pending_update_count")) or 0,
        last_error=as_text(found.get("last_error_message")),
        last_error_at=as_time(found.get("last_error_date"), now=now),
    )


def _result(reply: PlatformResponse) -> Mapping[str, Any]:
    body = parse_object(reply.body)
    return as_object(body.get("result")) if body is not None and body.get("ok") is True else {}
