"""The data keys of users: made with the user, unwrapped when the user's data is read, deleted when the user is erased.

A database with a vault has data keys that a key of the vault wraps as well (vault_keys.py): deleting their rows is not enough, because
PostgreSQL keeps old bytes."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from hermes.ports.errors import DataDamaged, UserErased
from hermes.ports.runtime import Transaction
from hermes.stores.key_vault import VaultPlace, VaultReader, bucket_of
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import DataKeys, MasterKeys, SealError, VaultKeyMissing, WrappedKey, new_data_key

SQL = load_queries("users")
VAULT = load_queries("vault")


@contextmanager
def damage_named() -> Iterator[None]:
    """Raise DataDamaged in the place of SealError, for readers that go on without what cannot be opened."""
    try:
        yield
    except SealError as error:
        raise DataDamaged(str(error)) from error


MAX_AT_WORK = 200
"""Users whose derived keys a process caches: about those of the turns of the last two seconds."""


class Keyring:
    """Data keys, unwrapped and cached for `keep_s`. A short time, because another process may have erased the user meanwhile.

    The keys that are derived from them, one for each label, take 30 kB a user: they are cached for the users who were asked for last."""

    def __init__(self, masters: MasterKeys, *, vaults: VaultReader | None = None, capacity: int = 10_000, keep_s: float = 30.0) -> None:
        """`vaults`: where the keys of vaults are; None: this process reads none, and opens only what a master key alone wraps."""
        self._masters, self._vaults = masters, vaults
        self._capacity, self._keep_s = capacity, keep_s
        self._known: OrderedDict[UUID, tuple[float, DataKeys]] = OrderedDict()
        self._at_work: OrderedDict[UUID, None] = OrderedDict()
        """The users whose keys were asked for last; the caches of all others are empty."""
        self._discarded: dict[UUID, float] = {}
        self._owners: OrderedDict[UUID, UUID] = OrderedDict()
        self._when_discarded: list[Callable[[UUID], None]] = []

    def when_discarded(self, drop: Callable[[UUID], None]) -> None:
        """Call this when a user's keys are deleted by this process, for what it holds opened."""
        self._when_discarded.append(drop)

    async def make(self, tx: Transaction, user_id: UUID) -> None:
        """Give a user a data key. A user who has a key gets a newer generation, which seals from now on."""
        # Until the transaction ends, the bucket gets no new key of the vault: the row below is not committed, so its wrapping would be
        # forgotten, and the key of the vault that opens it destroyed.
        bucket = {"bucket": bucket_of(user_id)}
        await execute(tx, VAULT["share_bucket"], bucket)
        place = await fetch_row(tx, VaultPlace, VAULT["place"], bucket)
        wrapped = self._masters.wrap(new_data_key(), user_id, None if place is None else await self._vault_key(place))
        self._known.pop(user_id, None)
        number = None if place is None else place.number
        row = {"user_id": user_id, "master": wrapped.master, "wrapped": wrapped.blob, "vault_number": number}
        await execute(tx, SQL["add_key"], row)

    async def renew(self, tx: Transaction, user_id: UUID) -> bool:
        """Give a user who has a data key a newer generation; return whether the user has one, or was erased."""
        await execute(tx, VAULT["lock_owner"], {"user_id": str(user_id)})
        if not await fetch_value(tx, VAULT["has_key"], {"user_id": user_id}):
            return False
        await self.make(tx, user_id)
        return True

    async def _vault_key(self, place: VaultPlace) -> bytes:
        if self._vaults is None:
            raise VaultKeyMissing
        return await self._vaults.key(place)

    def known(self, user_id: UUID) -> DataKeys | None:
        """A user's keys if they are cached."""
        known = self._known.get(user_id)
        if known is None or time.monotonic() - known[0] >= self._keep_s:
            return None
        self._note_at_work(user_id)
        return known[1]

    def _note_at_work(self, user_id: UUID) -> None:
        self._at_work[user_id] = None
        self._at_work.move_to_end(user_id)
        if len(self._at_work) > MAX_AT_WORK:
            rested, _ = self._at_work.popitem(last=False)
            if (known := self._known.get(rested)) is not None:
                known[1].forget_derived()

    async def of(self, tx: Transaction, user_id: UUID) -> DataKeys:
        """A user's keys. Raises UserErased if the user has none any more."""
        known = self.known(user_id)
        if known is not None:
            return known
        rows = await fetch_rows(tx, StoredKey, SQL["keys_of"], {"user_id": user_id})
        if not rows:
            self._known.pop(user_id, None)
            raise UserErased
        return await self.open(user_id, rows)

    async def open(self, user_id: UUID, rows: Sequence[StoredKey]) -> DataKeys:
        """A user's keys, from all their rows of data_keys that were just read; they are cached."""
        keys = DataKeys({row.generation: await self.unwrap(row) for row in rows})
        if self._is_discarded(user_id):
            return keys  # the deletion is not committed yet: return the keys, but do not cache them
        self._known[user_id] = (time.monotonic(), keys)
        self._known.move_to_end(user_id)
        self._note_at_work(user_id)
        self._drop_old()
        return keys

    async def unwrap(self, row: StoredKey) -> bytes:
        """The data key of a row. Raises VaultKeyMissing, and as MasterKeys.unwrap."""
        vault_key = None if row.place is None else await self._vault_key(row.place)
        return self._masters.unwrap(row.key, row.user_id, vault_key)

    def _drop_old(self) -> None:
        """Drop the oldest keys from the cache: keys beyond the capacity, and keys older than `keep_s`."""
        while self._known:
            since, _ = next(iter(self._known.values()))
            if len(self._known) <= self._capacity and time.monotonic() - since < self._keep_s:
                return
            self._known.popitem(last=False)

    def owner_of(self, session_id: UUID) -> UUID | None:
        """The user whose keys seal a session, if `note_owner` was called for it. It never changes."""
        return self._owners.get(session_id)

    def note_owner(self, session_id: UUID, user_id: UUID) -> None:
        self._owners[session_id] = user_id
        while len(self._owners) > self._capacity:
            self._owners.popitem(last=False)

    async def discard(self, tx: Transaction, user_id: UUID) -> None:
        """Delete a user's keys. What they sealed can never be read again."""
        now = time.monotonic()
        self._discarded = {known: since for known, since in self._discarded.items() if now - since < self._keep_s}
        self._discarded[user_id] = now
        self._known.pop(user_id, None)
        for drop in self._when_discarded:
            drop(user_id)
        await execute(tx, VAULT["lock_owner"], {"user_id": str(user_id)})
        if await execute(tx, SQL["discard_keys"], {"user_id": user_id}):
            await execute(tx, VAULT["mark_dirty"], {"bucket": bucket_of(user_id)})

    def _is_discarded(self, user_id: UUID) -> bool:
        since = self._discarded.get(user_id)
        return since is not None and time.monotonic() - since < self._keep_s

    async def missing_masters(self, tx: Transaction) -> list[str]:
        """The names of master keys that wrap data keys in this database and are not configured."""
        return [master for master in await fetch_values(tx, SQL["masters"]) if master not in self._masters.names]

    async def rewrap(self, tx: Transaction, limit: int = 500) -> int:
        """Wrap up to `limit` data keys of older master keys with the current one; return how many. Ids and sealed rows do not change."""
        rows = await fetch_rows(tx, StoredKey, SQL["wrapped_otherwise"], {"master": self._masters.current, "limit": limit})
        for row in rows:
            fresh = self._masters.rewrap(row.key, row.user_id)
            columns = {"user_id": row.user_id, "generation": row.generation, "master": fresh.master, "wrapped": fresh.blob}
            await execute(tx, SQL["rewrap"], columns)
        return len(rows)


class StoredKey(NamedTuple):
    """A row of data_keys."""

    user_id: UUID
    generation: int
    master: str
    wrapped: bytes
    vault_number: int | None
    """The number of the key of the vault that wraps it too; None: only a master key wraps it."""
    vault: UUID | None = None

    @property
    def key(self) -> WrappedKey:
        return WrappedKey(self.master, self.wrapped)

    @property
    def place(self) -> VaultPlace | None:
        """Where the key of the vault is that wraps it."""
        if self.vault is None or self.vault_number is None:
            return None
        return VaultPlace(self.vault, bucket_of(self.user_id), self.vault_number)
