"""Users and their channels on PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from psycopg import sql

from hermes.ports.errors import NotFound, UserErased
from hermes.ports.runtime import Transaction
from hermes.ports.users import ChannelBusy, ChannelTaken, LinkResult, NewUser, User, UserChannel, UserDataCounts, UserState
from hermes.router.signup import check_language
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.turn import PROGRAM_PLATFORMS, Platform

SQL = load_queries("users")
SIGNUP_STATES = frozenset({UserState.INVITED, UserState.ACTIVE})
FORGET_QUERIES = (
    # After `hold`. The order of locks is the usual one: conversations before the rows that belong to them, and the user's row last, as at
    # the end of a turn.
    "forget_channels",
    "forget_conversations",
    "forget_turns",
    "forget_graphs",
    "forget_addresses",
    "forget_asked",
    "forget_replays",
    "forget_memory",
    "forget_errands",
    "forget_chats",
    "note_erasure",
    "forget",
    "forget_referrals",
)
LEAVE_QUERIES = (
    "note_erasure",
    "leave_channels",
    "leave_facts",
    "leave_errands",
    "forget_asked",
    "forget_replays",
    "leave_turns",
    "leave_graphs",
    "leave_conversations",
)


@dataclass(frozen=True, slots=True)
class UserTable:
    """A table of a pack with rows of users. It has a column `user_id`."""

    name: str
    has_turns: bool = False
    """It has a column `turn_id`: the turn in which the row was made, and so the account that it belongs to."""


class PostgresUsers:
    """The port Users. A new user is created under a lock of their channel, so that two first messages make one user."""

    def __init__(self, keyring: Keyring, tables: Sequence[UserTable] = ()) -> None:
        """`tables` are those of the packs."""
        self._keyring, self._tables = keyring, tables

    async def find_or_create(
        self, tx: Transaction, account: str, platform: Platform, sender_id: str, *, state: UserState, alias: str | None = None
    ) -> tuple[User, bool]:
        user, is_new = await self._find_or_add(tx, account, platform, (sender_id, alias) if alias else (sender_id,), state)
        if alias is not None:
            await execute(tx, SQL["also_known_as"], {**channel_columns(UserChannel(account, platform, alias)), "user_id": user.id})
        return user, is_new

    async def _find_or_add(
        self, tx: Transaction, account: str, platform: Platform, names: Sequence[str], state: UserState
    ) -> tuple[User, bool]:
        address = channel_columns(UserChannel(account, platform, names[0]))
        known = await fetch_row(tx, read_user, SQL["find_by_channel"], address)
        if known is not None:
            return known, False
        for name in sorted(names):  # in one order, so that two transactions never wait for each other
            await execute(tx, SQL["lock_new_channel"], channel_columns(UserChannel(account, platform, name)))
        for name in names:
            known = await fetch_row(tx, read_user, SQL["find_by_channel"], channel_columns(UserChannel(account, platform, name)))
            if known is not None:
                await execute(tx, SQL["also_known_as"], {**address, "user_id": known.id})
                return known, False
        await execute(tx, SQL["add_account"], address)
        user = await self._add(tx, {"id": uuid4(), "state": state, "tier": "free", "language": None})
        await execute(tx, SQL["add_channel"], {**address, "user_id": user.id})
        return user, True

    async def create(self, tx: Transaction, new_user: NewUser) -> User:
        if new_user.state not in SIGNUP_STATES:
            raise ValueError(f"a user who signs up is invited or active, not {new_user.state}")
        row = {"id": new_user.id, "state": new_user.state, "tier": new_user.tier, "language": check_language(new_user.language)}
        return await self._add(tx, row)

    async def get(self, tx: Transaction, user_id: UUID) -> User:
        user = await fetch_row(tx, read_user, SQL["get"], {"user_id": user_id})
        if user is None:
            raise NotFound(f"there is no user {user_id}")
        return user

    async def find(self, tx: Transaction, channel: UserChannel) -> User | None:
        return await fetch_row(tx, read_user, SQL["find"], channel_columns(channel))

    async def by_code(self, tx: Transaction, referral_code: str) -> User | None:
        return await fetch_row(tx, read_user, SQL["by_code"], {"referral_code": referral_code})

    async def between(self, tx: Transaction, first: UUID, last: UUID, *, limit: int = 3) -> Sequence[User]:
        return await fetch_rows(tx, read_user, SQL["between"], {"first": first, "last": last, "limit": limit})

    async def list(self, tx: Transaction, *, state: UserState | None = None, limit: int = 100) -> Sequence[User]:
        query = SQL["list" if state is None else "list_in_state"]
        return await fetch_rows(tx, read_user, query, {"state": state, "limit": limit})

    async def is_person(self, tx: Transaction, channel: UserChannel) -> bool:
        return bool(await fetch_value(tx, SQL["is_person"], {**channel_columns(channel), "programs": [*PROGRAM_PLATFORMS]}))

    async def end_users(self, tx: Transaction, account: str, name: str) -> Sequence[User]:
        found = await fetch_rows(tx, read_user, SQL["end_users"], {"account": account, "name": name})
        return list({user.id: user for user in found}.values())

    async def channels(self, tx: Transaction, user_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[UserChannel]]:
        found: dict[UUID, list[UserChannel]] = {}
        for user_id, channel in await fetch_rows(tx, read_channel, SQL["channels"], {"user_ids": [*user_ids]}):
            found.setdefault(user_id, []).append(channel)
        return found

    async def link(self, tx: Transaction, user_id: UUID, channel: UserChannel) -> LinkResult:
        await self._refuse_deleted(tx, user_id)
        address = {**channel_columns(channel), "user_id": user_id}
        await execute(tx, SQL["lock_new_channel"], address)
        holder_id: UUID | None = await fetch_value(tx, SQL["lock_channel"], address)
        if holder_id is None:
            await execute(tx, SQL["add_account"], address)
            await execute(tx, SQL["link_channel"], address)
            return LinkResult(is_new=True)
        if holder_id == user_id:
            return LinkResult(is_new=False)
        # A statement of its own, so that it sees what other transactions committed while this one waited for the channel.
        [holder] = await fetch_rows(tx, ChannelHolder, SQL["holder"], {"holder": holder_id})
        if holder.state != UserState.STRANGER:
            raise ChannelTaken(f"{channel} is the channel of another user, {holder_id}")
        if holder.is_paid:
            raise ChannelTaken(f"{channel} is the channel of a stranger who has an account of credits; activate that stranger, {holder_id}")
        if holder.is_waiting:
            raise ChannelBusy(f"a message from {channel} waits for its answer; link the channel after the answer")
        await execute(tx, SQL["move_channel"], address)
        if holder.channels > 1:
            return LinkResult(is_new=True)
        await self.forget(tx, holder_id)
        return LinkResult(is_new=True, replaced=holder_id)

    async def activate(self, tx: Transaction, user_id: UUID) -> bool:
        return await self._changes(tx, "activate", {"user_id": user_id})

    async def refer(self, tx: Transaction, user_id: UUID, referrer_id: UUID) -> bool:
        await self.get(tx, referrer_id)
        return await self._changes(tx, "refer", {"user_id": user_id, "referrer_id": referrer_id})

    async def set_tier(self, tx: Transaction, user_id: UUID, tier: str) -> None:
        await self._changes(tx, "set_tier", {"user_id": user_id, "tier": tier})

    async def set_language(self, tx: Transaction, user_id: UUID, language: str | None) -> None:
        await self._changes(tx, "set_language", {"user_id": user_id, "language": check_language(language)})

    async def allow_training(self, tx: Transaction, user_id: UUID, *, trains: bool) -> None:
        await self._changes(tx, "allow_training", {"user_id": user_id, "trains": trains})

    async def count_data(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> UserDataCounts:
        query = SQL["count_data" if account is None else "count_data_in_account"]
        records = {table.name: await self._count_rows(tx, table, user_id, account) for table in self._tables}
        [counts] = await fetch_rows(tx, partial(UserDataCounts, records=records), query, {"user_id": user_id, "account": account})
        return counts

    async def hold(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> None:
        # Channels before conversations, in the same order as the intake of a message.
        for query in ("hold_channels", "fence"):
            await execute(tx, SQL[query], {"user_id": user_id, "account": account})

    async def forget(self, tx: Transaction, user_id: UUID) -> None:
        await self.get(tx, user_id)
        await self.hold(tx, user_id)
        await self._keyring.discard(tx, user_id)
        for query in FORGET_QUERIES:
            if query == "forget_errands":
                await self._delete_rows(tx, user_id)
            await execute(tx, SQL[query], {"user_id": user_id, "account": None})

    async def forget_in_account(self, tx: Transaction, user_id: UUID, account: str) -> None:
        await self.get(tx, user_id)
        await self.hold(tx, user_id, account=account)
        for query in LEAVE_QUERIES:
            if query == "leave_errands":
                await self._delete_rows(tx, user_id, account)
            await execute(tx, SQL[query], {"user_id": user_id, "account": account})

    async def _count_rows(self, tx: Transaction, table: UserTable, user_id: UUID, account: str | None) -> int:
        if account is not None and not table.has_turns:
            return 0
        query = sql.SQL("select count(*) from {} {}").format(sql.Identifier(table.name), rows_of(account))
        return int(await fetch_value(tx, query.as_bytes(), {"user_id": user_id, "account": account}))

    async def _delete_rows(self, tx: Transaction, user_id: UUID, account: str | None = None) -> None:
        """Delete the rows of the packs. Columns that are not sealed reveal too much as well: when a user eats out, how they pay."""
        for table in self._tables:
            if account is None or table.has_turns:
                query = sql.SQL("delete from {} {}").format(sql.Identifier(table.name), rows_of(account))
                await execute(tx, query.as_bytes(), {"user_id": user_id, "account": account})

    async def _add(self, tx: Transaction, row: dict[str, Any]) -> User:
        """Add a user with a data key, or return the user who has this id already."""
        user = await fetch_row(tx, read_user, SQL["add_user"], {**row, "referral_code": secrets.token_hex(5)})
        if user is None:
            return await self.get(tx, row["id"])
        await self._keyring.make(tx, user.id)
        return user

    async def _changes(self, tx: Transaction, query: str, values: dict[str, Any]) -> bool:
        """Run an update of one user; return whether it changed the row. Raises NotFound, and UserErased for a deleted user."""
        if await execute(tx, SQL[query], values):
            return True
        await self._refuse_deleted(tx, values["user_id"])
        return False

    async def _refuse_deleted(self, tx: Transaction, user_id: UUID) -> None:
        if (await self.get(tx, user_id)).state is UserState.DELETED:
            raise UserErased


class ChannelHolder(NamedTuple):
    """The user who has a channel that is to be linked to another user."""

    state: str
    is_paid: bool
    is_waiting: bool
    channels: int


def rows_of(account: str | None) -> sql.SQL:
    """The condition for the rows of a user, or for those that one account has of them."""
    if account is None:
        return sql.SQL("where user_id = %(user_id)s")
    return sql.SQL(
        "where user_id = %(user_id)s and turn_id in (select turn_id from inbox where user_id = %(user_id)s and account_id = %(account)s)"
    )


def channel_columns(channel: UserChannel) -> dict[str, str]:
    """A channel's columns, and the name of the lock under which its user is created."""
    return {
        "account": channel.account,
        "platform": channel.platform,
        "sender_id": channel.sender_id,
        "lock_name": f"{channel.platform}/{channel.account}/{channel.sender_id}",
    }


def read_user(*, state: str, **columns: Any) -> User:
    return User(state=UserState(state), **columns)


def read_channel(*, user_id: UUID, account: str, platform: str, sender_id: str) -> tuple[UUID, UserChannel]:
    return user_id, UserChannel(account, Platform(platform), sender_id)
