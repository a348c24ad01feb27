"""One number at WhatsApp as the port Channel, and the templates that Hermes may send after the user has not written for a day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hermes.channels import meta
from hermes.channels.buttons import BUTTONS, buttons_on_last
from hermes.channels.text import RichText, read_markdown, split
from hermes.channels.webhook_values import as_text, objects_in
from hermes.channels.whatsapp.markup import STYLE, markup_size, render_markup
from hermes.channels.whatsapp.parse import OUTCOME_BY_SUBCODE, is_group, parse_events, recipient_fields
from hermes.channels.whatsapp.providers import Provider
from hermes.ports.channels import Button, Destination, InboundEvent, PlatformRequest, PlatformResponse, SendResult, Webhook
from hermes.turn import Platform

MAX_TEXT_CHARS = 4096
"""The longest text of one message, in characters, markup included."""
MAX_BUTTON_TEXT_CHARS = 1024
"""The longest text above buttons."""
PRODUCT: Mapping[str, Any] = {"messaging_product": "whatsapp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatsAppChannel:
    """The ports Channel, SupportsTemplates and SharesWebhook."""

    account: str
    provider: Provider

    @property
    def platform(self) -> Platform:
        return Platform.WHATSAPP

    @property
    def has_receipts(self) -> bool:
        return True

    def verify(self, webhook: Webhook) -> None:
        self.provider.verify(webhook)

    def challenge(self, query: Mapping[str, str]) -> str:
        """The plain text with which to answer Meta's GET. Raises WebhookNotAuthentic; at 360dialog always, because it never asks."""
        return self.provider.challenge(query)

    def parse(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        return self._parse(webhook, now, self.provider.phone_number_id)

    @property
    def webhook_id(self) -> str | None:
        """The port SharesWebhook. At 360dialog every number has a URL and a secret of its own."""
        return self.provider.phone_number_id if self.provider.is_signed else None

    def parse_shared(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        """The port SharesWebhook."""
        return self._parse(webhook, now, self.webhook_id, is_shared=True)

    def _parse(self, webhook: Webhook, now: datetime, phone_number_id: str | None, *, is_shared: bool = False) -> Sequence[InboundEvent]:
        return parse_events(
            webhook.body,
            account=self.account,
            phone_number_id=phone_number_id,
            now=now,
            is_shared=is_shared,
            repeats_references=self.provider.is_signed,
        )

    def render(self, markdown: str) -> Sequence[Mapping[str, Any]]:
        """Bodies with `text` in WhatsApp's markup, and with `plain` if the plain text differs from it."""
        parts = [(render_markup(part), part.plain) for part in split(read_markdown(markdown, STYLE), MAX_TEXT_CHARS, markup_size)]
        return [{"text": text} if text == plain else {"text": text, "plain": plain} for text, plain in parts]

    def with_buttons(self, text: str, buttons: Sequence[Button]) -> Sequence[Mapping[str, Any]]:
        """The port SupportsButtons: an interactive message with reply buttons. What is too long for one stands in messages before it."""
        return buttons_on_last(
            [{"text": render_markup(part)} for part in split(RichText(text), MAX_BUTTON_TEXT_CHARS, markup_size)], buttons
        )

    def plain(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"text": body.get("plain", body["text"]), **({BUTTONS: body[BUTTONS]} if BUTTONS in body else {})}

    def template(self, name: str, language: str, text: str) -> Mapping[str, Any] | None:
        """The port SupportsTemplates."""
        filled = template_value(text)
        return None if filled is None else template_body(name, language, [filled], text=text)

    def encode(self, body: Mapping[str, Any], to: Destination) -> PlatformRequest:
        """The request that sends one rendered message, or a `template`."""
        if "template" in body:
            message = {"type": "template", "template": body["template"]}
        elif BUTTONS in body:
            replies = [{"type": "reply", "reply": {"id": each["id"], "title": each["label"]}} for each in body[BUTTONS]]
            message = {
                "type": "interactive",
                "interactive": {"type": "button", "body": {"text": body["text"]}, "action": {"buttons": replies}},
            }
        else:
            # Without a preview: the linked page writes it, not Hermes, and it takes up the screen.
            message = {"type": "text", "text": {"body": body["text"], "preview_url": False}}
        context = {"context": {"message_id": to.reply_to}} if to.reply_to else {}
        # Meta repeats the reference in every status of the message. Whether 360dialog passes it on is not documented.
        reference = {"biz_opaque_callback_data": to.reference} if to.reference and self.provider.is_signed else {}
        return self.provider.post({**PRODUCT, **recipient_fields(to.channel_id), **context, **reference, **message})

    def typing(self, to: Destination, *, message_id: str | None) -> PlatformRequest | None:
        """Marks the message as read, and shows for 25 seconds that the account is typing. None without a message, and in groups."""
        if message_id is None or is_group(to.channel_id):
            return None
        return self.provider.post({**PRODUCT, "status": "read", "message_id": message_id, "typing_indicator": {"type": "text"}})

    def classify(self, reply: PlatformResponse) -> SendResult:
        return meta.classify(reply, accepted_message_id, OUTCOME_BY_SUBCODE, self.provider.secrets)


def accepted_message_id(body: Mapping[str, Any]) -> str | None:
    """The id of the message that WhatsApp accepted. Accepted is not delivered: a receipt confirms the delivery, minutes later."""
    ids = [as_text(message.get("id")) for message in objects_in(body.get("messages"))]
    return next(filter(None, ids), "" if body.get("success") is True else None)


MAX_VALUE_CHARS = 900
"""A template has at most 1,024 characters, its own text included."""


def template_body(
    name: str, language: str, values: Sequence[str] = (), *, components: Sequence[Mapping[str, Any]] = (), text: str = ""
) -> Mapping[str, Any]:
    """A template as a message's body, for `WhatsAppChannel.encode`. Meta approves its text in advance; Hermes fills its gaps.

    `values` fill {{1}}, {{2}} … of its body. `components` are its other parts (a header, buttons), in Meta's format. `text` is the whole
    message for Hermes' own records; WhatsApp does not get it."""
    parameters = [{"type": "text", "text": value} for value in values]
    filled = [*components, {"type": "body", "parameters": parameters}] if parameters else [*components]
    chosen: dict[str, Any] = {"name": name, "language": {"code": language}}
    return {"text": text, "template": chosen | ({"components": filled} if filled else {})}


def template_value(text: str) -> str | None:
    """A text as the value of a gap, which may hold no line ends and no repeated spaces; None if it is empty or too long."""
    line = " ".join(text.split())
    return line if 0 < len(line) <= MAX_VALUE_CHARS else None
