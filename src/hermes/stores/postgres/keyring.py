"""The data keys of users: made with the user, unwrapped when the user's data is read, deleted when the user is erased."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import NamedTuple
from uuid import UUID

from hermes.ports.errors import UserErased
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_rows, fetch_values
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import DataKeys, MasterKeys, WrappedKey, new_data_key

SQL = load_queries("users")


class Keyring:
    """Data keys, unwrapped and cached for `keep_s`. A short time, because another process may have erased the user meanwhile."""

    def __init__(self, masters: MasterKeys, *, capacity: int = 10_000, keep_s: float = 30.0) -> None:
        self._masters = masters
        self._capacity, self._keep_s = capacity, keep_s
        self._known: OrderedDict[UUID, tuple[float, DataKeys]] = OrderedDict()
        self._discarded: dict[UUID, float] = {}
        self._owners: OrderedDict[UUID, UUID] = OrderedDict()

    async def make(self, tx: Transaction, user_id: UUID) -> None:
        """Give a user a data key. A user who has a key gets a newer generation, which seals from now on."""
        wrapped = self._masters.wrap(new_data_key(), user_id)
        self._known.pop(user_id, None)
        await execute(tx, SQL["add_key"], {"user_id": user_id, "master": wrapped.master, "wrapped": wrapped.blob})

    def known(self, user_id: UUID) -> DataKeys | None:
        """A user's keys if they are cached."""
        known = self._known.get(user_id)
        return known[1] if known is not None and time.monotonic() - known[0] < self._keep_s else None

    async def of(self, tx: Transaction, user_id: UUID) -> DataKeys:
        """A user's keys. Raises UserErased if the user has none any more."""
        known = self.known(user_id)
        if known is not None:
            return known
        rows = await fetch_rows(tx, StoredKey, SQL["keys_of"], {"user_id": user_id})
        if not rows:
            self._known.pop(user_id, None)
            raise UserErased
        keys = DataKeys({row.generation: self._masters.unwrap(row.key, user_id) for row in rows})
        if self._is_discarded(user_id):
            return keys  # the deletion is not committed yet: return the keys, but do not cache them
        self._known[user_id] = (time.monotonic(), keys)
        self._known.move_to_end(user_id)
        self._drop_old()
        return keys

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
        await execute(tx, SQL["discard_keys"], {"user_id": user_id})

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
            fresh = self._masters.wrap(self._masters.unwrap(row.key, row.user_id), row.user_id)
            columns = {"user_id": row.user_id, "generation": row.generation, "master": fresh.master, "wrapped": fresh.blob}
            await execute(tx, SQL["rewrap"], columns)
        return len(rows)


class StoredKey(NamedTuple):
    """A row of data_keys."""

    user_id: UUID
    generation: int
    master: str
    wrapped: bytes

    @property
    def key(self) -> WrappedKey:
        return WrappedKey(self.master, self.wrapped)
