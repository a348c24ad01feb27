"""One bot at Telegram as the port Channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hermes.channels.meta import as_int, check_secret
from hermes.channels.telegram.api import BotApi, secrets_of
from hermes.channels.telegram.channel_ids import recipient_fields
from hermes.channels.telegram.classify import classify
from hermes.channels.telegram.entities import message_body, message_size
from hermes.channels.telegram.parse import CALLBACK_PREFIX, parse_events
from hermes.channels.text import read_markdown, split
from hermes.ports.channels import Destination, InboundEvent, PlatformRequest, PlatformResponse, SendResult, Webhook
from hermes.turn import Platform

MAX_TEXT_UTF16 = 4096
"""The longest text of one message, in UTF-16 code units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramChannel:
    """The port Channel."""

    account: str
    api: BotApi
    secret: str = field(default="", repr=False)
    """The secret that the webhook was set with. Empty: the bot has no webhook, and `verify` refuses every request."""
    username: str | None = None
    """The bot's user name without the @. In groups, users mention the bot by it."""

    @property
    def platform(self) -> Platform:
        return Platform.TELEGRAM

    @property
    def has_receipts(self) -> bool:
        return False

    def verify(self, webhook: Webhook) -> None:
        check_secret(webhook.headers.get("x-telegram-bot-api-secret-token"), [self.secret])

    def parse(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        return parse_events(webhook.body, account=self.account, bot_id=self.api.bot_id, username=self.username, now=now)

    def render(self, markdown: str) -> Sequence[Mapping[str, Any]]:
        """Bodies with `text`, and with `entities` if something in it is marked. Telegram has nothing to parse."""
        return [message_body(part) for part in split(read_markdown(markdown), MAX_TEXT_UTF16, message_size)]

    def plain(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"text": body["text"]}

    def encode(self, body: Mapping[str, Any], to: Destination) -> PlatformRequest:
        # Without a preview: the linked page writes it, not Hermes, and it takes up the screen.
        message = {**recipient_fields(to), **body, "link_preview_options": {"is_disabled": True}}
        reply_to = as_int(to.reply_to)
        if reply_to is not None:
            # The user may have deleted the message; the answer is still worth sending.
            message["reply_parameters"] = {"message_id": reply_to, "allow_sending_without_reply": True}
        return self.api.call("sendMessage", message)

    def typing(self, to: Destination, *, message_id: str | None) -> PlatformRequest | None:
        """Shows for 5 seconds that the bot is typing; for a pressed button, confirms the press instead."""
        if message_id is not None and message_id.startswith(CALLBACK_PREFIX):
            return self.api.answer_callback(message_id.removeprefix(CALLBACK_PREFIX))
        return self.api.call("sendChatAction", {**recipient_fields(to), "action": "typing"})

    def classify(self, reply: PlatformResponse) -> SendResult:
        return classify(reply, secrets_of(self.api, self.secret))
