"""The inbound events of a WhatsApp webhook. Every level is a list, and one POST may hold many messages, receipts and errors at once.

A message with content starts a turn; the module `content` says which kinds have some. Nothing else starts one: not edits and revoked
messages, not echoes of what the operator's staff wrote in the app, not what another agent on the same number handles (`standby`), and not
notices about the account."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from hermes.channels.meta import MetaErrorDetails, describe_error, outcome_of, read_error
from hermes.channels.webhook_values import as_object, as_text, as_time, mark_duplicates, objects_in, parse_object, reference_of
from hermes.channels.whatsapp.content import WhatsAppContent, content_of
from hermes.ports.channels import DeliveryReceipt, IdChanged, Ignored, InboundEvent, InboundMessage, Reaction, ReceiptRank, SendOutcome
from hermes.turn import Envelope, MessageEvent, Platform

OUTCOME_BY_SUBCODE: Mapping[int, SendOutcome] = {
    33: SendOutcome.UNAUTHORIZED,  # the number in the path does not belong to the account
}
"""The error subcodes that decide the outcome at WhatsApp."""


RANKS = {
    "sent": ReceiptRank.SENT,
    "delivered": ReceiptRank.DELIVERED,
    "read": ReceiptRank.READ,
    "played": ReceiptRank.READ,
    "failed": ReceiptRank.FAILED,
}
ECHO_FIELDS = {"smb_message_echoes", "message_echoes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatsAppNumber:
    """The number that received a webhook, and the users that one of its changes names."""

    account: str
    phone_number_id: str | None
    """None: the settings name none, so it is unknown until a change names it."""
    now: datetime
    own: str = ""
    """The number itself, as people dial it."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The senders' own names, by number and by user id."""
    user_ids: Mapping[str, str] = field(default_factory=dict)
    """The user ids of senders who also have a number, by number."""
    repeats_references: bool = False
    """Whether every status repeats the reference that Hermes gave the message."""


def parse_events(
    body: bytes,
    *,
    account: str,
    phone_number_id: str | None,
    now: datetime,
    is_shared: bool = False,
    repeats_references: bool = False,
) -> Sequence[InboundEvent]:
    """All events of a webhook's body, in its order; of a webhook that several numbers share, only those that name this number."""
    payload = parse_object(body)
    if payload is None:
        return [Ignored(reason="not_json")]
    if payload.get("object", "whatsapp_business_account") != "whatsapp_business_account":
        return [Ignored(reason="other_object")]
    number = WhatsAppNumber(account=account, phone_number_id=phone_number_id, now=now, repeats_references=repeats_references)
    changes = [change for entry in objects_in(payload.get("entry")) for change in objects_in(entry.get("changes"))]
    if is_shared:
        changes = [
            change for change in changes if phone_number_id and phone_number_id_in(as_object(change.get("value"))) == phone_number_id
        ]
    return mark_duplicates(event for change in changes for event in events_in_change(change, number)) or [Ignored(reason="empty")]


def events_in_change(change: Mapping[str, Any], number: WhatsAppNumber) -> Iterator[InboundEvent]:
    value, kind = as_object(change.get("value")), as_text(change.get("field"))
    if kind in ECHO_FIELDS:
        yield from (Ignored(reason="echo") for _ in objects_in(value.get("message_echoes")) or [value])
    elif kind == "standby":
        yield Ignored(reason="standby")
    elif kind not in {"messages", "user_id_update"}:
        yield Ignored(reason="other_field")
    elif (detailed := number_for_change(value, number)) is None:
        yield Ignored(reason="other_account", meant_for=phone_number_id_in(value))
    else:
        yield from events_in_value(value, detailed)


def phone_number_id_in(value: Mapping[str, Any]) -> str:
    """The id of the number that a change names; empty if it names none."""
    return as_text(as_object(value.get("metadata")).get("phone_number_id"))


def number_for_change(value: Mapping[str, Any], number: WhatsAppNumber) -> WhatsAppNumber | None:
    """The number, with what a change says about it and about the senders; None if the change is about another number.

    A change that names no number is about this one: it came to this number's webhook URL, and the webhook was authentic."""
    named = phone_number_id_in(value)
    if named and number.phone_number_id and named != number.phone_number_id:
        return None
    names: dict[str, str] = {}
    user_ids: dict[str, str] = {}
    for contact in objects_in(value.get("contacts")):
        profile, phone, user_id = as_object(contact.get("profile")), as_text(contact.get("wa_id")), as_text(contact.get("user_id"))
        name = as_text(profile.get("name")) or as_text(profile.get("username"))
        names |= dict.fromkeys(filter(None, (phone, user_id)), name)
        user_ids |= {phone: user_id} if phone and user_id else {}
    own = as_text(as_object(value.get("metadata")).get("display_phone_number")).lstrip("+")
    return replace(number, phone_number_id=number.phone_number_id or named, own=own, names=names, user_ids=user_ids)


def events_in_value(value: Mapping[str, Any], number: WhatsAppNumber) -> Iterator[InboundEvent]:
    for message in objects_in(value.get("messages")):
        yield from events_in_message(message, number)
    yield from (parse_receipt(status, number) for status in objects_in(value.get("statuses")))
    yield from (Ignored(reason="error") for _ in objects_in(value.get("errors")))
    for update in objects_in(value.get("user_id_update")):
        ids = as_object(update.get("user_id"))
        yield from id_changes((ids.get("previous"), ids.get("current")))


