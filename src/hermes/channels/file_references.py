"""References to files that users sent: the platform, the channel account that received the file, and the platform's file id.

    telegram:bali/AgACAgUAAxkBAAM…      whatsapp:shop/1037543291543636

The account is part of the reference: only the account that received a file can fetch it, and the step that looks at an image knows nothing
but the message. A reference holds no token. It is valid as long as the platform keeps the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote

from hermes.ports.channels import Media
from hermes.turn import Platform

PLATFORMS_WITH_FILE_IDS = frozenset({Platform.TELEGRAM, Platform.WHATSAPP})
"""Platforms that give files an id. At the others a file has a public URL."""


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file that one account received."""

    platform: Platform
    account: str
    file_id: str

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read a reference; None for any other text, for example a URL."""
        scheme, _, rest = text.partition(":")
        account, _, file_id = rest.partition("/")
        return cls(Platform(scheme), unquote(account), file_id) if scheme in PLATFORMS_WITH_FILE_IDS and account and file_id else None

    @property
    def bare(self) -> str:
        """The reference without the account, `telegram:FILE_ID`: what the platform's `look_up` takes."""
        return f"{self.platform}:{self.file_id}"


def reference_of(media: Media | None, account: str) -> str | None:
    """The reference of a file that an account received; None without a file. A public URL is its own reference."""
    if media is None:
        return None
    platform, _, file_id = media.reference.partition(":")
    return f"{platform}:{quote(account, safe='')}/{file_id}" if platform in PLATFORMS_WITH_FILE_IDS else media.reference
