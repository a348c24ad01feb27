"""What happened between people and the account: what each person really received, and what they said. In order, and nothing is dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One message on somebody's phone. The same text sent twice is two of these, with two ids."""

    number: int
    """Its place in the platform's ledger, from 1."""
    chat: str
    """Whose it is: a person's id, or a group's."""
    message_id: str
    text: str
    """As a person reads it; where a platform has markup in the text (WhatsApp), with its marks."""
    kind: str = "text"
    """`text`, `image`, `template`, `reaction`, … as the platform calls it."""
    entities: Sequence[Mapping[str, Any]] = ()
    """Telegram's markup."""
    reply_to: str | None = None
    thread: str | None = None
    is_answered: bool = True
    """False: it arrived, but whoever sent it saw a connection that broke, or no answer."""
    at: float = 0.0
    """In the platform's seconds."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The call that brought it, as it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonMessage:
    """One thing that somebody sent to the account."""

    chat: str
    sender: str
    message_id: str
    text: str
    kind: str = "text"
    at: float = 0.0


class MessageLog:
    """Everything that reached somebody, and everything that somebody said."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.received: list[ReceivedMessage] = []
        self.person_messages: list[PersonMessage] = []
        self._talks: dict[str, list[ReceivedMessage | PersonMessage]] = {}
        self._counts: Counter[str] = Counter()
        self._on_change = on_change

    def add_received(self, *, chat: str, message_id: str, text: str, **about: Any) -> ReceivedMessage:
        """Write down that a message is there now."""
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
        """What arrived more than once: chat and text, with how often. Two equal answers to two questions count as well."""
        counted = Counter((entry.chat, entry.text) for entry in self.received)
        return {key: count for key, count in counted.items() if count > 1}

    def move(self, old: str, new: str) -> None:
        """A chat has another id from now on; its past goes with it."""
        self._talks.setdefault(new, [])[:0] = self._talks.pop(old, [])
        self._counts[new] += self._counts.pop(old, 0)
