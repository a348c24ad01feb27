"""One random key in, one key per purpose and scope out; and the manners of an object that holds keys."""

from __future__ import annotations

from enum import StrEnum
from typing import NoReturn

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32


class KeyPurpose(StrEnum):
    """What a derived key is for. Stored data depends on these words: a new word is a new key, an old one stays as it is."""

    NAME = "name"
    WRAP = "wrap"
    SEAL = "seal"
    HISTORY = "history"
    DIGEST = "digest"


def derive(key: bytes, purpose: KeyPurpose, label: str = "") -> bytes:
    """32 bytes that say nothing about the key, nor about what it gives for any other purpose or scope.

    HKDF-SHA256 without salt, which a uniformly random key does not need. No purpose contains NUL, so two pairs never read alike:
    what follows the second NUL is the scope, whatever it contains."""
    info = b"\0".join((b"hermes.seal", purpose.encode(), encode_label(label)))
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(key)


def encode_label(label: str) -> bytes:
    """UTF-8, for every string there is: half an emoji in the name of a channel is no reason to fail, and here a key is in the frame."""
    return label.encode(errors="surrogatepass")


class KeyHolder:
    """Holds keys: shows none of them, and is neither pickled nor copied.

    Not a dataclass, and without `__dict__`: encoders of JSON and pretty printers walk the fields of both."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds keys: it is not pickled or copied")
