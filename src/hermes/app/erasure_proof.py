"""Prove an erasure: destroy the keys now, search the files of the stores for what is left of the user, and try to open it.

The files of a server cannot be searched from here; then the proof says so, and names what that server says it keeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from redis.asyncio import Redis

from hermes.app.home import home_of
from hermes.app.master_keys import masters_from
from hermes.app.vaults import vault_folder
from hermes.config import Settings
from hermes.stores.embedded.home import home_at
from hermes.stores.forensics import PlaceFinds, needle_of, search_files, store_files
from hermes.stores.postgres.database import Database, fetch_value, fetch_values
from hermes.stores.postgres.queries import load_queries
from hermes.stores.postgres.vault_keys import VaultKeeper, find_needed_keys
from hermes.stores.redis.caches import base_key, history_key

SQL = load_queries("proof")
MAX_ROWS = 8
"""Rows of each table that are looked for. Each costs one pass over all files."""
TOKEN_START, TOKEN_END = 16, 56
"""The part of a Fernet token that is in no other: after its version and most of its time."""
REWRITE_TIMEOUT_S = 60.0
REWRITE_POLL_S = 0.1
REDIS_PLACES = frozenset({"aof"})


@dataclass(slots=True)
class ErasureProof:
    """What is left of an erased user."""

    destroyed: int
    """Keys of the vault that were destroyed now."""
    has_vault: bool
    looked_for: int
    """Sealed rows and cached tokens that were looked for."""
    places: dict[str, PlaceFinds] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    """What could not be searched, a sentence each."""

    @property
    def opened(self) -> int:
        """How many copies of a data key the master keys still open."""
        return sum(len(found.opened) for found in self.places.values())


async def prove_erasure(
    settings: Settings, database: Database, redis: Redis, user_id: UUID, erase: Callable[[], Awaitable[object]] | None
) -> ErasureProof:
    """Erase a user and prove it. `erase` None: the user was erased before; then sealed rows are no longer known, only keys are looked for.

    Raises StoreUnavailable, OSError, and what `erase` raises."""
    needles = await read_needles(database, redis, user_id)
    if erase is not None:
        await erase()
    masters, folder = masters_from(settings), vault_folder(settings)
    destroyed = await VaultKeeper(masters, folder).keep(database, grace_s=0)
    async with database.begin() as tx:
        proof = ErasureProof(destroyed, await find_needed_keys(tx) is not None, len(needles))
    files = await visible_files(settings, database, redis, proof)
    vaults = await asyncio.to_thread(folder.read_all)
    for place, some in files.items():
        proof.places[place] = await asyncio.to_thread(search_files, some, user_id, needles, masters, vaults)
    return proof


async def read_needles(database: Database, redis: Redis, user_id: UUID) -> list[bytes]:
    """The bytes by which the user's sealed rows and cached tokens are found in files."""
    values = {"user_id": user_id, "limit": MAX_ROWS}
    async with database.begin() as tx:
        rows: list[bytes] = await fetch_values(tx, SQL["sealed_rows"], values)
        sessions: list[UUID] = await fetch_values(tx, SQL["sessions"], values)
    tokens: list[Any] = [token for session in sessions for token in await redis.lrange(history_key(session), -2, -1)]
    base = await redis.get(base_key(user_id))
    return [*map(needle_of, rows), *(bytes(token)[TOKEN_START:TOKEN_END] for token in (*tokens, base) if token)]


async def visible_files(settings: Settings, database: Database, redis: Redis, proof: ErasureProof) -> dict[str, Sequence[Path]]:
    """The files of the stores that this machine has, after all that is in memory was written to them; notes the others as unseen."""
    found: dict[str, Sequence[Path]] = dict(store_files(home_at(home_of(settings))))
    if settings.redis_url is None:
        await rewrite_append_file(redis)
    else:
        found = {place: files for place, files in found.items() if place not in REDIS_PLACES}
        proof.unseen.append("the files of the Redis server: its append-only file keeps old commands until it is rewritten (BGREWRITEAOF)")
    if settings.database_url is None:
        async with database.pool.connection() as connection:
            await connection.execute("checkpoint")
    else:
        found = {place: files for place, files in found.items() if place in REDIS_PLACES}
        proof.unseen.append(await describe_server(database))
    return found


async def describe_server(database: Database) -> str:
    async with database.begin() as tx:
        facts = await fetch_values(tx, SQL["server"])
        replicas = await fetch_value(tx, SQL["replicas"])
    return (
        f"the files of the PostgreSQL server, its archive, its replicas and its backups; it says: {', '.join(facts)}, replicas = {replicas}"
    )


async def rewrite_append_file(redis: Redis) -> None:
    """Have Valkey write its append-only file anew, and wait for the end."""
    await redis.bgrewriteaof()
    deadline = time.monotonic() + REWRITE_TIMEOUT_S
    while time.monotonic() < deadline:
        info = await redis.info("persistence")
        if not info["aof_rewrite_in_progress"] and not info.get("aof_rewrite_scheduled"):
            return
        await asyncio.sleep(REWRITE_POLL_S)
