"""What `POST …/messages` takes: every field that the stand-in knows, and none that it does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hermes.demo.platforms.whatsapp.words import trouble, wrong

LONGEST_TEXT = 4096
LONGEST_CAPTION = 1024
LONGEST_BUTTON = 20
LONGEST_DATA = 512
MOST_BUTTONS = 3
MEDIA = ("image", "audio", "video", "document", "sticker")
CAPTIONED = {"image", "video", "document"}
ENVELOPE = {"messaging_product", "recipient_type", "to", "recipient", "type", "context", "biz_opaque_callback_data"}
USER_ID = re.compile(r"[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128}")
PHONE = re.compile(r"\+?\d{5,20}")


def check_message(body: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of a message, and what a person would read of it. Raises Refusal."""
    kind = body.get("type", "text")
    if not isinstance(kind, str) or kind not in CHECKS:
        raise trouble(131051, f"Message type {kind!r} is not known.")
    only(body, {*ENVELOPE, kind}, "body")
    if body.get("recipient_type", "individual") not in ("individual", "group"):
        raise wrong("Param recipient_type must be one of {INDIVIDUAL, GROUP}")
    data = body.get("biz_opaque_callback_data", "")
    if not isinstance(data, str) or len(data) > LONGEST_DATA:
        raise wrong(f"Param biz_opaque_callback_data must be a string of at most {LONGEST_DATA} characters.")
    if "context" in body:
        only(has(body, "context", dict), {"message_id"}, "context")
        has(body["context"], "message_id", str, "context")
    return kind, CHECKS[kind](has(body, kind, dict))


def group_of(body: Mapping[str, Any]) -> str | None:
    """The group that is meant; None where it is a person."""
    if body.get("recipient_type") != "group":
        return None
    if "recipient" in body:
        raise wrong("Param recipient is not for groups")
    group_id: str = has(body, "to", str)
    return group_id


def recipient_of(body: Mapping[str, Any]) -> tuple[str, bool]:
    """Who is meant, and whether by number: `to` is for numbers, `recipient` for user ids, and one of them is enough."""
    if ("to" in body) == ("recipient" in body):
        raise wrong("The parameter to is required." if "to" not in body else "Give either to or recipient (the stand-in takes one of them)")
    name = "to" if "to" in body else "recipient"
    value = has(body, name, str)
    if not (PHONE if name == "to" else USER_ID).fullmatch(value):
        raise wrong(f"Param {name} must be {'a phone number' if name == 'to' else 'a business-scoped user ID'}, and is {value!r}")
    return value.removeprefix("+"), name == "to"


def check_read(body: Mapping[str, Any]) -> str:
    """The message that is marked as read. Raises Refusal."""
    only(body, {"messaging_product", "status", "message_id", "typing_indicator"}, "body")
    if body["status"] != "read":
        raise wrong("Param status must be one of {READ}")
    if "typing_indicator" in body:
        indicator = has(body, "typing_indicator", dict)
        only(indicator, {"type"}, "typing_indicator")
        if indicator.get("type") != "text":
            raise wrong("Param typing_indicator['type'] must be one of {TEXT}")
    message_id: str = has(body, "message_id", str)
    return message_id


def _text(text: Mapping[str, Any]) -> str:
    only(text, {"body", "preview_url"}, "text")
    if not isinstance(text.get("preview_url", False), bool):
        raise wrong("Param text['preview_url'] must be a boolean.")
    return _words(text, "body", "text", LONGEST_TEXT)


def _media(kind: str) -> Callable[[Mapping[str, Any]], str]:
    def check(media: Mapping[str, Any]) -> str:
        further = {"image": {"caption"}, "video": {"caption"}, "document": {"caption", "filename"}, "audio": {"voice"}}.get(kind, set())
        only(media, {"id", "link", *further}, kind)
        if ("id" in media) == ("link" in media):
            raise wrong(f"Param {kind} must have either id or link.")
        if "link" in media and not re.match(r"https?://", has(media, "link", str, kind)):
            raise wrong(f"Param {kind}['link'] is not a valid URL.")
        return _words(media, "caption", kind, LONGEST_CAPTION) if "caption" in media else ""

    return check


