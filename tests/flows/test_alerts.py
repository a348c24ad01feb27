"""Alerts from the call to the receiver, on the real database: floods, a receiver that is down, a database that is away, the watch."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hermes.app.alerting import destinations_from
from hermes.app.catalogue import refuse_no_model
from hermes.app.packs import script_from
from hermes.app.root import open_hermes
from hermes.app.watching import watch_over
from hermes.backends import ScriptedBackend
from hermes.config import (
    AlertKindSetting,
    AlertLevelSetting,
    AlertSettings,
    BackendSettings,
    Environment,
    NamedTables,
    Secret,
    Settings,
    TierSettings,
    WatchSettings,
)
from hermes.gateway.catalogue import DEFAULT_CATALOGUE, ModelCatalogue, Tier
from hermes.gateway.model_health import ModelHealth, NoUsableModel
from hermes.http_client import HttpClient
from hermes.ops.alert_sender import AlertSender, RoutedDestination
from hermes.ops.alerts import AlertWriter, OperatorAlerts
from hermes.ops.disk import DiskWatch
from hermes.ops.metrics import LogAlerts, Metrics
from hermes.ops.watcher import Watcher, WatchLimits
from hermes.ports.alerts import AgentHourSpend, StoredAlert, WatchFigures, WellPlace
from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.alerts import PostgresAlerts
from hermes.stores.postgres.database import Database, connection_of, open_database
from hermes.stores.postgres.watch import PostgresWatch
from hermes.stores.seal import new_master_key
from hermes.testing.memory import MemoryAlertRecords, MemoryAlerts, MemoryTransactions
from hermes.web.server import state_of, web_services_from
from tests.fakes.alert_receivers import CHAT, DISCORD_PATH, SECRET, SECRETS, SLACK_PATH, TOKEN, AlertReceivers, open_receivers
from tests.flows.service import running


@pytest.fixture
async def receivers() -> AsyncIterator[AlertReceivers]:
    async with open_receivers() as receivers:
        yield receivers
        assert receivers.refused == []


def destinations_at(url: str, **options: Any) -> NamedTables[AlertSettings]:
    return NamedTables(
        {
            "slack": AlertSettings(url=Secret(url + SLACK_PATH), **options),
            "discord": AlertSettings(url=Secret(url + DISCORD_PATH), **options),
            "chat": AlertSettings(kind=AlertKindSetting.TELEGRAM, token=Secret(TOKEN), chat=CHAT, url=Secret(url), **options),
            "webhook": AlertSettings(url=Secret(f"{url}/hook"), secret=Secret(SECRET), **options),
        }
    )


@dataclass
class Desk:
    """The alerts of one process on the real database."""

    database: Database
    receivers: AlertReceivers
    settings: Settings
    client: HttpClient = field(default_factory=HttpClient)

    def __post_init__(self) -> None:
        self.records, self.alerts = PostgresAlerts(), OperatorAlerts(LogAlerts(Metrics()))
        self.sender = AlertSender(self.database, self.records, destinations_from(self.settings, self.client), window_s=3600, timeout_s=5)
        self.writer = AlertWriter(self.alerts, self.database, self.records, send_directly=self.sender.send_directly)

    @property
    def slack(self) -> RoutedDestination:
        return next(each for each in self.sender.destinations if each.route.destination == "slack")

    async def send_all(self) -> int:
        return sum([await self.sender.send_due(each) for each in self.sender.destinations])

    async def passes(self, seconds: float) -> None:
        """Let this time pass for the destinations."""
        async with self.database.begin() as tx:
            for change in (
                "update alert_destinations set minute_at = minute_at - %(by)s, not_before = not_before - %(by)s",
                "update alert_sends set not_before = not_before - %(by)s, sent_at = sent_at - %(by)s",
                "update alerts set first_at = first_at - %(by)s, last_at = last_at - %(by)s, ended_at = ended_at - %(by)s",
            ):
                await connection_of(tx).execute(change.encode(), {"by": timedelta(seconds=seconds)})

    async def listed(self) -> list[StoredAlert]:
        async with self.database.begin() as tx:
            return await self.records.list(tx, limit=5_000)


@pytest.fixture
async def desk(database: Database, receivers: AlertReceivers) -> AsyncIterator[Desk]:
    made = Desk(database, receivers, Settings(alerts=destinations_at(receivers.url)))
    yield made
    await made.client.aclose()


async def test_an_alert_arrives_at_all_four_with_its_meaning_and_advice(desk: Desk) -> None:
    desk.alerts.alert("breaker_opened", platform="telegram", account="bali", failures=10, resets_at="12:34", text="a user's words")
    assert await desk.writer.write()
    assert await desk.send_all() == 4
    [message] = desk.receivers.arrived["telegram"]
    first, meaning, facts, advice, times = message["text"].splitlines()
    assert first == "Hermes: warning: breaker_opened (telegram bali)"
    assert (meaning[:8], facts, advice[:12]) == (
        "Too many",
        "platform: telegram, account: bali, failures: 10, resets_at: 12:34",
        "What to do: ",
    )
    assert times.startswith("Once since ")
    [webhook] = desk.receivers.arrived["webhook"]
    assert (webhook["data"]["event"], webhook["data"]["subject"], webhook["data"]["times"]) == ("breaker_opened", "telegram bali", 1)
    assert "a user's words" not in repr(desk.receivers.arrived)


async def test_a_thousand_alerts_in_a_second_are_ten_messages_and_the_last_sums_up_the_rest(desk: Desk) -> None:
    for number in range(1_500):
        desk.alerts.alert("soul_cache_not_invalidated", user_id=str(number), exposure_s=3600)
    desk.alerts.alert("kill_switch_engaged", by="ada")
    assert desk.alerts.pending == 1_000
    assert await desk.writer.write()
    assert await desk.sender.send_due(desk.slack) == 10
    assert await desk.sender.send_due(desk.slack) == 0
    *alone, summary = [body["text"] for body in desk.receivers.arrived["slack"]]
    assert [text.splitlines()[0] for text in alone[:2]] == [
        "Hermes: critical: kill_switch_engaged",
        "Hermes: warning: alerts_overflowed",
    ]
    assert len(alone) == 9
    assert summary.splitlines()[:2] == ["Hermes: warning: 992 further alerts", "992 soul_cache_not_invalidated"]
    rows = await desk.listed()
    assert len(rows) == 1_001, "the overflow has a row of its own"
    assert {row.event: row.times for row in rows}["alerts_overflowed"] == 501
    await desk.passes(61)
    assert await desk.sender.send_due(desk.slack) == 0


async def test_a_receiver_that_is_down_for_minutes_gets_the_message_once_when_it_is_back(desk: Desk) -> None:
    desk.receivers.is_down = True
    desk.alerts.alert("channel_unauthorized", platform="telegram", account="bali")
    await desk.writer.write()
    waits = []
    for _ in range(5):
        assert await desk.sender.send_due(desk.slack) == 0
        assert await desk.sender.send_due(desk.slack) == 0, "not before the pause is over"
        async with desk.database.begin() as tx:
            found = await (
                await connection_of(tx).execute(
                    "select extract(epoch from not_before - clock_timestamp())::float8 from alert_destinations where destination = 'slack'"
                )
            ).fetchone()
        assert found is not None
        waits.append(found[0])
        await desk.passes(found[0] + 0.01)
    assert len(desk.receivers.asked) == 5
    assert [nominal * 0.7 < wait < nominal * 1.3 for nominal, wait in zip((5, 10, 20, 40, 80), waits, strict=True)] == [True] * 5
    desk.alerts.alert("channel_unauthorized", platform="telegram", account="bali")
    await desk.writer.write()
    desk.receivers.is_down = False
    assert await desk.sender.send_due(desk.slack) == 1
    assert await desk.sender.send_due(desk.slack) == 0
    [body] = desk.receivers.arrived["slack"]
    assert "2 times since" in body["text"]


async def test_one_receiver_that_is_down_delays_no_other(desk: Desk) -> None:
    broken = AlertSettings(url=Secret("http://127.0.0.1:1/services/slack-secret"))
    settings = Settings(
        alerts=NamedTables({"broken": AlertSettings(kind=AlertKindSetting.SLACK, url=broken.url), **destinations_at(desk.receivers.url)})
    )
    other = Desk(desk.database, desk.receivers, settings, desk.client)
    sending = asyncio.create_task(other.sender.run())
    other.alerts.alert("kill_switch_engaged", by="ada")
    await other.writer.write()
    other.sender.wake()
    for name in ("slack", "discord", "telegram", "webhook"):
        await desk.receivers.wait_for(name, 1)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    async with desk.database.begin() as tx:
        rows = await (await connection_of(tx).execute("select destination, failed from alert_sends where sent_at is null")).fetchall()
    assert [row for row in rows if row[0] != "broken"] == []
    assert not [secret for secret in SECRETS if secret in repr(rows)]


async def test_without_the_database_a_process_sends_once_in_a_window_and_not_again_when_it_is_back(
    database: Database, database_url: str, receivers: AlertReceivers
) -> None:
    settings = Settings(alerts=destinations_at(receivers.url, per_minute=3))
    async with open_database(database_url, connect_timeout_s=0.2) as closed:
        desk = Desk(closed, receivers, settings)
    for number in range(5):
        desk.alerts.alert("soul_cache_not_invalidated", user_id=str(number))
    desk.alerts.alert("kill_switch_engaged", by="ada")
    assert not await desk.writer.write()
    desk.alerts.alert("kill_switch_engaged", by="ada")
    assert not await desk.writer.write()
    for name in ("slack", "discord", "telegram", "webhook"):
        assert len(receivers.arrived[name]) == 3, "two alerts, and one that sums up four"
    back = Desk(database, receivers, settings, desk.client)
    assert await AlertWriter(desk.alerts, database, back.records).write()
    assert await back.send_all() == 0
    assert {row.event: row.times for row in await back.listed() if row.event == "kill_switch_engaged"} == {"kill_switch_engaged": 2}
    await desk.client.aclose()


async def test_a_destination_with_a_filter_gets_its_own_and_is_told_the_end(database: Database, receivers: AlertReceivers) -> None:
    urgent = destinations_at(receivers.url, min_level=AlertLevelSetting.CRITICAL, resolved=True)
    desk = Desk(database, receivers, Settings(alerts=NamedTables({"slack": urgent["slack"]})))
    desk.alerts.alert("breaker_opened", platform="telegram", account="bali")
    desk.alerts.alert("channel_unauthorized", platform="telegram", account="bali")
    await desk.writer.write()
    assert await desk.send_all() == 1
    desk.alerts.end("channel_unauthorized", platform="telegram", account="bali")
    await desk.writer.write()
    assert await desk.send_all() == 1
    assert [body["text"].splitlines()[0] for body in receivers.arrived["slack"]] == [
        "Hermes: critical: channel_unauthorized (telegram bali)",
        "Hermes: ended: channel_unauthorized (telegram bali)",
    ]
    await desk.client.aclose()


# --- the watch


LIMITS = WatchLimits(
    window_s=3600, keep_s=86_400, queue_age_s=60, failed_percent=10, failed_within_s=900, failed_min=5, dead_letters=20, spend_factor=6
)


@dataclass
class Watched:
    """Figures that a test sets."""

    figures: WatchFigures = field(default_factory=WatchFigures)

    async def read(self, tx: Transaction, *, failed_within_s: float) -> WatchFigures:  # the port's
        return self.figures


@dataclass
class WatchHouse:
    """A watcher on the records of memory: what it raises is written at once."""

    watched: Watched = field(default_factory=Watched)
    records: MemoryAlertRecords = field(default_factory=MemoryAlertRecords)
    alerts: OperatorAlerts = field(default_factory=lambda: OperatorAlerts(MemoryAlerts()))

    async def look(self, **figures: Any) -> dict[str, int]:
        """Look at these figures; return the open alerts with their times."""
        return await self.look_later(0, **figures)

    async def look_later(self, seconds: float, **figures: Any) -> dict[str, int]:
        """The same at a later time."""
        await AlertWriter(self.alerts, MemoryTransactions(), self.records).write()
        self.watched.figures = WatchFigures(**figures)
        later = datetime.now(UTC) + timedelta(seconds=seconds)
        await Watcher(MemoryTransactions(), self.watched, self.records, self.alerts, LIMITS).look(later)
        await AlertWriter(self.alerts, MemoryTransactions(), self.records).write()
        return {f"{row.event} {row.subject}".strip(): row.times for row in self.records.rows.values() if row.ended_at is None}


async def test_an_alert_begins_above_its_limit_and_ends_well_below_it() -> None:
    house = WatchHouse()
    assert await house.look(waiting=3, oldest_s=60.0) == {}
    assert await house.look(waiting=3, oldest_s=61.0) == {"queue_old": 1}
    assert await house.look(waiting=3, oldest_s=50.0) == {"queue_old": 2}, "not yet well below"
    assert await house.look(waiting=3, oldest_s=47.0) == {}
    assert await house.look(waiting=3, oldest_s=50.0) == {}, "not above yet"


async def test_each_figure_has_its_alert() -> None:
    house = WatchHouse()
    assert await house.look(turns=10, failed=4) == {}, "too few to say"
    assert await house.look(turns=40, failed=5) == {"failures_high": 1}
    assert await house.look(turns=400, failed=5, new_dead_letters=21, dead_letters=300) == {"dead_letters_growing": 1}
    hour = datetime(2026, 11, 16, 12, tzinfo=UTC)
    spends = [
        AgentHourSpend("bali", hour, 600_001, 100_000),
        AgentHourSpend("quiet", hour, 90_000, 1),
        AgentHourSpend("usual", hour, 500_000, 100_000),
    ]
    assert await house.look(spends=spends) == {"agent_spend_unusual bali": 1}
    assert await house.look(failing_chores={"reminders": "KeyError"}) == {"agent_spend_unusual bali": 1, "chore_failing reminders": 1}
    assert await house.look(failing_chores={}) == {"agent_spend_unusual bali": 1}
    stopped = {"kill_switch": {"by": "ada", "reason": "trial"}}
    assert await house.look(**stopped) == {"agent_spend_unusual bali": 1, "kill_switch_engaged": 1}
    assert await house.look(**stopped) == {"agent_spend_unusual bali": 1, "kill_switch_engaged": 2}, "as long as it is on"
    assert await house.look() == {"agent_spend_unusual bali": 1}


async def test_the_alerts_of_a_process_end_when_it_is_well_again_or_replaced() -> None:
    house = WatchHouse()
    now = datetime.now(UTC)
    for event in ("process_stalled", "process_died", "process_crash_loop"):
        house.alerts.alert(event, role="worker", host="a", pid=7, restarts=1)
    opened = {f"{event} worker a": 1 for event in ("process_stalled", "process_died", "process_crash_loop")}
    well = {"well_places": [WellPlace("worker", "a", now)]}
    assert await house.look(well_places=[WellPlace("worker", "b", now), WellPlace("serve", "a", now)]) == opened
    assert await house.look(**well) == {"process_died worker a": 1, "process_crash_loop worker a": 1}, "those may be repeated soon"
    assert await house.look_later(60, **well) == {"process_crash_loop worker a": 1}
    assert await house.look_later(180, well_places=[WellPlace("worker", "a", now - timedelta(hours=1))]) == {
        "process_crash_loop worker a": 1
    }, "none started since"
    assert await house.look_later(180, **well) == {}


def test_a_disk_that_fills_up_is_reported_until_it_is_mended() -> None:
    alerts, used = MemoryAlerts(), [89]
    disk = DiskWatch(Path("/nowhere/at/all"), alerts, limit_percent=90, usage=lambda _: (100, used[0], 100 - used[0]))
    for percent in (89, 91, 89, 87, 89):
        used[0] = percent
        disk.look()
    assert [(event, facts["used_percent"]) for event, facts in alerts.alerts] == [("disk_nearly_full", 91.0), ("disk_nearly_full", 89.0)]
    assert [event for event, _ in alerts.ended] == ["disk_nearly_full"]


async def test_the_figures_are_those_of_the_tables(database: Database) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    statements = (
        "set local session_replication_role = replica",
        """insert into inbox (turn_id, account_id, event_key, conversation_id, user_id, seq, envelope, state, attempts, received_at)
        select gen_random_uuid(), 'bali', n::text, gen_random_uuid(), gen_random_uuid(), n, '', s, a, now() - make_interval(secs => age)
        from (values (1, 'waiting', 0, 100), (2, 'waiting', 1, 900), (3, 'done', 0, 900), (4, 'waiting', 0, 10)) as m (n, s, a, age)""",
        """insert into interactions (turn_id, account_id, user_id, session_id, platform, meta, created_at)
        select gen_random_uuid(), 'bali', gen_random_uuid(), gen_random_uuid(), 'rest', jsonb_build_object('outcome', o), now() - age
        from (values ('answered', interval '1 s'), ('retry_later', interval '1 s'), ('apologised', interval '5 min'),
            ('upgrade', interval '5 min'), ('retry_later', interval '20 min')) as t (o, age)""",
        """insert into chores (name, held_until, failed)
        values ('reminders', now(), 'KeyError'), ('dreams', now(), null), ('watch', now(), 'StoreUnavailable')""",
        "insert into kill_latch (by, reason) values ('ada', 'trial')",
        """insert into processes (id, role, host, pid, version, started_at, beat_at, stalled_at, stopped_at)
        select gen_random_uuid(), role, host, 7, '1', '2026-01-01', now() - age, case when is_stalled then now() end, stopped
        from (values ('worker', 'a', interval '1 s', false, null), ('worker', 'a', '1 minute', false, now()),
            ('worker', 'a', '10 minutes', true, null), ('worker', 'b', '1 s', false, null), ('worker', 'b', '1 minute', true, null),
            ('command', 'c', '1 s', false, null)) as p (role, host, age, is_stalled, stopped)""",
    )
    spent = """insert into spend_hours (hour, account_id, agent, tier, purpose, model, calls, failed, refused, cache_hits, fell_over,
        tokens_in, tokens_out, cache_read, micro_usd, latency_ms)
        select %(hour)s - make_interval(hours => n), 'bali', 'waiter', 'pro', 'answer', 'm', 1, 0, 0, 0, 0, 1, 1, 0,
            case n when 0 then 700 else 100 end, 1
        from generate_series(0, 20) as n"""
    async with database.begin() as tx:
        for statement in statements:
            await connection_of(tx).execute(statement.encode())
        await connection_of(tx).execute(spent.encode(), {"hour": hour})
    async with database.begin() as tx:
        figures = await PostgresWatch().read(tx, failed_within_s=900)
    assert (figures.waiting, figures.turns, figures.failed, figures.dead_letters) == (2, 4, 2, 0)
    assert 99 < figures.oldest_s < 200
    assert figures.failing_chores == {"reminders": "KeyError"}, "the watch itself does not fail while it looks"
    assert figures.kill_switch == {"by": "ada", "reason": "trial"}
    assert figures.well_places == [WellPlace("worker", "a", datetime(2026, 1, 1, tzinfo=UTC))], "the one killed ten minutes ago is gone"
    assert figures.spends == [AgentHourSpend("waiter", hour, 700, 100)]


# --- a whole Hermes


async def test_the_kill_switch_of_a_whole_hermes_arrives_and_is_ended(
    database_url: str, redis_url: str, receivers: AlertReceivers, tmp_path: Path
) -> None:
    settings = Settings(
        home=tmp_path,
        database_url=Secret(database_url),
        redis_url=Secret(redis_url),
        alerts=destinations_at(receivers.url, resolved=True),
        watch=WatchSettings(window_s=600),
    )
    async with open_hermes(settings) as hermes, watch_over(hermes, does_chore=True):
        await hermes.spend.kill_switch("the bill explodes", "ada")
        [body] = await receivers.wait_for("slack", 1)
        assert "by: ada, reason: the bill explodes" in body["text"]
        await hermes.spend.release("ada")
        bodies = await receivers.wait_for("slack", 3)
        assert {each["text"].splitlines()[0] for each in bodies[1:]} == {
            "Hermes: warning: kill_switch_released",
            "Hermes: ended: kill_switch_engaged",
        }


async def test_three_whole_workers_make_one_row_and_one_message_of_what_each_of_them_reports(
    database_url: str, redis_url: str, receivers: AlertReceivers, database: Database
) -> None:
    """Check 22 of the console: each worker reports the same open breaker, and each has its own sender."""
    more = {"alerts": destinations_at(receivers.url), "watch": WatchSettings(window_s=600)}
    async with AsyncExitStack() as stack:
        workers = []
        for _ in range(3):
            hermes = (await stack.enter_async_context(running(database_url, redis_url, more=more))).hermes
            await stack.enter_async_context(watch_over(hermes))  # as `hermes worker` does
            workers.append(hermes.adapters)
        for worker in workers:
            worker.alerts.alert("breaker_opened", platform="telegram", account="bali")
        await receivers.wait_for("slack", 1)
        async with asyncio.timeout(20):
            while await rows(database, "select sum(times) from alerts") != [(3,)]:  # noqa: ASYNC110  # rows ring no bell
                await asyncio.sleep(0.05)
        for _ in range(3):
            for worker in workers:
                worker.alerting.sender.wake()
            await asyncio.sleep(0.2)
        assert await rows(database, "select event, subject, times from alerts") == [("breaker_opened", "telegram bali", 3)]
        assert [len(messages) for messages in receivers.arrived.values()] == [1, 1, 1, 1]
        # Any of them sends: with the others asleep, the one that is left sends the next.
        for number, worker in enumerate(workers):
            worker.alerts.alert("breaker_opened", platform="telegram", account=f"shop {number}")
            assert len(await receivers.wait_for("slack", 2 + number)) == 2 + number


async def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    async with database.once() as tx:
        return await (await connection_of(tx).execute(query.encode())).fetchall()


async def test_a_command_that_ends_at_once_still_writes_its_alert(
    database_url: str, redis_url: str, database: Database, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path, database_url=Secret(database_url), redis_url=Secret(redis_url))
    async with open_hermes(settings) as hermes:
        hermes.adapters.alerts.alert("kill_switch_engaged", by="ada")
    async with database.begin() as tx:
        assert [row.event for row in await PostgresAlerts().list(tx)] == ["kill_switch_engaged"]


async def test_with_sick_models_hermes_starts_alerts_and_is_degraded(
    database_url: str, redis_url: str, receivers: AlertReceivers, tmp_path: Path
) -> None:
    settings = Settings(
        environment=Environment.PRODUCTION,
        master_keys=(Secret(new_master_key()),),
        home=tmp_path,
        database_url=Secret(database_url),
        redis_url=Secret(redis_url),
        backends=NamedTables({"anthropic": BackendSettings(base_url="http://127.0.0.1:1", api_key=Secret("sk-wrong-key"))}),
        tiers=NamedTables({"starter": TierSettings(chain=("claude-haiku",))}),
        alerts=destinations_at(receivers.url),
    )
    refuse_no_model(settings)
    async with open_hermes(settings) as hermes, watch_over(hermes):
        [body] = await receivers.wait_for("telegram", 1)
        assert "no_usable_model" in body["text"]
        assert "cannot connect" in body["text"]
        assert "sk-wrong-key" not in repr(receivers.arrived)
        services = web_services_from(hermes)
        states = {name: await state_of(probe) for name, probe in services.probes.items()}
        assert states.items() >= {"postgres": "ok", "redis": "ok", "models": "down: NoUsableModel"}.items()
        assert "models" not in services.needed


async def test_a_model_that_answers_again_ends_the_alert() -> None:
    alerts, now, findings = MemoryAlerts(), [0.0], [BackendFinding("key", FindingLevel.ERROR, "the key is refused")]
    asked = []

    class SickBackend(ScriptedBackend):
        """A backend whose health a test sets."""

        async def health_check(self, *, timeout_s: float = 5.0) -> list[BackendFinding]:  # the port's
            asked.append(now[0])
            return findings

    catalogue = ModelCatalogue({"free": Tier(("claude-haiku",), 1)}, DEFAULT_CATALOGUE.models)
    backend = SickBackend(script_from([]), name="anthropic")
    health = ModelHealth(catalogue, {"anthropic": backend}, alerts, Metrics(), checkable=["anthropic"], timer=lambda: now[0])
    await health.probe()
    await health.look()
    with pytest.raises(NoUsableModel, match="the key is refused"):
        await health.probe()
    assert [event for event, _ in alerts.alerts] == ["no_usable_model"]
    findings.clear()
    now[0] = 60
    await health.look()
    await health.probe()
    assert [event for event, _ in alerts.ended] == ["no_usable_model"]
    assert asked == [0.0, 60.0]
