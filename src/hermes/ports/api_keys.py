"""API keys, and idempotency keys, with which a repeated request is answered once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hermes.ports.transactions import Transaction

KEY_SCOPES = ("messages", "completions", "users")
"""What a key may be for: messages and proactive messages, chat completions, and the data of users."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored: everything but the secret."""

    id: UUID
    name: str
    account: str
    prefix: str
    """The first characters, by which the operator recognises it."""
    tier: str | None
    """The tier of its callers: which models and how many tokens they get. None: the tier of the settings."""
    trains: bool
    """Whether messages sent with it may be used for training."""
    scopes: Sequence[str] | None
    """Which of KEY_SCOPES it has; None: all."""
    channels: Sequence[str] | None
    """The conversations that it may write to and read; None: all of its account."""
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class ApiKeys(Protocol):
    """API keys, stored hashed. Fails closed."""

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
        """Create a key; the second value is the secret, which is returned only this once."""
        ...

    async def find(self, tx: Transaction, secrets: Collection[str]) -> Mapping[str, ApiKey]:
        """Return the keys with these secrets, by secret, without unknown and revoked ones.

        Notes that they were used, except for keys that another transaction has locked: it does not wait for a lock."""
        ...

    async def list(self, tx: Transaction) -> Sequence[ApiKey]:
        """Return all keys, the newest first."""
        ...

    async def revoke(self, tx: Transaction, identifier: str) -> ApiKey:
        """Revoke a key by id, name or prefix; raise NotFound if none or several match. Repeating it changes nothing."""
        ...


class IdempotencyKeys(Protocol):
    """The values of `Idempotency-Key`: for 24 h and per API key, the same value with the same body gives the same turn. Fails closed."""

    async def keep(self, tx: Transaction, api_key_id: UUID, key: str, digest: bytes, turn_id: UUID) -> UUID:
        """Tie an idempotency key to a turn, and return the turn that it is tied to: this one, or the one of the first request.

        Raises IdempotencyKeyReused if the first request had another digest."""
        ...

    async def clean(self, tx: Transaction) -> int:
        """Delete the idempotency keys that are older than 24 h (a setting); return how many."""
        ...
