"""The inbound events of an Instagram webhook: up to a thousand in one POST, in several entries.

A message with content starts a turn; `content_of` says which kinds have some. An echo is a message that this account sent, through
Hermes or by hand. It confirms a message of Hermes by its id, and never starts a turn, or Hermes would answer itself for ever. Another app
answers the events under `standby`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hermes.channels.webhook_values import as_object, as_text, as_time, mark_duplicates, objects_in, parse_object
from hermes.ports.channels import DeliveryReceipt, Ignored, InboundEvent, InboundMessage, Media, Reaction, ReceiptRank
from hermes.turn import Envelope, MessageEvent, Platform

TEST_ACCOUNT_ID = "0"
"""The account id in the webhook that the Test button of Meta's dashboard sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstagramAccount:
    """The account that received a webhook."""

    name: str
    instagram_id: str
    now: datetime


def parse_events(body: bytes, *, account: str, instagram_id: str, now: datetime, is_shared: bool = False) -> Sequence[InboundEvent]:
    """All events of a webhook's body, in its order; of a webhook that several accounts share, only those that name this account."""
    payload = parse_object(body)
    if payload is None:
        return [Ignored(reason="not_json")]
    if payload.get("object") != "instagram":
        return [Ignored(reason="other_object")]
    receiver = InstagramAccount(name=account, instagram_id=instagram_id, now=now)
    entries = [entry for entry in objects_in(payload.get("entry")) if not is_shared or as_text(entry.get("id")) == instagram_id]
    found = mark_duplicates(event for entry in entries for event in events_in_entry(entry, receiver))
    return found or [Ignored(reason="empty")]


def events_in_entry(entry: Mapping[str, Any], account: InstagramAccount) -> Iterator[InboundEvent]:
    named = as_text(entry.get("id"))
    if named != account.instagram_id:
        yield Ignored(reason="test") if named == TEST_ACCOUNT_ID else Ignored(reason="other_account", meant_for=named)
        return
    for item in objects_in(entry.get("messaging")):
        yield from events_in_item(item, account)
    yield from (Ignored(reason="standby") for _ in objects_in(entry.get("standby")))
    for change in objects_in(entry.get("changes")):
        value = as_object(change.get("value"))
        # Meta sends comments and mentions this way. In some of Meta's own examples messages come this way too, in their usual shape.
        if "sender" in value and "recipient" in value:
            yield from events_in_item(value, account)
        else:
            yield Ignored(reason="other_field")


def events_in_item(item: Mapping[str, Any], account: InstagramAccount) -> Iterator[InboundEvent]:
    sender, message = as_text(as_object(item.get("sender")).get("id")), as_object(item.get("message"))
    if message:
        yield event_in_message(item, message, sender, account)
    elif not sender or sender == account.instagram_id:
        yield Ignored(reason="echo" if sender else "incomplete")
    elif postback := as_object(item.get("postback")):
        text = as_text(postback.get("title")) or as_text(postback.get("payload"))
        content = InstagramContent(text, choice=as_text(postback.get("payload")))
        yield inbound_message(item, postback, content, sender, account) if text.strip() else Ignored(reason="incomplete")
    elif reacted := as_object(item.get("reaction")):
        yield parse_reaction(reacted, sender)
    elif "read" in item or "delivery" in item:
        yield from parse_receipts(item, account)
    else:
        yield Ignored(reason="edit" if "message_edit" in item else "unknown_kind")


def event_in_message(item: Mapping[str, Any], message: Mapping[str, Any], sender: str, account: InstagramAccount) -> InboundEvent:
    message_id = as_text(message.get("mid"))
    if message.get("is_deleted") is True:
        return Ignored(reason="deleted")
    if not message_id or not sender:
        return Ignored(reason="incomplete")
    if message.get("is_echo") is True or sender == account.instagram_id:
        recipient, text = as_text(as_object(item.get("recipient")).get("id")), as_text(message.get("text"))
        at = as_time(item.get("timestamp"), now=account.now)
        # An echo without text was sent by hand: Hermes sends nothing but text.
        return DeliveryReceipt(
            message_id=message_id, rank=ReceiptRank.SENT, at=at, channel_id=recipient or None if text else None, text=text or None
        )
    content = content_of(message)
    return Ignored(reason="empty") if content is None else inbound_message(item, message, content, sender, account)


