"""Who writes and who answers: users with their channels and the key that seals their messages, the API keys of programs, and agents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol
from uuid import UUID, uuid4

from hermes.ports.errors import PortError
from hermes.ports.key_limits import NO_LIMITS, KeyLimits
from hermes.ports.runtime import Transaction
from hermes.turn import Platform

if TYPE_CHECKING:
    from hermes.ports.backends import BackendFinding

# --- users


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


DEFAULT_USER = "default"
"""The user of a request that names none."""


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
    records: Mapping[str, int] = field(default_factory=dict)
    """Rows that tools of packs stored for them, by table: `{"bookings": 2}`."""

    def by_kind(self) -> dict[str, int]:
        """Return all counts in one table."""
        return {"facts": self.facts, "conversations": self.conversations, "messages": self.messages, **self.records}


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

    async def is_person(self, tx: Transaction, channel: UserChannel) -> bool:
        """Whether the user behind a channel also writes from a platform where people write: a messenger, or the chat page. False for a
        channel that is no user's."""
        ...

    async def end_users(self, tx: Transaction, account: str, name: str) -> Sequence[User]:
        """Return the users whom programs call by this name in an account: at `/v1/messages`, then behind each of its keys elsewhere."""
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
        messages, and the rows of packs that name a turn. Other rows of packs do not name an account, so none are counted."""
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
        which no other user wrote, the facts that come from it, and the effects, offers and records of their tool calls.

        Their key, their credits and the data of other accounts stay; so do the rows of packs that name no turn, and so no account. The user
        is held in this account, as by `hold`. Repeating it changes nothing."""
        ...


# --- API keys, and idempotency keys, with which a repeated request is answered once

KEY_SCOPES = ("messages", "completions", "users", "runs", "ops")
"""What a key may be for: messages and proactive messages, chat completions, the data of users, runs, and the operator's own routes."""
OPERATOR_SCOPES = frozenset({"ops"})
"""Scopes that a key has only if they are named: a key for all of its account's routes sees nothing of other accounts."""


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
    """Which of KEY_SCOPES it has; None: all but OPERATOR_SCOPES."""
    channels: Sequence[str] | None
    """The conversations that it may write to and read; None: all of its account."""
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    limits: KeyLimits = NO_LIMITS

    def has_scope(self, scope: str) -> bool:
        return scope in self.scopes if self.scopes is not None else scope not in OPERATOR_SCOPES


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
        limits: KeyLimits = NO_LIMITS,
    ) -> tuple[ApiKey, str]:
        """Create a key; the second value is the secret, which is returned only this once."""
        ...

    async def get(self, tx: Transaction, identifier: str) -> ApiKey:
        """Return a key by id, name or prefix, also a revoked one; raise NotFound if none or several match."""
        ...

    async def limits_of(self, tx: Transaction, key_id: UUID) -> KeyLimits:
        """Return the limits of a key, also of a revoked one; none for an unknown key."""
        ...

    async def change(self, tx: Transaction, key_id: UUID, limits: KeyLimits, channels: Sequence[str] | None) -> ApiKey:
        """Give a key other limits and channels. Raises NotFound for an unknown key and for a revoked one."""
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


# --- agents, the adapter that each agent answers through, and every change of it
#
# An adapter is a model of the catalogue by its logical name (`claude-sonnet`, `claude_local`, `scripted`). The agent's pointer to its
# adapter is a row, so that every process follows it. It moves by compare-and-set on an epoch, so that of two moves at the same time one is
# refused. Every move adds an event in the same transaction.

DEFAULT_AGENT = "hermes"
"""The agent that answers where no other agent was chosen. It always exists."""


class Tone(StrEnum):
    """How an agent speaks."""

    CHILL = "chill"
    FRIENDLY = "friendly"
    PROFESSIONAL = "professional"
    HYPE = "hype"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A named answerer of messages, with its tone, its model and its accounts."""

    name: str
    tone: Tone = Tone.FRIENDLY
    role: str = ""
    tier: str | None = None
    """The tier it answers with; None: the tier of the user who asks."""
    adapter: str | None = None
    """The model it answers through; None: the tier's own chain."""
    cwd: str | None = None
    """The folder of its adapter, for adapters that work in a folder."""
    epoch: int = 0
    """How often its adapter or folder was changed."""
    daily_micro_usd: int | None = None
    """How much its calls may cost in a UTC day; None for no limit."""
    accounts: tuple[str, ...] = ()
    """The accounts it answers on, in alphabetical order."""


def adapter_label(adapter: str | None) -> str:
    return "the chain of its tier" if adapter is None else adapter


class FleetEventKind(StrEnum):
    """How a swap of adapters ended."""

    ADAPTER_SWAPPED = "adapter_swapped"
    ADAPTER_ROLLED_BACK = "adapter_rolled_back"
    ADAPTER_REFUSED = "adapter_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapReason:
    """Why a pointer moves, or stays. Two with the same id are the same change."""

    kind: FleetEventKind
    by: str
    reason: str = ""
    checks: Sequence[BackendFinding] = ()
    """What the health check of the new adapter found."""
    id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """One line of the fleet's history."""

    id: UUID
    agent: str
    kind: FleetEventKind
    old: str | None
    """The adapter before; None: the tier's own chain."""
    new: str | None
    """The adapter after; for a refused swap, the adapter that was asked for."""
    reason: str
    by: str
    checks: Sequence[BackendFinding]
    epoch: int
    """The agent's epoch afterwards."""
    at: datetime


class AgentChanged(PortError):
    """This agent was pointed at another adapter meanwhile; nothing was changed."""


class Agents(Protocol):
    """Agents and their adapters. Fails closed; a running process answers by the pointers that it read last."""

    async def add(self, tx: Transaction, agent: Agent) -> tuple[Agent, bool]:
        """Create an agent, and let it answer on its accounts in place of the agents that answered there.

        Returns the agent of that name and whether it is new; an agent that exists stays as it is, accounts included."""
        ...

    async def get(self, tx: Transaction, name: str) -> Agent:
        """Return an agent; raise NotFound."""
        ...

    async def list(self, tx: Transaction) -> Sequence[Agent]:
        """Return all agents, by name."""
        ...

    async def point(
        self, tx: Transaction, name: str, *, adapter: str | None, cwd: str | None, expected_epoch: int, because: SwapReason
    ) -> Agent:
        """Move an agent's pointer and add the event; return the agent after the move.

        Raises NotFound, and AgentChanged if the epoch is not `expected_epoch`. Repeating it changes nothing and returns the same."""
        ...

    async def set_cap(self, tx: Transaction, name: str, daily_micro_usd: int | None) -> Agent:
        """Set how much an agent may spend in a UTC day; return the agent. Raises NotFound, and ValueError for an amount below zero."""
        ...

    async def note(self, tx: Transaction, name: str, *, adapter: str | None, because: SwapReason) -> None:
        """Add an event without moving the pointer: `adapter` was asked for and is not in place. It was refused, or rolled back after
        another swap had moved the pointer. Raises NotFound. Repeating it changes nothing."""
        ...

    async def spend(self, tx: Transaction, day: date) -> Mapping[str, int]:
        """Return what the model calls for each agent cost on a UTC day, in micro-dollars; no entry for an agent without a call."""
        ...

    async def events(self, tx: Transaction, name: str | None = None, *, limit: int = 50) -> Sequence[FleetEvent]:
        """Return the events of one agent, or of all agents, the newest first."""
        ...
