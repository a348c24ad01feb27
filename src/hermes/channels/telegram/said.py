"""What a message says, as text and files. Which kinds start a turn, and with which text:

text                              what was written
photo video voice document …      the caption; the file by its id, of a photo the largest. A sticker has no text
location venue contact poll dice  📍 👤 📊 🎲 and what they hold: a model can answer that, and the signs belong to no language
web_app_data                      what the page sent
story game checklist …            nothing, and `unsupported` as the kind: the user is told that it cannot be read
any other                         no turn: somebody joined, pinned, paid"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes.channels.meta import a_count, a_text, an_object, objects
from hermes.ports.channels import Media

UNSUPPORTED = "unsupported"
"""The media type of what nobody can read."""
SCHEME = "telegram:"
"""What references to Telegram's files begin with."""

FILES: Mapping[str, tuple[str, str]] = {
    "photo": ("image", "image/jpeg"),
    "live_photo": ("video", "video/mp4"),
    "animation": ("video", "video/mp4"),  # before document, which an animation also comes as
    "video": ("video", "video/mp4"),
    "video_note": ("video", "video/mp4"),
    "voice": ("audio", "audio/ogg"),
    "audio": ("audio", "audio/mpeg"),
    "sticker": ("sticker", "image/webp"),
    "document": ("document", "application/octet-stream"),
}
"""Files by where they stand in a message: their kind, and the type of one that comes without."""
UNREADABLE = ("checklist", "game", "giveaway", "invoice", "paid_media", "rich_message", "story")


@dataclass(frozen=True, slots=True)
class Said:
    """The contents of a message."""

    text: str
    media: Media | None = None
    media_type: str | None = None


def said_in(message: Mapping[str, Any]) -> Said | None:
    """What a message says; None for one that says nothing to us."""
    text = a_text(message.get("text")) or a_text(message.get("caption"))
    for field in FILES:
        if field in message and (file := file_in(message, field)):
            return file_said(field, file, text)
    text = text or next(filter(None, (spell(message.get(field)) for field, spell in SPELLED.items() if field in message)), "")
    if text.strip():
        return Said(text)
    return Said("", media_type=UNSUPPORTED) if any(field in message for field in (*FILES, *UNREADABLE)) else None


def file_in(message: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """A file of a message; of a photo's sizes the last, which is the largest. Empty where there is none with an id."""
    found = message.get(field)
    sizes = objects(found) if isinstance(found, list) else [an_object(found)]
    return next((size for size in reversed(sizes) if a_text(size.get("file_id"))), {})


def file_said(field: str, file: Mapping[str, Any], text: str) -> Said:
    kind, usual = FILES[field]
    if field == "sticker":
        usual = "application/x-tgsticker" if file.get("is_animated") is True else "video/webm" if file.get("is_video") is True else usual
    media = Media(
        reference=f"{SCHEME}{a_text(file.get('file_id'))}",
        kind=kind,
        mime_type=a_text(file.get("mime_type")) or usual,
        name=a_text(file.get("file_name")) or a_text(file.get("emoji")) or None,
        bytes=a_count(file.get("file_size")),
    )
    return Said(text, media, media.mime_type)


def location_said(part: Any) -> str:
    at = joined((a_text(an_object(part).get("latitude")), a_text(an_object(part).get("longitude"))))
    return f"📍 {at}" if at else ""


def venue_said(part: Any) -> str:
    part = an_object(part)
    at = location_said(part.get("location")).removeprefix("📍 ")
    place = joined((a_text(part.get("title")), a_text(part.get("address"))))
    return f"📍 {place} ({at})" if place and at else f"📍 {place or at}" if place or at else ""


def contact_said(part: Any) -> str:
    part = an_object(part)
    name = " ".join(filter(None, (a_text(part.get("first_name")), a_text(part.get("last_name")))))
    found = joined((name, a_text(part.get("phone_number"))))
    return f"👤 {found}" if found else ""


def poll_said(part: Any) -> str:
    part = an_object(part)
    options = [f"- {a_text(option.get('text'))}" for option in objects(part.get("options"))]
    question = a_text(part.get("question"))
    return "\n".join((f"📊 {question}", *options)) if question else ""


def dice_said(part: Any) -> str:
    part = an_object(part)
    value = a_text(part.get("value"))
    return f"{a_text(part.get('emoji')) or '🎲'} {value}" if value else ""


def web_app_said(part: Any) -> str:
    return a_text(an_object(part).get("data"))


def joined(pieces: Iterable[str]) -> str:
    return ", ".join(filter(None, pieces))


SPELLED: Mapping[str, Callable[[Any], str]] = {
    "venue": venue_said,  # before location, which a venue also comes as
    "location": location_said,
    "contact": contact_said,
    "poll": poll_said,
    "dice": dice_said,
    "web_app_data": web_app_said,
}
