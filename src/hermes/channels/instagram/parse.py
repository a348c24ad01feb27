"""What a webhook of Instagram holds: up to a thousand things in one POST, of several entries.

A message starts a turn where somebody said something; what that is, `said` knows. An echo is what this account said, by whichever hand:
it confirms a message of ours by its id, and never starts a turn, or we would answer ourselves for ever. What comes under `standby` another
app is answering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hermes.channels.instagram.said import Said, said_in
from hermes.channels.meta import a_text, an_object, moment, objects, once, parsed
from hermes.ports.channels import DeliveryReceipt, Ignored, InboundEvent, InboundMessage, Reaction, ReceiptRank
from hermes.turn import Envelope, MessageEvent, Platform

TEST = "0"
"""The account of what the dashboard's Test button sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account of ours that a webhook came to."""

    name: str
    instagram_id: str
    now: datetime


def happenings(body: bytes, *, account: str, instagram_id: str, now: datetime, is_shared: bool = False) -> Sequence[InboundEvent]:
    """Everything in a webhook's body, in its order; of one that is shared with other accounts, only what names this one."""
    payload = parsed(body)
    if payload is None:
        return [Ignored(reason="not_json")]
    if payload.get("object") != "instagram":
        return [Ignored(reason="other_object")]
    ours = Account(name=account, instagram_id=instagram_id, now=now)
    entries = [entry for entry in objects(payload.get("entry")) if not is_shared or a_text(entry.get("id")) == instagram_id]
    found = once(happening for entry in entries for happening in in_entry(entry, ours))
    return found or [Ignored(reason="empty")]


def in_entry(entry: Mapping[str, Any], ours: Account) -> Iterator[InboundEvent]:
    named = a_text(entry.get("id"))
    if named != ours.instagram_id:
        yield Ignored(reason="test") if named == TEST else Ignored(reason="other_account", meant_for=named)
        return
    for item in objects(entry.get("messaging")):
        yield from in_item(item, ours)
    yield from (Ignored(reason="standby") for _ in objects(entry.get("standby")))
    for change in objects(entry.get("changes")):
        value = an_object(change.get("value"))
        # Comments and mentions come this way; messages do in some of Meta's own examples, and then their shape is the usual one.
        if "sender" in value and "recipient" in value:
            yield from in_item(value, ours)
        else:
            yield Ignored(reason="other_field")


def in_item(item: Mapping[str, Any], ours: Account) -> Iterator[InboundEvent]:
    sender, message = a_text(an_object(item.get("sender")).get("id")), an_object(item.get("message"))
    if message:
        yield in_message(item, message, sender, ours)
    elif not sender or sender == ours.instagram_id:
        yield Ignored(reason="echo" if sender else "incomplete")
    elif postback := an_object(item.get("postback")):
        text = a_text(postback.get("title")) or a_text(postback.get("payload"))
        yield heard(item, postback, Said(text), sender, ours) if text.strip() else Ignored(reason="incomplete")
    elif reacted := an_object(item.get("reaction")):
        yield reaction(reacted, sender)
    elif "read" in item or "delivery" in item:
        yield from receipts(item, ours)
    else:
        yield Ignored(reason="edit" if "message_edit" in item else "unknown_kind")


def in_message(item: Mapping[str, Any], message: Mapping[str, Any], sender: str, ours: Account) -> InboundEvent:
    message_id = a_text(message.get("mid"))
    if message.get("is_deleted") is True:
        return Ignored(reason="deleted")
    if not message_id or not sender:
        return Ignored(reason="incomplete")
    if message.get("is_echo") is True or sender == ours.instagram_id:
        recipient, text = a_text(an_object(item.get("recipient")).get("id")), a_text(message.get("text"))
        at = moment(item.get("timestamp"), now=ours.now)
        # Without words, and so by hand: we send nothing else.
        return DeliveryReceipt(
            message_id=message_id, rank=ReceiptRank.SENT, at=at, channel_id=recipient or None if text else None, text=text or None
        )
    said = said_in(message)
    return Ignored(reason="empty") if said is None else heard(item, message, said, sender, ours)


def heard(item: Mapping[str, Any], part: Mapping[str, Any], said: Said, sender: str, ours: Account) -> InboundMessage:
    # An old postback has no id; who pressed, and when, is as good as one.
    message_id = a_text(part.get("mid")) or f"{sender}/{a_text(item.get('timestamp'))}"
    media = (*said.media, *([said.story] if said.story else []))
    event = MessageEvent(
        platform=Platform.INSTAGRAM,
        sender_id=sender,
        text=said.text,
        media_url=said.media[0].reference if said.media else None,
        media_type=said.media_type,
    )
    return InboundMessage(
        envelope=Envelope(
            event=event,
            account=ours.name,
            channel_id=sender,
            event_key=f"{ours.instagram_id}:{message_id}",
            sent_at=moment(item.get("timestamp"), now=ours.now),
            attachments=tuple(file.reference for file in media[len(said.media[:1]) :]),
        ),
        message_id=message_id,
        media=media,
        reply_to=a_text(an_object(part.get("reply_to")).get("mid")) or None,
    )


def reaction(part: Mapping[str, Any], sender: str) -> InboundEvent:
    message_id = a_text(part.get("mid"))
    if not message_id:
        return Ignored(reason="incomplete")
    is_taken_back = a_text(part.get("action")) == "unreact"
    # Some come with a word (`love`) and without the sign.
    emoji = "" if is_taken_back else a_text(part.get("emoji")) or a_text(part.get("reaction")) or "?"
    return Reaction(message_id=message_id, sender_id=sender, emoji=emoji)


def receipts(item: Mapping[str, Any], ours: Account) -> Iterator[InboundEvent]:
    """The message that was read, or those that arrived. Older ones name only a time, and no message."""
    at = moment(item.get("timestamp"), now=ours.now)
    delivered = an_object(item.get("delivery")).get("mids")
    found = [(a_text(an_object(item.get("read")).get("mid")), ReceiptRank.READ)]
    found += [(a_text(mid), ReceiptRank.DELIVERED) for mid in (delivered if isinstance(delivered, list) else ())]
    # Without the channel: an id that nobody knows may be of what a person of ours wrote.
    named = [DeliveryReceipt(message_id=message_id, rank=rank, at=at) for message_id, rank in found if message_id]
    yield from named
    if not named:
        yield Ignored(reason="status")
