"""Check the body of `POST …/messages`, and WhatsApp's errors by code. Refuses every field that the fake does not know."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hermes.channels.meta_fake import FakeMetaError
from hermes.testing.platforms.faults import PlatformRefusal

ERROR_DOCS_URL = "https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes/"
ERROR_BY_CODE = {
    1: FakeMetaError(400, "API Unknown", "Invalid request or possible server error."),
    2: FakeMetaError(503, "API Service", "Temporary due to downtime or due to being overloaded."),
    4: FakeMetaError(400, "Application request limit reached", "The app has reached its API call rate limit."),
    10: FakeMetaError(403, "Application does not have permission for this action", "Permission is either not granted or has been removed."),
    100: FakeMetaError(400, "Invalid parameter"),
    190: FakeMetaError(401, "Error validating access token", "The access token has expired."),
    80007: FakeMetaError(400, "Rate limit issues", "The WhatsApp Business Account has reached its rate limit."),
    130429: FakeMetaError(429, "Rate limit hit", "Cloud API message throughput has been reached."),
    130472: FakeMetaError(400, "User's number is part of an experiment", "Message was not sent as part of an experiment."),
    131000: FakeMetaError(500, "Something went wrong", "Message failed to send due to an unknown error."),
    131009: FakeMetaError(400, "Parameter value is not valid", "One or more parameter values are invalid."),
    131016: FakeMetaError(500, "Service unavailable", "A service is temporarily unavailable."),
    131026: FakeMetaError(400, "Message undeliverable", "Unable to deliver message."),
    131030: FakeMetaError(400, "Recipient phone number not in allowed list", "Add recipient phone number to recipient list and try again."),
    131042: FakeMetaError(400, "Business eligibility payment issue", "There was an error related to your payment method."),
    131047: FakeMetaError(
        400, "Re-engagement message", "More than 24 hours have passed since the recipient last replied to the sender number."
    ),
    131048: FakeMetaError(
        400, "Spam rate limit hit", "Message failed to send because there are restrictions on how many messages can be sent."
    ),
    131051: FakeMetaError(400, "Unsupported message type", "Message type is currently not supported."),
    131052: FakeMetaError(400, "Media download error", "Unable to download the media sent by the user."),
    131056: FakeMetaError(
        400, "(Business Account, Consumer Account) pair rate limit hit", "Too many messages to the same phone number in a short time."
    ),
    131057: FakeMetaError(500, "Account in maintenance mode", "Business Account is in maintenance mode."),
    132000: FakeMetaError(400, "Number of parameters does not match the expected number of params"),
    132001: FakeMetaError(404, "Template name does not exist in the translation"),
}


def refusal_for_code(code: int, details: str = "") -> PlatformRefusal:
    """The refusal with one of WhatsApp's codes."""
    known = ERROR_BY_CODE[code]
    data = {"error_data": {"messaging_product": "whatsapp", "details": details or known.details}}
    return PlatformRefusal(known.status, f"(#{code}) {known.title}", code=code, parameters=data)


def invalid_parameter(words: str) -> PlatformRefusal:
    """The refusal of an invalid parameter."""
    return PlatformRefusal(400, f"(#100) {words}", code=100)


MAX_TEXT_CHARS = 4096
MAX_CAPTION_CHARS = 1024
MAX_BUTTON_CHARS = 20
MAX_DATA_CHARS = 512
MAX_BUTTONS = 3
MEDIA_KINDS = ("image", "audio", "video", "document", "sticker")
COMMON_FIELDS = {"messaging_product", "recipient_type", "to", "recipient", "type", "context", "biz_opaque_callback_data"}
USER_ID_PATTERN = re.compile(r"[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128}")
PHONE_PATTERN = re.compile(r"\+?\d{5,20}")


