"""The methods of the Bot API: each checks its parameters, and returns the accepted call."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes.channels.telegram.fake.checks import (
    bad_request,
    check_entities,
    check_markup,
    check_parameters,
    check_preview,
    check_reply,
    utf16_length,
)
from hermes.channels.telegram.fake.people import FakeTelegramState, TelegramChat, TelegramPerson
from hermes.channels.telegram.fake.updates import PRESS_LIFETIME_S, TelegramWebhook
from hermes.testing.platforms.exchanges import AcceptedCall, FakeResponse, as_action
from hermes.testing.platforms.faults import PlatformRefusal
from hermes.testing.platforms.world import BucketRate, RateBucket

MAX_TEXT_UTF16 = 4096
MAX_NOTICE_CHARS = 200
CHAT_ACTIONS = frozenset(
    {
        "typing",
        "upload_photo",
        "record_video",
        "upload_video",
        "record_voice",
        "upload_voice",
        "upload_document",
        "choose_sticker",
        "find_location",
        "record_video_note",
        "upload_video_note",
    }
)
SECRET_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,256}")


@dataclass(slots=True)
class FloodLimits:
    """How many messages Telegram accepts: about one a second in a chat, twenty a minute in a group, thirty a second in all."""

    chat: RateBucket
    group: RateBucket
    overall: RateBucket

    def check(self, chat: TelegramChat, now: float) -> None:
        """Refuse a message over a limit; the refusal says how long to wait."""
        wait_s = max(bucket.wait_s(key, now) for bucket, key in self._buckets(chat))
        if wait_s > 0:
            raise too_many_requests(math.ceil(wait_s))

    def take(self, chat: TelegramChat, now: float) -> None:
        """Count a message that was accepted."""
        for bucket, key in self._buckets(chat):
            bucket.take(key, now)

    def _buckets(self, chat: TelegramChat) -> tuple[tuple[RateBucket, int | None], ...]:
        return ((self.group if chat.is_group else self.chat, chat.id), (self.overall, None))


def too_many_requests(retry_after: int) -> PlatformRefusal:
    return PlatformRefusal(429, f"Too Many Requests: retry after {retry_after}", retry_after=retry_after)


class BotMethods:
    """The methods that a bot can call."""

    def __init__(self, state: FakeTelegramState, people: Mapping[str, TelegramPerson]) -> None:
        self._state, self._people = state, people
        self._world, self._updates = state.platform.world, state.updates
        self.flood = FloodLimits(RateBucket(BucketRate(1.0, 5)), RateBucket(BucketRate(3.0, 20)), RateBucket(BucketRate(1 / 30, 30)))
        self._readers: Mapping[str, Callable[[Mapping[str, Any]], AcceptedCall]] = {
            "sendMessage": self._send_message,
            "sendChatAction": self._send_chat_action,
            "answerCallbackQuery": self._answer_callback_query,
            "getFile": self._get_file,
            "getUpdates": self._get_updates,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "getWebhookInfo": self._get_webhook_info,
            "getMe": self._get_me,
        }

    def read(self, method: str, found: Mapping[str, Any]) -> AcceptedCall:
        """The call with these parameters. Raises PlatformRefusal."""
        return self._readers[method](check_parameters(method, found))

    def _send_message(self, values: Mapping[str, Any]) -> AcceptedCall:
        if "parse_mode" in values:
            raise bad_request("unsupported parse_mode (the fake accepts entities, and parses no text)")
        text = values["text"]
        if not text.strip():
            raise bad_request("text must be non-empty")
        entities = check_entities(text, values.get("entities", []))
        if utf16_length(text) > MAX_TEXT_UTF16:
            raise bad_request("message is too long")
        if "reply_markup" in values:
            check_markup(values["reply_markup"])
        if "link_preview_options" in values:
            check_preview(values["link_preview_options"])
        if "business_connection_id" in values:
            raise bad_request("business connection not found")
        chat = self._reachable(values)
        reply_to = self._reply_target(chat, values)
        self.flood.check(chat, self._world.clock.now())

        async def act(*, is_answered: bool) -> FakeResponse:
            self.flood.take(chat, self._world.clock.now())
            content = {"text": text, **({"entities": list(entities)} if entities else {})}
            thread = values.get("message_thread_id")
            if thread is not None:
                content |= {"message_thread_id": thread, "is_topic_message": True}
            if reply_to is not None:
                content["reply_to_message"] = {key: value for key, value in chat.messages[reply_to].items() if key != "reply_to_message"}
            if "inline_keyboard" in values.get("reply_markup", {}):
                content["reply_markup"] = values["reply_markup"]
            message = chat.add(self._state.bot, content)
            self._state.platform.message_log.add_received(
                chat=str(chat.id),
                message_id=str(message["message_id"]),
                text=text,
                entities=entities,
                reply_to=None if reply_to is None else str(reply_to),
                thread=None if thread is None else str(thread),
                is_answered=is_answered,
                at=self._world.clock.now(),
                body=values,
            )
            return FakeResponse({"ok": True, "result": message})

        return AcceptedCall("sendMessage", str(chat.id), act)

    def _send_chat_action(self, values: Mapping[str, Any]) -> AcceptedCall:
        if values["action"] not in CHAT_ACTIONS:
            raise bad_request("wrong parameter action in request")
        chat = self._reachable(values)
        self.flood.check(chat, self._world.clock.now())

        async def act() -> FakeResponse:
            self.flood.take(chat, self._world.clock.now())
            if (person := self._people.get(str(chat.id))) and values["action"] == "typing":
                person.typing_shown += 1
                self._world.changes.notify()
            return FakeResponse({"ok": True, "result": True})

        return AcceptedCall("sendChatAction", str(chat.id), as_action(act))

    def _reachable(self, values: Mapping[str, Any]) -> TelegramChat:
        """The chat of a call. Raises PlatformRefusal if the bot may not write there."""
        chat_id = str(values["chat_id"])
        chat = self._state.chats.get(int(chat_id)) if re.fullmatch(r"-?\d+", chat_id) else None
        if chat is None:
            raise bad_request("chat not found")
        if chat.moved_to is not None:
            words = "Bad Request: group chat was upgraded to a supergroup chat"
            raise PlatformRefusal(400, words, parameters={"migrate_to_chat_id": chat.moved_to})
        person = self._people.get(str(chat.id))
        if person and person.is_deactivated:
            raise PlatformRefusal(403, "Forbidden: user is deactivated")
        if not chat.bot_may_write and not chat.is_group:
            raise PlatformRefusal(403, "Forbidden: bot can't initiate conversation with a user")
        if person and person.is_blocking:
            raise PlatformRefusal(403, "Forbidden: bot was blocked by the user")
        thread = values.get("message_thread_id")
        if thread is not None and thread not in chat.threads:
            raise bad_request("message thread not found")
        return chat

    @staticmethod
    def _reply_target(chat: TelegramChat, values: Mapping[str, Any]) -> int | None:
        """The message that a call replies to, if there is one."""
        if "reply_parameters" in values:
            number, may_be_missing = check_reply(values["reply_parameters"])
        elif "reply_to_message_id" in values:
            number, may_be_missing = values["reply_to_message_id"], values.get("allow_sending_without_reply", False)
        else:
            return None
        if number in chat.messages:
            return number
        if not may_be_missing:
            raise bad_request("message to be replied not found")
        return None

    def _answer_callback_query(self, values: Mapping[str, Any]) -> AcceptedCall:
        press = self._state.presses.get(values["callback_query_id"])
        if press is None or self._world.clock.now() > press.at + PRESS_LIFETIME_S:
            raise bad_request("query is too old and response timeout expired or query ID is invalid")
        if len(values.get("text", "")) > MAX_NOTICE_CHARS:
            raise bad_request("MESSAGE_TOO_LONG")

        async def act() -> FakeResponse:
            press.answer = values
            self._world.changes.notify()
            return FakeResponse({"ok": True, "result": True})

        return AcceptedCall("answerCallbackQuery", None, as_action(act))

    def _get_file(self, values: Mapping[str, Any]) -> AcceptedCall:
        file = self._state.files.link(values["file_id"], self._world.clock.now())
        about = {"file_id": file.file_id, "file_unique_id": file.unique_id, "file_size": len(file.data), "file_path": file.path}
        return read_only_call("getFile", about)

    def _get_me(self, _: Mapping[str, Any]) -> AcceptedCall:
        able = {"can_join_groups": True, "can_read_all_group_messages": False, "supports_inline_queries": False}
        more = {"can_connect_to_business": False, "has_main_web_app": False}
        return read_only_call("getMe", {**self._state.bot, **able, **more})

    def _get_updates(self, values: Mapping[str, Any]) -> AcceptedCall:
        limit = max(1, min(values.get("limit", 100), 100))
        timeout_s = max(0, min(values.get("timeout", 0), 50))

        async def act() -> FakeResponse:
            found = await self._updates.poll(values.get("offset", 0), limit, timeout_s, values.get("allowed_updates"))
            return FakeResponse({"ok": True, "result": found})

        return AcceptedCall("getUpdates", None, as_action(act))

    def _set_webhook(self, values: Mapping[str, Any]) -> AcceptedCall:
        url, secret, connections = values.get("url", ""), values.get("secret_token"), values.get("max_connections", 40)
        if url and not re.match(r"https?://[^/\s]+", url):
            raise bad_request("bad webhook: invalid URL")
        if secret is not None and not SECRET_PATTERN.fullmatch(secret):
            raise bad_request("secret token contains unallowed characters" if secret else "secret token is empty")
        if not 1 <= connections <= 100:
            raise bad_request("max_connections must be between 1 and 100")
        allowed = values.get("allowed_updates")
        if allowed is not None and not all(isinstance(kind, str) for kind in allowed):
            raise bad_request("can't parse allowed_updates: expected an Array of Strings")

        async def act() -> FakeResponse:
            if values.get("drop_pending_updates"):
                self._updates.drop_all()
            webhook = TelegramWebhook(url, secret, connections, allowed or None, values.get("ip_address")) if url else None
            self._updates.connect(webhook)
            return FakeResponse({"ok": True, "result": True, "description": "Webhook was set" if url else "Webhook was deleted"})

        return AcceptedCall("setWebhook", None, as_action(act))

    def _delete_webhook(self, values: Mapping[str, Any]) -> AcceptedCall:
        async def act() -> FakeResponse:
            if values.get("drop_pending_updates"):
                self._updates.drop_all()
            self._updates.connect(None)
            return FakeResponse({"ok": True, "result": True, "description": "Webhook was deleted"})

        return AcceptedCall("deleteWebhook", None, as_action(act))

    def _get_webhook_info(self, _: Mapping[str, Any]) -> AcceptedCall:
        webhook, error = self._updates.webhook, self._updates.last_error
        info: dict[str, Any] = {
            "url": webhook.url if webhook else "",
            "has_custom_certificate": False,
            "pending_update_count": len(self._updates.pending),
        }
        if webhook:
            info |= {"max_connections": webhook.max_connections, "ip_address": webhook.ip_address or "127.0.0.1"}
            info |= {"allowed_updates": list(webhook.allowed)} if webhook.allowed else {}
            info |= {"last_error_date": error[0], "last_error_message": error[1]} if error else {}
        return read_only_call("getWebhookInfo", info)


def read_only_call(method: str, result: Any) -> AcceptedCall:
    """A call that changes nothing."""

    async def act() -> FakeResponse:
        return FakeResponse({"ok": True, "result": result})

    return AcceptedCall(method, None, as_action(act))
