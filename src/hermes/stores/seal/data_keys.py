"""Data keys: one user's keys, and everything that is sealed with them.

A label says where sealed bytes belong: a conversation, a session. It picks the key and is authenticated, so bytes that were sealed under
one label open under no other. Knows nothing about what is sealed, or about where it is stored."""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hermes.stores.seal.errors import DataKeyMissing, SealBroken
from hermes.stores.seal.key_derivation import KEY_BYTES, KeyHolder, KeyPurpose, derive, encode_label

VERSION = b"\x01"
HEAD_BYTES = 5
BODY_START = HEAD_BYTES + 12
MAX_GENERATION = 2**32 - 1
MAX_CACHED_KEYS = 256
"""Derived keys that one DataKeys object caches. Deriving a key takes some 5 µs, five times as long as opening a small blob."""


def new_data_key() -> bytes:
    """32 random bytes, for a new user or a new generation. The caller wraps and stores it before it seals anything with it."""
    return os.urandom(KEY_BYTES)


class DataKeys(KeyHolder):
    """One user's data keys by generation: the newest one seals, every one opens. Safe to share between threads.

    A sealed blob is 1 byte version, 4 bytes generation (big-endian), 12 bytes random nonce, then AES-256-GCM ciphertext and tag:
    33 bytes more than the plaintext, whose length can be seen. With random nonces one key is good for 2**32 messages (NIST SP 800-38D:
    the odds that a nonce came twice stay under 2**-32). Every label has a key of its own in every generation, so the limit counts per
    label and starts from zero with a new generation."""

    __slots__ = ("_digest_key", "_keys", "_ready")

    def __init__(self, generations: Mapping[int, bytes]) -> None:
        """Raises DataKeyMissing if there is no key: what a deleted user's keys sealed cannot be read, whatever the database still holds."""
        if not generations:
            raise DataKeyMissing
        for generation, key in generations.items():
            if not 0 <= generation <= MAX_GENERATION or len(key) != KEY_BYTES:
                raise ValueError(f"generation {generation}: a generation is a uint32, and its key has {KEY_BYTES} bytes, not {len(key)}")
        self._keys = keys = {head_of(generation): generations[generation] for generation in sorted(generations, reverse=True)}
        # The caches live as long as this object. They close over the keys and not over self: that would be a reference cycle.
        self._ready = lru_cache(MAX_CACHED_KEYS)(lambda label, head: AesCipher.of(keys[head], label, head))
        self._digest_key = lru_cache(MAX_CACHED_KEYS)(lambda label: derive(keys[min(keys)], KeyPurpose.DIGEST, label))

    @property
    def newest(self) -> int:
        """The generation that seals."""
        return generation_of(next(iter(self._keys)))

    def seal(self, label: str, plaintext: bytes) -> bytes:
        return self._ready(label, next(iter(self._keys))).seal(plaintext)

    def open(self, label: str, sealed: bytes) -> bytes:
        """Raises SealBroken unless this user's keys sealed these bytes under this label, DataKeyMissing if their generation is not held."""
        return self._cipher(label, sealed[:HEAD_BYTES]).open_all((sealed,))[0]

    def open_all(self, label: str, blobs: Iterable[bytes]) -> list[bytes]:
        """As open, for many blobs and faster. If one blob does not open, the whole call raises."""
        opened: list[bytes] = []
        for head, alike in groupby(blobs, itemgetter(slice(HEAD_BYTES))):
            # A list, so that an error raised by the caller's iterator is not reported as a broken seal.
            opened += self._cipher(label, head).open_all(list(alike))
        return opened

    def _cipher(self, label: str, head: bytes) -> AesCipher:
        # The error is raised here, in a frame without keys: some loggers write the locals of every frame of a traceback.
        if head in self._keys:
            return self._ready(label, head)
        raise DataKeyMissing(generation_of(head)) if len(head) == HEAD_BYTES and head[:1] == VERSION else SealBroken

    def history(self, label: str) -> FernetCipher:
        """The cipher of the recent history that Redis holds."""
        keys = [derive(key, KeyPurpose.HISTORY, label) for key in self._keys.values()]
        return FernetCipher(MultiFernet(Fernet(base64.urlsafe_b64encode(key)) for key in keys))

    def digest(self, label: str, data: bytes) -> bytes:
        """HMAC-SHA256, 32 bytes: equal data under one label has equal digests, and a reader of the database cannot test guesses.

        The oldest generation makes it, because digests are compared with digests from years ago: with the newest generation, every
        rotation would make all known data look new. Code that drops the oldest generation must compute the stored digests again."""
        return hmac.digest(self._digest_key(label), data, "sha256")

    def __repr__(self) -> str:
        return f"DataKeys(generations {', '.join(str(generation_of(head)) for head in self._keys)})"


class FernetCipher(KeyHolder):
    """Fernet tokens of one label: made with the newest generation, read with any. A token shows its length and the second it was made."""

    __slots__ = ("_fernet",)

    def __init__(self, fernet: MultiFernet) -> None:
        self._fernet = fernet

    def encode(self, data: bytes, *, at_s: int | None = None) -> bytes:
        """`at_s` is the time that the token shows, in seconds since 1970; by default the machine's time."""
        return self._fernet.encrypt(data) if at_s is None else self._fernet.encrypt_at_time(data, at_s)

    def decode(self, token: bytes) -> bytes:
        """Accepts a token of any age. Raises SealBroken unless this user's keys made it under this label, in a generation that is held."""
        try:
            return self._fernet.decrypt(check_token_spelling(token))
        except InvalidToken:
            raise SealBroken from None

    def rotate(self, token: bytes) -> bytes:
        """A token with the same data and time under the newest generation. Raises SealBroken as decode does."""
        try:
            return self._fernet.rotate(check_token_spelling(token))
        except InvalidToken:
            raise SealBroken from None

    def __repr__(self) -> str:
        return "FernetCipher()"


def check_token_spelling(token: bytes) -> bytes:
    """Return the token if it is spelled as it was made; raise SealBroken otherwise.

    Fernet skips characters outside base64 and ignores spare bits, so without this check one token would have many spellings."""
    try:
        if base64.urlsafe_b64encode(base64.urlsafe_b64decode(token)) == token:
            return token
    except ValueError:
        pass
    raise SealBroken


@dataclass(frozen=True, slots=True)
class AesCipher:
    """The key of one label and generation, ready for use."""

    head: bytes
    associated_data: bytes
    aes: AESGCM

    @classmethod
    def of(cls, key: bytes, label: str, head: bytes) -> Self:
        """Head and label are the associated data. All heads have the same length, so no two pairs give the same bytes."""
        return cls(head, head + encode_label(label), AESGCM(derive(key, KeyPurpose.SEAL, label)))

    def seal(self, plaintext: bytes) -> bytes:
        nonce = os.urandom(12)
        return self.head + nonce + self.aes.encrypt(nonce, plaintext, self.associated_data)

    def open_all(self, alike: Sequence[bytes]) -> list[bytes]:
        """Open blobs that have this cipher's head. One call for all: 10,000 small blobs take 10 ms, with a call for each 17 ms."""
        decrypt, associated_data = self.aes.decrypt, self.associated_data
        try:
            return [decrypt(sealed[HEAD_BYTES:BODY_START], sealed[BODY_START:], associated_data) for sealed in alike]
        except (InvalidTag, ValueError):  # ValueError: the nonce is cut short
            raise SealBroken from None


def head_of(generation: int) -> bytes:
    return VERSION + generation.to_bytes(4, "big")


def generation_of(head: bytes) -> int:
    return int.from_bytes(head[1:], "big")
