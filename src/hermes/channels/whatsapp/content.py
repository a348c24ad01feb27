"""The content of a message, as text and a file. Which kinds start a turn, and with which text:

text                                  the text
image video audio document sticker    the caption; the file by its id. A voice message is `audio`
button, interactive                   the text of the button or the list item, as if the user had typed it; of a form a line for each field
location contacts order               📍 👤 🛒 and their values: a model can answer that, and the emoji belong to no language
unsupported, a file without an id     no text, and the media type `unsupported`: Hermes tells the user that it cannot read it
any other                             no turn"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes.channels.webhook_values import as_int, as_object, as_text, objects_in, parse_object
from hermes.ports.channels import Media

UNSUPPORTED = "unsupported"
"""The media type of a message that Hermes cannot read."""

FILE_TYPES: Mapping[str, str] = {
    "image": "image/*",
    "video": "video/*",
    "audio": "audio/*",
    "document": "application/octet-stream",
    "sticker": "image/webp",
}
"""The kinds of files, and the media type of a file if the message names none."""


@dataclass(frozen=True, slots=True)
class WhatsAppContent:
    """Text and file of a message."""

    text: str
    media: Media | None = None
    media_type: str | None = None
    choice: str = ""
    """The id of the reply button that was pressed."""


def content_of(message: Mapping[str, Any]) -> WhatsAppContent | None:
    """The content of a message; None for a kind that starts no turn, and for an empty message."""
    kind = as_text(message.get("type"))
    if kind == UNSUPPORTED:
        return WhatsAppContent("", media_type=UNSUPPORTED)
    if kind in FILE_TYPES:
        return file_content(kind, as_object(message.get(kind)))
    spell = TEXT_BY_KIND.get(kind)
    text = spell(message.get(kind)) if spell is not None else ""
    return WhatsAppContent(text, choice=pressed_id(message)) if text.strip() else None


def file_content(kind: str, part: Mapping[str, Any]) -> WhatsAppContent:
    """A file with its caption. Its URL, if the message has one, is ignored: it lives for minutes, the id longer."""
    caption, media_id = as_text(part.get("caption")), as_text(part.get("id"))
    if not media_id:
        return WhatsAppContent(caption, media_type=UNSUPPORTED)
    media_type = as_text(part.get("mime_type"))
    media = Media(
        reference=f"whatsapp:{media_id}",
        kind=kind,
        mime_type=media_type or None,
        name=as_text(part.get("filename")) or None,
        bytes=as_int(part.get("file_size")),
    )
    return WhatsAppContent(caption, media, media_type or FILE_TYPES[kind])


def message_text(part: Any) -> str:
    return as_text(as_object(part).get("body"))


def button_text(part: Any) -> str:
    """A quick reply to a template."""
    return as_text(as_object(part).get("text")) or as_text(as_object(part).get("payload"))


def interactive_text(part: Any) -> str:
    """A pressed button, a chosen list item, or a form."""
    part = as_object(part)
    chosen = as_object(part.get("button_reply")) or as_object(part.get("list_reply"))
    if chosen:
        return as_text(chosen.get("title")) or as_text(chosen.get("id"))
    form = as_object(part.get("nfm_reply"))
    fields = parse_object(as_text(form.get("response_json")).encode()) or {}
    lines = [f"{as_text(name)}: {form_value_text(value)}" for name, value in fields.items() if name != "flow_token"]
    return "\n".join(lines) or as_text(form.get("body"))


def pressed_id(message: Mapping[str, Any]) -> str:
    """The id of the reply button that was pressed; empty for every other message. The list of an operator's own message is no button."""
    return as_text(as_object(as_object(message.get("interactive")).get("button_reply")).get("id"))


def form_value_text(value: Any) -> str:
    """The value of a form's field: a text as it is, anything else as JSON."""
    return as_text(value) or as_text(json.dumps(value, ensure_ascii=False))


def location_text(part: Any) -> str:
    part = as_object(part)
    at = comma_join((as_text(part.get("latitude")), as_text(part.get("longitude"))))
    place = comma_join((as_text(part.get("name")), as_text(part.get("address"))))
    found = f"{place} ({at})" if place and at else place or at
    return "\n".join(filter(None, (f"📍 {found}" if found else "", as_text(part.get("url")))))


def contacts_text(part: Any) -> str:
    return "\n".join(f"👤 {line}" for line in map(contact_text, objects_in(part)) if line)


def contact_text(contact: Mapping[str, Any]) -> str:
    name, company = as_object(contact.get("name")), as_object(contact.get("org"))
    whole = as_text(name.get("formatted_name")) or as_text(name.get("first_name"))
    reached = [as_text(way.get(key)) for ways, key in (("phones", "phone"), ("emails", "email")) for way in objects_in(contact.get(ways))]
    return comma_join((whole, as_text(company.get("company")), *reached))


def order_text(part: Any) -> str:
    part = as_object(part)
    return "\n".join(filter(None, (as_text(part.get("text")), *map(item_text, objects_in(part.get("product_items"))))))


def item_text(item: Mapping[str, Any]) -> str:
    price = " ".join(filter(None, (as_text(item.get("item_price")), as_text(item.get("currency")))))
    line = f"🛒 {as_text(item.get('quantity')) or '1'} \N{MULTIPLICATION SIGN} {as_text(item.get('product_retailer_id'))}"
    return f"{line} ({price})" if price else line


def comma_join(pieces: Iterable[str]) -> str:
    return ", ".join(filter(None, pieces))


TEXT_BY_KIND: Mapping[str, Callable[[Any], str]] = {
    "text": message_text,
    "button": button_text,
    "interactive": interactive_text,
    "location": location_text,
    "contacts": contacts_text,
    "order": order_text,
}
