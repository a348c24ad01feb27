"""Check Telegram's entities: ranges of a text, in UTF-16 code units. The fake refuses what the Bot API refuses, and what the Bot API would
silently drop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes.demo.platforms.refusal import PlatformRefusal, is_integer

ENTITY_TYPES = frozenset(
    {
        "mention",
        "hashtag",
        "cashtag",
        "bot_command",
        "url",
        "email",
        "phone_number",
        "bold",
        "italic",
        "underline",
        "strikethrough",
        "spoiler",
        "blockquote",
        "expandable_blockquote",
        "code",
        "pre",
        "text_link",
        "text_mention",
        "custom_emoji",
    }
)
EXTRA_FIELDS = {"pre": {"language"}, "text_link": {"url"}, "text_mention": {"user"}, "custom_emoji": {"custom_emoji_id"}}
"""The fields that a type has beside `type`, `offset` and `length`."""
OPTIONAL_FIELDS = {"language"}
CODE_TYPES = {"code", "pre"}
"""They contain no other entity, and only a quote may contain them."""
QUOTE_TYPES = {"blockquote", "expandable_blockquote"}
MAX_ENTITIES = 100
"""Telegram keeps so many entities of a message, and silently drops the others."""


def bad_request(words: str) -> PlatformRefusal:
    return PlatformRefusal(400, f"Bad Request: {words}")


def utf16_length(text: str) -> int:
    """How many UTF-16 code units a text has."""
    return len(text.encode("utf-16-le")) // 2


def check_entities(text: str, entities: object) -> Sequence[Mapping[str, Any]]:
    """The entities that a user's phone shows. Raises PlatformRefusal."""
    if not isinstance(entities, list):
        raise bad_request("can't parse entities: Expected an Array of MessageEntity")
    for entity in entities:
        _check_shape(entity)
    boundaries = {0}  # where a character begins; no entity begins or ends within a surrogate pair
    at = 0
    for character in text:
        at += 2 if ord(character) > 0xFFFF else 1
        boundaries.add(at)
    for entity in entities:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        if start >= at:
            raise bad_request(f"entity begins after the end of the text at UTF-16 offset {start}")
        if end > at:
            raise bad_request(f"entity beginning at UTF-16 offset {start} ends after the end of the text at UTF-16 offset {end}")
        if not {start, end} <= boundaries:
            word = "begins" if start not in boundaries else "ends"
            raise bad_request(f"entity {word} in a middle of a UTF-16 symbol at byte offset {start if start not in boundaries else end}")
    _check_nesting(entities)
    return entities[:MAX_ENTITIES]


def _check_shape(entity: object) -> None:
    if not isinstance(entity, dict):
        raise bad_request("can't parse MessageEntity: Expected an Object")
    kind = entity.get("type")
    if kind not in ENTITY_TYPES:
        raise bad_request("can't parse MessageEntity: Unsupported type specified")
    known = {"type", "offset", "length", *EXTRA_FIELDS.get(kind, ())}
    if unknown := sorted(entity.keys() - known):
        raise bad_request(
            f'can\'t parse MessageEntity: unexpected field "{unknown[0]}" of a {kind} (the fake refuses fields that it does not know)'
        )
    for name in sorted(known - OPTIONAL_FIELDS):
        if name not in entity:
            raise bad_request(f"can't parse MessageEntity: Can't find field \"{name}\"")
    for name in ("offset", "length"):
        if not is_integer(entity[name]):
            raise bad_request(f'can\'t parse MessageEntity: Field "{name}" must be of type Number')
    if entity["offset"] < 0:
        raise bad_request(f"receive an entity with incorrect offset {entity['offset']}")
    if entity["length"] <= 0:
        raise bad_request(f"receive an entity with incorrect length {entity['length']}")
    if kind == "text_link":
        _check_url(entity["url"])
    if "language" in entity and not isinstance(entity["language"], str):
        raise bad_request('can\'t parse MessageEntity: Field "language" must be of type String')


def _check_url(url: object) -> None:
    if not isinstance(url, str):
        raise bad_request('can\'t parse MessageEntity: Field "url" must be of type String')
    scheme, mark, rest = url.partition("://")
    host = (rest if mark else url).split("/")[0]
    if not host:
        raise bad_request(f"entity URL '{url}' is invalid: URL host is empty")
    if mark and scheme.lower() not in {"http", "https", "tg", "ton"}:
        raise bad_request(f"entity URL '{url}' is invalid: Unsupported URL protocol")
    if "." not in host and scheme.lower() not in {"tg", "ton"}:
        raise bad_request(f"entity URL '{url}' is invalid: Wrong HTTP URL")


def _check_nesting(entities: Sequence[Mapping[str, Any]]) -> None:
    """Of two that overlap, one contains the other; code contains nothing, and a quote no quote."""
    open_ones: list[Mapping[str, Any]] = []
    for entity in sorted(entities, key=lambda entity: (entity["offset"], -entity["length"])):
        while open_ones and _entity_end(open_ones[-1]) <= entity["offset"]:
            open_ones.pop()
        for outer in open_ones:
            if _entity_end(outer) < _entity_end(entity):
                raise bad_request(
                    f"entity beginning at UTF-16 offset {entity['offset']} ends after the end of the text "
                    f"at UTF-16 offset {_entity_end(entity)}"
                )
            if outer["type"] in CODE_TYPES or (entity["type"] in CODE_TYPES and outer["type"] not in QUOTE_TYPES):
                raise bad_request(f"can't parse entities: {entity['type']} in {outer['type']} (Telegram would drop one of them)")
            if outer["type"] in QUOTE_TYPES and entity["type"] in QUOTE_TYPES:
                raise bad_request("can't parse entities: a quote in a quote (Telegram would drop one of them)")
        open_ones.append(entity)


def _entity_end(entity: Mapping[str, Any]) -> int:
    end: int = entity["offset"] + entity["length"]
    return end
