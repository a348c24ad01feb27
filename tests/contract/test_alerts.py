"""The port AlertRecords: one open row for each event and subject, told to each destination once in a window. On both adapters."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from hermes.ports.alerts import AlertLevel, AlertRecords, AlertReport, AlertRoute, AlertSend, AlertStage, ClaimedSends, StoredAlert
from hermes.ports.runtime import Transaction, Transactions
from hermes.stores.postgres.alerts import PostgresAlerts
from hermes.stores.postgres.database import Database, connection_of
from hermes.testing.memory import MemoryAlertRecords, MemoryTransactions

WINDOW_S = 3600.0
SLACK = AlertRoute(destination="slack")
BREAKER = AlertReport(event="breaker_opened", subject="telegram:bali", facts={"failures": 10})


@dataclass
class Book:
    """The records, and a way to let time pass."""

    records: AlertRecords
    transactions: Transactions
    passes: Callable[[float], Awaitable[None]]
    route: AlertRoute = field(default=SLACK)

    def begin(self) -> AbstractAsyncContextManager[Transaction]:
        return self.transactions.begin()

    async def report(self, *reports: AlertReport) -> None:
        async with self.begin() as tx:
            await self.records.record(tx, reports)

    async def claim(self, route: AlertRoute | None = None) -> ClaimedSends:
        route = route or self.route
        async with self.begin() as tx:
            await self.records.plan(tx, route, window_s=WINDOW_S)
            return await self.records.claim(tx, route, lease_s=60)

    async def settle(self, *sends: AlertSend, failed: str | None = None, retry_in_s: float = 0.0) -> int:
        async with self.begin() as tx:
            return await self.records.settle(tx, sends, failed=failed, retry_in_s=retry_in_s)

    async def send(self, route: AlertRoute | None = None) -> list[tuple[str, str]]:
        """Claim and settle; return what was sent alone."""
        claimed = await self.claim(route)
        await self.settle(*claimed.sends, *claimed.rest)
        return [(send.alert.event, send.stage) for send in claimed.sends]

    async def all(self) -> list[StoredAlert]:
        async with self.begin() as tx:
            return await self.records.list(tx)


@pytest.fixture
def book(adapter: str, request: pytest.FixtureRequest) -> Book:
    if adapter == "memory":
        now = [datetime(2026, 11, 16, tzinfo=UTC)]

        async def wait(seconds: float) -> None:
            now[0] += timedelta(seconds=seconds)

        return Book(MemoryAlertRecords(clock=lambda: now[0]), MemoryTransactions(), wait)
    database: Database = request.getfixturevalue("database")

    async def rewind(seconds: float) -> None:
        columns = {
            "alerts": ("first_at", "last_at", "ended_at"),
            "alert_sends": ("not_before", "sent_at"),
            "alert_destinations": ("minute_at", "not_before"),
            "alert_mutes": ("until",),
        }
        async with database.begin() as tx:
            for table, names in columns.items():
                changes = ", ".join(f"{name} = {name} - make_interval(secs => {seconds})" for name in names)
                await connection_of(tx).execute(f"update {table} set {changes}".encode())  # noqa: S608  # our own names

    return Book(PostgresAlerts(), database, rewind)


async def test_a_repeat_raises_the_count_of_the_one_open_row(book: Book) -> None:
    await book.report(BREAKER, AlertReport(event="breaker_opened", subject="telegram:other"))
    await book.report(
        AlertReport(event="breaker_opened", subject="telegram:bali", times=2, level=AlertLevel.CRITICAL, facts={"failures": 11})
    )
    found = {row.subject: row for row in await book.all()}
    assert {subject: (row.times, row.level, row.facts) for subject, row in found.items()} == {
        "telegram:bali": (3, AlertLevel.CRITICAL, {"failures": 11}),
        "telegram:other": (1, AlertLevel.WARNING, {}),
    }
    assert found["telegram:bali"].first_at <= found["telegram:bali"].last_at


async def test_three_processes_that_report_and_claim_at_once_make_one_row_and_one_message(book: Book) -> None:
    await asyncio.gather(*(book.report(BREAKER) for _ in range(3)))
    claims = await asyncio.gather(*(book.claim() for _ in range(3)))
    assert [row.times for row in await book.all()] == [3]
    [send] = [send for claimed in claims for send in claimed.sends]
    assert (send.alert.event, send.destination, send.stage, send.messages) == ("breaker_opened", "slack", AlertStage.RAISED, 0)


async def test_an_alert_that_arrived_is_not_sent_again_within_the_window_and_once_more_after_it(book: Book) -> None:
    await book.report(BREAKER)
    assert await book.send() == [("breaker_opened", "raised")]
    await book.report(BREAKER)
    assert await book.send() == []
    await book.passes(WINDOW_S + 1)
    assert await book.send() == [], "it was not repeated since the window ended"
    await book.report(BREAKER)
    claimed = await book.claim()
    assert [send.messages for send in claimed.sends] == [1]


async def test_each_destination_is_told_what_its_route_takes(book: Book) -> None:
    await book.report(BREAKER, AlertReport(event="kill_switch_engaged", level=AlertLevel.CRITICAL))
    urgent = AlertRoute(destination="pager", levels=frozenset({AlertLevel.CRITICAL}))
    chosen = AlertRoute(destination="chat", events=frozenset({"breaker_opened"}))
    assert await book.send(urgent) == [("kill_switch_engaged", "raised")]
    assert await book.send(chosen) == [("breaker_opened", "raised")]
    assert await book.send() == [("kill_switch_engaged", "raised"), ("breaker_opened", "raised")], "critical ones first"


async def test_a_sender_that_died_after_its_claim_is_replaced_and_settles_nothing_when_it_wakes(book: Book) -> None:
    await book.report(BREAKER)
    [mine] = (await book.claim()).sends
    assert (await book.claim()).sends == ()
    await book.passes(61)
    [other] = (await book.claim()).sends
    assert (mine.tries, other.tries) == (1, 2)
    assert await book.settle(mine) == 0
    assert await book.settle(other) == 1
    assert await book.settle(other) == 0
    assert await book.send() == []


async def test_after_a_failure_the_destination_has_a_pause_and_then_one_message_tries_it(book: Book) -> None:
    await book.report(BREAKER, AlertReport(event="disk_full"))
    claimed = await book.claim()
    await book.settle(*claimed.sends, failed="it answered 500", retry_in_s=30)
    assert await book.claim() == ClaimedSends()
    await book.report(AlertReport(event="queue_old"))
    await book.passes(31)
    claimed = await book.claim()
    assert (len(claimed.sends), len(claimed.rest), claimed.failures) == (0, 3, 1)
    await book.settle(*claimed.rest)
    assert await book.claim() == ClaimedSends()


async def test_more_alerts_than_a_minute_takes_are_summed_up_in_its_last_message(book: Book) -> None:
    route = AlertRoute(destination="slack", per_minute=3)
    await book.report(*(AlertReport(event="message_buried", subject=f"{number:04}") for number in range(1000)))
    claimed = await book.claim(route)
    assert (len(claimed.sends), len(claimed.rest)) == (2, 998)
    await book.settle(*claimed.sends, *claimed.rest)
    await book.report(BREAKER)
    assert await book.claim(route) == ClaimedSends(), "the minute is used up"
    await book.passes(61)
    assert await book.send(route) == [("breaker_opened", "raised")]


async def test_an_alert_ends_and_the_next_time_is_a_new_one(book: Book) -> None:
    await book.report(BREAKER)
    assert await book.send() == [("breaker_opened", "raised")]
    await book.report(AlertReport(event="breaker_opened", subject="telegram:bali", times=0, is_over=True))
    [ended] = await book.all()
    assert (ended.ended_by, ended.times) == ("hermes", 1)
    assert await book.send() == [], "this destination does not want to know"
    telling = AlertRoute(destination="slack", tells_end=True)
    assert await book.send(telling) == [("breaker_opened", "ended")]
    assert await book.send(telling) == []
    await book.report(BREAKER)
    assert await book.send(telling) == [("breaker_opened", "raised")]
    assert len(await book.all()) == 2


async def test_an_alert_that_comes_and_goes_is_told_once_in_a_window(book: Book) -> None:
    over = AlertReport(event="breaker_opened", subject="telegram:bali", times=0, is_over=True)
    sent = []
    for _ in range(3):
        await book.report(BREAKER)
        sent += await book.send()
        await book.report(over)
        await book.passes(60)
    assert sent == [("breaker_opened", "raised")]
    await book.report(AlertReport(event="breaker_opened", subject="telegram:other"))
    assert await book.send() == [("breaker_opened", "raised")], "another subject is another alert"
    await book.passes(WINDOW_S)
    assert await book.send() == [], "what happened within the window stays untold"
    await book.report(BREAKER)
    assert await book.send() == [("breaker_opened", "raised")]


async def test_an_alert_that_an_operator_ended_is_told_when_it_comes_again(book: Book) -> None:
    await book.report(BREAKER)
    await book.send()
    [row] = await book.all()
    async with book.begin() as tx:
        await book.records.end(tx, row.id, "ada")
    await book.report(BREAKER)
    assert await book.send() == [("breaker_opened", "raised")]


async def test_an_alert_that_happened_and_ended_before_any_claim_is_sent_all_the_same(book: Book) -> None:
    await book.report(AlertReport(event="breaker_opened", subject="telegram:bali", is_over=True))
    telling = AlertRoute(destination="slack", tells_end=True)
    assert await book.send(telling) == [("breaker_opened", "raised")]
    assert await book.send(telling) == [("breaker_opened", "ended")]


async def test_the_end_of_an_alert_that_is_not_open_changes_nothing(book: Book) -> None:
    await book.report(AlertReport(event="breaker_opened", times=0, is_over=True))
    assert await book.all() == []


async def test_a_quiet_alert_ends_after_the_window_and_is_deleted_later(book: Book) -> None:
    await book.report(BREAKER)
    async with book.begin() as tx:
        assert await book.records.end_quiet(tx, window_s=WINDOW_S) == 0
    await book.passes(WINDOW_S + 1)
    await book.report(AlertReport(event="disk_full"))
    async with book.begin() as tx:
        assert await book.records.end_quiet(tx, window_s=WINDOW_S) == 1
        assert [row.event for row in await book.records.list(tx, is_open=True)] == ["disk_full"]
    await book.passes(3 * 86_400)
    async with book.begin() as tx:
        assert await book.records.clean(tx, keep_s=4 * 86_400) == 0
        assert await book.records.clean(tx, keep_s=2 * 86_400) == 1
    assert [row.event for row in await book.all()] == ["disk_full"]


async def test_an_operator_ends_an_alert_once(book: Book) -> None:
    await book.report(BREAKER)
    [row] = await book.all()
    async with book.begin() as tx:
        ended = await book.records.end(tx, row.id, "ada")
        assert ended is not None
        assert ended.ended_by == "ada"
        assert await book.records.end(tx, row.id, "bob") == ended
        assert await book.records.end(tx, row.id + 1, "bob") is None


async def test_a_muted_alert_is_recorded_and_not_sent_until_the_mute_is_over(book: Book) -> None:
    async with book.begin() as tx:
        mute = await book.records.mute(tx, "breaker_opened", "", for_s=600, by="ada")
        assert await book.records.mutes(tx) == [mute]
    await book.report(BREAKER)
    assert await book.send() == []
    assert len(await book.all()) == 1
    await book.passes(601)
    assert await book.send() == [("breaker_opened", "raised")]
    async with book.begin() as tx:
        assert await book.records.unmute(tx, "breaker_opened", "") is False
        assert await book.records.mutes(tx) == []


async def test_a_mute_of_one_subject_leaves_the_others(book: Book) -> None:
    async with book.begin() as tx:
        await book.records.mute(tx, "breaker_opened", "telegram:bali", for_s=600, by="ada")
    await book.report(BREAKER, AlertReport(event="breaker_opened", subject="telegram:other"))
    assert [send.alert.subject for send in (await book.claim()).sends] == ["telegram:other"]
    async with book.begin() as tx:
        assert await book.records.unmute(tx, "breaker_opened", "telegram:bali") is True
    assert [send.alert.subject for send in (await book.claim()).sends] == ["telegram:bali"]


async def test_what_a_process_sent_without_the_store_is_not_sent_again_from_it(book: Book) -> None:
    await book.report(AlertReport(event="breaker_opened", sent_to=frozenset({"slack"})))
    assert await book.send() == []
    assert await book.send(AlertRoute(destination="pager")) == [("breaker_opened", "raised")]


async def test_a_message_that_fails_for_hours_arrives_and_after_a_day_it_is_old_news(book: Book) -> None:
    await book.report(BREAKER)
    claimed = await book.claim()
    await book.settle(*claimed.sends, failed="refused", retry_in_s=300)
    await book.passes(5 * WINDOW_S)
    assert await book.send() == [("breaker_opened", "raised")]
    await book.report(AlertReport(event="disk_full"))
    await book.claim()
    await book.passes(86_401)
    assert await book.claim() == ClaimedSends()


async def test_what_each_destination_was_told_is_known_and_pages_follow_each_other(book: Book) -> None:
    await book.report(BREAKER, AlertReport(event="disk_full"))
    claimed = await book.claim()
    first, second = claimed.sends
    await book.settle(first)
    await book.settle(second, failed="it answered 500", retry_in_s=30)
    async with book.begin() as tx:
        newest, oldest = await book.records.list(tx)
        told = {each.alert_id: each for each in await book.records.told(tx, [newest.id, oldest.id])}
        assert await book.records.told(tx, []) == []
        assert await book.records.list(tx, limit=1) == [newest]
        assert await book.records.list(tx, before=(newest.last_at, newest.id)) == [oldest]
        assert await book.records.list(tx, before=(oldest.last_at, oldest.id)) == []
    sent, failed = told[first.alert.id], told[second.alert.id]
    assert (sent.destination, sent.stage, sent.messages, sent.failed) == ("slack", AlertStage.RAISED, 1, None)
    assert sent.sent_at is not None
    assert (failed.sent_at, failed.messages, failed.tries, failed.failed) == (None, 0, 1, "it answered 500")
