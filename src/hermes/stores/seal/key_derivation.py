"""Derive one key per purpose and label from a random key; and the base class of objects that hold keys."""

from __future__ import annotations

from enum import StrEnum
from typing import NoReturn

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32


class KeyPurpose(StrEnum):
    """What a derived key is for. Stored data depends on these values: a value never changes, and a new value gives a new key."""

    NAME = "name"
    WRAP = "wrap"
    SEAL = "seal"
    HISTORY = "history"
    DIGEST = "digest"


def derive(key: bytes, purpose: KeyPurpose, label: str = "") -> bytes:
    """32 bytes that reveal nothing about the key, nor about the bytes it gives for any other purpose or label.

    HKDF-SHA256 without salt, which a uniformly random key does not need. No purpose contains NUL, so no two pairs give the same info:
    the bytes after the second NUL are the label, whatever it contains."""
    info = b"\0".join((b"hermes.seal", purpose.encode(), encode_label(label)))
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(key)


def encode_label(label: str) -> bytes:
    """UTF-8 that accepts every string, also half an emoji in the name of a channel: an error here would have a key in its frame."""
    return label.encode(errors="surrogatepass")


class KeyHolder:
    """Base class of objects that hold keys: they show no key, and cannot be pickled or copied.

    Not a dataclass, and without `__dict__`: JSON encoders and pretty printers walk the fields of both."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds keys: it cannot be pickled or copied")
