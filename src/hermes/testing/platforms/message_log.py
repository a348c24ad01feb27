"""The messages between people and the account: what each person really received, and what they sent. In order; nothing is dropped."""

from __future__ import annotations

import struct
import zlib
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


@dataclass(frozen=True, slots=True)
class SentImage:
    """An image, and what a platform says about it."""

    data: bytes
    mime_type: str
    width: int
    height: int


def inspect_image(data: bytes | None) -> SentImage:
    """Read the type and size of an image; None: draw a sample. Reads the size of PNG only."""
    data = sample_picture() if data is None else data
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return SentImage(data, "image/png", width, height)
    return SentImage(data, "image/jpeg", 640, 480)


def sample_picture(width: int = 96, height: int = 64) -> bytes:
    """A small PNG of a sunset, drawn here."""
    sun, sky = bytes((255, 230, 120)), [bytes((255 - y, 140 - y, 40 + 2 * y)) for y in range(height)]
    rows = b"".join(
        b"\0" + b"".join(sun if (x - width / 2) ** 2 + (y - 40) ** 2 < 196 else sky[y] for x in range(width)) for y in range(height)
    )
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress(rows))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
