"""API keys and idempotency keys on PostgreSQL."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from hermes.ports.errors import IdempotencyKeyReused, NotFound
from hermes.ports.runtime import Transaction
from hermes.ports.users import ApiKey
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("api_keys")
KEY_PREFIX = "hk_"
"""The start of every API key, so that the operator can search files for a leaked key."""
PREFIX_LENGTH = len(KEY_PREFIX) + 8


class PostgresApiKeys:
    """The port ApiKeys. Stores the SHA-256 of a key: a key is 32 random bytes, which cannot be guessed, so no slower hash is needed."""

    async def create(
        self,
        tx: Transaction,
        name: str,
        account: str,
        *,
        tier: str | None = None,
        trains: bool = False,
        scopes: Sequence[str] | None = None,
        channels: Sequence[str] | None = None,
    ) -> tuple[ApiKey, str]:
        secret = KEY_PREFIX + secrets.token_urlsafe(32)
        row = {
            "account": account,
            "name": name,
            "prefix": secret[:PREFIX_LENGTH],
            "digest": digest(secret),
            "tier": tier,
            "trains": trains,
            "scopes": None if scopes is None else [*scopes],
            "channels": None if channels is None else [*channels],
        }
        await connection_of(tx).execute(SQL["add_account"], row)
        return as_api_key(await (await connection_of(tx).execute(SQL["create"], row)).fetchone()), secret

    async def find(self, tx: Transaction, secrets: Collection[str]) -> Mapping[str, ApiKey]:
        by_digest = {digest(secret): secret for secret in secrets}
        rows = await (await connection_of(tx).execute(SQL["find"], {"digests": [*by_digest]})).fetchall()
        found = {by_digest[key_digest]: as_api_key(columns) for key_digest, *columns in rows}
        if found:
            await connection_of(tx).execute(SQL["touch"], {"ids": [key.id for key in found.values()]})
        return found

    async def list(self, tx: Transaction) -> Sequence[ApiKey]:
        return [as_api_key(row) for row in await (await connection_of(tx).execute(SQL["list"])).fetchall()]

    async def revoke(self, tx: Transaction, name_or_id: str) -> ApiKey:
        rows = await (await connection_of(tx).execute(SQL["matching"], {"name_or_id": name_or_id})).fetchall()
        if len(rows) != 1:
            known = f"{len(rows)} API keys are called" if rows else "there is no API key"
            raise NotFound(f"{known} {name_or_id!r}; `hermes keys list` shows their ids")
        return as_api_key(await (await connection_of(tx).execute(SQL["revoke"], {"id": rows[0][0]})).fetchone())


class PostgresIdempotencyKeys:
    """The port IdempotencyKeys."""

    def __init__(self, *, ttl_s: float = 86_400) -> None:
        self._ttl_s = ttl_s

    async def keep(self, tx: Transaction, api_key_id: UUID, key: str, digest: bytes, turn_id: UUID) -> UUID:
        # Hashed, because a client may put private data into its key, such as an order number or a name.
        hashed = hashlib.sha256(f"{api_key_id}/{key}".encode("utf-8", "surrogatepass")).hexdigest()
        row = {"api_key_id": api_key_id, "key": hashed, "digest": digest, "turn_id": turn_id, "ttl_s": self._ttl_s}
        if await (await connection_of(tx).execute(SQL["keep"], row)).fetchone() is not None:
            return turn_id
        first = await (await connection_of(tx).execute(SQL["first_use"], row)).fetchone()
        assert first is not None  # noqa: S101  # this row was the conflict, so it is older than this statement
        if not hmac.compare_digest(first[0], digest):
            raise IdempotencyKeyReused
        first_turn_id: UUID = first[1]
        return first_turn_id

    async def clean(self, tx: Transaction) -> int:
        return (await connection_of(tx).execute(SQL["clean"], {"ttl_s": self._ttl_s})).rowcount


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def as_api_key(row: Any) -> ApiKey:
    """Read a row of the key columns, in the order in which every query here selects them."""
    return ApiKey(*row)
