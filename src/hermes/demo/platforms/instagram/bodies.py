"""What Instagram's send API takes: every field that the stand-in knows, and none that it does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hermes.demo.platforms.refusal import Refusal

LONGEST_TEXT = 1000
"""In bytes of UTF-8."""
ACTIONS = {"typing_on", "typing_off", "mark_seen", "react", "unreact"}
ATTACHMENTS = {"image", "video", "audio", "file", "MEDIA_SHARE", "like_heart"}


def wrong(words: str) -> Refusal:
    return Refusal(400, f"(#100) {words}", code=100)


def recipient_of(body: Mapping[str, Any]) -> str:
    """Who is meant. Raises Refusal."""
    only(body, {"recipient", "message", "messaging_type", "tag", "sender_action", "payload"}, "body")
    recipient = has(body, "recipient", dict)
    only(recipient, {"id"}, "recipient")
    person: str = has(recipient, "id", str, "recipient")
    return person


def check_kind(body: Mapping[str, Any]) -> str | None:
    """The tag of a message that is sent beyond its window, if it has one. Raises Refusal."""
    kind = body.get("messaging_type", "RESPONSE")
    if kind not in {"RESPONSE", "UPDATE", "MESSAGE_TAG"}:
        raise wrong("Param messaging_type must be one of {RESPONSE, UPDATE, MESSAGE_TAG}")
    tag = body.get("tag")
    if (kind == "MESSAGE_TAG") != (tag is not None):
        raise wrong("tag and messaging_type MESSAGE_TAG go together")
    if tag not in {None, "HUMAN_AGENT"}:
        raise wrong("Param tag must be one of {HUMAN_AGENT}")
    return tag


def check_message(message: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of a message, and what a person would read of it. Raises Refusal."""
    only(message, {"text", "attachment", "quick_replies", "reply_to", "metadata"}, "message")
    if ("text" in message) == ("attachment" in message):
        raise wrong("message must have either text or attachment")
    if "quick_replies" in message and not 1 <= len(has(message, "quick_replies", list, "message")) <= 13:
        raise wrong("Param message[quick_replies] must have between 1 and 13 elements")
    if "attachment" in message:
        return _attachment(has(message, "attachment", dict, "message")), ""
    text: str = has(message, "text", str, "message")
    if not text.strip():
        raise wrong("Param message[text] must be a non-empty UTF-8 encoded string")
    if len(text.encode()) > LONGEST_TEXT:
        raise wrong(f"Length of param message[text] must be less than or equal to {LONGEST_TEXT}")
    return "text", text


def check_action(body: Mapping[str, Any]) -> str:
    """What is done instead of sending a message. Raises Refusal."""
    action: str = has(body, "sender_action", str)
    if action not in ACTIONS:
        raise wrong(f"Param sender_action must be one of {{{', '.join(sorted(ACTIONS))}}}")
    if "message" in body:
        raise wrong("sender_action and message are two calls")
    if action in {"react", "unreact"}:
        has(has(body, "payload", dict), "message_id", str, "payload")
    return action


def _attachment(attachment: Mapping[str, Any]) -> str:
    only(attachment, {"type", "payload"}, "message[attachment]")
    kind: str = has(attachment, "type", str, "message[attachment]")
    if kind not in ATTACHMENTS:
        raise wrong(f"Param message[attachment][type] must be one of {{{', '.join(sorted(ATTACHMENTS))}}}")
    if kind not in {"MEDIA_SHARE", "like_heart"}:
        payload = has(attachment, "payload", dict, "message[attachment]")
        only(payload, {"url"}, "message[attachment][payload]")
        if not re.match(r"https?://", has(payload, "url", str, "message[attachment][payload]")):
            raise wrong("Param message[attachment][payload][url] is not a valid URL")
    return kind


def only(value: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(value.keys() - known):
        raise wrong(f'Unexpected key "{unknown[0]}" on param "{where}"')


def has(value: Mapping[str, Any], name: str, kind: type, where: str = "") -> Any:
    param = f"{where}[{name}]" if where else name
    if value.get(name) is None:
        raise wrong(f"The parameter {param} is required")
    if not isinstance(value[name], kind):
        raise wrong(f"Param {param} must be of type {kind.__name__}")
    return value[name]