def events_in_message(message: Mapping[str, Any], number: WhatsAppNumber) -> Iterator[InboundEvent]:
    phone, user_id, kind = as_text(message.get("from")), as_text(message.get("from_user_id")), as_text(message.get("type"))
    sender = phone or user_id
    if kind == "system":
        yield from events_in_system(as_object(message.get("system")), phone)
    elif kind in {"edit", "revoke"}:
        yield Ignored(reason=kind)
    elif not sender or not as_text(message.get("id")):
        yield Ignored(reason="incomplete")
    elif sender == number.own:
        yield Ignored(reason="echo")
    elif kind == "reaction":
        yield parse_reaction(as_object(message.get("reaction")), sender)
    elif (content := content_of(message)) is None:
        yield Ignored(reason="unknown_kind")
    else:
        yield inbound_message(message, content, sender, number)


def inbound_message(message: Mapping[str, Any], content: WhatsAppContent, sender: str, number: WhatsAppNumber) -> InboundMessage:
    message_id, group_id = as_text(message.get("id")), as_text(message.get("group_id"))
    user_id = as_text(message.get("from_user_id")) or number.user_ids.get(sender, "")
    event = MessageEvent(
        platform=Platform.WHATSAPP,
        sender_id=sender,
        text=content.text,
        media_url=reference_of(content.media, number.account),
        media_type=content.media_type,
    )
    return InboundMessage(
        envelope=Envelope(
            event=event,
            account=number.account,
            channel_id=group_channel_id(group_id) if group_id else sender,
            event_key=f"{number.phone_number_id}:{message_id}",
            sent_at=as_time(message.get("timestamp"), now=number.now),
            is_shared=bool(group_id),
            choice=content.choice,
        ),
        message_id=message_id,
        media=(content.media,) if content.media else (),
        reply_to=as_text(as_object(message.get("context")).get("id")) or None,
        name=number.names.get(sender) or number.names.get(user_id) or None,
        alias=user_id if user_id and user_id != sender else None,
    )


def parse_reaction(part: Mapping[str, Any], sender: str) -> InboundEvent:
    message_id = as_text(part.get("message_id"))
    if not message_id:
        return Ignored(reason="incomplete")
    return Reaction(message_id=message_id, sender_id=sender, emoji=as_text(part.get("emoji")))


def events_in_system(system: Mapping[str, Any], phone: str) -> Iterator[InboundEvent]:
    """A user changed the number, and with it the user id; or only the user id, if the user hides the number.

    If the new number is hidden too, the user with the old number is known by the user id from now on."""
    is_known = as_text(system.get("type")) in {"user_changed_number", "user_changed_user_id"}
    new_number = system.get("wa_id") or system.get("new_wa_id")
    new_user_id, old_user_id = system.get("user_id"), system.get("previous_user_id")
    changes = ((phone, new_number or new_user_id), (old_user_id, new_user_id)) if is_known else ()
    yield from id_changes(*changes)


def id_changes(*changes: tuple[Any, Any]) -> Sequence[InboundEvent]:
    """The pairs in which an id really changed; without any, one Ignored, so that every event is counted."""
    ids = [(as_text(old), as_text(new)) for old, new in changes]
    return [IdChanged(old=old, new=new) for old, new in ids if old and new and old != new] or [Ignored(reason="system")]


def parse_receipt(status: Mapping[str, Any], number: WhatsAppNumber) -> InboundEvent:
    message_id, rank = as_text(status.get("id")), RANKS.get(as_text(status.get("status")))
    if not message_id or rank is None:
        return Ignored(reason="status")
    errors = objects_in(status.get("errors")) if rank is ReceiptRank.FAILED else []
    error = read_error(errors[0]) if errors else MetaErrorDetails()
    reference = as_text(status.get("biz_opaque_callback_data")) or None
    # Meta sends every app of a number the statuses of all apps' messages.
    is_ours = reference is not None or not number.repeats_references
    return DeliveryReceipt(
        message_id=message_id,
        rank=rank,
        at=as_time(status.get("timestamp"), now=number.now),
        error=outcome_of(error, FAILED_HTTP_STATUS, OUTCOME_BY_SUBCODE) if rank is ReceiptRank.FAILED else None,
        detail=describe_error(error, None, ()),
        channel_id=recipient_of(status) if is_ours else None,
        reference=reference,
    )


def recipient_of(status: Mapping[str, Any]) -> str | None:
    """The channel id that a message was sent to."""
    recipient = as_text(status.get("recipient_id")) or as_text(status.get("recipient_user_id"))
    return group_channel_id(recipient) if recipient and as_text(status.get("recipient_type")) == "group" else recipient or None


FAILED_HTTP_STATUS = 400
"""The HTTP status that stands for an error in a receipt, which has none."""


GROUP_PREFIX = "group:"
"""The form of a channel id says what it is, so that the answer goes to the right field of a request:

    16505551234           a user's number: only digits
    CO.1047385771169864   the user id of a user who hides the number: a country, a dot, letters or digits
    group:Y2FwaV9ncm91c…  a group

Hermes replies to a number exactly as WhatsApp sent it: in some countries it differs from the number that people dial."""


def group_channel_id(group_id: str) -> str:
    """The channel id of a group."""
    return f"{GROUP_PREFIX}{group_id}"


def is_group(channel_id: str) -> bool:
    return channel_id.startswith(GROUP_PREFIX)


def recipient_fields(channel_id: str) -> Mapping[str, str]:
    """The fields of a request that say where the message goes."""
    if is_group(channel_id):
        return {"recipient_type": "group", "to": channel_id.removeprefix(GROUP_PREFIX)}
    key = "to" if channel_id.isascii() and channel_id.isdigit() else "recipient"
    return {"recipient_type": "individual", key: channel_id}
