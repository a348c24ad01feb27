"""The vault: a small file outside the database, with keys that wrap the data keys of users. What is destroyed here is gone.

PostgreSQL keeps old bytes for a long time: in dead rows, in the WAL, in replicas and archives. A data key that was deleted there can
still be found. So each data key is wrapped by a key of the vault as well. To destroy a data key, the others of its bucket are wrapped by a
new key of the vault, and the old one is destroyed: the file is written anew, whole, and the bytes of the old file are overwritten.

    vault-2f1c….keys    one line a key: bucket, number, key        read by every process
    vault.lock          held by the process that writes
    vault.mark          names the folder: processes that name the same mark share it

Users are divided into 256 buckets, so that an erasure wraps a small part of all data keys anew. Nothing in the file opens anything without
a master key. A disk that copies on write (SSD, btrfs, ZFS, snapshots of a provider) may keep the old bytes in blocks that no file names."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID, uuid4

from hermes.event_log import get_logger
from hermes.ports.errors import StoreUnavailable
from hermes.stores.seal import KEY_BYTES, KeyHolder, VaultKeyMissing

if sys.platform != "win32":
    import fcntl

log = get_logger(__name__)

BUCKETS = 256
REREAD_S = 60.0
"""How long a process uses the keys that it read: it notices within this time that keys were destroyed."""
LOCK_FILE, MARK_FILE = "vault.lock", "vault.mark"


class BucketNumber(NamedTuple):
    """A key within its vault."""

    bucket: int
    number: int


class VaultPlace(NamedTuple):
    """Where a key lies: in which vault, for which bucket, with which number. Numbers of a bucket only grow."""

    vault: UUID
    bucket: int
    number: int

    @property
    def key(self) -> BucketNumber:
        return BucketNumber(self.bucket, self.number)


VaultKeys = Mapping[BucketNumber, bytes]


class VaultReader(Protocol):
    """Where a keyring finds the keys of vaults."""

    async def key(self, place: VaultPlace) -> bytes:
        """Return a key. Raises VaultKeyMissing."""
        ...


def bucket_of(user_id: UUID) -> int:
    """The bucket of a user. PostgreSQL computes the same: get_byte(uuid_send(user_id), 15)."""
    return user_id.bytes[-1]


class CopiedVault(KeyHolder):
    """The keys of a vault as a backup has them, in memory only."""

    __slots__ = ("_keys",)

    def __init__(self, keys: VaultKeys) -> None:
        self._keys = keys

    async def key(self, place: VaultPlace) -> bytes:
        try:
            return self._keys[place.key]
        except KeyError:
            raise VaultKeyMissing from None


class VaultFolder(KeyHolder):
    """The folder of a Hermes' vaults: one file for each database. Several processes may use it, on several machines if they share it.

    The methods that are no coroutines touch the disk; they raise OSError, and VaultKeyMissing if there is no such vault."""

    __slots__ = ("_read", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: dict[UUID, tuple[float, VaultKeys]] = {}

    async def key(self, place: VaultPlace) -> bytes:
        """Return a key; reads the file if this process has not, or if it was read a minute ago. A disk that is away is no hindrance for a
        key that was read before. Raises StoreUnavailable for others."""
        since, keys = self._read.get(place.vault, (0.0, {}))
        if place.key not in keys or time.monotonic() - since > REREAD_S:
            try:
                keys = await asyncio.to_thread(self.read, place.vault)
            except OSError as error:
                log.warning("vault_not_read", error=error.strerror)
                if place.key not in keys:
                    raise StoreUnavailable(f"the vault cannot be read: {error.strerror}") from error
        try:
            return keys[place.key]
        except KeyError:
            raise VaultKeyMissing from None

    def file_of(self, vault: UUID) -> Path:
        return self.path / f"vault-{vault}.keys"

    def has(self, vault: UUID) -> bool:
        return self.file_of(vault).exists()

    def mark(self) -> UUID:
        """Return what names this folder; write it first, if no process did."""
        file = self.path / MARK_FILE
        with self._lock():
            if not file.exists():
                rewrite_file(file, f"{uuid4()}\n".encode())
            return UUID(file.read_text(encoding="ascii").strip())

    def create(self) -> UUID:
        """Make a vault with a key of number 1 for every bucket; return its id."""
        vault = uuid4()
        with self._lock():
            self._write(vault, {BucketNumber(bucket, 1): os.urandom(KEY_BYTES) for bucket in range(BUCKETS)})
        return vault

    def read(self, vault: UUID) -> VaultKeys:
        """All keys of a vault."""
        try:
            lines = self.file_of(vault).read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            raise VaultKeyMissing(f"there is no vault {vault} in {self.path}") from None
        try:
            keys = parse_keys(lines)
        except ValueError:
            raise VaultKeyMissing(f"the vault {self.file_of(vault)} is damaged") from None
        self._read[vault] = (time.monotonic(), keys)
        return keys

    def read_all(self) -> list[VaultKeys]:
        """The keys of all vaults in this folder."""
        return [self.read(UUID(file.stem.removeprefix("vault-"))) for file in sorted(self.path.glob("vault-*.keys"))]

    def add(self, vault: UUID, bucket: int, *, above: int) -> int:
        """Make a new key for a bucket, durably; return its number, which is greater than `above` and than every number before."""
        with self._lock():
            keys = self.read(vault)
            number = 1 + max([above, *(number for found, number in keys if found == bucket)])
            self._write(vault, {**keys, BucketNumber(bucket, number): os.urandom(KEY_BYTES)})
        return number

    def destroy(self, vault: UUID, gone: Collection[BucketNumber]) -> int:
        """Destroy keys; return how many were there. When this returns, the bytes of the old file are overwritten."""
        with self._lock():
            keys = self.read(vault)
            left = {place: key for place, key in keys.items() if place not in gone}
            self._write(vault, left)
        return len(keys) - len(left)

    def discard(self, vault: UUID) -> None:
        """Destroy a whole vault, with its file."""
        with self._lock():
            self._read.pop(vault, None)
            overwrite(self.file_of(vault))

    def _write(self, vault: UUID, keys: VaultKeys) -> None:
        lines = [f"{bucket} {number} {key.hex()}\n" for (bucket, number), key in sorted(keys.items())]
        rewrite_file(self.file_of(vault), "".join(lines).encode())
        self._read[vault] = (time.monotonic(), dict(keys))

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as lock:
            if sys.platform != "win32":
                fcntl.flock(lock.fileno(), fcntl.LOCK_EX)  # released with the file
            yield

    def __repr__(self) -> str:
        return f"VaultFolder({str(self.path)!r})"


def parse_keys(lines: Sequence[str]) -> VaultKeys:
    """The keys of a file. Raises ValueError if it is not as it was written."""
    keys = {BucketNumber(int(bucket), int(number)): bytes.fromhex(key) for bucket, number, key in (line.split() for line in lines)}
    if any(len(key) != KEY_BYTES for key in keys.values()):
        raise ValueError("a key is cut short")
    return keys


# --- files that leave no old bytes


def rewrite_file(file: Path, content: bytes) -> None:
    """Write a file whole or not at all, durably, and overwrite the bytes of the one before. If the process dies meanwhile, the next call
    overwrites what this one left."""
    draft, old = file.with_name(f"{file.name}.new"), file.with_name(f"{file.name}.old")
    overwrite(draft)
    overwrite(old)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    with suppress(FileNotFoundError):
        old.hardlink_to(file)  # so that the old bytes have a name until they are overwritten
    draft.replace(file)
    sync_folder(file.parent)
    overwrite(old)


def overwrite(file: Path) -> None:
    """Overwrite the bytes of a file in their place, and delete it. Does nothing if there is no file."""
    try:
        handle = file.open("r+b")
    except FileNotFoundError:
        return
    with handle:
        handle.write(os.urandom(os.fstat(handle.fileno()).st_size))
        handle.flush()
        os.fsync(handle.fileno())
    file.unlink()
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Windows cannot open a folder, and writes names with the files."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
