"""The content of a message, as text and a file. Which kinds start a turn, and with which text:

text                              the text
photo video voice document …      the caption; the file by its id, of a photo the largest size. A sticker has no text
location venue contact poll dice  📍 👤 📊 🎲 and their values: a model can answer that, and the emoji belong to no language
web_app_data                      what the web app sent
story game checklist …            no text, and the media type `unsupported`: Hermes tells the user that it cannot read it
any other                         no turn: a user joined, pinned, paid"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes.channels.webhook_values import as_int, as_object, as_text, objects_in
from hermes.ports.channels import Media

UNSUPPORTED = "unsupported"
"""The media type of a message that Hermes cannot read."""
SCHEME = "telegram:"
"""The beginning of a reference to one of Telegram's files."""

FILE_FIELDS: Mapping[str, tuple[str, str]] = {
    "photo": ("image", "image/jpeg"),
    "live_photo": ("video", "video/mp4"),
    "animation": ("video", "video/mp4"),  # before document: Telegram also sends an animation as a document
    "video": ("video", "video/mp4"),
    "video_note": ("video", "video/mp4"),
    "voice": ("audio", "audio/ogg"),
    "audio": ("audio", "audio/mpeg"),
    "sticker": ("sticker", "image/webp"),
    "document": ("document", "application/octet-stream"),
}
"""The fields of a message that hold a file: the kind of file, and its media type if the message names none."""
UNSUPPORTED_FIELDS = ("checklist", "game", "giveaway", "invoice", "paid_media", "rich_message", "story")


@dataclass(frozen=True, slots=True)
class TelegramContent:
    """Text and file of a message."""

    text: str
    media: Media | None = None
    media_type: str | None = None


def content_of(message: Mapping[str, Any]) -> TelegramContent | None:
    """The content of a message; None for one that starts no turn."""
    text = as_text(message.get("text")) or as_text(message.get("caption"))
    for field in FILE_FIELDS:
        if field in message and (file := file_in(message, field)):
            return file_content(field, file, text)
    text = text or next(filter(None, (spell(message.get(field)) for field, spell in TEXT_BY_FIELD.items() if field in message)), "")
    if text.strip():
        return TelegramContent(text)
    return TelegramContent("", media_type=UNSUPPORTED) if any(field in message for field in (*FILE_FIELDS, *UNSUPPORTED_FIELDS)) else None


def file_in(message: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """The file in a field; of a photo's sizes the last, which is the largest. Empty if none has an id."""
    found = message.get(field)
    sizes = objects_in(found) if isinstance(found, list) else [as_object(found)]
    return next((size for size in reversed(sizes) if as_text(size.get("file_id"))), {})


def file_content(field: str, file: Mapping[str, Any], text: str) -> TelegramContent:
    kind, default = FILE_FIELDS[field]
    if field == "sticker":
        default = (
            "application/x-tgsticker" if file.get("is_animated") is True else "video/webm" if file.get("is_video") is True else default
        )
    media = Media(
        reference=f"{SCHEME}{as_text(file.get('file_id'))}",
        kind=kind,
        mime_type=as_text(file.get("mime_type")) or default,
        name=as_text(file.get("file_name")) or as_text(file.get("emoji")) or None,
        bytes=as_int(file.get("file_size")),
    )
    return TelegramContent(text, media, media.mime_type)


def location_text(part: Any) -> str:
    at = comma_join((as_text(as_object(part).get("latitude")), as_text(as_object(part).get("longitude"))))
    return f"📍 {at}" if at else ""


def venue_text(part: Any) -> str:
    part = as_object(part)
    at = location_text(part.get("location")).removeprefix("📍 ")
    place = comma_join((as_text(part.get("title")), as_text(part.get("address"))))
    return f"📍 {place} ({at})" if place and at else f"📍 {place or at}" if place or at else ""


def contact_text(part: Any) -> str:
    part = as_object(part)
    name = " ".join(filter(None, (as_text(part.get("first_name")), as_text(part.get("last_name")))))
    found = comma_join((name, as_text(part.get("phone_number"))))
    return f"👤 {found}" if found else ""


def poll_text(part: Any) -> str:
    part = as_object(part)
    options = [f"- {as_text(option.get('text'))}" for option in objects_in(part.get("options"))]
    question = as_text(part.get("question"))
    return "\n".join((f"📊 {question}", *options)) if question else ""


def dice_text(part: Any) -> str:
    part = as_object(part)
    value = as_text(part.get("value"))
    return f"{as_text(part.get('emoji')) or '🎲'} {value}" if value else ""


def web_app_text(part: Any) -> str:
    return as_text(as_object(part).get("data"))


def comma_join(pieces: Iterable[str]) -> str:
    return ", ".join(filter(None, pieces))


TEXT_BY_FIELD: Mapping[str, Callable[[Any], str]] = {
    "venue": venue_text,  # before location: Telegram also sends a venue as a location
    "location": location_text,
    "contact": contact_text,
    "poll": poll_text,
    "dice": dice_text,
    "web_app_data": web_app_text,
}
