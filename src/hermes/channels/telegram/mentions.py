"""In a group most of what is said is not for us. What is: our name, a command, an answer to something that we said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hermes.channels.meta import as_int, as_object, as_text, objects_in


def is_addressed(message: Mapping[str, Any], *, bot_id: str, username: str | None) -> bool:
    """Whether a message in a group is for the bot. Without its user name, which `getMe` tells, a mention of it is not recognised."""
    answered = as_object(message.get("reply_to_message"))
    # In a forum every message answers the one that opened the topic, and that may have been ours.
    if as_text(as_object(answered.get("from")).get("id")) == bot_id and "forum_topic_created" not in answered:
        return True
    ours = f"@{username.lower()}" if username else None
    for kind, words, entity in message_entities(message):
        named = words.lower()
        if (
            (kind == "mention" and named == ours)
            or (kind == "text_mention" and as_text(as_object(entity.get("user")).get("id")) == bot_id)
            or (kind == "bot_command" and ("@" not in named or (ours is not None and named.endswith(ours))))
        ):
            return True
    return False


def message_entities(message: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The entities of a text or a caption: kind, words, and the entity itself. Their places count UTF-16 code units."""
    for text, found in (("text", "entities"), ("caption", "caption_entities")):
        units = as_text(message.get(text)).encode("utf-16-le")
        for entity in objects_in(message.get(found)):
            start, length = as_int(entity.get("offset")), as_int(entity.get("length"))
            if start is not None and length is not None and start >= 0 and length >= 0:
                yield as_text(entity.get("type")), units[2 * start : 2 * (start + length)].decode("utf-16-le", "replace"), entity
