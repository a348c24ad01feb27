"""A backup: one zip file with the rows of every table as COPY's text, and a manifest that names, counts and hashes them.

The file holds what the database holds: words stay sealed, and data keys stay wrapped by master keys, which are not in it. The keys of the
vault that it needs are in it, wrapped by a master key too: a backup opens by itself, also after the vault destroyed them. It appears whole
or not at all, and only its owner can read it."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from hermes.ports.errors import CopyRefused
from hermes.stores.key_vault import BucketNumber, VaultKeys
from hermes.stores.postgres.database_image import (
    CopyDiffers,
    CopyReport,
    DatabaseImage,
    ImageFacts,
    Progress,
    report_nothing,
    watch_rows,
)
from hermes.stores.postgres.table_copy import Column, RowsDigest, SequenceState, TableShape
from hermes.stores.postgres.vault_keys import NeededKeys
from hermes.stores.seal import MasterKeys, WrappedKey

FORMAT = "hermes-backup/1"
MANIFEST = "manifest.json"
COMPRESSION_LEVEL = 1
"""Sealed text does not compress; ids and times do, at any level."""
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table in a backup: its shape, how many rows it has, and their digests."""

    shape: TableShape
    rows: int
    bytes: int
    sha256: str
    digest: str

    @property
    def member(self) -> str:
        return f"tables/{self.shape.name}.copy"


async def write_backup(
    image: DatabaseImage, file: Path, *, version: str, vault: WrappedVault | None = None, progress: Progress = report_nothing
) -> CopyReport:
    """Write an image to a file, with the keys of the vault that it needs. Raises OSError, as when the disk is full; then there is no file,
    or the one that was there before."""
    report, stored = CopyReport(), list[StoredTable]()
    with replace_file(file) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL) as archive:
        for shape in image.facts.tables:
            digest, sha256, size = RowsDigest(), hashlib.sha256(), 0
            with archive.open(f"tables/{shape.name}.copy", "w", force_zip64=True) as member:
                async for chunk in watch_rows(image, shape, progress):
                    digest.update(chunk)
                    sha256.update(chunk)
                    size += len(chunk)
                    member.write(chunk)
            report.tables[shape.name] = digest
            stored.append(StoredTable(shape, digest.rows, size, sha256.hexdigest(), digest.value))
        manifest = describe_image(image.facts, stored, await image.sequences(), version)
        if vault is not None:
            manifest["vault"] = describe_vault(vault)
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
    return report


def describe_image(facts: ImageFacts, tables: list[StoredTable], sequences: Mapping[str, SequenceState], version: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": version,
        "source": facts.source,
        "taken_at": facts.taken_at.isoformat(),
        "migrations": dict(facts.migrations),
        "masters": list(facts.masters),
        "sequences": {name: [state.last_value, state.is_called] for name, state in sequences.items()},
        "tables": [
            {
                "name": table.shape.name,
                "columns": [[column.name, column.type] for column in table.shape.columns],
                "rows": table.rows,
                "bytes": table.bytes,
                "sha256": table.sha256,
                "digest": table.digest,
            }
            for table in tables
        ],
    }


@dataclass(frozen=True, slots=True)
class WrappedVault:
    """The keys of a vault, each wrapped by a master key."""

    id: UUID
    keys: Mapping[BucketNumber, WrappedKey]

    @classmethod
    def wrap(cls, vault: UUID, keys: VaultKeys, masters: MasterKeys) -> WrappedVault:
        return cls(vault, {place: masters.wrap(key, vault) for place, key in keys.items()})

    def open(self, masters: MasterKeys) -> VaultKeys:
        """Raises MasterKeyMissing, and SealBroken."""
        return {place: masters.unwrap(key, self.id) for place, key in self.keys.items()}


def describe_vault(vault: WrappedVault) -> dict[str, Any]:
    return {"id": str(vault.id), "keys": [[*place, key.master, key.blob.hex()] for place, key in vault.keys.items()]}


def read_vault(described: dict[str, Any]) -> WrappedVault:
    keys = {BucketNumber(bucket, number): WrappedKey(master, bytes.fromhex(blob)) for bucket, number, master, blob in described["keys"]}
    return WrappedVault(UUID(described["id"]), keys)


@contextmanager
def replace_file(file: Path) -> Iterator[BinaryIO]:
    """Open a draft beside the file; when the block ends without an error, the draft takes the file's name, durably."""
    draft = file.with_name(f"{file.name}.partial")
    with suppress(FileNotFoundError):
        draft.unlink()  # a killed backup left it
    try:
        with os.fdopen(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        draft.replace(file)
    except BaseException:  # also Ctrl-C: a part of a backup is of no use
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# --- reading


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A backup as an image. Open it with `open_backup`."""

    facts: ImageFacts
    version: str
    tables: Mapping[str, StoredTable]
    states: Mapping[str, SequenceState]
    vault: WrappedVault | None
    _archive: zipfile.ZipFile

    async def rows(self, table: TableShape) -> AsyncIterator[bytes]:
        stored, sha256 = self.tables[table.name], hashlib.sha256()
        for chunk in self._chunks(stored):
            sha256.update(chunk)
            yield chunk
        if sha256.hexdigest() != stored.sha256:
            raise CopyDiffers(f"the backup is damaged: the rows of {table.name} are not those that were stored")

    async def sequences(self) -> Mapping[str, SequenceState]:
        return self.states

    async def check(self, progress: Progress = report_nothing) -> None:
        """Read every table once. Raises CopyDiffers if the file is not as it was written."""
        for table in self.facts.tables:
            async for _ in watch_rows(self, table, progress):
                pass

    def _chunks(self, stored: StoredTable) -> Iterator[bytes]:
        try:
            with self._archive.open(stored.member) as member:
                while chunk := member.read(CHUNK_BYTES):
                    yield chunk
        except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
            raise CopyDiffers(f"the backup is damaged: the rows of {stored.shape.name} cannot be read ({error})") from error


@contextmanager
def open_backup(file: Path) -> Iterator[BackupFile]:
    """Open a backup for reading. Raises CopyRefused if it is none, or of a later format."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield read_manifest(json.loads(archive.read(MANIFEST)), archive)
    except FileNotFoundError:
        raise CopyRefused(f"there is no file {file}") from None
    except (zipfile.BadZipFile, KeyError, ValueError, IsADirectoryError) as error:
        raise CopyRefused(f"{file} is no complete backup of Hermes ({error})") from error


def read_manifest(manifest: dict[str, Any], archive: zipfile.ZipFile) -> BackupFile:
    if manifest["format"] != FORMAT:
        raise CopyRefused(f"this backup has the format {manifest['format']}; this Hermes reads {FORMAT}. Use the version that made it")
    tables = [
        StoredTable(
            TableShape(table["name"], tuple(Column(name, kind) for name, kind in table["columns"])),
            table["rows"],
            table["bytes"],
            table["sha256"],
            table["digest"],
        )
        for table in manifest["tables"]
    ]
    vault = read_vault(manifest["vault"]) if "vault" in manifest else None
    facts = ImageFacts(
        source=manifest["source"],
        taken_at=datetime.fromisoformat(manifest["taken_at"]),
        migrations=manifest["migrations"],
        masters=manifest["masters"],
        tables=[table.shape for table in tables],
        vault=None if vault is None else NeededKeys(vault.id, [*vault.keys]),
    )
    states = {name: SequenceState(*state) for name, state in manifest["sequences"].items()}
    return BackupFile(facts, manifest["version"], {table.shape.name: table for table in tables}, states, vault, archive)
