"""The state of a WhatsApp number, and the payloads of its webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.demo.platforms.message_log import PersonMessage
from hermes.demo.platforms.meta import WebhookEvent, WebhookQueue
from hermes.demo.platforms.platform import FakePlatform
from hermes.demo.platforms.platform_clock import unix_seconds
from hermes.demo.platforms.whatsapp.files import FakeWhatsAppFiles

SPREAD_CHANCE = 0.3
"""How likely the next event of a batch begins a new entry, or a new change."""


@dataclass(frozen=True, slots=True)
class PayloadPart:
    """One item, and its place in a payload."""

    field: str
    """The change's field: `messages`, `user_id_update`."""
    into: str
    """The list in the change's value: `messages`, `statuses`, …"""
    item: Mapping[str, Any]
    contact: Mapping[str, Any] | None = None


@dataclass(slots=True)
class FakeWhatsAppState:
    """The state that the people and the calls of one number share."""

    platform: FakePlatform
    media: FakeWhatsAppFiles
    account_id: str
    phone_number_id: str
    display_number: str
    posts: WebhookQueue = field(init=False)
    lane_by_message_id: dict[str, str] = field(default_factory=dict)
    """The conversation of each message that a person sent."""
    message_count: int = 0

    def message_id(self) -> str:
        self.message_count += 1
        return f"wamid.HBgM{self.platform.world.random.letters(48, 'wamid', self.platform.name, self.message_count)}=="

    def record_message(self, message: PersonMessage, lane: str, item: Mapping[str, Any], contact: Mapping[str, Any]) -> str:
        """Record a person's message in the message log, and send it to the receiver."""
        self.lane_by_message_id[message.message_id] = lane
        self.platform.message_log.add_person_message(message)
        self.posts.add(lane, PayloadPart("messages", "messages", item, contact))
        return message.message_id

    def compose(self, events: Sequence[WebhookEvent]) -> dict[str, Any]:
        """Several events as one payload, spread over all of its levels."""
        random = self.platform.world.random
        entries: list[dict[str, Any]] = []
        for place, event in enumerate(events):
            part: PayloadPart = event.part
            if not entries or random.happens(SPREAD_CHANCE, "entry", event.lane, event.place, place):
                entries.append({"id": self.account_id, "changes": []})
            changes = entries[-1]["changes"]
            last = changes[-1] if changes else None
            fits = last is not None and last["field"] == part.field and part.into in last["value"]
            if not fits or random.happens(SPREAD_CHANCE, "change", event.lane, event.place, place):
                changes.append({"value": self._value(), "field": part.field})
            value = changes[-1]["value"]
            if part.contact is not None and part.contact not in value.setdefault("contacts", []):
                value["contacts"].append(part.contact)
            value.setdefault(part.into, []).append(part.item)
        return {"object": "whatsapp_business_account", "entry": entries}

    def _value(self) -> dict[str, Any]:
        metadata = {"display_phone_number": self.display_number, "phone_number_id": self.phone_number_id}
        return {"messaging_product": "whatsapp", "metadata": metadata}


def unix_seconds_text() -> str:
    """The time as WhatsApp writes it."""
    return str(unix_seconds())
