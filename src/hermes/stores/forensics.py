"""Search the files of the embedded stores for what is left of a user, as an attacker with the disk and the master keys would.

    heap    the tables and indexes of PostgreSQL, with dead rows and free space
    wal     its write-ahead log
    aof     the append-only files of Valkey
    kept    databases that a restore or an upgrade replaced

A data key is found by the row around it: the user's id, a generation, the name of a master key. A row is found by the first bytes of what
was sealed, which the caller read before the erasure. Not found: a row that lies across the end of a WAL page, and bytes in blocks that no
file names any more. Changes nothing."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from hermes.stores.embedded.home import Home
from hermes.stores.key_vault import VaultKeys, bucket_of
from hermes.stores.seal import MasterKeyMissing, MasterKeys, SealBroken, VaultKeyMissing, WrappedKey

NEEDLE_BYTES = 24
"""So many bytes of a ciphertext are nowhere by accident."""
SEALED_START = 5
"""Where the nonce of a sealed row begins: version and generation come before it, and are the same in all rows."""
PLACES = ("heap", "wal", "aof", "kept")


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A wrapped data key in a file."""

    file: Path
    offset: int
    generation: int
    key: WrappedKey


@dataclass(slots=True)
class PlaceFinds:
    """What was found in one kind of files."""

    files: int = 0
    bytes: int = 0
    keys: list[FoundKey] = field(default_factory=list)
    opened: list[FoundKey] = field(default_factory=list)
    """Those keys that the master keys open."""
    rows: int = 0
    """How many of the sealed rows are there at least once."""


def store_files(home: Home) -> dict[str, list[Path]]:
    """The files of the embedded stores, by the kind of place."""
    wal = home.postgres / "pg_wal"
    return {
        "heap": [file for file in files_in(home.postgres) if not file.is_relative_to(wal)],
        "wal": files_in(wal),
        "aof": files_in(home.valkey),
        "kept": [file for folder in sorted(home.stores.glob("postgres.kept-*")) for file in files_in(folder)],
    }


def files_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def search_files(
    files: Iterable[Path], owner: UUID, needles: Collection[bytes], masters: MasterKeys, vaults: Sequence[VaultKeys]
) -> PlaceFinds:
    """Search files for data keys of a user and for sealed rows, and try to open each key with all master keys and all vaults as they are.

    A file that goes away meanwhile is left out."""
    found, missing = PlaceFinds(), {*needles}
    for file in files:
        try:
            with file.open("rb") as handle, map_file(handle.fileno()) as content:
                found.files, found.bytes = found.files + 1, found.bytes + len(content)
                found.keys += find_keys(content, file, owner)
                missing -= {needle for needle in missing if content.find(needle) >= 0}
        except (FileNotFoundError, ValueError):  # gone, or empty
            continue
    found.rows = len({*needles}) - len(missing)
    found.opened = [each for each in found.keys if open_key(each.key, owner, masters, vaults) is not None]
    return found


def map_file(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


def key_pattern(owner: UUID) -> re.Pattern[bytes]:
    """A row of data_keys as PostgreSQL stores it: the columns one after the other, each text and blob after a byte with its length."""
    master = rb"\x23([0-9a-f]{16})"  # 16 characters and the byte itself, times two, plus one
    blobs = rb"(?:\x7d(\x01.{60})|\xb5(\x02.{88}))"
    return re.compile(re.escape(owner.bytes) + rb"(.{4})" + master + blobs, re.DOTALL)


def find_keys(content: mmap.mmap, file: Path, owner: UUID) -> Iterator[FoundKey]:
    for match in key_pattern(owner).finditer(content):
        [generation] = struct.unpack("=i", match[1])
        yield FoundKey(file, match.start(), generation, WrappedKey(match[2].decode(), match[3] or match[4]))


def open_key(wrapped: WrappedKey, owner: UUID, masters: MasterKeys, vaults: Sequence[VaultKeys]) -> bytes | None:
    """The data key, if the master keys open it: alone, or with a key of one of the vaults."""
    tries: list[bytes | None] = [None, *(key for vault in vaults for place, key in vault.items() if place.bucket == bucket_of(owner))]
    for vault_key in tries:
        try:
            return masters.unwrap(wrapped, owner, vault_key)
        except (VaultKeyMissing, SealBroken, MasterKeyMissing):
            continue
    return None


def needle_of(sealed: bytes) -> bytes:
    """The bytes by which sealed bytes are found again: their nonce, and the beginning of the ciphertext."""
    return sealed[SEALED_START : SEALED_START + NEEDLE_BYTES]
