"""Users, the channels that they write from, and the key that seals their messages."""

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
    """How far a user has signed up."""

    STRANGER = "stranger"
    """Wrote to Hermes, never signed up."""
    INVITED = "invited"
    """Signed up, not activated yet."""
    ACTIVE = "active"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class User:
    """A person who writes to Hermes. All their messages are sealed with a key of their own."""

    id: UUID
    state: UserState
    tier: str
    language: str | None
    """The language of the answers; None: not chosen yet, so the language they write in."""
    referral_code: str
    trains: bool
    """Whether they allowed their messages to be used for training."""
    referred_by: UUID | None = None
    """The user who referred them."""
    created_at: datetime | None = None
    """When they first wrote or signed up; None if the store does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUser:
    """A user who signs up before they write a message. Two with the same id are the same user."""

    state: UserState = UserState.INVITED
    tier: str = "free"
    language: str | None = None
    id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True)
class UserChannel:
    """Where a user writes from: their sender id at a platform, towards one of our accounts."""

    account: str
    platform: Platform
    sender_id: str

    def __str__(self) -> str:
        return f"{self.platform}:{self.account}/{self.sender_id}"


@dataclass(frozen=True, slots=True)
class LinkResult:
    """How linking a channel to a user ended."""

    is_new: bool
    """False: the channel was the user's already."""
    replaced: UUID | None = None
    """The stranger who wrote from there before, and is deleted now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDataCounts:
    """How much data of a user is stored."""

    facts: int = 0
    """Also superseded facts."""
    conversations: int = 0
    """Those that they opened."""
    messages: int = 0
    """Those that they wrote."""
    bookings: int = 0
    reminders: int = 0
    price_watchers: int = 0
    meals: int = 0
    orders: int = 0


class ChannelTaken(PortError):
    """This channel belongs to another user; nothing was changed."""


class ChannelBusy(PortError):
    """A message from this channel waits for its answer; link the channel after the answer."""


class Users(Protocol):
    """Users and their channels. Fails closed."""

    async def find_or_create(
        self, tx: Transaction, account: str, platform: Platform, sender_id: str, *, state: UserState, alias: str | None = None
    ) -> tuple[User, bool]:
        """Return the user behind a sender, and whether they are new. A new user gets a data key and the given state.

        `alias` is a second id of the same sender, if the platform gives two: a user known by one of them is known by both from now on. If
        the two ids belong to two users already, both stay as they are.

        Safe if two first messages arrive at once: both get the same user."""
        ...

    async def create(self, tx: Transaction, new_user: NewUser) -> User:
        """Sign a user up, with a data key and without any channel. Repeating it changes nothing and returns the existing user.

        Raises ValueError for a state other than invited or active, and for a language that Hermes does not speak."""
        ...

    async def get(self, tx: Transaction, user_id: UUID) -> User:
        """Return a user; raise NotFound."""
        ...

    async def find(self, tx: Transaction, channel: UserChannel) -> User | None:
        """Return the user who writes from a channel; None if there is none. Unlike `find_or_create` it creates no user, and notes no
        message."""
        ...

    async def by_code(self, tx: Transaction, referral_code: str) -> User | None:
        """Return the user with this referral code; None if there is none."""
        ...

    async def between(self, tx: Transaction, first: UUID, last: UUID, *, limit: int = 3) -> Sequence[User]:
        """Return the users whose ids lie between these two, both included, in the order of their ids."""
        ...

    async def list(self, tx: Transaction, *, state: UserState | None = None, limit: int = 100) -> Sequence[User]:
        """Return users, the newest first; without a state, all but the deleted ones."""
        ...

    async def channels(self, tx: Transaction, user_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[UserChannel]]:
        """Return the channels of these users, each user's in the order of linking; no entry for a user without a channel."""
        ...

    async def link(self, tx: Transaction, user_id: UUID, channel: UserChannel) -> LinkResult:
        """Link a channel to this user. Repeating it changes nothing.

        A channel of a stranger who was never given or charged a credit moves to the user. A stranger without any channel left is deleted,
        so that the next message opens a conversation under the user's own key. Raises ChannelTaken for a channel of any other user;
        ChannelBusy while a message of the stranger waits, because it would be lost; NotFound; and UserErased for a deleted user."""
        ...

    async def activate(self, tx: Transaction, user_id: UUID) -> bool:
        """Make a stranger or an invited user active; False, and no change, for an active user. Raises UserErased for a deleted user."""
        ...

    async def refer(self, tx: Transaction, user_id: UUID, referrer_id: UUID) -> bool:
        """Note who referred a user; repeating it changes nothing.

        False, and no change, unless the referrer is active, and the user is not active yet and has no other referrer. So no user refers
        themselves, and no two users refer each other. Raises NotFound, and UserErased for a deleted user."""
        ...

    async def set_tier(self, tx: Transaction, user_id: UUID, tier: str) -> None:
        """Give the user another tier. The caller checks that the tier exists. Raises UserErased for a deleted user."""
        ...

    async def set_language(self, tx: Transaction, user_id: UUID, language: str | None) -> None:
        """Store the language of the user's answers; None: the language they write in.

        Raises UserErased for a deleted user, and ValueError for a language that Hermes does not speak."""
        ...

    async def allow_training(self, tx: Transaction, user_id: UUID, *, trains: bool) -> None:
        """Store whether the user allows training. Raises UserErased for a deleted user."""
        ...

    async def count_data(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> UserDataCounts:
        """Count the stored data of a user; all zero for an unknown user. With an account, what belongs to it: facts, conversations,
        messages, reminders and price watchers. Bookings, meals and orders do not name an account, so none are counted."""
        ...

    async def hold(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> None:
        """Accept no message of a user until the transaction ends, and end the claims of their turns under way, so that none of those turns
        can finish. With an account, in that account only."""
        ...

    async def forget(self, tx: Transaction, user_id: UUID) -> None:
        """Delete a user: discard their keys, their channels, all facts about them and what tools did for them; leave tombstones.

        Data sealed for them can never be read again. They are held, as by `hold`. Repeating it changes nothing. Rows about money stay, but
        name no person any more."""
        ...

    async def forget_in_account(self, tx: Transaction, user_id: UUID, account: str) -> None:
        """Delete what one account has of a user who stays in others: their channels there, their messages and the answers, the graphs in
        which no other user wrote, the facts that come from it, and the effects, offers, reminders and price watchers of their tool calls.

        Their key, their credits and the data of other accounts stay; so do bookings, meals and orders, which do not name an account. The
        user is held in this account, as by `hold`. Repeating it changes nothing."""
        ...
