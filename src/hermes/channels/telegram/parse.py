"""The inbound events of one update.

message business_message     InboundMessage, if a person wrote it; in a group, if it is for the bot
                             IdChanged, if it says that a group became a supergroup
callback_query               InboundMessage: a user pressed a button; its data, which Hermes wrote, is the choice, and its label the text
message_reaction             Reaction of a user, or of a chat (`actor_chat`, if the user is anonymous), to a message
my_chat_member               ReachabilityChanged: a user blocked or unblocked the bot, a group added or removed it
any other                    Ignored, unknown kinds too. Edits never start a turn; posts in channels are for their readers; Hermes cannot
                             answer a guest's message or an inline query with a message

The message id of a pressed button is `callback:ID`. For such a message the typing request is `answerCallbackQuery`: it confirms the press;
without it the button shows that it waits. Each item of an album is its own update; in a group Hermes reads only the item whose caption
mentions the bot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from hermes.channels.telegram.content import TelegramContent, content_of
from hermes.channels.webhook_values import as_int, as_object, as_text, as_time, objects_in, parse_object, reference_of
from hermes.ports.channels import Destination, IdChanged, Ignored, InboundEvent, InboundMessage, ReachabilityChanged, Reaction
from hermes.turn import Envelope, MessageEvent, Platform

CALLBACK_PREFIX = "callback:"


@dataclass(frozen=True, slots=True)
class UpdateContext:
    """What the parsers know of an update beside its body: the bot that received it, the key of the update, and the time."""

    account: str
    bot_id: str
    username: str | None
    event_key: str
    now: datetime


def parse_events(body: bytes, *, account: str, bot_id: str, username: str | None, now: datetime) -> list[InboundEvent]:
    """The events of an update: one for each field beside `update_id`, so usually one."""
    payload = parse_object(body)
    if payload is None:
        return [Ignored(reason="not_json")]
    number = as_int(payload.get("update_id"))
    if number is None:
        return [Ignored(reason="not_an_update")]
    update = UpdateContext(account, bot_id, username, f"{bot_id}:{number}", now)
    found = [parse_event(kind, as_object(value), update) for kind, value in payload.items() if kind != "update_id"]
    return found or [Ignored(reason="empty")]


def parse_event(kind: str, value: Mapping[str, Any], update: UpdateContext) -> InboundEvent:
    read = EVENT_PARSERS.get(kind)
    if read is not None:
        return read(value, update)
    return Ignored(reason=kind if kind in IGNORED_KINDS else "unknown_kind")


# --- messages


def parse_message(message: Mapping[str, Any], update: UpdateContext) -> InboundEvent:
    chat, sender = as_object(message.get("chat")), as_object(message.get("from"))
    moved = parse_migration(message)
    content = content_of(message)
    if moved is not None:
        return moved
    reason = ignore_reason(message, chat, sender) or ("service_message" if content is None else "")
    if not reason and is_group(chat) and not is_addressed(message, bot_id=update.bot_id, username=update.username):
        reason = "not_addressed"
    if content is None or reason:
        return Ignored(reason=reason)
    replied_to = as_object(message.get("reply_to_message"))  # in a topic it may be the service message that created the topic
    return InboundMessage(
        envelope=build_envelope(message, sender, content, update),
        message_id=as_text(message.get("message_id")),
        media=(content.media,) if content.media is not None else (),
        album=as_text(message.get("media_group_id")) or None,
        reply_to=as_text(replied_to.get("message_id")) or None if "forum_topic_created" not in replied_to else None,
        name=sender_name(sender),
    )


def parse_migration(message: Mapping[str, Any]) -> IdChanged | None:
    """A group that became a supergroup. Telegram says so twice: under the old chat id and under the new one."""
    chat_id = as_text(as_object(message.get("chat")).get("id"))
    new_id, old_id = as_text(message.get("migrate_to_chat_id")), as_text(message.get("migrate_from_chat_id"))
    if chat_id and new_id:
        return IdChanged(old=chat_id, new=new_id)
    return IdChanged(old=old_id, new=chat_id) if chat_id and old_id else None


def ignore_reason(message: Mapping[str, Any], chat: Mapping[str, Any], sender: Mapping[str, Any]) -> str:
    """Why Hermes ignores a message; empty for a message that it reads."""
    if not as_text(chat.get("id")) or not as_text(message.get("message_id")):
        return "incomplete"
    if sender.get("is_bot") is True or "sender_business_bot" in message:
        return "from_bot"  # two bots that answer each other never stop
    if "sender_chat" in message or not as_text(sender.get("id")):
        return "from_chat"
    if message.get("business_connection_id") and as_text(sender.get("id")) != as_text(chat.get("id")):
        return "from_business"
    if chat.get("is_direct_messages") is True:
        return "to_channel"
    return ""


def is_group(chat: Mapping[str, Any]) -> bool:
    """By the chat's type, or by its number if an old update has no type."""
    kind = as_text(chat.get("type"))
    return kind != "private" if kind else (as_int(chat.get("id")) or 0) < 0


