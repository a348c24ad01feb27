"""Encryption at rest, the pure core: keys and bytes in, bytes out.

    masters = MasterKeys.parse(settings.master_keys)
    keys = DataKeys({row.generation: masters.unwrap(WrappedKey(row.master, row.blob), user.id) for row in rows})
    keys.open("telegram:channel:bali/42", keys.seal("telegram:channel:bali/42", b"a sunset bar in Canggu"))

The operator's master keys wrap one random data key per user, and HKDF derives a key from it for every purpose and label. Deleting a
user's data key deletes everything that it sealed.

A label says where sealed bytes belong: a conversation, a session. It picks the key and is authenticated, so bytes that were sealed under
one label open under no other.

To rotate master keys, the operator puts a new key before the old one. The new key wraps from then on. The old key still unwraps, and must
stay until no data key is wrapped by it.

    SealError
    ├── SealBroken          these bytes are not the bytes that were sealed under this label
    ├── DataKeyMissing      the user's data key is gone, or this generation of it
    ├── MasterKeyMissing    the master key that wrapped a data key is not configured
    ├── VaultKeyMissing     the vault has no longer, or not here, the key that wrapped a data key
    └── MasterKeyInvalid    no master key is configured, or one is malformed

The docstring of an error is its default message; no message holds a key or a plaintext. Knows nothing about databases, Redis, settings or
async, and nothing about what is sealed."""

from __future__ import annotations

import base64
import hmac
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NoReturn, Self
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

VERSION = b"\x01"
VAULTED = b"\x02"
"""The version of a data key that a key of the vault wraps too."""
KEY_BYTES = 32
NONCE_BYTES = 12
SEALED_KEY_BYTES = NONCE_BYTES + KEY_BYTES + 16
WRAPPED_BYTES = {VERSION: 1 + SEALED_KEY_BYTES, VAULTED: 1 + NONCE_BYTES + SEALED_KEY_BYTES + 16}
KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}=?")
NEW_KEY_HINT = "make one with: hermes keys new-master"
HEAD_BYTES = 5
BODY_START = HEAD_BYTES + NONCE_BYTES
MAX_GENERATION = 2**32 - 1
MAX_CACHED_KEYS = 12
"""Derived keys of each kind that one DataKeys object caches: those of one turn and its session. Deriving a key takes some 5 µs, five times
as long as opening a small blob; a cached one takes 3 kB."""


# --- errors


class SealError(Exception):
    """Sealed contents cannot be opened."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class SealBroken(SealError):
    """The sealed contents were changed, cut short, moved from another place, or sealed by a later version of Hermes."""


class DataKeyMissing(SealError):
    """The user's data key was deleted, so everything that it sealed is gone."""

    def __init__(self, generation: int | None = None) -> None:
        super().__init__(None if generation is None else f"generation {generation} of the user's data key is not held")
        self.generation = generation

    def __reduce__(self) -> tuple[type[DataKeyMissing], tuple[int | None]]:
        return type(self), (self.generation,)


class MasterKeyMissing(SealError):
    """The master key that wrapped this data key is not configured; list it after the current one."""

    def __init__(self, master: str) -> None:
        super().__init__(f"master key {master} is not configured, and data keys are wrapped by it; list it after the current one")
        self.master = master

    def __reduce__(self) -> tuple[type[MasterKeyMissing], tuple[str]]:
        return type(self), (self.master,)


class VaultKeyMissing(SealError):
    """The key of the vault that wrapped this data key was destroyed, or the vault is not in this folder."""


class MasterKeyInvalid(SealError):
    """A master key is 43 or 44 characters of URL-safe base64; make one with: hermes keys new-master"""


# --- derived keys


class KeyPurpose(StrEnum):
    """What a derived key is for. Stored data depends on these values: a value never changes, and a new value gives a new key."""

    NAME = "name"
    WRAP = "wrap"
    SEAL = "seal"
    HISTORY = "history"
    DIGEST = "digest"
    VISITOR = "visitor"


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


