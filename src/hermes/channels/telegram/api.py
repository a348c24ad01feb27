"""The requests to the Bot API that Hermes sends. The token is part of their URL, so Hermes never logs, stores or quotes a request.

Two more ways begin with a request: `look_up` and `file_in` find and fetch a file; `updates_in` reads updates by long polling.

    look_up(api, "telegram:FILE_ID")  →  send it  →  file_in(api, reply)  →  send its `call`: the bytes
    api.updates(offset)  →  send it, and wait  →  updates_in(reply)  →  store the events of each webhook  →  api.updates(polled.offset) …

A file takes two requests, because its URL lives for an hour and holds the token; its id does neither. A bot gets files of up to 20 MB; for
a larger one Telegram answers 400. The next offset tells Telegram to forget the updates before it, so the poller sends it only after all of
them are stored."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from hermes.channels.telegram.content import SCHEME
from hermes.channels.webhook_values import as_int, as_object, as_text, as_time, objects_in, parse_object
from hermes.ports.channels import PlatformRequest, PlatformResponse, Webhook

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramFile:
    """A file that can be fetched."""

    call: PlatformRequest
    """The request for the bytes. The client follows no redirect."""
    bytes: int | None = None
    """The size as Telegram states it; the client counts the bytes itself."""


def look_up(api: BotApi, reference: str) -> PlatformRequest | None:
    """The request that asks where a file is; None for a reference that is not Telegram's."""
    file_id = reference.removeprefix(SCHEME)
    return api.file(file_id) if reference.startswith(SCHEME) and file_id else None


def file_in(api: BotApi, reply: PlatformResponse) -> TelegramFile | None:
    """The file that a response names; None if it names none."""
    body = parse_object(reply.body) if 200 <= reply.status < 300 else None
    found = as_object(body.get("result")) if body is not None and body.get("ok") is True else {}
    call = api.download(as_text(found.get("file_path")))
    return None if call is None else TelegramFile(call=call, bytes=as_int(found.get("file_size")))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledUpdates:
    """The updates in a response to `updates`."""

    webhooks: Sequence[Webhook]
    """Each update as if Telegram had posted it, in order. For `parse`, not for `verify`: only Telegram could have answered."""
    offset: int | None
    """The next offset; None asks for all updates. After an empty response it is None: Telegram has already forgotten the older updates, and
    after a quiet week it continues with any number, also a smaller one, which an old offset would skip."""


def updates_in(reply: PlatformResponse) -> PolledUpdates | None:
    """The updates in a response; None for a failed request: `classify` says why, and the poller asks for the same offset again."""
    body = parse_object(reply.body)
    if reply.status != 200 or body is None or body.get("ok") is not True or not isinstance(body.get("result"), list):
        return None
    updates = objects_in(body["result"])
    numbers = [number for update in updates if (number := as_int(update.get("update_id"))) is not None]
    return PolledUpdates(
        webhooks=[Webhook(headers={}, body=json.dumps(update).encode()) for update in updates],
        offset=numbers[-1] + 1 if numbers else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BotProfile:
    """A bot, as users see it."""

    id: str
    username: str
    name: str
    hears_groups: bool
    """Whether Telegram sends it every message of its groups, or only those for it (@BotFather calls that privacy mode)."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookState:
    """Where Telegram posts updates, and how that goes."""

    url: str
    """Empty: there is no webhook."""
    pending: int
    last_error: str
    last_error_at: datetime | None


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
