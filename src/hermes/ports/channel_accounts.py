"""The accounts that Hermes has at platforms: a bot, a number, a page; with their credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID, uuid4

from hermes.ports.transactions import Transaction
from hermes.turn import Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAccount:
    """An account at a platform, under a name that the operator chose: `telegram`, `my-bot`."""

    platform: Platform
    account: str
    """The account of its conversations, and its name in the webhook's address."""
    about: Mapping[str, str] = field(repr=False)
    """What its channel needs: tokens, secrets, ids. Stored sealed, and never shown."""
    is_polled: bool = False
    """Hermes polls the platform for updates, because the platform cannot reach Hermes."""
    id: UUID = field(default_factory=uuid4)


class ChannelAccounts(Protocol):
    """Accounts at platforms, with sealed credentials. Fails closed; running processes send and receive with what they read last."""

    async def put(self, tx: Transaction, account: ChannelAccount) -> bool:
        """Store an account, in place of the one of that platform and name; return whether there was none."""
        ...

    async def get(self, tx: Transaction, platform: Platform, account: str) -> ChannelAccount:
        """Return an account; raise NotFound."""
        ...

    async def list(self, tx: Transaction) -> Sequence[ChannelAccount]:
        """Return all accounts, by platform and name. An account whose key is missing is left out, and logged."""
        ...

    async def mark(self, tx: Transaction) -> str:
        """Return a text that is different after every change, so that a process knows when to read the accounts again."""
        ...

    async def remove(self, tx: Transaction, platform: Platform, account: str) -> bool:
        """Delete an account and its credentials; False if there was none. Conversations stay."""
        ...