def _location(location: Mapping[str, Any]) -> str:
    only(location, {"latitude", "longitude", "name", "address"}, "location")
    for name, most in (("latitude", 90), ("longitude", 180)):
        value = location.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > most:
            raise wrong(f"Param location['{name}'] must be a number between -{most} and {most}.")
    return str(location.get("name", ""))


def _reaction(reaction: Mapping[str, Any]) -> str:
    only(reaction, {"message_id", "emoji"}, "reaction")
    has(reaction, "message_id", str, "reaction")
    emoji: str = has(reaction, "emoji", str, "reaction")
    return emoji


def _interactive(interactive: Mapping[str, Any]) -> str:
    only(interactive, {"type", "header", "body", "footer", "action"}, "interactive")
    kind, action = interactive.get("type"), has(interactive, "action", dict, "interactive")
    if kind == "button":
        only(action, {"buttons"}, "action")
        buttons = has(action, "buttons", list, "action")
        if not 1 <= len(buttons) <= MOST_BUTTONS:
            raise wrong(f"Invalid buttons count. Min allowed buttons: 1, Max allowed buttons: {MOST_BUTTONS}")
        for button in buttons:
            if not isinstance(button, dict) or button.get("type") != "reply":
                raise wrong("Param interactive['action']['buttons'][*]['type'] must be one of {REPLY}")
            only(button, {"type", "reply"}, "button")
            reply = has(button, "reply", dict, "button")
            only(reply, {"id", "title"}, "reply")
            _words(reply, "title", "reply", LONGEST_BUTTON)
            _words(reply, "id", "reply", 256)
    elif kind == "list":
        only(action, {"button", "sections"}, "action")
        _words(action, "button", "action", LONGEST_BUTTON)
        rows = [row for section in has(action, "sections", list, "action") for row in has(section, "rows", list, "section")]
        if not 1 <= len(rows) <= 10:
            raise wrong("Total row count exceed max allowed count: 10")
        for row in rows:
            only(row, {"id", "title", "description"}, "row")
            _words(row, "title", "row", 24)
    else:
        raise wrong("Param interactive['type'] must be one of {BUTTON, LIST} (the stand-in knows no other)")
    body = has(interactive, "body", dict, "interactive")
    only(body, {"text"}, "interactive['body']")
    return _words(body, "text", "interactive['body']", 4096 if kind == "list" else 1024)


def _template(template: Mapping[str, Any]) -> str:
    only(template, {"name", "language", "components"}, "template")
    language = has(template, "language", dict, "template")
    only(language, {"code", "policy"}, "template['language']")
    has(language, "code", str, "template['language']")
    for component in has(template, "components", list, "template") if "components" in template else ():
        if not isinstance(component, dict) or component.get("type") not in {"header", "body", "button"}:
            raise wrong("Param template['components'][*]['type'] must be one of {HEADER, BODY, BUTTON}")
    name: str = has(template, "name", str, "template")
    return name


CHECKS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "text": _text,
    **{kind: _media(kind) for kind in MEDIA},
    "location": _location,
    "reaction": _reaction,
    "interactive": _interactive,
    "template": _template,
}


def only(value: Mapping[str, Any], known: set[str], where: str) -> None:
    """Refuse fields that nobody knows."""
    if unknown := sorted(value.keys() - known):
        raise wrong(f'Unexpected key "{unknown[0]}" on param "{where}".')


def has(value: Mapping[str, Any], name: str, kind: type, where: str = "") -> Any:
    """A field that must be there."""
    param = f"{where}['{name}']" if where else name
    if value.get(name) is None:
        raise wrong(f"The parameter {param} is required.")
    if not isinstance(value[name], kind):
        names = {"str": "a string", "dict": "a JSON object", "list": "an array"}
        raise wrong(f"Param {param} must be {names[kind.__name__]}.")
    return value[name]


def _words(value: Mapping[str, Any], name: str, where: str, most: int) -> str:
    text: str = has(value, name, str, where)
    if not text.strip():
        raise wrong(f"Param {where}['{name}'] must be a non-empty string.")
    if len(text) > most:
        raise wrong(f"Param {where}['{name}'] must be at most {most} characters long.")
    return text
