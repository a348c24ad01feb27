"""The accounts that Hermes has at platforms: a bot, a number, a page; with what opens them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID, uuid4

from hermes.ports.transactions import Transaction
from hermes.turn import Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAccount:
    """An account at a platform, by a name of our own: `telegram`, `my-bot`."""

    platform: Platform
    account: str
    """The account of its conversations, and its name in the webhook's address."""
    about: Mapping[str, str] = field(repr=False)
    """What its codec needs: tokens, secrets, ids. Sealed where it is kept, and never shown."""
    is_polled: bool = False
    """Asked for what is new, because the platform cannot reach us."""
    id: UUID = field(default_factory=uuid4)


class ChannelAccounts(Protocol):
    """Accounts at platforms, what opens them sealed. Fails closed; who sends and receives goes by what was read last."""

    async def put(self, tx: Transaction, account: ChannelAccount) -> bool:
        """Keep an account, in place of the one of that platform and name; return whether there was none."""
        ...

    async def get(self, tx: Transaction, platform: Platform, account: str) -> ChannelAccount:
        """Return an account; raise NotThere."""
        ...

    async def list(self, tx: Transaction) -> Sequence[ChannelAccount]:
        """Return all accounts, by platform and name. One whose key is not at hand is left out, and said in the log."""
        ...

    async def mark(self, tx: Transaction) -> str:
        """Return what is another text after every change: who follows reads the accounts again then."""
        ...

    async def remove(self, tx: Transaction, platform: Platform, account: str) -> bool:
        """Forget an account and what opened it; False if there was none. Conversations stay."""
        ...
