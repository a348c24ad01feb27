"""A channel that is only as clever as a test of delivery needs: Telegram's way to answer, without its markup."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hermes.ports.channels import Destination, InboundEvent, PlatformRequest, PlatformResponse, SendOutcome, SendResult, Webhook
from hermes.turn import Platform

OUTCOMES = {
    400: SendOutcome.REJECTED,
    401: SendOutcome.UNAUTHORIZED,
    403: SendOutcome.INVALID_RECIPIENT,
    429: SendOutcome.RATE_LIMITED,
    451: SendOutcome.WINDOW_CLOSED,
}


@dataclass(frozen=True)
class SimpleChannel:
    """The port Channel. A paragraph is a message; words between stars are bold."""

    platform: Platform = Platform.TELEGRAM
    account: str = "bali"
    url: str = "http://127.0.0.1:1"
    has_receipts: bool = False

    def verify(self, webhook: Webhook) -> None:
        raise NotImplementedError

    def parse(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        raise NotImplementedError

    def render(self, markdown: str) -> Sequence[Mapping[str, Any]]:
        return [
            {"text": paragraph.replace("*", ""), "entities": [{"type": "bold"}]} if "*" in paragraph else {"text": paragraph}
            for paragraph in markdown.split("\n\n")
            if paragraph.strip()
        ]

    def plain(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"text": body["text"]}

    def encode(self, body: Mapping[str, Any], to: Destination) -> PlatformRequest:
        where = {"chat_id": to.channel_id} | ({"message_thread_id": to.thread} if to.thread else {})
        return PlatformRequest(method="POST", url=f"{self.url}/botSECRET/sendMessage", headers={"X-Key": "SECRET"}, json={**body, **where})

    def typing(self, to: Destination, *, message_id: str | None) -> PlatformRequest | None:
        return None

    def classify(self, reply: PlatformResponse) -> SendResult:
        try:
            said = json.loads(reply.body)
        except ValueError:
            return SendResult(outcome=SendOutcome.SERVICE_UNAVAILABLE, detail=f"HTTP {reply.status} without JSON")
        if reply.status == 200 and said["ok"]:
            return SendResult(outcome=SendOutcome.SENT, message_id=str(said["result"]["message_id"]))
        parameters, detail = said.get("parameters", {}), said["description"]
        return SendResult(
            outcome=SendOutcome.SERVICE_UNAVAILABLE if reply.status >= 500 else OUTCOMES[reply.status],
            detail=f"{reply.status} {detail}",
            retry_after_s=parameters.get("retry_after"),
            moved_to=str(parameters["migrate_to_chat_id"]) if "migrate_to_chat_id" in parameters else None,
            plain_might_help="can't parse entities" in detail,
        )


@dataclass(frozen=True)
class TemplateChannel(SimpleChannel):
    """A channel that is also Templated."""

    platform: Platform = Platform.WHATSAPP

    def template(self, name: str, language: str, text: str) -> Mapping[str, Any] | None:
        return {"template": name, "language": language, "text": text} if len(text) < 100 else None
