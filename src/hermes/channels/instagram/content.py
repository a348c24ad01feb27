"""The content of a message, as text and files. Which kinds start a turn, and with which text:

text, quick replies, postbacks    the text, or the text of the button
image video audio file            the file by its public URL, which lives for some days
share, post, reel, story, mention in a story    the same: Hermes reads what the user shared as if the user had sent it
a reply to a story                the text; the story's URL is kept beside it as an attachment
a heart                           ❤️
unsupported, a file without a URL    no text, and the media type `unsupported`: Hermes tells the user that it cannot read it"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.channels.meta import as_object, as_text, objects_in
from hermes.ports.channels import Media

UNSUPPORTED = "unsupported"
"""The media type of a message that Hermes cannot read."""
HEART = "❤️"

ATTACHMENT_KINDS: Mapping[str, tuple[str, str | None]] = {
    "image": ("image", "image/*"),
    "video": ("video", "video/*"),
    "audio": ("audio", "audio/*"),
    "file": ("document", "application/octet-stream"),
    "ig_reel": ("video", "video/*"),
    "reel": ("video", "video/*"),
}
"""The kind of an attachment, and the media type of its file. For any other kind only the bytes tell: a story is an image or a video."""


@dataclass(frozen=True, slots=True)
class InstagramContent:
    """Text and files of a message."""

    text: str
    media: Sequence[Media] = ()
    media_type: str | None = None
    story: Media | None = None
    """The story that the message replies to."""


def content_of(message: Mapping[str, Any]) -> InstagramContent | None:
    """The content of a message; None for an empty message."""
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
    """An attachment as a file and its media type; None if it has no public URL."""
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
