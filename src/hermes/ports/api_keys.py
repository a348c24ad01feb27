"""Keys that let programs in, and the promise that a repeated request is answered once."""

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
    """The first characters, to recognise it by."""
    tier: str | None
    """What its callers get of models and tokens; None for the tier of the settings."""
    trains: bool
    """Whether what is said through it may be used for training."""
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
        """Make a key; the second value is the secret, shown this once."""
        ...

    async def find(self, tx: Transaction, secrets: Collection[str]) -> Mapping[str, ApiKey]:
        """Return the keys with these secrets, by secret; without those that are not known or were revoked.

        Notes that they were used, unless another transaction has them locked: nothing waits for that."""
        ...

    async def list(self, tx: Transaction) -> Sequence[ApiKey]:
        """Return all keys, the newest first."""
        ...

    async def revoke(self, tx: Transaction, wanted: str) -> ApiKey:
        """Revoke a key by id, name or prefix; raise NotThere when none or several match. Repeating it changes nothing."""
        ...


class IdempotencyKeys(Protocol):
    """What `Idempotency-Key` promises: the same key and body give the same turn, for 24 h, per API key. Fails closed."""

    async def keep(self, tx: Transaction, api_key_id: UUID, key: str, digest: bytes, turn_id: UUID) -> UUID:
        """Tie a key to a turn, and return the turn that it is tied to: the given one, or the one of the first request.

        Raises KeyReused when the first request had another digest."""
        ...

    async def clean(self, tx: Transaction) -> int:
        """Forget the keys that are older than 24 h (a setting); return how many."""
        ...
