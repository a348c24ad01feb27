"""Files that people sent over WhatsApp: asked for by id, fetched from a link that lives five minutes."""

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
    """Every file that was ever sent, and the links to them."""

    chance: SeededRandom
    salt: str
    """Two numbers have no file in common."""
    _by_id: dict[str, FakeWhatsAppFile] = field(default_factory=dict)
    _links: dict[str, tuple[FakeWhatsAppFile, float]] = field(default_factory=dict)
    """By the query of the link, as it was given out."""

    def add(self, data: bytes, mime_type: str) -> FakeWhatsAppFile:
        medium = FakeWhatsAppFile(self.chance.digits(16, "medium", self.salt, len(self._by_id)), data, mime_type)
        self._by_id[medium.id] = medium
        return medium

    def shown(self, medium: FakeWhatsAppFile) -> dict[str, Any]:
        """As a message shows it. Its address is Meta's own, which needs a token and is not for fetching: ask by id."""
        url = f"https://lookaside.fbsbx.com{MEDIA_PATH}?{self._query(medium, 'webhook')}"
        return {"mime_type": medium.mime_type, "sha256": medium.sha256, "id": medium.id, "url": url}

    def link(self, media_id: str, host: str, now: float) -> dict[str, Any] | None:
        """What Meta tells about a file, with a link that works for five minutes; None if there is none."""
        medium = self._by_id.get(media_id)
        if medium is None:
            return None
        query = self._query(medium, "getMedia")
        self._links[query] = (medium, now + LINK_LIFETIME_S)
        about = {"mime_type": medium.mime_type, "sha256": medium.sha256, "file_size": len(medium.data), "id": medium.id}
        return {"url": f"{host}{MEDIA_PATH}?{query}", **about, "messaging_product": "whatsapp"}

    def at(self, query: str, now: float) -> FakeWhatsAppFile | None:
        """What lies behind a link. Its query must be exactly as it was given out, and not too old."""
        medium, until = self._links.get(query, (None, 0.0))
        return medium if now <= until else None

    def _query(self, medium: FakeWhatsAppFile, source: str) -> str:
        salt = len(self._links)
        expires = unix_seconds() + int(LINK_LIFETIME_S)
        return f"mid={medium.id}&source={source}&ext={expires}&hash={self.chance.letters(43, 'link', medium.id, salt)}"