def build_envelope(message: Mapping[str, Any], sender: Mapping[str, Any], content: TelegramContent, update: UpdateContext) -> Envelope:
    event = MessageEvent(
        platform=Platform.TELEGRAM,
        sender_id=as_text(sender.get("id")),
        text=content.text,
        media_url=reference_of(content.media, update.account),
        media_type=content.media_type,
    )
    return Envelope(
        event=event,
        account=update.account,
        channel_id=channel_id_of(message),
        event_key=update.event_key,
        sent_at=as_time(message.get("date"), now=update.now),
        thread=thread_of(message),
        is_shared=is_group(as_object(message.get("chat"))),
    )


def sender_name(sender: Mapping[str, Any]) -> str | None:
    whole = " ".join(filter(None, (as_text(sender.get("first_name")), as_text(sender.get("last_name")))))
    return whole or as_text(sender.get("username")) or None


# --- other events


def parse_callback(callback: Mapping[str, Any], update: UpdateContext) -> InboundEvent:
    """A pressed button. Telegram does not say when the user pressed it; the message's date is that of the question."""
    message, sender = as_object(callback.get("message")), as_object(callback.get("from"))
    data, callback_id = as_text(callback.get("data")), as_text(callback.get("id"))
    if not (data and callback_id and channel_id_of(message) and as_text(sender.get("id"))) or sender.get("is_bot") is True:
        return Ignored(reason="callback_query")
    undated = {key: value for key, value in message.items() if key != "date"}
    content = TelegramContent(pressed_label(message, data) or data)
    return InboundMessage(
        envelope=replace(build_envelope(undated, sender, content, update), choice=data),
        message_id=f"{CALLBACK_PREFIX}{callback_id}",
        reply_to=as_text(message.get("message_id")) or None,
        name=sender_name(sender),
    )


def pressed_label(message: Mapping[str, Any], data: str) -> str:
    """The label of the button with this data; empty if the message does not show it any more."""
    rows = as_object(message.get("reply_markup")).get("inline_keyboard")
    buttons = [button for row in (rows if isinstance(rows, list) else ()) for button in objects_in(row)]
    return next((as_text(button.get("text")) for button in buttons if button.get("callback_data") == data), "")


def parse_reaction(reaction: Mapping[str, Any], update: UpdateContext) -> InboundEvent:  # noqa: ARG001 - all event parsers are called alike
    """A reaction of a user or a chat to a message; of several reactions, the last."""
    message_id = as_text(reaction.get("message_id"))
    sender = as_object(reaction.get("user")) or as_object(reaction.get("actor_chat"))
    if not message_id or not as_text(sender.get("id")):
        return Ignored(reason="message_reaction")
    emojis = [emoji_of(kind) for kind in objects_in(reaction.get("new_reaction"))]
    return Reaction(
        message_id=message_id,
        sender_id=as_text(sender.get("id")),
        emoji=emojis[-1] if emojis else "",
        channel_id=channel_id_of(reaction) or None,
    )


def emoji_of(kind: Mapping[str, Any]) -> str:
    """A reaction as an emoji. A custom emoji has no character, so it becomes the replacement character."""
    return as_text(kind.get("emoji")) or ("⭐" if kind.get("type") == "paid" else "\N{REPLACEMENT CHARACTER}")


