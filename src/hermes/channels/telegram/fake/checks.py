"""Check a call to the Bot API: its method and parameters, the entities of its text, its buttons and other options.

The fake refuses what the Bot API refuses, and what the Bot API would silently drop or ignore: a parameter that a method does not have, so
that a misspelt name is noticed, and entities that cross. Entities are ranges of a text, in UTF-16 code units."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from aiohttp import web

from hermes.testing.platforms.faults import PlatformRefusal, is_integer

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


BUTTON_ACTIONS = frozenset(
    {
        "callback_data",
        "url",
        "web_app",
        "login_url",
        "switch_inline_query",
        "switch_inline_query_current_chat",
        "switch_inline_query_chosen_chat",
        "copy_text",
        "callback_game",
        "pay",
    }
)
BUTTON_FIELDS = frozenset({"text", "icon_custom_emoji_id", "style", *BUTTON_ACTIONS})
KEYBOARDS = {
    "inline_keyboard": {"inline_keyboard"},
    "keyboard": {"keyboard", "is_persistent", "resize_keyboard", "one_time_keyboard", "input_field_placeholder", "selective"},
    "remove_keyboard": {"remove_keyboard", "selective"},
    "force_reply": {"force_reply", "input_field_placeholder", "selective"},
}
REPLY_FIELDS = frozenset(
    {
        "message_id",
        "chat_id",
        "allow_sending_without_reply",
        "quote",
        "quote_parse_mode",
        "quote_entities",
        "quote_position",
        "checklist_task_id",
    }
)
PREVIEW_FIELDS = {
    "is_disabled": bool,
    "url": str,
    "prefer_small_media": bool,
    "prefer_large_media": bool,
    "show_above_text": bool,
}


def check_markup(markup: Mapping[str, Any]) -> None:
    """Refuse a keyboard that Telegram would refuse."""
    kind = next((kind for kind in KEYBOARDS if kind in markup), None)
    if kind is None:
        raise bad_request("can't parse reply keyboard markup JSON object")
    _refuse_unknown_fields(markup, KEYBOARDS[kind], "reply markup")
    if kind not in {"inline_keyboard", "keyboard"}:
        if markup[kind] is not True:
            raise bad_request(f'field "{kind}" must be of type Boolean')
        return
    rows = markup[kind]
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise bad_request(f'field "{kind}" must be of type Array')
    if kind == "inline_keyboard":
        for row in rows:
            for button in row:
                _check_button(button)


def _check_button(button: object) -> None:
    where = "can't parse inline keyboard button"
    if not isinstance(button, dict):
        raise bad_request(f"{where}: InlineKeyboardButton must be an Object")
    if not isinstance(button.get("text"), str) or not button["text"]:
        raise bad_request(f'{where}: Can\'t find field "text"')
    _refuse_unknown_fields(button, BUTTON_FIELDS, "inline keyboard button")
    actions = sorted(BUTTON_ACTIONS & button.keys())
    if not actions or button.get("callback_data") == "":
        raise bad_request(f"{where}: Text buttons are unallowed in the inline keyboard")
    if len(actions) > 1:
        raise bad_request(f"{where}: a button has one action, and not {' and '.join(actions)}")
    if "callback_data" in button:
        data = button["callback_data"]
        if not isinstance(data, str) or not 1 <= len(data.encode()) <= 64:
            raise bad_request("BUTTON_DATA_INVALID")
    if "url" in button and not str(button["url"]).startswith(("http://", "https://", "tg://")):
        raise bad_request(f"inline keyboard button URL '{button['url']}' is invalid: Wrong HTTP URL")


def check_reply(reply: Mapping[str, Any]) -> tuple[int, bool]:
    """The message to reply to, and whether to send the reply even if that message does not exist."""
    if "message_id" not in reply:
        raise bad_request('can\'t find field "message_id"')
    _refuse_unknown_fields(reply, REPLY_FIELDS, "reply parameters")
    if not is_integer(reply["message_id"]):
        raise bad_request('field "message_id" must be of type Number')
    may_be_missing = reply.get("allow_sending_without_reply", False)
    if not isinstance(may_be_missing, bool):
        raise bad_request('field "allow_sending_without_reply" must be of type Boolean')
    return reply["message_id"], may_be_missing


def check_preview(preview: Mapping[str, Any]) -> None:
    _refuse_unknown_fields(preview, frozenset(PREVIEW_FIELDS), "link preview options")
    for name, value in preview.items():
        if not isinstance(value, PREVIEW_FIELDS[name]):
            raise bad_request(f'field "{name}" must be of type {"Boolean" if PREVIEW_FIELDS[name] is bool else "String"}')


def _refuse_unknown_fields(value: Mapping[str, Any], known: frozenset[str] | set[str], where: str) -> None:
    if unknown := sorted(value.keys() - known):
        raise bad_request(f"{where}: there is no field {unknown[0]} (the real server would ignore it)")


class ParameterKind(StrEnum):
    """The type of a parameter."""

    INTEGER = "Integer"
    BOOLEAN = "Boolean"
    STRING = "String"
    CHAT = "Integer or String"
    ARRAY = "Array"
    OBJECT = "Object"
    FILE = "InputFile"


METHOD_PARAMETERS: Mapping[str, Mapping[str, ParameterKind]] = {
    "getMe": {},
    "sendMessage": {
        "chat_id": ParameterKind.CHAT,
        "text": ParameterKind.STRING,
        "business_connection_id": ParameterKind.STRING,
        "message_thread_id": ParameterKind.INTEGER,
        "parse_mode": ParameterKind.STRING,
        "entities": ParameterKind.ARRAY,
        "link_preview_options": ParameterKind.OBJECT,
        "disable_notification": ParameterKind.BOOLEAN,
        "protect_content": ParameterKind.BOOLEAN,
        "reply_parameters": ParameterKind.OBJECT,
        "reply_markup": ParameterKind.OBJECT,
        "reply_to_message_id": ParameterKind.INTEGER,
        "allow_sending_without_reply": ParameterKind.BOOLEAN,
        "disable_web_page_preview": ParameterKind.BOOLEAN,
    },
    "sendChatAction": {
        "chat_id": ParameterKind.CHAT,
        "action": ParameterKind.STRING,
        "business_connection_id": ParameterKind.STRING,
        "message_thread_id": ParameterKind.INTEGER,
    },
    "answerCallbackQuery": {
        "callback_query_id": ParameterKind.STRING,
        "text": ParameterKind.STRING,
        "show_alert": ParameterKind.BOOLEAN,
        "url": ParameterKind.STRING,
        "cache_time": ParameterKind.INTEGER,
    },
    "getFile": {"file_id": ParameterKind.STRING},
    "getUpdates": {
        "offset": ParameterKind.INTEGER,
        "limit": ParameterKind.INTEGER,
        "timeout": ParameterKind.INTEGER,
        "allowed_updates": ParameterKind.ARRAY,
    },
    "setWebhook": {
        "url": ParameterKind.STRING,
        "certificate": ParameterKind.FILE,
        "ip_address": ParameterKind.STRING,
        "max_connections": ParameterKind.INTEGER,
        "allowed_updates": ParameterKind.ARRAY,
        "drop_pending_updates": ParameterKind.BOOLEAN,
        "secret_token": ParameterKind.STRING,
    },
    "deleteWebhook": {"drop_pending_updates": ParameterKind.BOOLEAN},
    "getWebhookInfo": {},
}
METHOD_NAMES = {name.lower(): name for name in METHOD_PARAMETERS}
"""The Bot API ignores upper and lower case in method names."""
REQUIRED_PARAMETERS = {
    ("sendMessage", "text"): "message text is empty",
    ("sendMessage", "chat_id"): "chat_id is empty",
    ("sendChatAction", "chat_id"): "chat_id is empty",
    ("sendChatAction", "action"): "wrong parameter action in request",
    ("answerCallbackQuery", "callback_query_id"): "query is too old and response timeout expired or query ID is invalid",
    ("getFile", "file_id"): "invalid file_id",
}


async def read_parameters(request: web.Request, body: Any) -> dict[str, Any]:
    """The parameters of a call, from the query and from the body: JSON, or one of the two kinds of forms."""
    found: dict[str, Any] = dict(request.query)
    if request.method == "POST":
        if request.content_type == "application/json":
            if not isinstance(body, dict):
                raise bad_request("can't parse request JSON object")
            found |= body
        elif request.content_type in {"application/x-www-form-urlencoded", "multipart/form-data"}:
            found |= await request.post()
    return found


def check_parameters(method: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with their types converted, without those that are null. Raises PlatformRefusal."""
    kinds = METHOD_PARAMETERS[method]
    if unknown := sorted(found.keys() - kinds.keys()):
        raise bad_request(f"{method} has no parameter {unknown[0]} that the fake knows")
    values = {name: _convert_value(name, value, kinds[name]) for name, value in found.items() if value is not None}
    for (required_by, name), words in REQUIRED_PARAMETERS.items():
        if required_by == method and values.get(name) in {None, ""}:
            raise bad_request(words)
    return values


def _convert_value(name: str, value: Any, kind: ParameterKind) -> Any:
    if isinstance(value, str) and kind not in {ParameterKind.STRING, ParameterKind.CHAT, ParameterKind.FILE}:
        try:
            value = json.loads(value)  # a form holds only strings
        except ValueError:
            raise bad_request(f"can't parse {name}: expected {kind}") from None
    fits = {
        ParameterKind.INTEGER: is_integer(value),
        ParameterKind.BOOLEAN: isinstance(value, bool),
        ParameterKind.STRING: isinstance(value, str),
        ParameterKind.CHAT: is_integer(value) or isinstance(value, str),
        ParameterKind.ARRAY: isinstance(value, list),
        ParameterKind.OBJECT: isinstance(value, dict),
        ParameterKind.FILE: not isinstance(value, str),
    }
    if not fits[kind]:
        raise bad_request(f'field "{name}" must be of type {kind}')
    return value