def inbound_message(
    item: Mapping[str, Any], part: Mapping[str, Any], content: InstagramContent, sender: str, account: InstagramAccount
) -> InboundMessage:
    # An old postback has no id; the sender and the time together identify it.
    message_id = as_text(part.get("mid")) or f"{sender}/{as_text(item.get('timestamp'))}"
    media = (*content.media, *([content.story] if content.story else []))
    event = MessageEvent(
        platform=Platform.INSTAGRAM,
        sender_id=sender,
        text=content.text,
        media_url=content.media[0].reference if content.media else None,
        media_type=content.media_type,
    )
    return InboundMessage(
        envelope=Envelope(
            event=event,
            account=account.name,
            channel_id=sender,
            event_key=f"{account.instagram_id}:{message_id}",
            sent_at=as_time(item.get("timestamp"), now=account.now),
            attachments=tuple(file.reference for file in media[len(content.media[:1]) :]),
            choice=content.choice,
        ),
        message_id=message_id,
        media=media,
        reply_to=as_text(as_object(part.get("reply_to")).get("mid")) or None,
    )


def parse_reaction(part: Mapping[str, Any], sender: str) -> InboundEvent:
    message_id = as_text(part.get("mid"))
    if not message_id:
        return Ignored(reason="incomplete")
    is_removed = as_text(part.get("action")) == "unreact"
    # Some reactions come with a word (`love`) and without the emoji.
    emoji = "" if is_removed else as_text(part.get("emoji")) or as_text(part.get("reaction")) or "?"
    return Reaction(message_id=message_id, sender_id=sender, emoji=emoji)


def parse_receipts(item: Mapping[str, Any], account: InstagramAccount) -> Iterator[InboundEvent]:
    """The message that the user read, or the messages that arrived. Older receipts name only a time, and no message."""
    at = as_time(item.get("timestamp"), now=account.now)
    delivered = as_object(item.get("delivery")).get("mids")
    found = [(as_text(as_object(item.get("read")).get("mid")), ReceiptRank.READ)]
    found += [(as_text(mid), ReceiptRank.DELIVERED) for mid in (delivered if isinstance(delivered, list) else ())]
    # Without the channel id: an unknown message id may be of a message that the operator's staff wrote.
    named = [DeliveryReceipt(message_id=message_id, rank=rank, at=at) for message_id, rank in found if message_id]
    yield from named
    if not named:
        yield Ignored(reason="status")


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
    choice: str = ""
    """The payload of the button that was pressed."""


def content_of(message: Mapping[str, Any]) -> InstagramContent | None:
    """The content of a message; None for an empty message. Which kinds start a turn, and with which text:

    text, quick replies, postbacks    the text, or the text of the button
    image video audio file            the file by its public URL, which lives for some days
    share, post, reel, story, mention in a story    the same: Hermes reads what the user shared as if the user had sent it
    a reply to a story                the text; the story's URL is kept beside it as an attachment
    a heart                           ❤️
    unsupported, a file without a URL    no text, and the media type `unsupported`: Hermes tells the user that it cannot read it"""
    attached = objects_in(message.get("attachments"))
    hearts = [attachment for attachment in attached if attachment.get("type") == "like_heart"]
    text = as_text(message.get("text")) or as_text(as_object(message.get("quick_reply")).get("payload")) or HEART * len(hearts[:1])
    files = [found for attachment in attached if (found := file_in(attachment)) is not None]
    media = [file for file, _ in files]
    story = story_of(message)
    if files:
        return InstagramContent(text, media, files[0][1], story)
    if text.strip():
        return InstagramContent(text, story=story, choice=as_text(as_object(message.get("quick_reply")).get("payload")))
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
