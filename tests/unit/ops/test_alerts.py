"""The alerts of one process: the table of events, the bounded queue, and what a hostile caller can do with it."""

import ast
import asyncio
import gc
import json
import math
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from hermes.app.alerting import Alerting
from hermes.ops.alert_events import ALERT_KINDS, MAX_TEXT_CHARS, alerts_page, clean_fact, report_of
from hermes.ops.alert_sender import AlertSender
from hermes.ops.alert_text import message_about, summary_about
from hermes.ops.alerts import MAX_PENDING, AlertWriter, OperatorAlerts
from hermes.ops.metrics import LogAlerts, Metrics
from hermes.ports.alerts import AlertLevel, AlertReport, AlertSend, AlertStage, StoredAlert
from hermes.ports.errors import StoreUnavailable
from hermes.ports.runtime import Transaction
from hermes.tasks import end_tasks
from hermes.testing.memory import MemoryAlertRecords, MemoryAlerts, MemoryTransactions

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "hermes"


class Hostile:
    """An object whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def alert_events(tree: ast.Module) -> Iterator[str]:
    """The events of every call of `alert` and `end` on alerts; of a variable, every text that its function assigns to it."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in ast.walk(function):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in {"alert", "end"}:
                continue
            if not ast.unparse(call.func.value).endswith("alerts") or not call.args:
                continue
            match call.args[0]:
                case ast.Constant(value=str(event)):
                    yield event
                case ast.Name(id=name):
                    yield from texts_of(function, name)


def texts_of(function: ast.AST, name: str) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            yield from (found.value for found in ast.walk(node.value) if isinstance(found, ast.Constant) and isinstance(found.value, str))


def test_the_table_has_every_alert_that_the_source_raises() -> None:
    found = {event: path for path in SOURCE.rglob("*.py") for event in alert_events(ast.parse(path.read_text(encoding="utf-8")))}
    assert len(found) > 15
    assert {"breaker_opened", "channel_unauthorized", "soul_cache_not_invalidated", "kill_switch_engaged"} <= found.keys()
    assert {event: path.name for event, path in found.items() if event not in ALERT_KINDS} == {}


def test_the_table_of_the_page_is_the_table_of_the_source() -> None:
    page = (ROOT / "docs" / "operate" / "alerts.md").read_text(encoding="utf-8")
    assert alerts_page() in page, "write it again: python -c 'from hermes.ops.alert_events import alerts_page; print(alerts_page())'"


def test_the_subject_tells_the_alerts_of_one_event_apart() -> None:
    user = uuid4()
    eighty = report_of("budget_threshold", {"user_id": user, "window": "day", "period": "2026-11-16", "percent": 80, "limit_tokens": 5})
    whole = report_of("budget_threshold", {"user_id": None, "window": "cap", "period": "2026-11-16", "percent": 100})
    assert (eighty.subject, eighty.level) == (f"{user} day 2026-11-16 80", AlertLevel.WARNING)
    assert (whole.subject, whole.level) == ("cap 2026-11-16 100", AlertLevel.CRITICAL)
    assert report_of("breaker_opened", {"platform": "telegram", "account": "bali", "failures": 3}).subject == "telegram bali"


def test_only_listed_facts_leave_the_process_as_names_and_numbers() -> None:
    facts = {"platform": "tele\ngram\x00", "account": "b" * 1000, "failures": 10**30, "retries_in_s": math.nan, "resets_at": Hostile()}
    report = report_of("breaker_opened", {**facts, "text": "my password is hunter2", "token": "123:secret"})
    assert set(report.facts) == {"platform", "account", "failures", "retries_in_s", "resets_at"}
    assert report.facts["platform"] == "tele gram "
    assert len(str(report.facts["account"])) == MAX_TEXT_CHARS + 1
    assert "hunter2" not in repr(report)
    assert "secret" not in repr(report)
    json.dumps(report.facts, allow_nan=False)
    assert report.facts["resets_at"] == "Hostile"
    assert clean_fact("\ud800x") == " x"
    assert clean_fact(datetime(2026, 11, 16, tzinfo=UTC)) == "2026-11-16T00:00:00+00:00"


