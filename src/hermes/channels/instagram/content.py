"""What a message says, as text and files. Which kinds start a turn, and with which text:

text, quick replies, postbacks    what was written, or what stood on the button
image video audio file            the file, by its public address, which lives for some days
share, post, reel, story, mention in a story    the same: what is shared is looked at as if it had been sent
an answer to a story              the text; the story's address is kept beside it, as an attachment
a heart                           ❤️
unsupported, a file without an address    nothing, and `unsupported` as the kind: the user is told that it cannot be read"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.channels.meta import as_object, as_text, objects_in
from hermes.ports.channels import Media

UNSUPPORTED = "unsupported"
"""The media type of what nobody can read."""
HEART = "❤️"

ATTACHMENT_KINDS: Mapping[str, tuple[str, str | None]] = {
    "image": ("image", "image/*"),
    "video": ("video", "video/*"),
    "audio": ("audio", "audio/*"),
    "file": ("document", "application/octet-stream"),
    "ig_reel": ("video", "video/*"),
    "reel": ("video", "video/*"),
}
"""What an attachment is, and the type of its file. Of anything else only its bytes tell: a story is a picture or a film."""


@dataclass(frozen=True, slots=True)
class InstagramContent:
    """The contents of a message."""

    text: str
    media: Sequence[Media] = ()
    media_type: str | None = None
    story: Media | None = None
    """What it answers, where that is a story."""


def content_of(message: Mapping[str, Any]) -> InstagramContent | None:
    """What a message says; None where there is nothing in it."""
    attached = objects_in(message.get("attachments"))
    hearts = [attachment for attachment in attached if attachment.get("type") == "like_heart"]
    text = as_text(message.get("text")) or as_text(as_object(message.get("quick_reply")).get("payload")) or HEART * len(hearts[:1])
    files = [found for attachment in attached if (found := file_in(attachment)) is not None]
    media = [file for file, _ in files]
    story = story_of(message)
    if files:
        return InstagramContent(text, media, files[0][1], story)
    if text.strip():
        return InstagramContent(text, story=story)
    return InstagramContent("", media_type=UNSUPPORTED, story=story) if attached or message.get("is_unsupported") is True else None


def file_in(attachment: Mapping[str, Any]) -> tuple[Media, str | None] | None:
    """An attachment as a file and its type; None where it has no address that anybody could ask."""
    payload, kind = as_object(attachment.get("payload")), as_text(attachment.get("type"))
    address = public_url(payload.get("url")) or public_url(payload.get("story_media_url"))
    if address is None:
        return None
    named, media_type = ATTACHMENT_KINDS.get(kind, (kind or "file", None))
    return Media(reference=address, kind=named, name=as_text(payload.get("title")) or None), media_type


def story_of(message: Mapping[str, Any]) -> Media | None:
    story = as_object(as_object(message.get("reply_to")).get("story"))
    address = public_url(story.get("url"))
    return None if address is None else Media(reference=address, kind="story")


def public_url(address: Any) -> str | None:
    text = as_text(address)
    return text if text.startswith("https://") else None
