"""The API keys of an account's clients, on PostgreSQL, and the idempotency keys that come with their requests."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple
from uuid import UUID

from hermes.ports.errors import IdempotencyKeyReused, NotFound
from hermes.ports.key_limits import NO_LIMITS, KeyLimits
from hermes.ports.runtime import Transaction
from hermes.ports.users import ApiKey
from hermes.stores.postgres.database import execute, fetch_rows
from hermes.stores.postgres.queries import load_queries

API_KEYS = load_queries("api_keys")
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
        limits: KeyLimits = NO_LIMITS,
    ) -> tuple[ApiKey, str]:
        secret = KEY_PREFIX + secrets.token_urlsafe(32)
        row = {
            "account": account,
            "name": name,
            "prefix": secret[:PREFIX_LENGTH],
            "digest": digest(secret),
            "tier": tier,
            "trains": trains,
            "scopes": list_or_null(scopes),
            "channels": list_or_null(channels),
            **limit_columns(limits),
        }
        await execute(tx, API_KEYS["add_account"], row)
        [key] = await fetch_rows(tx, read_key, API_KEYS["create"], row)
        return key, secret

    async def find(self, tx: Transaction, secrets: Collection[str]) -> Mapping[str, ApiKey]:
        by_digest = {digest(secret): secret for secret in secrets}
        rows = await fetch_rows(tx, read_found_key, API_KEYS["find"], {"digests": [*by_digest]})
        found = {by_digest[key_digest]: key for key_digest, key in rows}
        if found:
            await execute(tx, API_KEYS["touch"], {"ids": [key.id for key in found.values()]})
        return found

    async def list(self, tx: Transaction) -> Sequence[ApiKey]:
        return await fetch_rows(tx, read_key, API_KEYS["list"])

    async def get(self, tx: Transaction, name_or_id: str) -> ApiKey:
        keys = await fetch_rows(tx, read_key, API_KEYS["matching"], {"name_or_id": name_or_id})
        if len(keys) != 1:
            known = f"{len(keys)} API keys are called" if keys else "there is no API key"
            raise NotFound(f"{known} {name_or_id!r}; `hermes keys list` shows their ids")
        return keys[0]

    async def limits_of(self, tx: Transaction, key_id: UUID) -> KeyLimits:
        found = await fetch_rows(tx, KeyLimits, API_KEYS["limits_of"], {"id": key_id})
        return found[0] if found else NO_LIMITS

    async def change(self, tx: Transaction, key_id: UUID, limits: KeyLimits, channels: Sequence[str] | None) -> ApiKey:
        row = {"id": key_id, "channels": list_or_null(channels), **limit_columns(limits)}
        changed = await fetch_rows(tx, read_key, API_KEYS["change"], row)
        if not changed:
            raise NotFound(f"there is no API key {key_id} that works")
        return changed[0]

    async def revoke(self, tx: Transaction, name_or_id: str) -> ApiKey:
        found = await self.get(tx, name_or_id)
        [key] = await fetch_rows(tx, read_key, API_KEYS["revoke"], {"id": found.id})
        return key


class PostgresIdempotencyKeys:
    """The port IdempotencyKeys."""

    def __init__(self, *, ttl_s: float = 86_400) -> None:
        self._ttl_s = ttl_s

    async def keep(self, tx: Transaction, api_key_id: UUID, key: str, digest: bytes, turn_id: UUID) -> UUID:
        # Hashed, because a client may put private data into its key, such as an order number or a name.
        hashed = hashlib.sha256(f"{api_key_id}/{key}".encode("utf-8", "surrogatepass")).hexdigest()
        row = {"api_key_id": api_key_id, "key": hashed, "digest": digest, "turn_id": turn_id, "ttl_s": self._ttl_s}
        if await execute(tx, API_KEYS["keep"], row):
            return turn_id
        [first] = await fetch_rows(tx, FirstUse, API_KEYS["first_use"], row)  # the conflict, so it is older than this statement
        if not hmac.compare_digest(first.digest, digest):
            raise IdempotencyKeyReused
        return first.turn_id

    async def clean(self, tx: Transaction) -> int:
        return await execute(tx, API_KEYS["clean"], {"ttl_s": self._ttl_s})


class FirstUse(NamedTuple):
    """What an idempotency key is tied to."""

    digest: bytes
    turn_id: UUID


LIMITS = tuple(field.name for field in fields(KeyLimits))


def read_key(**columns: Any) -> ApiKey:
    return ApiKey(limits=KeyLimits(**{name: columns.pop(name) for name in LIMITS}), **columns)


def read_found_key(*, digest: bytes, **columns: Any) -> tuple[bytes, ApiKey]:
    return digest, read_key(**columns)


def limit_columns(limits: KeyLimits) -> dict[str, Any]:
    row = {name: getattr(limits, name) for name in LIMITS}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}


def list_or_null(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else [*names]


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
