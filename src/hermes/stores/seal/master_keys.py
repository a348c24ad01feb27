"""Master keys: the operator holds them, and they only wrap the data keys of users.

To rotate, the operator puts a new key before the old one. The new key wraps from then on. The old key still unwraps, and must stay until
no data key is wrapped by it."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hermes.stores.seal.errors import MasterKeyInvalid, MasterKeyMissing, SealBroken
from hermes.stores.seal.key_derivation import KEY_BYTES, KeyHolder, KeyPurpose, derive

VERSION = b"\x01"
NONCE_BYTES = 12
WRAPPED_BYTES = len(VERSION) + NONCE_BYTES + KEY_BYTES + 16
KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}=?")
NEW_KEY_HINT = "make one with: hermes keys new-master"


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as the database stores it. `blob` is 1 byte version, 12 bytes nonce, AES-256-GCM ciphertext and tag; `master` names
    the master key that wrapped it."""

    master: str
    blob: bytes


def new_master_key() -> str:
    """32 random bytes, as the text that the operator puts into the settings."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()


class MasterKeys(KeyHolder):
    """The first key wraps, every key unwraps. Holds only keys derived from the master keys, not the master keys themselves."""

    __slots__ = ("_wrapping",)

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Self:
        """Raises MasterKeyInvalid if there is no key or a key is malformed; the message gives its position from 1 and shows no key."""
        if not texts:
            raise MasterKeyInvalid(f"there is no master key; {NEW_KEY_HINT}")
        keys = [decode_master_key(text.strip(), place) for place, text in enumerate(texts, 1)]
        return cls({derive(key, KeyPurpose.NAME)[:8].hex(): AESGCM(derive(key, KeyPurpose.WRAP)) for key in keys})

    def __init__(self, wrapping: Mapping[str, AESGCM]) -> None:
        self._wrapping = wrapping

    @property
    def current(self) -> str:
        """The name of the key that wraps: 16 hex digits, derived for this purpose, safe to store and to show."""
        return next(iter(self._wrapping))

    @property
    def names(self) -> frozenset[str]:
        """The names of all configured master keys."""
        return frozenset(self._wrapping)

    def wrap(self, data_key: bytes, owner: UUID) -> WrappedKey:
        """Wrap a data key with the current master key for this user only: moved to another user's row, it does not unwrap."""
        if len(data_key) != KEY_BYTES:
            raise ValueError(f"a data key has {KEY_BYTES} bytes, not {len(data_key)}")
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._wrapping[self.current].encrypt(nonce, data_key, VERSION + owner.bytes)
        return WrappedKey(self.current, VERSION + nonce + sealed)

    def unwrap(self, wrapped: WrappedKey, owner: UUID) -> bytes:
        """Raises MasterKeyMissing if its master key is not configured, SealBroken if the blob was changed or is another user's."""
        wrapping, blob = self._wrapping.get(wrapped.master), wrapped.blob
        if wrapping is None:
            raise MasterKeyMissing(wrapped.master)
        if len(blob) != WRAPPED_BYTES or blob[:1] != VERSION:
            raise SealBroken
        try:
            return wrapping.decrypt(blob[1 : 1 + NONCE_BYTES], blob[1 + NONCE_BYTES :], VERSION + owner.bytes)
        except InvalidTag:
            raise SealBroken from None

    def __repr__(self) -> str:
        return f"MasterKeys({', '.join(self._wrapping)})"


def decode_master_key(text: str, place: int) -> bytes:
    """A key has one spelling: the last character has two spare bits, and a typing error there is refused like any other."""
    # The text is checked before it is decoded: a decoder's error holds the text, and so would the traceback.
    if KEY_PATTERN.fullmatch(text):
        key = base64.urlsafe_b64decode(text.rstrip("=") + "=")
        if base64.urlsafe_b64encode(key).decode().rstrip("=") == text.rstrip("="):
            return key
    raise MasterKeyInvalid(f"master key {place} is not 43 or 44 characters of URL-safe base64; {NEW_KEY_HINT}")
