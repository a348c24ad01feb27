"""Files by reference: at which platform, in which account of ours, and what the platform calls them there.

    telegram:bali/AgACAgUAAxkBAAM…      whatsapp:shop/1037543291543636

The account belongs to it: nobody but the account that was sent a file can fetch it, and who looks at a picture knows the message alone.
A reference holds no token, and is good for as long as the platform keeps the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote

from hermes.ports.channels import Media
from hermes.turn import Platform

PLATFORMS_WITH_FILE_IDS = frozenset({Platform.TELEGRAM, Platform.WHATSAPP})
"""Platforms that name files by ids; at others a file has a public address."""


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file of one account."""

    platform: Platform
    account: str
    file_id: str

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The file that a reference names; None for everything else, an address of the web for one."""
        scheme, _, rest = text.partition(":")
        account, _, file_id = rest.partition("/")
        return cls(Platform(scheme), unquote(account), file_id) if scheme in PLATFORMS_WITH_FILE_IDS and account and file_id else None

    @property
    def bare(self) -> str:
        """As the platform's own account names it, `telegram:FILE_ID`: what its `look_up` takes."""
        return f"{self.platform}:{self.file_id}"


def reference_of(media: Media | None, account: str) -> str | None:
    """What a message says of a file that an account was sent; None where there is none. A public address is its own reference."""
    if media is None:
        return None
    platform, _, file_id = media.reference.partition(":")
    return f"{platform}:{quote(account, safe='')}/{file_id}" if platform in PLATFORMS_WITH_FILE_IDS else media.reference
