"""Users, their channels and their credits in memory."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hermes.ports.credits import Balance
from hermes.ports.errors import NotFound, OutOfCredit, UserErased
from hermes.ports.runtime import Transaction
from hermes.ports.users import ChannelTaken, LinkResult, NewUser, User, UserChannel, UserDataCounts, UserState
from hermes.router.signup import check_language
from hermes.turn import PROGRAM_PLATFORMS, Platform

SIGNUP_STATES = frozenset({UserState.INVITED, UserState.ACTIVE})


@dataclass(slots=True)
class MemoryCredits:
    """The port Credits: the credits of each user, and the state of each turn. Every user counts as known, and no turn as ended."""

    available: dict[UUID, int] = field(default_factory=dict)
    turns: dict[UUID, tuple[UUID, str]] = field(default_factory=dict)
    """By turn: the id of its user, and `reserved`, `posted`, `voided` or `refunded`."""
    amounts: dict[UUID, int] = field(default_factory=dict)
    """By turn: what it reserved last."""
    reserved_at: dict[UUID, datetime] = field(default_factory=dict)
    """By turn: when it reserved last."""
    granted: dict[str, UUID] = field(default_factory=dict)
    """By event: the user who got its credits."""

    async def grant(self, _: Transaction, user_id: UUID, amount: int, event: str) -> bool:
        check_amount(amount)
        if event in self.granted:
            if (receiver := self.granted[event]) != user_id:
                raise ValueError(f"the event {event} gave credits to another user, {receiver}")
            return False
        self.granted[event] = user_id
        self.available[user_id] = self.available.get(user_id, 0) + amount
        return True

    async def reserve(self, _: Transaction, user_id: UUID, turn_id: UUID, amount: int = 1) -> bool:
        check_amount(amount)
        owner, state = self.turns.get(turn_id, (user_id, ""))
        if owner != user_id:
            raise ValueError(f"the turn {turn_id} belongs to another user than {user_id}")
        if state in ("posted", "refunded"):
            return False
        if state != "reserved":
            if self.available.get(user_id, 0) < amount:
                raise OutOfCredit
            self.available[user_id] -= amount
            self.turns[turn_id] = (user_id, "reserved")
            self.amounts[turn_id], self.reserved_at[turn_id] = amount, datetime.now(UTC)
        return True

    async def post(self, _: Transaction, turn_id: UUID) -> bool:
        user_id, state = self.turns.get(turn_id, (turn_id, ""))
        if state in ("posted", "refunded"):
            return False
        if state != "reserved":
            raise NotFound(f"the turn {turn_id} has no open reserve")
        self.turns[turn_id] = (user_id, "posted")
        return True

    async def void(self, _: Transaction, turn_id: UUID) -> bool:
        return self._give_back(turn_id, "reserved", "voided")

    async def refund(self, _: Transaction, turn_id: UUID) -> bool:
        return self._give_back(turn_id, "posted", "refunded")

    async def expire(self, _: Transaction, older_than_s: float) -> int:
        latest = datetime.now(UTC) - timedelta(seconds=older_than_s)
        return sum(self._give_back(turn_id, "reserved", "voided") for turn_id, at in self.reserved_at.items() if at <= latest)

    async def balance(self, _: Transaction, user_id: UUID) -> Balance:
        reserved = sum(self.amounts.get(turn, 1) for turn, (owner, state) in self.turns.items() if (owner, state) == (user_id, "reserved"))
        return Balance(self.available.get(user_id, 0), reserved)

    async def audit(self, _: Transaction) -> list[str]:
        """Nothing to compare: a balance is made of its turns here."""
        return []

    def _give_back(self, turn_id: UUID, before: str, after: str) -> bool:
        user_id, state = self.turns.get(turn_id, (turn_id, ""))
        if state != before:
            return False
        self.turns[turn_id] = (user_id, after)
        self.available[user_id] = self.available.get(user_id, 0) + self.amounts.get(turn_id, 1)
        return True


def check_amount(amount: int) -> None:
    if amount < 1:
        raise ValueError(f"an amount of credits is at least one, got {amount}")


@dataclass(slots=True)
class MemoryUsers:
    """The port Users. Nothing is sealed here. Of a user it keeps only the row and the channels."""

    credits: MemoryCredits = field(default_factory=MemoryCredits)
    """Tells whether a stranger ever had an account of credits."""
    users: dict[UUID, User] = field(default_factory=dict)
    addresses: dict[UserChannel, UUID] = field(default_factory=dict)

    async def find_or_create(
        self, _: Transaction, account: str, platform: Platform, sender_id: str, *, state: UserState, alias: str | None = None
    ) -> tuple[User, bool]:
        channels = [UserChannel(account, platform, name) for name in (sender_id, alias) if name is not None]
        known = next((self.addresses[channel] for channel in channels if channel in self.addresses), None)
        user = self._add(NewUser(state=state)) if known is None else self.users[known]
        for channel in channels:
            self.addresses.setdefault(channel, user.id)
        return user, known is None

    async def create(self, _: Transaction, new_user: NewUser) -> User:
        if new_user.state not in SIGNUP_STATES:
            raise ValueError(f"a user who signs up is invited or active, not {new_user.state}")
        check_language(new_user.language)
        return self.users.get(new_user.id) or self._add(new_user)

    async def get(self, _: Transaction, user_id: UUID) -> User:
        if user_id not in self.users:
            raise NotFound(f"there is no user {user_id}")
        return self.users[user_id]

    async def find(self, _: Transaction, channel: UserChannel) -> User | None:
        return self.users[self.addresses[channel]] if channel in self.addresses else None

    async def by_code(self, _: Transaction, referral_code: str) -> User | None:
        return next((user for user in self.users.values() if user.referral_code == referral_code), None)

    async def between(self, _: Transaction, first: UUID, last: UUID, *, limit: int = 3) -> Sequence[User]:
        return [self.users[user_id] for user_id in sorted(self.users) if first <= user_id <= last][:limit]

    async def list(self, _: Transaction, *, state: UserState | None = None, limit: int = 100) -> Sequence[User]:
        states = {state} if state else {*UserState} - {UserState.DELETED}
        return [user for user in reversed(self.users.values()) if user.state in states][:limit]

    async def is_person(self, _: Transaction, channel: UserChannel) -> bool:
        return channel in self.addresses and self.writes_as_person(self.addresses[channel])

    async def end_users(self, _: Transaction, account: str, name: str) -> Sequence[User]:
        found = [
            user_id
            for channel, user_id in self.addresses.items()
            if (channel.account == account and (channel.platform, channel.sender_id) == (Platform.REST, name))
            or (channel.platform is Platform.COMPLETIONS and channel.sender_id.partition("/")[2] == name)
        ]
        return [self.users[user_id] for user_id in dict.fromkeys(found)]

    def names_of(self, user_id: UUID, account: str, platform: Platform) -> tuple[str, ...]:
        """The names of a user in an account, on a platform."""
        return tuple(
            channel.sender_id
            for channel, holder in self.addresses.items()
            if (holder, channel.account, channel.platform) == (user_id, account, platform)
        )

    def writes_as_person(self, user_id: UUID) -> bool:
        """Whether a user writes from a platform where people write."""
        return any(holder == user_id and channel.platform not in PROGRAM_PLATFORMS for channel, holder in self.addresses.items())

    async def channels(self, _: Transaction, user_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[UserChannel]]:
        found: dict[UUID, list[UserChannel]] = {}
        for channel, user_id in self.addresses.items():
            if user_id in user_ids:
                found.setdefault(user_id, []).append(channel)
        return found

    async def link(self, tx: Transaction, user_id: UUID, channel: UserChannel) -> LinkResult:
        await self._existing_user(tx, user_id)
        holder = self.addresses.get(channel)
        if holder == user_id:
            return LinkResult(is_new=False)
        if holder is not None and self.users[holder].state is not UserState.STRANGER:
            raise ChannelTaken(f"{channel} is the channel of another user, {holder}")
        if holder in self.credits.available:
            raise ChannelTaken(f"{channel} is the channel of a stranger who has an account of credits; activate that stranger, {holder}")
        self.addresses[channel] = user_id
        if holder is None or holder in self.addresses.values():
            return LinkResult(is_new=True)
        await self.forget(tx, holder)
        return LinkResult(is_new=True, replaced=holder)

    async def activate(self, tx: Transaction, user_id: UUID) -> bool:
        user = await self._existing_user(tx, user_id)
        self.users[user_id] = replace(user, state=UserState.ACTIVE)
        return user.state is not UserState.ACTIVE

    async def refer(self, tx: Transaction, user_id: UUID, referrer_id: UUID) -> bool:
        referrer, user = await self.get(tx, referrer_id), await self._existing_user(tx, user_id)
        is_new = user.state is not UserState.ACTIVE and user.referred_by in (None, referrer_id)
        if is_new and referrer.state is UserState.ACTIVE:
            self.users[user_id] = replace(user, referred_by=referrer_id)
            return True
        return False

    async def set_tier(self, tx: Transaction, user_id: UUID, tier: str) -> None:
        self.users[user_id] = replace(await self._existing_user(tx, user_id), tier=tier)

    async def set_language(self, tx: Transaction, user_id: UUID, language: str | None) -> None:
        self.users[user_id] = replace(await self._existing_user(tx, user_id), language=check_language(language))

    async def allow_training(self, tx: Transaction, user_id: UUID, *, trains: bool) -> None:
        self.users[user_id] = replace(await self._existing_user(tx, user_id), trains=trains)

    async def count_data(self, _: Transaction, __: UUID, *, account: str | None = None) -> UserDataCounts:  # noqa: ARG002  # the port's
        return UserDataCounts()

    async def hold(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> None:
        """Nothing runs concurrently here."""

    async def forget(self, tx: Transaction, user_id: UUID) -> None:
        user = await self.get(tx, user_id)
        self.users[user_id] = User(
            user_id, UserState.DELETED, user.tier, None, f"deleted/{user_id}", trains=False, created_at=user.created_at
        )
        self.addresses = {channel: owner for channel, owner in self.addresses.items() if owner != user_id}
        referred = [other for other in self.users.values() if other.referred_by == user_id]
        self.users.update({other.id: replace(other, referred_by=None) for other in referred})

    async def forget_in_account(self, tx: Transaction, user_id: UUID, account: str) -> None:
        await self.get(tx, user_id)
        self.addresses = {channel: owner for channel, owner in self.addresses.items() if (owner, channel.account) != (user_id, account)}

    def _add(self, new_user: NewUser) -> User:
        code, now = secrets.token_hex(5), datetime.now(UTC)
        user = User(new_user.id, new_user.state, new_user.tier, new_user.language, code, trains=False, created_at=now)
        self.users[user.id] = user
        return user

    async def _existing_user(self, tx: Transaction, user_id: UUID) -> User:
        user = await self.get(tx, user_id)
        if user.state is UserState.DELETED:
            raise UserErased
        return user
