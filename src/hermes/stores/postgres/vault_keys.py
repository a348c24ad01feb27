"""Wrap data keys by keys of the vault, and destroy the keys of the vault that wrapped deleted ones.

    a data key is deleted  →  the others of its bucket are wrapped by a new key  →  the old key is retired  →  it is destroyed

The new key is in the vault before a row is wrapped by it; the old one is destroyed when the rows are committed. A process that dies in
between leaves a key too many, and the next call goes on. Between the last two steps lies a time of grace: a server that falls back to a
replica may lose the newest commits, and what it then has is wrapped by the old key."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hermes.ports.runtime import Transaction, Transactions
from hermes.stores.key_vault import BUCKETS, BucketNumber, VaultFolder, VaultKeys, VaultPlace, VaultReader
from hermes.stores.postgres.database import Connection, execute, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.keyring import Keyring, StoredKey
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import MasterKeys, VaultKeyMissing

SQL = load_queries("vault")
NO_NUMBER = 0
LATE_S = 60.0
"""Seconds without a beat after which a process is not waited for."""


@dataclass(frozen=True, slots=True)
class VaultKeeper:
    """Keeps the vault of a database."""

    masters: MasterKeys
    folder: VaultFolder

    async def begin(self, transactions: Transactions) -> UUID | None:
        """Give the database a vault, if it has none and every process that works could read it; return its vault."""
        async with transactions.begin() as tx:
            known: UUID | None = await fetch_value(tx, SQL["vault"])
            if known is not None:
                return known
            vault, mark = await asyncio.to_thread(self._make)
            if await execute(tx, SQL["begin"], {"vault": vault, "folder": mark, "late_s": LATE_S}):
                return vault
        await asyncio.to_thread(self.folder.discard, vault)
        return None

    def _make(self) -> tuple[UUID, UUID]:
        return self.folder.create(), self.folder.mark()

    async def keep(self, transactions: Transactions, *, grace_s: float) -> int:
        """Wrap what is not wrapped by the vault, renew the buckets of deleted data keys, and destroy the keys that were retired `grace_s`
        ago. Return how many were destroyed; 0 without a vault."""
        async with transactions.begin() as tx:
            if await fetch_value(tx, SQL["vault"]) is None:
                return 0
            outside, dirty = await fetch_values(tx, SQL["outside"]), await fetch_values(tx, SQL["dirty"])
        for bucket in outside:
            await self.wrap_bucket(transactions, bucket, renews=False)
        for bucket in dirty:
            await self.wrap_bucket(transactions, bucket, renews=True)
        return await self.destroy_retired(transactions, grace_s=grace_s)

    async def wrap_bucket(self, transactions: Transactions, bucket: int, *, renews: bool) -> int:
        """Wrap the data keys of a bucket by its key of the vault, a new one if it `renews`; return how many were wrapped."""
        async with transactions.begin() as tx:
            await execute(tx, b"set local synchronous_commit = on")  # the old key is destroyed because this is committed
            await execute(tx, SQL["lock_bucket"], {"bucket": bucket})
            [place] = await fetch_rows(tx, VaultPlace, SQL["place"], {"bucket": bucket})
            if renews:
                number = await asyncio.to_thread(self.folder.add, place.vault, bucket, above=place.number)
                place = place._replace(number=number)
            rows = await fetch_rows(tx, StoredKey, SQL["keys_in_bucket"], {"bucket": bucket, "number": place.number})
            await KeyWrapper(self.masters, self.folder, self.folder).wrap(tx, [row._replace(vault=place.vault) for row in rows], place)
            if renews:
                await execute(tx, SQL["renew"], {"bucket": bucket, "number": place.number})
        return len(rows)

    async def destroy_retired(self, transactions: Transactions, *, grace_s: float) -> int:
        """Destroy the keys that were retired `grace_s` ago, and those that a cut-off call made and never used; return how many."""
        async with transactions.begin() as tx:
            places = await fetch_rows(tx, VaultPlace, SQL["places"])
        if not places:
            return 0
        vault, current = places[0].vault, {place.bucket: place.number for place in places}
        old = [key for key in await asyncio.to_thread(self.folder.read, vault) if key.number < current[key.bucket]]
        if not old:
            return 0
        async with transactions.begin() as tx:
            gone = await fetch_rows(tx, BucketNumber, SQL["unused"], {**columns_of(old), "grace_s": grace_s})
        if not gone:
            return 0
        destroyed = await asyncio.to_thread(self.folder.destroy, vault, {*gone})
        async with transactions.begin() as tx:
            await execute(tx, SQL["destroyed"], columns_of(gone))
        return destroyed

    async def missing(self, tx: Transaction) -> Sequence[VaultPlace]:
        """The keys that the database needs and that are not in this folder."""
        places = await fetch_rows(tx, VaultPlace, SQL["places"])
        if not places:
            return ()
        vault = places[0].vault
        keys = await asyncio.to_thread(self.folder.read, vault) if self.folder.has(vault) else {}
        return [place for place in places if place.key not in keys]


def columns_of(keys: Sequence[BucketNumber]) -> dict[str, list[int]]:
    return {"buckets": [bucket for bucket, _ in keys], "numbers": [number for _, number in keys]}


@dataclass(frozen=True, slots=True)
class KeyWrapper:
    """Wraps data keys anew: opens them with the keys of one vault, and wraps them by those of another, or of the same."""

    masters: MasterKeys
    source: VaultReader
    target: VaultReader

    async def wrap(self, tx: Transaction, rows: Sequence[StoredKey], place: VaultPlace | None) -> None:
        """Wrap data keys of one bucket by one key of the target; without a place, by a master key alone."""
        if not rows:
            return
        keyring, vault_key = Keyring(self.masters, vaults=self.source), None if place is None else await self.target.key(place)
        fresh = [self.masters.wrap(await keyring.unwrap(row), row.user_id, vault_key) for row in rows]
        values = {
            "master": self.masters.current,
            "number": None if place is None else place.number,
            "user_ids": [row.user_id for row in rows],
            "generations": [row.generation for row in rows],
            "blobs": [key.blob for key in fresh],
        }
        await execute(tx, SQL["wrap_again"], values)


async def count_outside(tx: Transaction) -> int:
    """How many data keys only a master key wraps."""
    return int(await fetch_value(tx, SQL["count_outside"]))


# --- copies of a database


async def move_to_vault(connection: Connection, masters: MasterKeys, reader: VaultReader, folder: VaultFolder | None) -> UUID | None:
    """Give a copy of a database a vault of its own, in the transaction that fills it; return which. Without a folder, its data keys are
    wrapped by a master key alone.

    Two databases must never share a vault: what an erasure in one of them destroys, the other still needs."""
    vault: UUID | None = await fetch_value(connection, SQL["vault"])
    if vault is None and folder is None:
        return None
    fresh = None if folder is None else await asyncio.to_thread(folder.create)
    wrapper = KeyWrapper(masters, reader, reader if folder is None else folder)
    for bucket in range(BUCKETS):
        rows = await fetch_rows(connection, StoredKey, SQL["keys_in_bucket"], {"bucket": bucket, "number": NO_NUMBER})
        place = None if fresh is None else VaultPlace(fresh, bucket, 1)
        await wrapper.wrap(connection, [row._replace(vault=vault) for row in rows], place)
    await execute(connection, SQL["forget_vault"])
    if fresh is not None:
        await execute(connection, SQL["set_vault"], {"vault": fresh})
    return fresh


@dataclass(frozen=True, slots=True)
class NeededKeys:
    """The keys of a vault without which the data keys of a database do not open."""

    vault: UUID
    keys: Sequence[BucketNumber]


async def find_needed_keys(tx: Transaction) -> NeededKeys | None:
    """The keys that a database needs; None if it has no vault, or is of a version without vaults."""
    if not await fetch_value(tx, SQL["has_vaults"]):
        return None
    vault: UUID | None = await fetch_value(tx, SQL["vault"])
    return None if vault is None else NeededKeys(vault, await fetch_rows(tx, BucketNumber, SQL["needed"]))


def read_needed_keys(needed: NeededKeys, folder: VaultFolder) -> VaultKeys:
    """Read these keys and no others. Raises VaultKeyMissing, also if one was destroyed since, and OSError."""
    keys = folder.read(needed.vault)
    if not keys.keys() >= {*needed.keys}:
        raise VaultKeyMissing
    return {place: keys[place] for place in needed.keys}


# --- new generations of data keys


async def rotate_some(tx: Transaction, keyring: Keyring, since: datetime, *, limit: int = 200) -> int:
    """Give some owners of data keys a new generation, if their newest was made before `since`; return how many, 0 if none is left."""
    owners: list[UUID] = await fetch_values(tx, SQL["unrotated"], {"since": since, "limit": limit})
    for owner in owners:
        await keyring.renew(tx, owner)
    return len(owners)


async def count_unrotated(tx: Transaction, since: datetime) -> int:
    """How many owners have no data key made since."""
    return int(await fetch_value(tx, SQL["count_unrotated"], {"since": since}))