def parse_membership(change: Mapping[str, Any], update: UpdateContext) -> InboundEvent:  # noqa: ARG001 - all event parsers are called alike
    """The bot's own status in a chat. In a private chat the chat id is the user's id; a group is reachable, or not, as a whole."""
    chat_id = as_text(as_object(change.get("chat")).get("id"))
    member = as_object(change.get("new_chat_member"))
    status = as_text(member.get("status"))
    if not chat_id or not status:
        return Ignored(reason="my_chat_member")
    is_muted = status == "restricted" and (member.get("is_member") is False or member.get("can_send_messages") is False)
    return ReachabilityChanged(sender_id=chat_id, is_reachable=status not in ("kicked", "left") and not is_muted)


EVENT_PARSERS: Mapping[str, Callable[[Mapping[str, Any], UpdateContext], InboundEvent]] = {
    "message": parse_message,
    "business_message": parse_message,
    "callback_query": parse_callback,
    "message_reaction": parse_reaction,
    "my_chat_member": parse_membership,
}
IGNORED_KINDS = frozenset(
    {
        "edited_message",
        "channel_post",
        "edited_channel_post",
        "business_connection",
        "edited_business_message",
        "deleted_business_messages",
        "guest_message",
        "message_reaction_count",
        "inline_query",
        "chosen_inline_result",
        "shipping_query",
        "pre_checkout_query",
        "purchased_paid_media",
        "poll",
        "poll_answer",
        "chat_member",
        "chat_join_request",
        "chat_boost",
        "removed_chat_boost",
        "managed_bot",
        "subscription",
        "stopped_message_generation",
    }
)
"""Kinds that Hermes knows and ignores; each is counted under its own name."""


def is_addressed(message: Mapping[str, Any], *, bot_id: str, username: str | None) -> bool:
    """Whether a message in a group is for the bot: a mention of it, a command, a reply to one of its messages. Most others are not.

    Without the bot's user name (from `getMe`) a mention of it is not recognised."""
    replied_to = as_object(message.get("reply_to_message"))
    # In a forum every message replies to the one that opened the topic, and the bot may have sent that one.
    if as_text(as_object(replied_to.get("from")).get("id")) == bot_id and "forum_topic_created" not in replied_to:
        return True
    own_name = f"@{username.lower()}" if username else None
    for kind, words, entity in message_entities(message):
        named = words.lower()
        if (
            (kind == "mention" and named == own_name)
            or (kind == "text_mention" and as_text(as_object(entity.get("user")).get("id")) == bot_id)
            or (kind == "bot_command" and ("@" not in named or (own_name is not None and named.endswith(own_name))))
        ):
            return True
    return False


def message_entities(message: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The entities of a text or a caption: kind, text, and the entity itself. Their offsets count UTF-16 code units."""
    for text, found in (("text", "entities"), ("caption", "caption_entities")):
        units = as_text(message.get(text)).encode("utf-16-le")
        for entity in objects_in(message.get(found)):
            start, length = as_int(entity.get("offset")), as_int(entity.get("length"))
            if start is not None and length is not None and start >= 0 and length >= 0:
                yield as_text(entity.get("type")), units[2 * start : 2 * (start + length)].decode("utf-16-le", "replace"), entity


def channel_id_of(message: Mapping[str, Any]) -> str:
    """The channel id of a message: the number of its chat, and the business connection through which the bot answers there.

    7527593            a user, or a group (negative)
    7527593@Ab3x       a user who wrote to a business account that the bot answers for

    Empty if the message has no chat."""
    chat = as_text(as_object(message.get("chat")).get("id"))
    connection = as_text(message.get("business_connection_id"))
    return f"{chat}@{connection}" if chat and connection else chat


def thread_of(message: Mapping[str, Any]) -> str | None:
    """The topic of a forum. Threads outside of forums have numbers too, but a bot cannot send to those."""
    return as_text(message.get("message_thread_id")) or None if message.get("is_topic_message") is True else None


def recipient_fields(to: Destination) -> Mapping[str, Any]:
    """The parameters that say where a message goes."""
    chat, _, connection = to.channel_id.partition("@")
    number = as_int(chat)
    found: dict[str, Any] = {"chat_id": chat if number is None else number}
    if connection:
        found["business_connection_id"] = connection
    if to.thread is not None and (thread := as_int(to.thread)) is not None:
        found["message_thread_id"] = thread
    return found
