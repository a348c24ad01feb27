"""Who writes to us: users, the channels they write from, the key that seals what they said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from hermes.ports.transactions import Transaction
from hermes.turn import Platform


class UserState(StrEnum):
    """How far we know somebody."""

    STRANGER = "stranger"
    """Wrote to us, never signed up."""
    INVITED = "invited"
    """Signed up, not activated yet."""
    ACTIVE = "active"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who writes to us. Everything they say is sealed with a key of their own."""

    id: UUID
    state: UserState
    tier: str
    language: str | None
    referral_code: str
    trains: bool
    """Whether they allowed what they say to be used for training."""


class People(Protocol):
    """Users and their channels. Fails closed."""

    async def meet(self, tx: Transaction, account: str, platform: Platform, sender_id: str, *, state: UserState) -> tuple[User, bool]:
        """Return the user behind a sender, and whether they are new. A new one gets a data key and the given state.

        Safe when two first messages arrive at once: both get the same user."""
        ...

    async def get(self, tx: Transaction, user_id: UUID) -> User:
        """Return a user; raise NotThere."""
        ...

    async def activate(self, tx: Transaction, user_id: UUID) -> None:
        """Make a stranger or an invited user active. No change for an active one; Forgotten for a deleted one."""
        ...

    async def allow_training(self, tx: Transaction, user_id: UUID, *, trains: bool) -> None:
        """Record the user's word on training; Forgotten for a deleted one."""
        ...

    async def forget(self, tx: Transaction, user_id: UUID) -> None:
        """Delete a user: discard their keys and channels, leave tombstones. What was sealed for them can never be read again.

        Repeating it changes nothing. Money rows stay, they name nobody any more."""
        ...
