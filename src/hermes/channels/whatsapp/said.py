"""What a message says, as text and files. Which kinds start a turn, and with which text:

text                              what was written
image video audio document sticker    the caption; the file by its id. A voice message is `audio`
button, interactive               what stood on the button or in the list, as if it had been typed; the fields of a form, a line each
location contacts order           📍 👤 🛒 and what they hold: a model can answer that, and the signs belong to no language
unsupported, a file without an id     nothing, and `unsupported` as the kind: the user is told that it cannot be read
any other                         no turn"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes.channels.meta import a_count, a_text, an_object, objects, parsed
from hermes.ports.channels import Media

UNSUPPORTED = "unsupported"
"""The media type of what nobody can read."""

FILES: Mapping[str, str] = {
    "image": "image/*",
    "video": "video/*",
    "audio": "audio/*",
    "document": "application/octet-stream",
    "sticker": "image/webp",
}
"""The kinds of files, and the type of one that comes without."""


@dataclass(frozen=True, slots=True)
class Said:
    """The contents of a message."""

    text: str
    media: Media | None = None
    media_type: str | None = None


def said_in(message: Mapping[str, Any]) -> Said | None:
    """What a message says; None for a kind that starts no turn, and where there is nothing in it."""
    kind = a_text(message.get("type"))
    if kind == UNSUPPORTED:
        return Said("", media_type=UNSUPPORTED)
    if kind in FILES:
        return file_said(kind, an_object(message.get(kind)))
    spell = SPELLED.get(kind)
    text = spell(message.get(kind)) if spell is not None else ""
    return Said(text) if text.strip() else None


def file_said(kind: str, part: Mapping[str, Any]) -> Said:
    """A file with its caption. Its address, where one is given, is left: it is gone in minutes, and the id is not."""
    caption, media_id = a_text(part.get("caption")), a_text(part.get("id"))
    if not media_id:
        return Said(caption, media_type=UNSUPPORTED)
    media_type = a_text(part.get("mime_type"))
    media = Media(
        reference=f"whatsapp:{media_id}",
        kind=kind,
        mime_type=media_type or None,
        name=a_text(part.get("filename")) or None,
        bytes=a_count(part.get("file_size")),
    )
    return Said(caption, media, media_type or FILES[kind])


def text_said(part: Any) -> str:
    return a_text(an_object(part).get("body"))


def button_said(part: Any) -> str:
    """The quick reply of a template."""
    return a_text(an_object(part).get("text")) or a_text(an_object(part).get("payload"))


def interactive_said(part: Any) -> str:
    """A button, a line of a list, or a form."""
    part = an_object(part)
    chosen = an_object(part.get("button_reply")) or an_object(part.get("list_reply"))
    if chosen:
        return a_text(chosen.get("title")) or a_text(chosen.get("id"))
    form = an_object(part.get("nfm_reply"))
    fields = parsed(a_text(form.get("response_json")).encode()) or {}
    lines = [f"{a_text(name)}: {spelled(value)}" for name, value in fields.items() if name != "flow_token"]
    return "\n".join(lines) or a_text(form.get("body"))


def spelled(value: Any) -> str:
    """A form's value: a text as it is, anything else as JSON."""
    return a_text(value) or a_text(json.dumps(value, ensure_ascii=False))


def location_said(part: Any) -> str:
    part = an_object(part)
    at = joined((a_text(part.get("latitude")), a_text(part.get("longitude"))))
    place = joined((a_text(part.get("name")), a_text(part.get("address"))))
    found = f"{place} ({at})" if place and at else place or at
    return "\n".join(filter(None, (f"📍 {found}" if found else "", a_text(part.get("url")))))


def contacts_said(part: Any) -> str:
    return "\n".join(f"👤 {line}" for line in map(contact_said, objects(part)) if line)


def contact_said(contact: Mapping[str, Any]) -> str:
    name, company = an_object(contact.get("name")), an_object(contact.get("org"))
    whole = a_text(name.get("formatted_name")) or a_text(name.get("first_name"))
    reached = [a_text(way.get(key)) for ways, key in (("phones", "phone"), ("emails", "email")) for way in objects(contact.get(ways))]
    return joined((whole, a_text(company.get("company")), *reached))


def order_said(part: Any) -> str:
    part = an_object(part)
    return "\n".join(filter(None, (a_text(part.get("text")), *map(item_said, objects(part.get("product_items"))))))


def item_said(item: Mapping[str, Any]) -> str:
    price = " ".join(filter(None, (a_text(item.get("item_price")), a_text(item.get("currency")))))
    line = f"🛒 {a_text(item.get('quantity')) or '1'} \N{MULTIPLICATION SIGN} {a_text(item.get('product_retailer_id'))}"
    return f"{line} ({price})" if price else line


def joined(pieces: Iterable[str]) -> str:
    return ", ".join(filter(None, pieces))


SPELLED: Mapping[str, Callable[[Any], str]] = {
    "text": text_said,
    "button": button_said,
    "interactive": interactive_said,
    "location": location_said,
    "contacts": contacts_said,
    "order": order_said,
}
