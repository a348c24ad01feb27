"""Telegram's chats: who is in them, what was said, and the ids of both. Message ids begin at 1 in every chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.demo.platforms.message_log import PersonMessage
from hermes.demo.platforms.platform import FakePlatform
from hermes.demo.platforms.platform_clock import unix_seconds
from hermes.demo.platforms.telegram.files import FakeTelegramFiles
from hermes.demo.platforms.telegram.updates import BotUpdates


@dataclass(slots=True)
class TelegramChat:
    """A private chat, a group or a supergroup."""

    id: int
    about: Mapping[str, Any]
    """Its `type` and name, as messages show it."""
    messages: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    threads: set[int] = field(default_factory=set)
    bot_may_write: bool = False
    """Whether the bot may write: somebody has written to it here."""
    moved_to: int | None = None
    """The supergroup that it became."""

    @property
    def is_group(self) -> bool:
        return self.id < 0

    def add(self, sender: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
        """A new message in it, as Telegram shows messages."""
        number = len(self.messages) + 1
        message = {"message_id": number, "from": sender, "chat": {"id": self.id, **self.about}, "date": unix_seconds(), **content}
        self.messages[number] = message
        return message


@dataclass(slots=True)
class ButtonPress:
    """A button that somebody pressed, and that still spins."""

    id: str
    at: float
    answer: Mapping[str, Any] | None = None


@dataclass(slots=True)
class FakeTelegramState:
    """What people and the bot's methods share."""

    platform: FakePlatform
    updates: BotUpdates
    files: FakeTelegramFiles
    bot: Mapping[str, Any]
    """As messages show it."""
    chats: dict[int, TelegramChat] = field(default_factory=dict)
    presses: dict[str, ButtonPress] = field(default_factory=dict)

    def record_message(
        self, chat: TelegramChat, sender: Mapping[str, Any], kind: str, text: str, content: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Somebody says something in a chat: it is in the ledger, and on its way to the bot."""
        chat.bot_may_write = True
        message = chat.add(sender, content)
        at = self.platform.world.clock.now()
        sent = PersonMessage(
            chat=str(chat.id), sender=str(sender["id"]), message_id=str(message["message_id"]), text=text, kind=kind, at=at
        )
        self.platform.message_log.add_person_message(sent)
        self.updates.add("message", message, str(chat.id))
        return message

    def file(self, data: bytes, mime_type: str, /, **about: Any) -> dict[str, Any]:
        """A file as messages show it."""
        stored = self.files.add(data, mime_type)
        return {"file_id": stored.file_id, "file_unique_id": stored.unique_id, "file_size": len(data), **about}

    def number(self, digits: int, *about: object) -> int:
        return int(self.platform.world.random.digits(digits, *about))


def command_entities(text: str) -> Sequence[Mapping[str, Any]]:
    """The mark that Telegram puts on a command at the beginning of a message."""
    if not text.startswith("/") or len(text) < 2:
        return ()
    return ({"type": "bot_command", "offset": 0, "length": len(text.split(maxsplit=1)[0])},)
