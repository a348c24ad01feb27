"""The methods of the Bot API that the fake knows, and their parameters. The fake refuses a parameter that a method does not have: the real
server ignores it, so a misspelt name would go unnoticed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from aiohttp import web

from hermes.demo.platforms.refusal import is_integer
from hermes.demo.platforms.telegram.entities import bad_request


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
