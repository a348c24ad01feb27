"""Check the options of a message beside its text: buttons, the message that it replies to, the link preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.demo.platforms.refusal import is_integer
from hermes.demo.platforms.telegram.entities import bad_request

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
