"""The methods of the Bot API that the stand-in knows, and what they take. A parameter that a method does not have is refused: the real
server ignores it, and a misspelt name goes unnoticed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from aiohttp import web

from hermes.demo.platforms.refusal import is_whole
from hermes.demo.platforms.telegram.entities import bad


class Kind(StrEnum):
    """What a parameter is."""

    INTEGER = "Integer"
    BOOLEAN = "Boolean"
    STRING = "String"
    CHAT = "Integer or String"
    ARRAY = "Array"
    OBJECT = "Object"
    FILE = "InputFile"


METHODS: Mapping[str, Mapping[str, Kind]] = {
    "getMe": {},
    "sendMessage": {
        "chat_id": Kind.CHAT,
        "text": Kind.STRING,
        "business_connection_id": Kind.STRING,
        "message_thread_id": Kind.INTEGER,
        "parse_mode": Kind.STRING,
        "entities": Kind.ARRAY,
        "link_preview_options": Kind.OBJECT,
        "disable_notification": Kind.BOOLEAN,
        "protect_content": Kind.BOOLEAN,
        "reply_parameters": Kind.OBJECT,
        "reply_markup": Kind.OBJECT,
        "reply_to_message_id": Kind.INTEGER,
        "allow_sending_without_reply": Kind.BOOLEAN,
        "disable_web_page_preview": Kind.BOOLEAN,
    },
    "sendChatAction": {
        "chat_id": Kind.CHAT,
        "action": Kind.STRING,
        "business_connection_id": Kind.STRING,
        "message_thread_id": Kind.INTEGER,
    },
    "answerCallbackQuery": {
        "callback_query_id": Kind.STRING,
        "text": Kind.STRING,
        "show_alert": Kind.BOOLEAN,
        "url": Kind.STRING,
        "cache_time": Kind.INTEGER,
    },
    "getFile": {"file_id": Kind.STRING},
    "getUpdates": {"offset": Kind.INTEGER, "limit": Kind.INTEGER, "timeout": Kind.INTEGER, "allowed_updates": Kind.ARRAY},
    "setWebhook": {
        "url": Kind.STRING,
        "certificate": Kind.FILE,
        "ip_address": Kind.STRING,
        "max_connections": Kind.INTEGER,
        "allowed_updates": Kind.ARRAY,
        "drop_pending_updates": Kind.BOOLEAN,
        "secret_token": Kind.STRING,
    },
    "deleteWebhook": {"drop_pending_updates": Kind.BOOLEAN},
    "getWebhookInfo": {},
}
NAMES = {name.lower(): name for name in METHODS}
"""The Bot API does not care for upper and lower case."""
REQUIRED = {
    ("sendMessage", "text"): "message text is empty",
    ("sendMessage", "chat_id"): "chat_id is empty",
    ("sendChatAction", "chat_id"): "chat_id is empty",
    ("sendChatAction", "action"): "wrong parameter action in request",
    ("answerCallbackQuery", "callback_query_id"): "query is too old and response timeout expired or query ID is invalid",
    ("getFile", "file_id"): "invalid file_id",
}


async def given(request: web.Request, body: Any) -> dict[str, Any]:
    """The parameters of a call, out of the query and out of a body in any of the four forms that the Bot API takes."""
    found: dict[str, Any] = dict(request.query)
    if request.method == "POST":
        if request.content_type == "application/json":
            if not isinstance(body, dict):
                raise bad("can't parse request JSON object")
            found |= body
        elif request.content_type in {"application/x-www-form-urlencoded", "multipart/form-data"}:
            found |= await request.post()
    return found


def checked(method: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as what they are, without those that are null. Raises Refusal."""
    kinds = METHODS[method]
    if unknown := sorted(found.keys() - kinds.keys()):
        raise bad(f"{method} has no parameter {unknown[0]} that the stand-in knows")
    values = {name: _typed(name, value, kinds[name]) for name, value in found.items() if value is not None}
    for (required_by, name), words in REQUIRED.items():
        if required_by == method and values.get(name) in {None, ""}:
            raise bad(words)
    return values


def _typed(name: str, value: Any, kind: Kind) -> Any:
    if isinstance(value, str) and kind not in {Kind.STRING, Kind.CHAT, Kind.FILE}:
        try:
            value = json.loads(value)  # forms have nothing but strings
        except ValueError:
            raise bad(f"can't parse {name}: expected {kind}") from None
    fits = {
        Kind.INTEGER: is_whole(value),
        Kind.BOOLEAN: isinstance(value, bool),
        Kind.STRING: isinstance(value, str),
        Kind.CHAT: is_whole(value) or isinstance(value, str),
        Kind.ARRAY: isinstance(value, list),
        Kind.OBJECT: isinstance(value, dict),
        Kind.FILE: not isinstance(value, str),
    }
    if not fits[kind]:
        raise bad(f'field "{name}" must be of type {kind}')
    return value
