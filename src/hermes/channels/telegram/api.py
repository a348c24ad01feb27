"""The calls of the Bot API that Hermes makes. The token stands in their address, so no call is logged, stored or quoted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from hermes.ports.channels import PlatformRequest

ALLOWED_UPDATES = ("message", "business_message", "callback_query", "message_reaction", "my_chat_member")
"""The kinds of updates that something follows from. Reactions come only to who asks for them."""

_TOKEN = re.compile(r"(\d{1,20}):[A-Za-z0-9_-]{10,200}", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class BotApi:
    """One bot's way to Telegram, or to a Bot API server of one's own."""

    token: str = field(repr=False)
    base_url: str = "https://api.telegram.org"

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.token):
            raise ValueError("this is no token of a bot: @BotFather gives one that looks like 123456789:AAH…")

    @property
    def bot_id(self) -> str:
        """The bot's own id as a user, which its token begins with."""
        return self.token.partition(":")[0]

    def call(self, method: str, parameters: Mapping[str, Any] | None = None) -> PlatformRequest:
        return PlatformRequest(method="POST", url=f"{self.base_url}/bot{self.token}/{method}", json=parameters or {})

    # --- setting up

    def me(self) -> PlatformRequest:
        """Who the bot is; `profile_in` reads the answer."""
        return self.call("getMe")

    def set_webhook(self, url: str, secret: str, *, max_connections: int = 40, drop_pending: bool = False) -> PlatformRequest:
        """Have updates sent to an address, each with the secret in a header. Raises ValueError for a secret that Telegram would refuse."""
        if not _SECRET.fullmatch(secret):
            raise ValueError("a webhook's secret has 1 to 256 signs, of letters, digits, _ and -")
        parameters = {"url": url, "secret_token": secret, "max_connections": max_connections, "allowed_updates": list(ALLOWED_UPDATES)}
        return self.call("setWebhook", {**parameters, "drop_pending_updates": drop_pending})

    def delete_webhook(self, *, drop_pending: bool = False) -> PlatformRequest:
        """Have no updates sent any more, so that they can be asked for."""
        return self.call("deleteWebhook", {"drop_pending_updates": drop_pending})

    def webhook_info(self) -> PlatformRequest:
        """Where updates are sent, and how that goes; `webhook_in` reads the answer."""
        return self.call("getWebhookInfo")

    # --- asking for updates

    def updates(self, offset: int | None, *, wait_s: int = 50, limit: int = 100) -> PlatformRequest:
        """Ask for updates, and wait for one; `polled` reads the answer, and knows the next offset. An offset also says that all before it
        are stored: they are not given again. Whoever sends this waits longer than `wait_s`."""
        parameters: dict[str, Any] = {"timeout": wait_s, "limit": limit, "allowed_updates": list(ALLOWED_UPDATES)}
        return self.call("getUpdates", parameters if offset is None else {"offset": offset, **parameters})

    # --- within a conversation

    def answer_callback(self, callback_id: str) -> PlatformRequest:
        """Say that a button's press has arrived; until then the button shows that it waits."""
        return self.call("answerCallbackQuery", {"callback_query_id": callback_id})

    def file(self, file_id: str) -> PlatformRequest:
        """Ask where a file is; `file_in` reads the answer."""
        return self.call("getFile", {"file_id": file_id})

    def download(self, file_path: str) -> PlatformRequest | None:
        """The call for a file's bytes, good for an hour; None for a path that leads elsewhere. Its address holds the token: nobody keeps
        it, and no model's provider gets it. No redirect is followed."""
        steps = file_path.split("/")
        if not file_path.isprintable() or "\\" in file_path or any(step in ("", ".", "..") for step in steps):
            return None
        return PlatformRequest(method="GET", url=f"{self.base_url}/file/bot{self.token}/{quote(file_path)}")


def secrets_of(api: BotApi, secret: str) -> Sequence[str]:
    """What must not be quoted from an answer: also the token as it is spelled in an address."""
    return [text for text in (api.token, quote(api.token, safe=""), secret) if text]
