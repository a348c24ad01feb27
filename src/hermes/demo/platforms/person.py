"""A person with a phone. They can do the same at all platforms; each platform brings it to the account in its own way."""

from __future__ import annotations

import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from hermes.demo.platforms.message_log import PersonMessage, ReceivedMessage
from hermes.demo.platforms.platform import FakePlatform


class FakePerson(ABC):
    """One person at one platform.

    Each action returns the platform's id for it. Its webhook is then on its way; `platform.wait_until_quiet()` waits for the delivery."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_blocking = False
        """They have blocked the account."""
        self.last_wrote_at: float | None = None
        """In the platform's seconds. The window for free replies begins here."""
        self.typing_shown = 0
        """How often they saw a typing indicator."""
        self.seen_by_account: list[str] = []
        """Their messages that the account marked as read."""
        self.is_reader = True
        """Whether they read their messages. Platforms with read receipts then tell the account so."""

    @property
    @abstractmethod
    def platform(self) -> FakePlatform: ...

    @property
    @abstractmethod
    def id(self) -> str:
        """The platform's id of the person."""

    @abstractmethod
    def say(self, text: str, *, reply_to: str | None = None) -> str: ...

    @abstractmethod
    def send_picture(self, picture: bytes | None = None, caption: str = "") -> str:
        """Send an image; None: a small sample."""

    @abstractmethod
    def send_voice(self, sound: bytes = b"OggS") -> str: ...

    @abstractmethod
    def send_document(self, data: bytes, name: str = "menu.pdf", mime_type: str = "application/pdf", caption: str = "") -> str: ...

    @abstractmethod
    def send_location(self, latitude: float, longitude: float) -> str: ...

    @abstractmethod
    def send_album(self, pictures: Sequence[bytes | None], caption: str = "") -> list[str]:
        """Send several images that belong together."""

    @abstractmethod
    def react(self, message_id: str, emoji: str) -> None:
        """React to a message with an emoji; an empty one removes the reaction."""

    def block(self) -> None:
        self.is_blocking = True

    def unblock(self) -> None:
        self.is_blocking = False

    # --- what they received

    @property
    def received(self) -> list[ReceivedMessage]:
        """The messages they received, in order, with every copy."""
        return self.platform.message_log.of(self.id)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.received]

    @property
    def talk(self) -> list[ReceivedMessage | PersonMessage]:
        """The messages of both sides, in order."""
        return self.platform.message_log.talk(self.id)

    async def wait_for_messages(self, count: int = 1, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """Wait until they have received so many messages in all, and return all of them. Raises TimeoutError; the seconds are real ones."""
        await self.platform.world.changes.wait_until(lambda: self.platform.message_log.count(self.id) >= count, timeout_s)
        return self.received


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