def test_an_alert_is_logged_counted_and_reported_and_never_raises() -> None:
    metrics = Metrics()
    alerts = OperatorAlerts(LogAlerts(metrics))
    alerts.alert("breaker_opened", platform=Hostile(), account="bali", failures=1, stack=[Hostile()], alert=Hostile())
    alerts.alert("never heard of", error=Hostile())
    assert metrics.registry.get_sample_value("hermes_alerts_total", {"event": "breaker_opened"}) == 1
    assert [(report.event, report.subject) for report in alerts.take()] == [("breaker_opened", "Hostile bali"), ("never heard of", "")]


def test_repeats_take_no_room_and_a_flood_is_bounded_and_counted() -> None:
    alerts = OperatorAlerts(MemoryAlerts())
    for number in range(5 * MAX_PENDING):
        alerts.alert("soul_cache_not_invalidated", user_id=str(number))
        alerts.alert("message_buried", attempt=number)
    assert alerts.pending == MAX_PENDING
    *kept, overflow = alerts.take()
    [buried] = [report for report in kept if report.event == "message_buried"]
    assert (buried.times, buried.facts) == (5 * MAX_PENDING, {"attempt": 5 * MAX_PENDING - 1})
    assert (overflow.event, overflow.times) == ("alerts_overflowed", 5 * MAX_PENDING - (MAX_PENDING - 1))
    assert alerts.take() == []


def test_an_end_and_a_new_beginning_keep_their_order() -> None:
    alerts = OperatorAlerts(MemoryAlerts())
    alerts.alert("breaker_opened", platform="telegram", account="bali", failures=10)
    alerts.end("breaker_opened", platform="telegram", account="bali")
    [report] = alerts.take()
    assert (report.times, report.is_over, report.facts["failures"]) == (1, True, 10)
    alerts.put_back([report])
    alerts.alert("breaker_opened", platform="telegram", account="bali", failures=11)
    [report] = alerts.take()
    assert (report.times, report.is_over, report.facts["failures"]) == (2, False, 11)


