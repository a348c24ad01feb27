"""Webhooks of WhatsApp as Meta writes them, about people who do not exist."""

import json
from datetime import UTC, datetime
from typing import Any

from hermes.channels.whatsapp import Dialog360, WhatsAppChannel
from hermes.ports.channels import InboundEvent, Webhook

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
SENT_AT = datetime(2026, 5, 4, 11, 59, 30, tzinfo=UTC)
STAMP = str(int(SENT_AT.timestamp()))
NUMBER_ID = "700100200300"
OWN = "4930111222"
MINA, MINA_ID = "4915700000001", "DE.70010020030040"
GROUP_ID = "R1JPVVA6MTIz"

THROUGH_360DIALOG = Dialog360(api_key="d360-hush", webhook_secrets=("old", "new"), phone_number_id=NUMBER_ID)
WHATSAPP = WhatsAppChannel(account="berlin", provider=THROUGH_360DIALOG)


def message(kind: str, part: Any = None, **more: Any) -> dict[str, Any]:
    """A message of Mina's."""
    written = {"from": MINA, "id": "wamid.M1", "timestamp": STAMP, "type": kind} | more
    return written if part is None else written | {kind: part}


def text(body: str = "hello", **more: Any) -> dict[str, Any]:
    return message("text", {"body": body}, **more)


def value(**more: Any) -> dict[str, Any]:
    metadata = {"display_phone_number": OWN, "phone_number_id": NUMBER_ID}
    contacts = [{"profile": {"name": "Mina"}, "wa_id": MINA}]
    return {"messaging_product": "whatsapp", "metadata": metadata, "contacts": contacts} | more


def change(field: str = "messages", **more: Any) -> dict[str, Any]:
    return {"field": field, "value": value(**more)}


def payload(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"object": "whatsapp_business_account", "entry": [{"id": "800900", "changes": list(changes)}]}


def webhook(content: Any) -> Webhook:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Webhook(headers={}, body=body)


def happened(content: Any, channel: WhatsAppChannel = WHATSAPP) -> list[InboundEvent]:
    return list(channel.parse(webhook(content), now=NOW))


def heard(*messages: dict[str, Any]) -> list[InboundEvent]:
    """What comes of messages in one change."""
    return happened(payload(change(messages=list(messages))))
