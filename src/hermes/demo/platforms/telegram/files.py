"""Files that people sent: the bot finds them by id, and fetches them from a link that holds the token and expires."""

from __future__ import annotations

from dataclasses import dataclass, field

from hermes.demo.platforms.seeded_random import SeededRandom
from hermes.demo.platforms.telegram.entities import bad_request

MAX_FILE_BYTES = 20 * 1024 * 1024
LINK_LIFETIME_S = 3_600.0
FOLDERS = {"image/png": "photos/file_{}.png", "image/jpeg": "photos/file_{}.jpg", "audio/ogg": "voice/file_{}.oga"}


@dataclass(slots=True)
class FakeTelegramFile:
    """One file."""

    file_id: str
    unique_id: str
    data: bytes
    path: str
    link_until: float = 0.0
    """Until when its link works; 0: the bot has not asked for one."""


@dataclass(slots=True)
class FakeTelegramFiles:
    """All files that people sent."""

    random: SeededRandom
    _by_id: dict[str, FakeTelegramFile] = field(default_factory=dict)

    def add(self, data: bytes, mime_type: str) -> FakeTelegramFile:
        number = len(self._by_id) + 1
        file_id, unique_id = f"AgACAgUAAxkBAAM{self.random.letters(68, 'file', number)}", f"AQAD{self.random.letters(12, 'file', number)}"
        file = FakeTelegramFile(file_id, unique_id, data, FOLDERS.get(mime_type, "documents/file_{}").format(number))
        self._by_id[file_id] = file
        return file

    def link(self, file_id: str, now: float) -> FakeTelegramFile:
        """The file, with a link that works for at least an hour from now."""
        file = self._by_id.get(file_id)
        if file is None:
            raise bad_request("wrong file_id or the file is temporarily unavailable")
        if len(file.data) > MAX_FILE_BYTES:
            raise bad_request("file is too big")
        file.link_until = now + LINK_LIFETIME_S
        return file

    def at(self, path: str, now: float) -> bytes | None:
        """The file behind a link; None if there is none, or the link has expired."""
        return next((file.data for file in self._by_id.values() if file.path == path and now <= file.link_until), None)