def test_alerts_of_other_threads_and_after_the_loop_was_closed_are_taken() -> None:
    alerts = OperatorAlerts(MemoryAlerts())
    records = MemoryAlertRecords()

    async def run() -> None:
        writing = asyncio.create_task(AlertWriter(alerts, MemoryTransactions(), records, pause_s=0.0).run())
        threads = [threading.Thread(target=alerts.alert, args=("message_buried",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        while sum(row.times for row in records.rows.values()) < 8:  # noqa: ASYNC110  # the records announce nothing
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    asyncio.run(run())
    gc.collect()
    alerts.alert("message_buried")
    threading.Thread(target=alerts.alert, args=("message_buried",)).start()
    assert {row.event: row.times for row in records.rows.values()} == {"message_buried": 8}


class AwayRecords(MemoryAlertRecords):
    """A store that is away until it is told."""

    is_away = True

    async def record(self, tx: Transaction, reports: object) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        await super().record(tx, reports)  # type: ignore[arg-type]


async def test_while_the_store_is_away_reports_wait_and_the_process_sends_them_itself() -> None:
    alerts, records, sent = OperatorAlerts(MemoryAlerts()), AwayRecords(), []

    async def send(reports: list[AlertReport]) -> dict[tuple[str, str], frozenset[str]]:
        sent.append([report.event for report in reports])
        return {(report.event, report.subject): frozenset({"slack"}) for report in reports}

    writer = AlertWriter(alerts, MemoryTransactions(), records, send_directly=send)  # type: ignore[arg-type]
    alerts.alert("message_buried", attempt=5)
    assert await writer.write() is False
    alerts.alert("message_buried", attempt=6)
    assert await writer.write() is False
    records.is_away = False
    assert await writer.write() is True
    [row] = records.rows.values()
    assert (row.times, row.facts) == (2, {"attempt": 6})
    assert {key[1]: send.sent_at is not None for key, send in records.sends.items()} == {"slack": True}
    assert sent == [["message_buried"], ["message_buried"]], "the sender itself counts the window"


async def test_a_writer_goes_on_after_a_fault_that_it_does_not_know() -> None:
    alerts, rounds, is_first, is_second = OperatorAlerts(MemoryAlerts()), list[int](), asyncio.Event(), asyncio.Event()

    def fail_once() -> None:
        rounds.append(1)
        if len(rounds) == 1:
            is_first.set()
            raise LookupError
        is_second.set()

    writer = AlertWriter(alerts, MemoryTransactions(), MemoryAlertRecords(), after_write=fail_once, pause_s=0, retry_s=0)
    writing = asyncio.create_task(writer.run())
    async with asyncio.timeout(10):
        alerts.alert("message_buried", attempt=5)
        await is_first.wait()
        alerts.alert("message_buried", attempt=6)
        await is_second.wait()
    await end_tasks(writing)


async def test_a_destination_that_hangs_while_the_store_is_away_delays_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.app.alerting.FLUSH_S", 0.05)
    alerts, asked = OperatorAlerts(MemoryAlerts()), list[int]()

    async def hang(reports: Sequence[AlertReport]) -> dict[tuple[str, str], frozenset[str]]:
        asked.append(len(reports))
        await asyncio.Event().wait()
        return {}

    records = AwayRecords()
    sender = AlertSender(MemoryTransactions(), records, [], window_s=60)
    async with asyncio.timeout(10):
        async with Alerting(alerts, records, sender, AlertWriter(alerts, MemoryTransactions(), records, send_directly=hang)).open():
            alerts.alert("message_buried", attempt=5)
    assert asked[-1] == 1


def test_messages_of_two_installations_have_different_ids_without_a_full_stop() -> None:
    """A receiver ignores an id that it has seen, and the specification forbids the sign that separates what is signed."""
    now = datetime(2026, 11, 16, 12, 0, 0, 5, tzinfo=UTC)
    row = {"id": 1, "event": "queue_old", "subject": "", "level": AlertLevel.CRITICAL, "facts": {}, "times": 1, "last_at": now}
    here, there = (
        AlertSend(alert=StoredAlert(**row, first_at=first_at), destination="d", stage=AlertStage.RAISED, tries=1, messages=0)  # type: ignore[arg-type]
        for first_at in (now, now - timedelta(microseconds=1))
    )
    ids = {message_about(here).id, message_about(there).id, summary_about([here], now).id, summary_about([there], now).id}
    assert len(ids) == 4
    assert not [one for one in ids if "." in one]


def test_the_budgets_of_an_agent_the_fleet_a_user_and_all_have_subjects_of_their_own() -> None:
    today = {"period": "2026-11-16", "percent": 100}
    reports = [
        report_of("budget_threshold", {"user_id": None, "window": "agent", "agent": "bali", **today}),
        report_of("budget_threshold", {"user_id": None, "window": "fleet", "agent": None, **today}),
        report_of("budget_threshold", {"user_id": None, "window": "cap", **today}),
        report_of("budget_threshold", {"user_id": "7", "window": "day", **today}),
    ]
    assert [(report.subject, report.level) for report in reports] == [
        ("bali agent 2026-11-16 100", AlertLevel.WARNING),
        ("fleet 2026-11-16 100", AlertLevel.CRITICAL),
        ("cap 2026-11-16 100", AlertLevel.CRITICAL),
        ("7 day 2026-11-16 100", AlertLevel.WARNING),
    ]


@pytest.mark.parametrize("event", sorted(ALERT_KINDS))
def test_every_alert_says_what_it_means_and_what_to_do(event: str) -> None:
    kind = ALERT_KINDS[event]
    assert kind.meaning.endswith(".")
    assert kind.advice.endswith(".")
    assert not set(kind.subject) & set(kind.facts)
