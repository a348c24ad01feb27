"""Telegram's chats with their messages, and the state that people and methods share. Message ids begin at 1 in every chat."""

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
    """Its `type` and name, as messages contain them."""
    messages: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    threads: set[int] = field(default_factory=set)
    bot_may_write: bool = False
    """A person has written in this chat. In a private chat the bot may not write before."""
    moved_to: int | None = None
    """The id of the supergroup that it became."""

    @property
    def is_group(self) -> bool:
        return self.id < 0

    def add(self, sender: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
        """Add a message, in the form in which Telegram sends messages."""
        number = len(self.messages) + 1
        message = {"message_id": number, "from": sender, "chat": {"id": self.id, **self.about}, "date": unix_seconds(), **content}
        self.messages[number] = message
        return message


@dataclass(slots=True)
class ButtonPress:
    """A button that a person pressed. It waits until the bot answers."""

    id: str
    at: float
    answer: Mapping[str, Any] | None = None


@dataclass(slots=True)
class FakeTelegramState:
    """The state that people and the bot's methods share."""

    platform: FakePlatform
    updates: BotUpdates
    files: FakeTelegramFiles
    bot: Mapping[str, Any]
    """The bot, as messages contain it."""
    chats: dict[int, TelegramChat] = field(default_factory=dict)
    presses: dict[str, ButtonPress] = field(default_factory=dict)

    def record_message(
        self, chat: TelegramChat, sender: Mapping[str, Any], kind: str, text: str, content: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Record a person's message in the chat and in the message log, and send it to the bot."""
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
        """Store a file, and return it as messages contain it."""
        stored = self.files.add(data, mime_type)
        return {"file_id": stored.file_id, "file_unique_id": stored.unique_id, "file_size": len(data), **about}

    def number(self, digits: int, *about: object) -> int:
        return int(self.platform.world.random.digits(digits, *about))


def command_entities(text: str) -> Sequence[Mapping[str, Any]]:
    """The entity that Telegram adds for a command at the beginning of a message."""
    if not text.startswith("/") or len(text) < 2:
        return ()
    return ({"type": "bot_command", "offset": 0, "length": len(text.split(maxsplit=1)[0])},)
