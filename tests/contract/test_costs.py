"""The ports Costs and People: every dimension has the same money, what is folded still adds up, and pages go on where they ended."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.console.costs import CostQueryInvalid, fill_bars, parse_dimension, parse_window
from hermes.gateway.spend_sums import HourSummer
from hermes.ports.backends import Usage
from hermes.ports.costs import CostDimension, CostRow, CostUnit, CostWindow
from hermes.ports.models import CallOutcome, CallPurpose, CallSource, ModelCall
from hermes.ports.people import PeopleCursor, PeopleFilter
from hermes.ports.users import UserState
from hermes.stores.postgres.costs import PostgresCosts
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.people import PostgresPeople, escape_like
from hermes.stores.postgres.spend_sums import PostgresSpendSums
from hermes.turn import Platform

NOW = datetime.now(UTC)
TODAY = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
WINDOW = CostWindow(since=TODAY - timedelta(days=2), until=TODAY + timedelta(days=1), before=TODAY - timedelta(days=5))
KEY = UUID(int=7)
costs, people = PostgresCosts(), PostgresPeople()


async def execute(database: Database, query: str, *values: Any) -> None:
    async with database.begin() as tx:
        await connection_of(tx).execute(query.encode(), values)


async def add_user(
    database: Database, number: int, *, state: UserState = UserState.ACTIVE, account: str = "bali", sender: str = ""
) -> UUID:
    user_id = UUID(int=number)
    await execute(database, "insert into accounts (id) values (%s) on conflict do nothing", account)
    columns = "insert into users (id, state, tier, referral_code, created_at) values (%s, 'active', 'free', %s, %s)"
    await execute(database, columns, user_id, f"code{number}", TODAY - timedelta(minutes=number // 2))
    channel = "insert into user_channels (account_id, platform, sender_id, user_id) values (%s, 'whatsapp', %s, %s)"
    await execute(database, channel, account, sender or f"62812{number:04}", user_id)
    return user_id


async def add_call(database: Database, days_ago: int, micro_usd: int, **more: Any) -> None:
    """Record a call at the beginning of a day."""
    made = ModelCall(
        **{
            "id": uuid4(),
            "day": date(2026, 11, 15),
            "account_id": "bali",
            "source": CallSource.ROUTER,
            "tier": "free",
            "model": "claude-haiku",
            "outcome": CallOutcome.ANSWERED,
            "latency_ms": 800,
            "usage": Usage(tokens_in=100, tokens_out=20),
            "micro_usd": micro_usd,
            **more,
        }
    )
    async with database.begin() as tx:
        await connection_of(tx).execute("insert into accounts (id) values (%s) on conflict do nothing", [made.account_id])
        await PostgresModelCalls().add(tx, made)
        await connection_of(tx).execute("update calls set created_at = %s where id = %s", [TODAY - timedelta(days=days_ago), made.id])


async def spend(database: Database) -> tuple[UUID, UUID]:
    """Two users, three days with calls and two days before them."""
    first, second = await add_user(database, 1), await add_user(database, 2, account="shop")
    await add_call(database, 0, 100, user_id=first, agent="bali", platform=Platform.WHATSAPP, purpose=CallPurpose.ANSWER)
    await add_call(database, 1, 30, user_id=first, agent="bali", purpose=CallPurpose.CONCLUDE, api_key_id=KEY)
    await add_call(database, 2, 7, user_id=second, account_id="shop", agent="vera", outcome=CallOutcome.FAILED)
    await add_call(database, 2, 0, outcome=CallOutcome.REFUSED, usage=Usage(), times=9)
    await add_call(database, 3, 55, user_id=first, agent="bali")
    await add_call(database, 9, 1_000, user_id=first, agent="bali")
    await HourSummer(database, PostgresSpendSums()).sum_recent()
    return first, second


async def by_value(database: Database, by: CostDimension, window: CostWindow = WINDOW, limit: int = 10) -> list[CostRow]:
    async with database.begin() as tx:
        return list(await costs.by_value(tx, by, window, limit=limit))


async def test_every_dimension_has_the_same_money_now_and_before(database: Database) -> None:
    await spend(database)
    for by in CostDimension:
        rows = await by_value(database, by)
        assert sum(row.micro_usd for row in rows) == 137, by
        before = 0 if by in {CostDimension.DAY, CostDimension.HOUR} else 55
        assert sum(row.micro_usd_before for row in rows) == before, by
        async with database.begin() as tx:
            parts = await costs.over_time(tx, by, WINDOW, CostUnit.DAY, [row.value for row in rows if row.value is not None][:1])
        assert {part.at for part in parts} == {TODAY - timedelta(days=each) for each in (0, 1, 2)}, by
        assert sum(part.micro_usd for part in parts) == 137, by


async def test_rows_say_how_calls_ended_and_columns_that_are_not_known_are_none(database: Database) -> None:
    first, second = await spend(database)
    agents = {row.value: row for row in await by_value(database, CostDimension.AGENT)}
    assert {name: (row.micro_usd, row.micro_usd_before, row.calls, row.failed, row.refused) for name, row in agents.items()} == {
        "bali": (130, 55, 2, 0, 0),
        "vera": (7, 0, 1, 1, 0),
        "": (0, 0, 0, 0, 9),
    }
    users = {row.value: row for row in await by_value(database, CostDimension.USER)}
    assert {value: (row.micro_usd, row.calls, row.tokens, row.tokens_in) for value, row in users.items()} == {
        str(first): (130, 2, 240, None),
        str(second): (7, 1, 120, None),
        "": (0, 0, 0, None),
    }
    [untold] = await by_value(database, CostDimension.TOOL)
    assert (untold.value, untold.micro_usd, untold.micro_usd_before, untold.runs, untold.calls) == ("", 137, 55, 0, None)


async def test_values_beyond_the_limit_are_one_row_and_the_sum_stays(database: Database) -> None:
    await spend(database)
    for by in (CostDimension.AGENT, CostDimension.USER):
        top, rest = await by_value(database, by, limit=1)
        assert (top.micro_usd, top.values, rest.value, rest.values, rest.micro_usd) == (130, 1, None, 2, 7)


async def test_an_operator_of_one_account_sees_its_money_alone(database: Database) -> None:
    await spend(database)
    shop = CostWindow(since=WINDOW.since, until=WINDOW.until, before=WINDOW.before, accounts=frozenset({"shop"}))
    for by in CostDimension:
        assert sum(row.micro_usd for row in await by_value(database, by, shop)) == 7, by
        async with database.begin() as tx:
            assert [part.micro_usd for part in await costs.over_time(tx, by, shop, CostUnit.DAY, [])] == [7], by


async def test_a_key_has_its_spend_of_today_and_of_the_month(database: Database) -> None:
    await spend(database)
    async with database.begin() as tx:
        [spent] = await costs.of_keys(tx, [KEY, UUID(int=8)], today=TODAY, month=TODAY - timedelta(days=29))
    assert (spent.api_key_id, spent.today, spent.month) == (KEY, 0, 30)


def test_days_are_whole_days_of_utc_and_the_window_before_is_as_long() -> None:
    now = datetime(2026, 11, 16, 15, 24, 31, tzinfo=UTC)
    window = parse_window("7d", now)
    assert (window.since, window.until) == (datetime(2026, 11, 10, tzinfo=UTC), datetime(2026, 11, 16, 16, tzinfo=UTC))
    assert window.since - window.before == window.until - window.since
    assert len(fill_bars(window, CostUnit.DAY, [], [])) == 7
    assert parse_window("24h", now).since == datetime(2026, 11, 15, 16, tzinfo=UTC)
    assert len(fill_bars(parse_window("24h", now), CostUnit.HOUR, [], [])) == 24
    assert parse_window("2026-11-15T12:30+08:00", now).since == datetime(2026, 11, 15, 4, tzinfo=UTC)
    assert parse_window("2030-01-01", now).since == datetime(2026, 11, 16, 15, tzinfo=UTC)
    assert parse_window("0001-01-01", now).before == datetime(1, 1, 1, tzinfo=UTC)
    assert parse_dimension("platform") is CostDimension.CHANNEL
    for text in ("soon", "", "999999d", "7x", "99999999d"):
        with pytest.raises(CostQueryInvalid, match="is not a time"):
            parse_window(text, now)


# --- people


async def test_pages_of_people_go_on_where_they_ended_and_erased_ones_are_apart(database: Database) -> None:
    users = [await add_user(database, number) for number in range(1, 8)]
    await execute(database, "update users set state = 'deleted', deleted_at = now() where id = %s", users[3])
    seen: list[UUID] = []
    before: PeopleCursor | None = None
    async with database.begin() as tx:
        while page := await people.list(tx, PeopleFilter(), before=before, limit=2):
            seen += [each.user.id for each in page]
            last = page[-1].user
            assert last.created_at is not None
            before = PeopleCursor(last.created_at, last.id)
        assert sorted(seen) == sorted({*users} - {users[3]})
        assert len(seen) == 6
        [erased] = await people.list(tx, PeopleFilter(state=UserState.DELETED))
        assert (erased.user.id, erased.erased_at is not None) == (users[3], True)


async def test_people_are_found_by_the_beginning_of_a_sender_as_it_is_written(database: Database) -> None:
    await add_user(database, 1, sender="62812_5")
    await add_user(database, 2, sender="62812x5")
    await add_user(database, 3, sender="62812%", account="shop")

    async def found(sender: str, accounts: frozenset[str] | None = None) -> list[int]:
        async with database.begin() as tx:
            return [each.user.id.int for each in await people.list(tx, PeopleFilter(sender=sender, accounts=accounts))]

    assert sorted(await found("62812")) == [1, 2, 3]
    assert await found("62812_") == [1]
    assert await found("62812%") == [3]
    assert await found("62812", frozenset({"shop"})) == [3]
    assert escape_like("\\%_") == "\\\\\\%\\_"


async def test_a_person_has_what_their_accounts_spent_and_is_not_there_for_others(database: Database) -> None:
    user_id = await add_user(database, 1)
    today = NOW.date()
    await add_call(database, 0, 40, user_id=user_id, day=today)
    await add_call(database, 0, 2, user_id=user_id, account_id="shop", day=today)
    async with database.begin() as tx:
        everyone, bali = await people.find(tx, user_id, None), await people.find(tx, user_id, frozenset({"bali"}))
        assert everyone is not None
        assert bali is not None
        assert (everyone.micro_usd, bali.micro_usd) == (42, 40)
        assert [channel.account for channel in bali.channels] == ["bali"]
        assert await people.find(tx, user_id, frozenset({"shop"})) is None
        assert await people.find(tx, uuid4(), None) is None
        [day] = await people.spend_by_day(tx, user_id, since=today, accounts=frozenset({"shop"}))
        assert (day.day, day.micro_usd, day.calls) == (today, 2, 1)
        assert (await people.count_memory(tx, user_id)).facts == 0
        assert await people.ledger(tx, user_id, limit=5) == []