def check_message(body: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of a message, and the text that a person would read. Raises PlatformRefusal."""
    kind = body.get("type", "text")
    if not isinstance(kind, str) or kind not in CHECKS:
        raise refusal_for_code(131051, f"Message type {kind!r} is not known.")
    refuse_unknown_fields(body, {*COMMON_FIELDS, kind}, "body")
    if body.get("recipient_type", "individual") not in ("individual", "group"):
        raise invalid_parameter("Param recipient_type must be one of {INDIVIDUAL, GROUP}")
    data = body.get("biz_opaque_callback_data", "")
    if not isinstance(data, str) or len(data) > MAX_DATA_CHARS:
        raise invalid_parameter(f"Param biz_opaque_callback_data must be a string of at most {MAX_DATA_CHARS} characters.")
    if "context" in body:
        refuse_unknown_fields(require_field(body, "context", dict), {"message_id"}, "context")
        require_field(body["context"], "message_id", str, "context")
    return kind, CHECKS[kind](require_field(body, kind, dict))


def group_of(body: Mapping[str, Any]) -> str | None:
    """The id of the group that a message is for; None if it is for a person."""
    if body.get("recipient_type") != "group":
        return None
    if "recipient" in body:
        raise invalid_parameter("Param recipient is not for groups")
    group_id: str = require_field(body, "to", str)
    return group_id


def recipient_of(body: Mapping[str, Any]) -> tuple[str, bool]:
    """The recipient, and whether it is a number: `to` is for numbers, `recipient` for user ids. Exactly one of them is allowed."""
    if ("to" in body) == ("recipient" in body):
        raise invalid_parameter(
            "The parameter to is required." if "to" not in body else "Give either to or recipient (the fake accepts one of them)"
        )
    name = "to" if "to" in body else "recipient"
    value = require_field(body, name, str)
    if not (PHONE_PATTERN if name == "to" else USER_ID_PATTERN).fullmatch(value):
        raise invalid_parameter(
            f"Param {name} must be {'a phone number' if name == 'to' else 'a business-scoped user ID'}, and is {value!r}"
        )
    return value.removeprefix("+"), name == "to"


def check_read(body: Mapping[str, Any]) -> str:
    """The id of the message to mark as read. Raises PlatformRefusal."""
    refuse_unknown_fields(body, {"messaging_product", "status", "message_id", "typing_indicator"}, "body")
    if body["status"] != "read":
        raise invalid_parameter("Param status must be one of {READ}")
    if "typing_indicator" in body:
        indicator = require_field(body, "typing_indicator", dict)
        refuse_unknown_fields(indicator, {"type"}, "typing_indicator")
        if indicator.get("type") != "text":
            raise invalid_parameter("Param typing_indicator['type'] must be one of {TEXT}")
    message_id: str = require_field(body, "message_id", str)
    return message_id


def _check_text(text: Mapping[str, Any]) -> str:
    refuse_unknown_fields(text, {"body", "preview_url"}, "text")
    if not isinstance(text.get("preview_url", False), bool):
        raise invalid_parameter("Param text['preview_url'] must be a boolean.")
    return _require_text(text, "body", "text", MAX_TEXT_CHARS)


def _media_check(kind: str) -> Callable[[Mapping[str, Any]], str]:
    def check(media: Mapping[str, Any]) -> str:
        further = {"image": {"caption"}, "video": {"caption"}, "document": {"caption", "filename"}, "audio": {"voice"}}.get(kind, set())
        refuse_unknown_fields(media, {"id", "link", *further}, kind)
        if ("id" in media) == ("link" in media):
            raise invalid_parameter(f"Param {kind} must have either id or link.")
        if "link" in media and not re.match(r"https?://", require_field(media, "link", str, kind)):
            raise invalid_parameter(f"Param {kind}['link'] is not a valid URL.")
        return _require_text(media, "caption", kind, MAX_CAPTION_CHARS) if "caption" in media else ""

    return check


def _check_location(location: Mapping[str, Any]) -> str:
    refuse_unknown_fields(location, {"latitude", "longitude", "name", "address"}, "location")
    for name, limit in (("latitude", 90), ("longitude", 180)):
        value = location.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > limit:
            raise invalid_parameter(f"Param location['{name}'] must be a number between -{limit} and {limit}.")
    return str(location.get("name", ""))


def _check_reaction(reaction: Mapping[str, Any]) -> str:
    refuse_unknown_fields(reaction, {"message_id", "emoji"}, "reaction")
    require_field(reaction, "message_id", str, "reaction")
    emoji: str = require_field(reaction, "emoji", str, "reaction")
    return emoji


def _check_interactive(interactive: Mapping[str, Any]) -> str:
    refuse_unknown_fields(interactive, {"type", "header", "body", "footer", "action"}, "interactive")
    kind, action = interactive.get("type"), require_field(interactive, "action", dict, "interactive")
    if kind == "button":
        refuse_unknown_fields(action, {"buttons"}, "action")
        buttons = require_field(action, "buttons", list, "action")
        if not 1 <= len(buttons) <= MAX_BUTTONS:
            raise invalid_parameter(f"Invalid buttons count. Min allowed buttons: 1, Max allowed buttons: {MAX_BUTTONS}")
        for button in buttons:
            if not isinstance(button, dict) or button.get("type") != "reply":
                raise invalid_parameter("Param interactive['action']['buttons'][*]['type'] must be one of {REPLY}")
            refuse_unknown_fields(button, {"type", "reply"}, "button")
            reply = require_field(button, "reply", dict, "button")
            refuse_unknown_fields(reply, {"id", "title"}, "reply")
            _require_text(reply, "title", "reply", MAX_BUTTON_CHARS)
            _require_text(reply, "id", "reply", 256)
    elif kind == "list":
        refuse_unknown_fields(action, {"button", "sections"}, "action")
        _require_text(action, "button", "action", MAX_BUTTON_CHARS)
        rows = [
            row for section in require_field(action, "sections", list, "action") for row in require_field(section, "rows", list, "section")
        ]
        if not 1 <= len(rows) <= 10:
            raise invalid_parameter("Total row count exceed max allowed count: 10")
        for row in rows:
            refuse_unknown_fields(row, {"id", "title", "description"}, "row")
            _require_text(row, "title", "row", 24)
    else:
        raise invalid_parameter("Param interactive['type'] must be one of {BUTTON, LIST} (the fake knows no other)")
    body = require_field(interactive, "body", dict, "interactive")
    refuse_unknown_fields(body, {"text"}, "interactive['body']")
    return _require_text(body, "text", "interactive['body']", 4096 if kind == "list" else 1024)


def _check_template(template: Mapping[str, Any]) -> str:
    refuse_unknown_fields(template, {"name", "language", "components"}, "template")
    language = require_field(template, "language", dict, "template")
    refuse_unknown_fields(language, {"code", "policy"}, "template['language']")
    require_field(language, "code", str, "template['language']")
    for component in require_field(template, "components", list, "template") if "components" in template else ():
        if not isinstance(component, dict) or component.get("type") not in {"header", "body", "button"}:
            raise invalid_parameter("Param template['components'][*]['type'] must be one of {HEADER, BODY, BUTTON}")
    name: str = require_field(template, "name", str, "template")
    return name


CHECKS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "text": _check_text,
    **{kind: _media_check(kind) for kind in MEDIA_KINDS},
    "location": _check_location,
    "reaction": _check_reaction,
    "interactive": _check_interactive,
    "template": _check_template,
}


def refuse_unknown_fields(value: Mapping[str, Any], known: set[str], where: str) -> None:
    """Refuse fields that WhatsApp does not have."""
    if unknown := sorted(value.keys() - known):
        raise invalid_parameter(f'Unexpected key "{unknown[0]}" on param "{where}".')


def require_field(value: Mapping[str, Any], name: str, kind: type, where: str = "") -> Any:
    """The value of a required field. Raises PlatformRefusal without it, and for another type."""
    param = f"{where}['{name}']" if where else name
    if value.get(name) is None:
        raise invalid_parameter(f"The parameter {param} is required.")
    if not isinstance(value[name], kind):
        names = {"str": "a string", "dict": "a JSON object", "list": "an array"}
        raise invalid_parameter(f"Param {param} must be {names[kind.__name__]}.")
    return value[name]


def _require_text(value: Mapping[str, Any], name: str, where: str, max_chars: int) -> str:
    text: str = require_field(value, name, str, where)
    if not text.strip():
        raise invalid_parameter(f"Param {where}['{name}'] must be a non-empty string.")
    if len(text) > max_chars:
        raise invalid_parameter(f"Param {where}['{name}'] must be at most {max_chars} characters long.")
    return text
