"""Files that people sent over WhatsApp: the caller asks for them by id, and fetches them from a link that lives five minutes."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import Any

from hermes.demo.platforms.platform_clock import unix_seconds
from hermes.demo.platforms.seeded_random import SeededRandom

LINK_LIFETIME_S = 300.0
MEDIA_PATH = "/whatsapp_business/attachments/"


@dataclass(frozen=True, slots=True)
class FakeWhatsAppFile:
    """One file."""

    id: str
    data: bytes
    mime_type: str

    @property
    def sha256(self) -> str:
        return base64.b64encode(hashlib.sha256(self.data).digest()).decode()


@dataclass(slots=True)
class FakeWhatsAppFiles:
    """All files that people sent to one number, and the links to them."""

    random: SeededRandom
    salt: str
    """Makes the file ids of two numbers different."""
    _by_id: dict[str, FakeWhatsAppFile] = field(default_factory=dict)
    _links: dict[str, tuple[FakeWhatsAppFile, float]] = field(default_factory=dict)
    """By the query of the link, exactly as the caller got it."""

    def add(self, data: bytes, mime_type: str) -> FakeWhatsAppFile:
        file = FakeWhatsAppFile(self.random.digits(16, "medium", self.salt, len(self._by_id)), data, mime_type)
        self._by_id[file.id] = file
        return file

    def message_part(self, file: FakeWhatsAppFile) -> dict[str, Any]:
        """The file as a message contains it. Its URL is Meta's own, which needs a token and does not work here: ask by id."""
        url = f"https://lookaside.fbsbx.com{MEDIA_PATH}?{self._query(file, 'webhook')}"
        return {"mime_type": file.mime_type, "sha256": file.sha256, "id": file.id, "url": url}

    def link(self, media_id: str, host: str, now: float) -> dict[str, Any] | None:
        """What Meta says about a file, with a link that works for five minutes; None for an unknown file."""
        file = self._by_id.get(media_id)
        if file is None:
            return None
        query = self._query(file, "getMedia")
        self._links[query] = (file, now + LINK_LIFETIME_S)
        about = {"mime_type": file.mime_type, "sha256": file.sha256, "file_size": len(file.data), "id": file.id}
        return {"url": f"{host}{MEDIA_PATH}?{query}", **about, "messaging_product": "whatsapp"}

    def at(self, query: str, now: float) -> FakeWhatsAppFile | None:
        """The file behind a link; None unless the query is exactly that of a link that has not expired."""
        file, until = self._links.get(query, (None, 0.0))
        return file if now <= until else None

    def _query(self, file: FakeWhatsAppFile, source: str) -> str:
        salt = len(self._links)
        expires = unix_seconds() + int(LINK_LIFETIME_S)
        return f"mid={file.id}&source={source}&ext={expires}&hash={self.random.letters(43, 'link', file.id, salt)}"
