"""Where alerts go: a Slack webhook, a Discord webhook, a Telegram chat, or any server with signed webhooks. Each sends a message once.

Every address here holds a secret, so no error shows one. Signed webhooks follow the Standard Webhooks specification: the receiver checks
`webhook-signature` over `webhook-id`, `webhook-timestamp` and the body, and ignores an id that it has seen."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes.channels.telegram.api import BotApi
from hermes.http_client import HttpClient, HttpReply, TransportError
from hermes.ports.alerts import AlertMessage, AlertNotSent

MAX_REPLY_BYTES = 64 * 1024
SLACK_TEXT_CHARS, DISCORD_TEXT_CHARS, TELEGRAM_TEXT_CHARS = 3_000, 2_000, 4_096
REASON = re.compile(r"[a-z][a-z_]{1,60}", re.ASCII)
"""Slack's reasons, `no_service` or `channel_is_archived`: nothing else of an answer is quoted."""
SECRET_PREFIX = "whsec_"  # noqa: S105  # the prefix of all secrets, and no secret itself


@dataclass(frozen=True, slots=True)
class EncodedAlert:
    """A message as the destination takes it."""

    url: str = field(repr=False)
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class HttpAlertDestination(ABC):
    """What all destinations share: send once, and say in a few words without secrets why it failed."""

    def __init__(self, name: str, client: HttpClient) -> None:
        self.name, self._client = name, client

    @abstractmethod
    def encode(self, message: AlertMessage) -> EncodedAlert:
        """Return the request."""

    async def send(self, message: AlertMessage, *, timeout_s: float) -> None:
        """The port AlertDestination."""
        encoded = self.encode(message)
        headers = {"Content-Type": "application/json", **encoded.headers}
        try:
            async with self._client.send("POST", encoded.url, headers=headers, timeout_s=timeout_s, body=encoded.body) as reply:
                body = await reply.read(MAX_REPLY_BYTES)
        except TransportError as error:
            raise AlertNotSent(str(error)) from None
        if not 200 <= reply.status < 300:
            reason = self.reason_in(body)
            raise AlertNotSent(f"it answered {reply.status}" + (f" ({reason})" if reason else ""), retry_after_s=self.pause_in(reply, body))

    def reason_in(self, body: bytes) -> str:  # noqa: ARG002  # each destination has a form of its own
        """Return the destination's own word for what is wrong, if it has one."""
        return ""

    def pause_in(self, reply: HttpReply, body: bytes) -> float | None:  # noqa: ARG002  # some put it into the body
        """Return how long the destination asks to wait."""
        return seconds_in(reply.headers.get("Retry-After"))


class SlackDestination(HttpAlertDestination):
    """An incoming webhook of Slack."""

    def __init__(self, name: str, client: HttpClient, url: str) -> None:
        super().__init__(name, client)
        self._url = url

    def encode(self, message: AlertMessage) -> EncodedAlert:
        text = cut(message.text, SLACK_TEXT_CHARS)
        # In a plain-text block Slack reads neither markup nor mentions; the text for notifications is escaped instead.
        block = {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}
        fallback = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return EncodedAlert(self._url, to_json({"text": fallback, "blocks": [block]}))

    def reason_in(self, body: bytes) -> str:
        text = body.decode("utf-8", "replace").strip()
        return text if REASON.fullmatch(text) else ""


class DiscordDestination(HttpAlertDestination):
    """A webhook of Discord."""

    def __init__(self, name: str, client: HttpClient, url: str) -> None:
        super().__init__(name, client)
        self._url = url

    def encode(self, message: AlertMessage) -> EncodedAlert:
        text = cut(re.sub(r"([\\*_~`|>\[\]()#-])", r"\\\1", message.text), DISCORD_TEXT_CHARS)
        return EncodedAlert(self._url, to_json({"content": text, "allowed_mentions": {"parse": []}}))

    def pause_in(self, reply: HttpReply, body: bytes) -> float | None:
        return seconds_in(object_in(body).get("retry_after")) or super().pause_in(reply, body)


class TelegramDestination(HttpAlertDestination):
    """A chat of Telegram, in which a bot writes."""

    def __init__(self, name: str, client: HttpClient, api: BotApi, chat: str) -> None:
        super().__init__(name, client)
        self._api, self._chat = api, chat

    def encode(self, message: AlertMessage) -> EncodedAlert:
        call = self._api.call("sendMessage", {"chat_id": self._chat, "text": cut(message.text, TELEGRAM_TEXT_CHARS)})
        return EncodedAlert(call.url, to_json(call.json or {}))

    def reason_in(self, body: bytes) -> str:
        description = object_in(body).get("description")
        if not isinstance(description, str) or self._api.token in description:
            return ""
        return " ".join(description.split())[:100]

    def pause_in(self, reply: HttpReply, body: bytes) -> float | None:
        parameters = object_in(body).get("parameters")
        found = parameters.get("retry_after") if isinstance(parameters, dict) else None
        return seconds_in(found) or super().pause_in(reply, body)


class WebhookDestination(HttpAlertDestination):
    """Any server that takes Standard Webhooks."""

    def __init__(self, name: str, client: HttpClient, url: str, secret: str, clock: Callable[[], float] = time.time) -> None:
        """`secret` is `whsec_` and base64, as the specification writes it; any other text is taken as it is."""
        super().__init__(name, client)
        self._url, self._key, self._clock = url, signing_key(secret), clock

    def encode(self, message: AlertMessage) -> EncodedAlert:
        body = to_json(
            {
                "type": f"hermes.alert.{message.kind}",
                "timestamp": message.at.isoformat(),
                "data": {**message.data, "level": message.level, "text": message.text},
            }
        )
        # The receiver refuses an old timestamp, so every try has a new one; its id stays.
        sent_at = str(int(self._clock()))
        signature = sign_webhook(self._key, message.id, sent_at, body)
        headers = {"webhook-id": message.id, "webhook-timestamp": sent_at, "webhook-signature": signature}
        return EncodedAlert(self._url, body, headers)


def sign_webhook(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a webhook, as the specification writes it."""
    digest = hmac.new(key, b".".join([message_id.encode(), timestamp.encode(), body]), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def signing_key(secret: str) -> bytes:
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode("utf-8", "surrogatepass")
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError("a secret that begins with whsec_ goes on in base64")
    return key


def cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def to_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def object_in(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def seconds_in(value: object) -> float | None:
    """Return a number of seconds as a header or a body writes it; None for anything else."""
    try:
        seconds = float(value) if isinstance(value, str | int | float) else -1.0
    except ValueError:
        return None
    return seconds if 0 < seconds < 1e9 else None
