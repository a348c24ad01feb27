"""The requests to the Bot API that Hermes sends. The token is part of their URL, so Hermes never logs, stores or quotes a request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from hermes.ports.channels import PlatformRequest

ALLOWED_UPDATES = ("message", "business_message", "callback_query", "message_reaction", "my_chat_member")
"""The kinds of updates that Hermes acts on. Telegram sends reactions only to a bot that asks for them."""

_TOKEN = re.compile(r"(\d{1,20}):[A-Za-z0-9_-]{10,200}", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class BotApi:
    """The Bot API for one bot, at Telegram or at the operator's own Bot API server."""

    token: str = field(repr=False)
    base_url: str = "https://api.telegram.org"

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.token):
            raise ValueError("this is not the token of a bot: @BotFather gives one that looks like 123456789:AAH…")

    @property
    def bot_id(self) -> str:
        """The bot's user id: the first part of its token."""
        return self.token.partition(":")[0]

    def call(self, method: str, parameters: Mapping[str, Any] | None = None) -> PlatformRequest:
        return PlatformRequest(method="POST", url=f"{self.base_url}/bot{self.token}/{method}", json=parameters or {})

    # --- setup

    def me(self) -> PlatformRequest:
        """Ask who the bot is; `profile_in` reads the response."""
        return self.call("getMe")

    def set_webhook(self, url: str, secret: str, *, max_connections: int = 40, drop_pending: bool = False) -> PlatformRequest:
        """Have Telegram post updates to a URL, with the secret in a header. Raises ValueError for a secret that Telegram would refuse."""
        if not _SECRET.fullmatch(secret):
            raise ValueError("a webhook's secret has 1 to 256 characters: letters, digits, _ and -")
        parameters = {"url": url, "secret_token": secret, "max_connections": max_connections, "allowed_updates": list(ALLOWED_UPDATES)}
        return self.call("setWebhook", {**parameters, "drop_pending_updates": drop_pending})

    def delete_webhook(self, *, drop_pending: bool = False) -> PlatformRequest:
        """Have Telegram post no more updates, so that they can be polled."""
        return self.call("deleteWebhook", {"drop_pending_updates": drop_pending})

    def webhook_info(self) -> PlatformRequest:
        """Ask where Telegram posts updates, and how that goes; `webhook_state_in` reads the response."""
        return self.call("getWebhookInfo")

    # --- polling

    def updates(self, offset: int | None, *, wait_s: int = 50, limit: int = 100) -> PlatformRequest:
        """Ask for updates, and wait up to `wait_s` for one; `updates_in` reads the response and the next offset. An offset also tells
        Telegram that all updates before it are stored: it does not send them again. The caller's timeout must be longer than `wait_s`."""
        parameters: dict[str, Any] = {"timeout": wait_s, "limit": limit, "allowed_updates": list(ALLOWED_UPDATES)}
        return self.call("getUpdates", parameters if offset is None else {"offset": offset, **parameters})

    # --- within a conversation

    def answer_callback(self, callback_id: str) -> PlatformRequest:
        """Confirm that a pressed button has arrived; until then Telegram shows that the button waits."""
        return self.call("answerCallbackQuery", {"callback_query_id": callback_id})

    def file(self, file_id: str) -> PlatformRequest:
        """Ask where a file is; `file_in` reads the response."""
        return self.call("getFile", {"file_id": file_id})

    def download(self, file_path: str) -> PlatformRequest | None:
        """The request for a file's bytes, valid for an hour; None for a path that leads elsewhere. Its URL holds the token: Hermes neither
        stores it nor gives it to a model's provider, and follows no redirect."""
        steps = file_path.split("/")
        if not file_path.isprintable() or "\\" in file_path or any(step in ("", ".", "..") for step in steps):
            return None
        return PlatformRequest(method="GET", url=f"{self.base_url}/file/bot{self.token}/{quote(file_path)}")


def secrets_of(api: BotApi, secret: str) -> Sequence[str]:
    """What must not be quoted from a response: the secret, and the token, also as it is escaped in a URL."""
    return [text for text in (api.token, quote(api.token, safe=""), secret) if text]
