"""The messages between people and the account: what each person really received, and what they sent. In order; nothing is dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One message on a person's phone. The same text sent twice is two of these, with two ids."""

    number: int
    """Its position in the platform's log, from 1."""
    chat: str
    """The id of the person or group that received it."""
    message_id: str
    text: str
    """The text as it arrived; if the platform's markup is part of the text (WhatsApp), with its marks."""
    kind: str = "text"
    """`text`, `image`, `template`, `reaction`, … as the platform calls it."""
    entities: Sequence[Mapping[str, Any]] = ()
    """Telegram's markup."""
    reply_to: str | None = None
    thread: str | None = None
    is_answered: bool = True
    """False: the message arrived, but its sender saw a broken connection, no response, or a response that a fault replaced."""
    at: float = 0.0
    """In the platform's seconds."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The body of the call that sent it, as it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonMessage:
    """One message that a person sent to the account."""

    chat: str
    sender: str
    message_id: str
    text: str
    kind: str = "text"
    at: float = 0.0


class MessageLog:
    """All messages that people received, and all that they sent."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.received: list[ReceivedMessage] = []
        self.person_messages: list[PersonMessage] = []
        self._talks: dict[str, list[ReceivedMessage | PersonMessage]] = {}
        self._counts: Counter[str] = Counter()
        self._on_change = on_change

    def add_received(self, *, chat: str, message_id: str, text: str, **about: Any) -> ReceivedMessage:
        """Record that a message has arrived on a phone."""
        entry = ReceivedMessage(number=len(self.received) + 1, chat=chat, message_id=message_id, text=text, **about)
        self.received.append(entry)
        self._talks.setdefault(chat, []).append(entry)
        self._counts[chat] += 1
        self._on_change()
        return entry

    def add_person_message(self, message: PersonMessage) -> PersonMessage:
        self.person_messages.append(message)
        self._talks.setdefault(message.chat, []).append(message)
        self._on_change()
        return message

    def of(self, chat: str) -> list[ReceivedMessage]:
        """What one person or group received, in order."""
        return [entry for entry in self.talk(chat) if isinstance(entry, ReceivedMessage)]

    def count(self, chat: str) -> int:
        """How many messages one person or group received."""
        return self._counts[chat]

    def talk(self, chat: str) -> list[ReceivedMessage | PersonMessage]:
        """Both sides of one conversation, in order."""
        return list(self._talks.get(chat, ()))

    def copies(self) -> dict[tuple[str, str], int]:
        """Texts that arrived more than once: chat and text, and how often. Two equal answers to two questions count as well."""
        counted = Counter((entry.chat, entry.text) for entry in self.received)
        return {key: count for key, count in counted.items() if count > 1}

    def move(self, old: str, new: str) -> None:
        """Give a chat another id; its earlier messages move with it."""
        self._talks.setdefault(new, [])[:0] = self._talks.pop(old, [])
        self._counts[new] += self._counts.pop(old, 0)