# --- master keys: the operator holds them, and they only wrap the data keys of users


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as the database stores it. `blob` is 1 byte version, 12 bytes nonce, AES-256-GCM ciphertext and tag; `master` names
    the master key that wrapped it. In version 2 the plaintext is again nonce, ciphertext and tag, under a key of the vault."""

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

    def wrap(self, data_key: bytes, owner: UUID, vault_key: bytes | None = None) -> WrappedKey:
        """Wrap a data key with the current master key for this user only: moved to another user's row, it does not unwrap.

        With a key of the vault, that wraps it first: without it, no master key opens it."""
        if len(data_key) != KEY_BYTES:
            raise ValueError(f"a data key has {KEY_BYTES} bytes, not {len(data_key)}")
        if vault_key is None:
            return self._close(data_key, VERSION, owner)
        nonce = os.urandom(NONCE_BYTES)
        return self._close(nonce + AESGCM(vault_key).encrypt(nonce, data_key, VAULTED + owner.bytes), VAULTED, owner)

    def unwrap(self, wrapped: WrappedKey, owner: UUID, vault_key: bytes | None = None) -> bytes:
        """Raises MasterKeyMissing if its master key is not configured, VaultKeyMissing if a key of the vault wrapped it and none is given,
        SealBroken if the blob was changed, is another user's, or was wrapped by another key of the vault."""
        inner = self._open(wrapped, owner)
        if wrapped.blob[:1] == VERSION:
            return inner
        if vault_key is None:
            raise VaultKeyMissing
        try:
            return AESGCM(vault_key).decrypt(inner[:NONCE_BYTES], inner[NONCE_BYTES:], VAULTED + owner.bytes)
        except InvalidTag:
            raise SealBroken from None

    def rewrap(self, wrapped: WrappedKey, owner: UUID) -> WrappedKey:
        """The same with the current master key; needs no key of the vault. Raises as `unwrap` does."""
        return self._close(self._open(wrapped, owner), wrapped.blob[:1], owner)

    def _close(self, inner: bytes, version: bytes, owner: UUID) -> WrappedKey:
        nonce = os.urandom(NONCE_BYTES)
        return WrappedKey(self.current, version + nonce + self._wrapping[self.current].encrypt(nonce, inner, version + owner.bytes))

    def _open(self, wrapped: WrappedKey, owner: UUID) -> bytes:
        wrapping, blob = self._wrapping.get(wrapped.master), wrapped.blob
        if wrapping is None:
            raise MasterKeyMissing(wrapped.master)
        if len(blob) != WRAPPED_BYTES.get(blob[:1]):
            raise SealBroken
        try:
            return wrapping.decrypt(blob[1 : 1 + NONCE_BYTES], blob[1 + NONCE_BYTES :], blob[:1] + owner.bytes)
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


# --- data keys: one user's keys, and everything that is sealed with them


def new_data_key() -> bytes:
    """32 random bytes, for a new user or a new generation. The caller wraps and stores it before it seals anything with it."""
    return os.urandom(KEY_BYTES)


class DataKeys(KeyHolder):
    """One user's data keys by generation: the newest one seals, every one opens. Safe to share between threads.

    A sealed blob is 1 byte version, 4 bytes generation (big-endian), 12 bytes random nonce, then AES-256-GCM ciphertext and tag:
    33 bytes more than the plaintext, whose length can be seen. With random nonces one key is good for 2**32 messages (NIST SP 800-38D:
    the odds that a nonce came twice stay under 2**-32). Every label has a key of its own in every generation, so the limit counts per
    label and starts from zero with a new generation."""

    __slots__ = ("_digest_key", "_fernet", "_keys", "_ready")

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
        self._fernet = lru_cache(MAX_CACHED_KEYS)(lambda label: fernet_of(keys.values(), label))

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
        return self._fernet(label)

    def digest(self, label: str, data: bytes) -> bytes:
        """HMAC-SHA256, 32 bytes: equal data under one label has equal digests, and a reader of the database cannot test guesses.

        The oldest generation makes it, because digests are compared with digests from years ago: with the newest generation, every
        rotation would make all known data look new. Code that drops the oldest generation must compute the stored digests again."""
        return hmac.digest(self._digest_key(label), data, "sha256")

    def digester(self, label: str) -> Callable[[bytes], bytes]:
        """`digest` for many data of one label."""
        key = self._digest_key(label)
        return lambda data: hmac.digest(key, data, "sha256")

    def forget_derived(self) -> None:
        """Empty the caches of derived keys: they take ten times the memory of the rest. What is asked for next is derived again."""
        for cache in (self._ready, self._digest_key, self._fernet):
            cache.cache_clear()

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


def fernet_of(keys: Iterable[bytes], label: str) -> FernetCipher:
    """The cipher of one label; the first key encrypts."""
    derived = [derive(key, KeyPurpose.HISTORY, label) for key in keys]
    return FernetCipher(MultiFernet(Fernet(base64.urlsafe_b64encode(key)) for key in derived))


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
        nonce = os.urandom(NONCE_BYTES)
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
