"""Check the body of a call to Instagram's send API. Refuses every field that the fake does not know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hermes.demo.platforms.refusal import PlatformRefusal

MAX_TEXT_BYTES = 1000
"""In bytes of UTF-8."""
SENDER_ACTIONS = {"typing_on", "typing_off", "mark_seen", "react", "unreact"}
ATTACHMENT_KINDS = {"image", "video", "audio", "file", "MEDIA_SHARE", "like_heart"}


def invalid_parameter(words: str) -> PlatformRefusal:
    return PlatformRefusal(400, f"(#100) {words}", code=100)


def recipient_of(body: Mapping[str, Any]) -> str:
    """The id of the recipient. Raises PlatformRefusal."""
    refuse_unknown_fields(body, {"recipient", "message", "messaging_type", "tag", "sender_action", "payload"}, "body")
    recipient = require_field(body, "recipient", dict)
    refuse_unknown_fields(recipient, {"id"}, "recipient")
    person: str = require_field(recipient, "id", str, "recipient")
    return person


def check_kind(body: Mapping[str, Any]) -> str | None:
    """The tag with which a message may be sent outside of the window, if it has one. Raises PlatformRefusal."""
    kind = body.get("messaging_type", "RESPONSE")
    if kind not in {"RESPONSE", "UPDATE", "MESSAGE_TAG"}:
        raise invalid_parameter("Param messaging_type must be one of {RESPONSE, UPDATE, MESSAGE_TAG}")
    tag = body.get("tag")
    if (kind == "MESSAGE_TAG") != (tag is not None):
        raise invalid_parameter("tag and messaging_type MESSAGE_TAG go together")
    if tag not in {None, "HUMAN_AGENT"}:
        raise invalid_parameter("Param tag must be one of {HUMAN_AGENT}")
    return tag


def check_message(message: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of a message, and the text that a person would read. Raises PlatformRefusal."""
    refuse_unknown_fields(message, {"text", "attachment", "quick_replies", "reply_to", "metadata"}, "message")
    if ("text" in message) == ("attachment" in message):
        raise invalid_parameter("message must have either text or attachment")
    if "quick_replies" in message and not 1 <= len(require_field(message, "quick_replies", list, "message")) <= 13:
        raise invalid_parameter("Param message[quick_replies] must have between 1 and 13 elements")
    if "attachment" in message:
        return _check_attachment(require_field(message, "attachment", dict, "message")), ""
    text: str = require_field(message, "text", str, "message")
    if not text.strip():
        raise invalid_parameter("Param message[text] must be a non-empty UTF-8 encoded string")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise invalid_parameter(f"Length of param message[text] must be less than or equal to {MAX_TEXT_BYTES}")
    return "text", text


def check_action(body: Mapping[str, Any]) -> str:
    """The sender action of a call that sends no message. Raises PlatformRefusal."""
    action: str = require_field(body, "sender_action", str)
    if action not in SENDER_ACTIONS:
        raise invalid_parameter(f"Param sender_action must be one of {{{', '.join(sorted(SENDER_ACTIONS))}}}")
    if "message" in body:
        raise invalid_parameter("sender_action and message need two calls")
    if action in {"react", "unreact"}:
        require_field(require_field(body, "payload", dict), "message_id", str, "payload")
    return action


def _check_attachment(attachment: Mapping[str, Any]) -> str:
    refuse_unknown_fields(attachment, {"type", "payload"}, "message[attachment]")
    kind: str = require_field(attachment, "type", str, "message[attachment]")
    if kind not in ATTACHMENT_KINDS:
        raise invalid_parameter(f"Param message[attachment][type] must be one of {{{', '.join(sorted(ATTACHMENT_KINDS))}}}")
    if kind not in {"MEDIA_SHARE", "like_heart"}:
        payload = require_field(attachment, "payload", dict, "message[attachment]")
        refuse_unknown_fields(payload, {"url"}, "message[attachment][payload]")
        if not re.match(r"https?://", require_field(payload, "url", str, "message[attachment][payload]")):
            raise invalid_parameter("Param message[attachment][payload][url] is not a valid URL")
    return kind


def refuse_unknown_fields(value: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(value.keys() - known):
        raise invalid_parameter(f'Unexpected key "{unknown[0]}" on param "{where}"')


def require_field(value: Mapping[str, Any], name: str, kind: type, where: str = "") -> Any:
    param = f"{where}[{name}]" if where else name
    if value.get(name) is None:
        raise invalid_parameter(f"The parameter {param} is required")
    if not isinstance(value[name], kind):
        raise invalid_parameter(f"Param {param} must be of type {kind.__name__}")
    return value[name]
