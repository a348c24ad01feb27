"""The port People on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from hermes.ports.people import CreditLine, MemoryCounts, PeopleCursor, PeopleFilter, PersonSummary, UserDaySpend
from hermes.ports.runtime import Transaction
from hermes.ports.users import User, UserChannel, UserState
from hermes.stores.postgres.database import fetch_row, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.queries import load_queries
from hermes.turn import Platform

SQL = load_queries("people")
SPEND_DAYS = 30
MAX_CHANNELS = 20
NEWEST = PeopleCursor(datetime.max.replace(tzinfo=UTC), UUID(int=2**128 - 1))
"""Before the first page. A value and no null, so that every plan of the query has a range of the index."""


class PostgresPeople:
    """The port People."""

    async def list(
        self, tx: Transaction, wanted: PeopleFilter, *, before: PeopleCursor | None = None, limit: int = 50
    ) -> Sequence[PersonSummary]:
        values = {
            "state": wanted.state,
            "accounts": as_list(wanted.accounts),
            "at": NEWEST.created_at if before is None else before.created_at,
            "id": NEWEST.user_id if before is None else before.user_id,
            "limit": limit,
            "pattern": None if wanted.sender is None else escape_like(wanted.sender) + "%",
        }
        return await self._summaries(tx, await fetch_values(tx, SQL[list_query(wanted)], values), wanted.accounts)

    async def find(self, tx: Transaction, user_id: UUID, accounts: frozenset[str] | None) -> PersonSummary | None:
        if accounts is not None and not await fetch_value(tx, SQL["is_in_accounts"], {"user_id": user_id, "accounts": as_list(accounts)}):
            return None
        return next(iter(await self._summaries(tx, [user_id], accounts)), None)

    async def ledger(self, tx: Transaction, user_id: UUID, *, limit: int, accounts: frozenset[str] | None = None) -> Sequence[CreditLine]:
        return await fetch_rows(tx, CreditLine, SQL["ledger"], {"user_id": user_id, "limit": limit, "accounts": as_list(accounts)})

    async def spend_by_day(self, tx: Transaction, user_id: UUID, *, since: date, accounts: frozenset[str] | None) -> Sequence[UserDaySpend]:
        query = SQL["spend_by_day" if accounts is None else "spend_by_day_in_accounts"]
        return await fetch_rows(tx, UserDaySpend, query, {"user_id": user_id, "since": since, "accounts": as_list(accounts)})

    async def count_memory(self, tx: Transaction, user_id: UUID, *, accounts: frozenset[str] | None = None) -> MemoryCounts:
        values = {"user_id": user_id, "accounts": as_list(accounts)}
        return await fetch_row(tx, MemoryCounts, SQL["count_memory"], values) or MemoryCounts(0, 0, 0)

    async def _summaries(self, tx: Transaction, ids: Sequence[UUID], accounts: frozenset[str] | None) -> Sequence[PersonSummary]:
        if not ids:
            return []
        since = datetime.now(UTC).date() - timedelta(days=SPEND_DAYS - 1)
        values = {"ids": [*ids], "accounts": as_list(accounts), "since": since, "channels": MAX_CHANNELS}
        people = await fetch_rows(tx, read_summary, SQL["summaries"], values)
        spent = dict(await fetch_rows(tx, read_spend, SQL["spend_of" if accounts is None else "spend_of_in_accounts"], values))
        return [replace(person, micro_usd=spent.get(person.user.id, 0)) for person in people]


def list_query(wanted: PeopleFilter) -> str:
    if wanted.sender is not None:
        return "list_by_sender"
    if wanted.accounts is not None:
        return "list_in_accounts"
    return "list" if wanted.state is None else "list_in_state"


def as_list(accounts: frozenset[str] | None) -> list[str] | None:
    return None if accounts is None else sorted(accounts)


def escape_like(text: str) -> str:
    """The text, so that `like` takes every character for itself."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def read_summary(
    *,
    state: str,
    channels: list[list[str]],
    credits: int,  # noqa: A002  # the name of the column
    wrote_at: datetime | None,
    erased_at: datetime | None,
    **user: Any,
) -> PersonSummary:
    return PersonSummary(
        User(state=UserState(state), **user),
        [UserChannel(account, Platform(platform), sender_id) for account, platform, sender_id in channels],
        credits,
        wrote_at,
        0,
        erased_at,
    )


def read_spend(*, user_id: UUID, micro_usd: int) -> tuple[UUID, int]:
    return user_id, micro_usd
