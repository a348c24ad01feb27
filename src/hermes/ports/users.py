"""Who writes to us: users, the channels they write from, the key that seals what they said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID, uuid4

from hermes.ports.errors import PortError
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
    """What they are answered in; None: nobody knows yet, so what they write in."""
    referral_code: str
    trains: bool
    """Whether they allowed what they say to be used for training."""
    referred_by: UUID | None = None
    """Who brought them."""
    created_at: datetime | None = None
    """When they were first met, or signed up; None where no store said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUser:
    """Somebody who signs up, before they have written a word. Repeated with the same id, it is the same person."""

    state: UserState = UserState.INVITED
    tier: str = "free"
    language: str | None = None
    id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True)
class UserChannel:
    """Where somebody writes from: who they are on a platform, to one of our accounts."""

    account: str
    platform: Platform
    sender_id: str

    def __str__(self) -> str:
        return f"{self.platform}:{self.account}/{self.sender_id}"


@dataclass(frozen=True, slots=True)
class LinkResult:
    """What became of a channel."""

    is_new: bool
    """False: it was theirs already."""
    replaced: UUID | None = None
    """The stranger who was met there before, and is forgotten now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDataCounts:
    """How much is kept of somebody."""

    facts: int = 0
    """Also those that are no longer held to be true."""
    conversations: int = 0
    """Those that they opened."""
    messages: int = 0
    """What they wrote."""
    bookings: int = 0
    reminders: int = 0
    price_watchers: int = 0
    meals: int = 0
    orders: int = 0


class ChannelTaken(PortError):
    """This channel is another user's; nothing was changed."""


class ChannelBusy(PortError):
    """A message from this channel waits for its answer; link it when that was given."""


class Users(Protocol):
    """Users and their channels. Fails closed."""

    async def find_or_create(
        self, tx: Transaction, account: str, platform: Platform, sender_id: str, *, state: UserState, alias: str | None = None
    ) -> tuple[User, bool]:
        """Return the user behind a sender, and whether they are new. A new one gets a data key and the given state.

        `alias` is another id of the same sender, where the platform gives two: whoever is known by one of them is known by both from now
        on. Where two users have them already, both stay what they are.

        Safe when two first messages arrive at once: both get the same user."""
        ...

    async def create(self, tx: Transaction, new_user: NewUser) -> User:
        """Sign somebody up, with a data key and without any channel. Repeating it changes nothing and returns who is there.

        Raises ValueError for a state other than invited or active, and for a language that Hermes does not speak."""
        ...

    async def get(self, tx: Transaction, user_id: UUID) -> User:
        """Return a user; raise NotThere."""
        ...

    async def find(self, tx: Transaction, channel: UserChannel) -> User | None:
        """Return who writes from a channel; None for nobody. Unlike `meet` it makes nobody, and no message is noted."""
        ...

    async def by_code(self, tx: Transaction, referral_code: str) -> User | None:
        """Return the user with this referral code; None for nobody."""
        ...

    async def between(self, tx: Transaction, first: UUID, last: UUID, *, limit: int = 3) -> Sequence[User]:
        """Return the users whose ids lie between these two, both included, in the order of their ids."""
        ...

    async def list(self, tx: Transaction, *, state: UserState | None = None, limit: int = 100) -> Sequence[User]:
        """Return users, the newest first; without a state, all but the deleted ones."""
        ...

    async def channels(self, tx: Transaction, user_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[UserChannel]]:
        """Return where these users write from, each user's in the order of linking; no entry for one without a channel."""
        ...

    async def link(self, tx: Transaction, user_id: UUID, channel: UserChannel) -> LinkResult:
        """Let a channel be this user's. Repeating it changes nothing.

        A stranger who was met there, and was never given or charged a credit, makes room: the channel moves, and a stranger without any
        channel left is forgotten, so that the next message opens a conversation under the user's own key. Raises ChannelTaken for a
        channel of anybody else; ChannelBusy while a message of the stranger's waits, for it would be lost; NotThere, and Forgotten for a
        deleted user."""
        ...

    async def activate(self, tx: Transaction, user_id: UUID) -> bool:
        """Make a stranger or an invited user active; False, and no change, for an active one. Forgotten for a deleted one."""
        ...

    async def refer(self, tx: Transaction, user_id: UUID, referrer_id: UUID) -> bool:
        """Note who brought somebody; repeating it changes nothing.

        False, and no change, unless the referrer is active, and the other one is not yet and was brought by nobody else. So nobody
        brings themselves, and no two bring each other. Raises NotThere, and Forgotten for a deleted newcomer."""
        ...

    async def set_tier(self, tx: Transaction, user_id: UUID, tier: str) -> None:
        """Let the user have another tier. Whether there is one of that name, the caller knows. Forgotten for a deleted user."""
        ...

    async def set_language(self, tx: Transaction, user_id: UUID, language: str | None) -> None:
        """Record what the user is answered in; None: what they write in. Forgotten for a deleted user.

        Raises ValueError for a language that Hermes does not speak."""
        ...

    async def allow_training(self, tx: Transaction, user_id: UUID, *, trains: bool) -> None:
        """Record the user's word on training; Forgotten for a deleted one."""
        ...

    async def count_data(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> UserDataCounts:
        """Count what is kept of a user; nothing for somebody who never was. With an account, what belongs to it: facts, conversations,
        messages, reminders and price watchers. Of bookings, meals and orders nobody knows where they were asked for: none are counted."""
        ...

    async def hold(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> None:
        """Let no message of a user's be taken in until the transaction ends, and no turn of theirs that is under way come to its end: its
        claim is fenced off. With an account, there alone."""
        ...

    async def forget(self, tx: Transaction, user_id: UUID) -> None:
        """Delete a user: discard their keys, their channels, what is known of them and what they had done; leave tombstones.

        What was sealed for them can never be read again. They are held, as `hold` does. Repeating it changes nothing. Money rows stay, they
        name nobody any more."""
        ...

    async def forget_in_account(self, tx: Transaction, user_id: UUID, account: str) -> None:
        """Delete what an account has of a user who stays elsewhere: their channels there, what they said and were answered, the graphs in
        which nobody else spoke, the facts that come from it, and what tools were asked for.

        Their key, their credits and all that other accounts have stay; so do bookings, meals and orders, of which nobody knows where they
        were asked for. They are held there. Repeating it changes nothing."""
        ...
