"""How a turn went: ten steps in plot order with their times, and every attempt with its end, its step and its worker.

On both adapters. The pipeline is the real one; the stores that a timeline does not need are in memory."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.ports.errors import ClaimLost, StoreUnavailable
from hermes.ports.inbox import Claim, Inbox
from hermes.ports.models import ChainFailed
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.sessions import Journal
from hermes.ports.timeline import PLOT, AttemptEnd, RunRecord, TurnTimeline, TurnTimelines, build_timeline
from hermes.router.effects import EffectResult, run_once
from hermes.router.services import Services
from hermes.router.turns import MessageUnreadable, TurnLimits, TurnRunner
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.journal import PostgresJournal, PostgresTimelines
from hermes.stores.postgres.keyring import Keyring
from hermes.testing.memory import MemoryInbox, MemoryJournal, MemoryTimelines, RouterHarness
from tests.contract.turns import Turns, on_postgres
from tests.unit.router.test_pipeline import CALLS, house


@dataclass
class Drive:
    """Drives turns on one adapter, as workers that each have an id of their own."""

    turns: Turns
    journal: Journal
    timelines: TurnTimelines
    made: RouterHarness

    def services(self, worker: UUID) -> Services:
        parts = {"transactions": self.turns.transactions, "inbox": self.turns.inbox, "journal": self.journal, "people": self.turns.people}
        return replace(self.made.services, process_id=worker, **parts)

    async def run(self, turn_id: UUID, *, worker: UUID | None = None, limits: TurnLimits | None = None, **parts: Any) -> None:
        services = replace(self.services(worker or uuid4()), **parts)
        self.made.credits.available.setdefault(await self.user_of(turn_id), 3)
        await TurnRunner(services, limits or TurnLimits()).run(turn_id)

    async def user_of(self, turn_id: UUID) -> UUID:
        async with self.turns.transactions.begin() as tx:
            message = await self.turns.inbox.message_of(tx, turn_id)
        assert message is not None
        return message.user_id

    async def timeline(self, turn_id: UUID) -> TurnTimeline:
        async with self.turns.transactions.begin() as tx:
            found = await self.timelines.read(tx, turn_id)
        assert found is not None
        return found


@pytest.fixture
def made() -> RouterHarness:
    return house("Hello!", "Again!")


@pytest.fixture
def drive(turns: Turns, inbox: Inbox, keyring: Keyring, made: RouterHarness) -> Drive:
    if isinstance(inbox, MemoryInbox):
        return Drive(turns, MemoryJournal(inbox=inbox), MemoryTimelines(inbox), made)
    return Drive(turns, PostgresJournal(keyring), PostgresTimelines(), made)


class Failing:
    """A soul that cannot be loaded, once for each error."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def load(self, *values: Any, **named: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return await house().souls.load(*values, **named)


async def test_a_turn_has_its_ten_steps_in_plot_order_with_begin_and_duration(drive: Drive) -> None:
    turn_id, worker = await drive.turns.accept(), uuid4()
    await drive.run(turn_id, worker=worker)
    timeline = await drive.timeline(turn_id)
    [attempt] = timeline.attempts
    assert (timeline.state, attempt.end, attempt.attempt, attempt.worker, attempt.step) == ("done", AttemptEnd.ENDED, 1, worker, None)
    assert [step.step for step in attempt.steps] == list(PLOT)
    times = [(step.began_us, step.us) for step in attempt.steps]
    assert all(began is not None and us is not None and began >= 0 and us >= 0 for began, us in times)
    ends = [(began or 0) + (us or 0) for began, us in times]
    assert all(end <= (after[0] or 0) for end, after in zip(ends, times[1:], strict=False)), "one step after the other"
    [effect] = next(step for step in attempt.steps if step.step == "call_model").effects
    assert (effect.type, effect.facts["backend"], effect.has_content) == ("llm_called", "anthropic", True)
    assert effect.done_at is not None
    assert (effect.done_at >= effect.started_at, (effect.us or 0) > 0) == (True, True)
    assert [event.type for event in attempt.events] == ["credit_posted"]
    assert timeline.later == []


async def test_the_times_of_all_events_lie_between_the_claim_and_the_end(drive: Drive) -> None:
    turn_id = await drive.turns.accept()
    await drive.run(turn_id)
    [attempt] = (await drive.timeline(turn_id)).attempts
    assert attempt.began_at is not None
    async with drive.turns.transactions.begin() as tx:
        events = await drive.journal.read(tx, turn_id)
    last = max(event.done_at for event in events if event.done_at)
    for event in events:
        assert event.done_at is not None
        # The worker's monotonic clock and the store's clock are two clocks: they may differ by a few microseconds here.
        assert attempt.began_at - timedelta(milliseconds=5) <= event.started_at <= event.done_at <= last


async def test_the_order_of_the_rows_does_not_matter(drive: Drive) -> None:
    turn_id = await drive.turns.accept()
    await drive.run(turn_id)
    expected = await drive.timeline(turn_id)
    async with drive.turns.transactions.begin() as tx:
        events = list(await drive.journal.read(tx, turn_id))
    [attempt] = expected.attempts
    assert attempt.epoch is not None
    run = RunRecord(state="done", epoch=attempt.epoch, attempt=1, worker=None, claimed_at=None)
    for seed in range(20):
        shuffled = random.Random(seed).sample(events, len(events))
        assert build_timeline(turn_id, run, shuffled).attempts[0].steps == attempt.steps


async def test_steps_that_a_turn_did_not_reach_are_absent_and_the_one_that_raised_has_its_error(drive: Drive) -> None:
    turn_id, made = await drive.turns.accept(), house(ChainFailed((), None))
    await drive.run(turn_id, models=made.models)
    [attempt] = (await drive.timeline(turn_id)).attempts
    assert [step.step for step in attempt.steps] == [*PLOT[:8], "record"]
    assert [(step.step, step.error) for step in attempt.steps if step.error] == [("call_model", "ChainFailed")]
    assert (attempt.end, attempt.step, attempt.error) == (AttemptEnd.ENDED, "call_model", "ChainFailed")
    assert all((step.us or 0) >= 0 and step.began_us is not None for step in attempt.steps)


async def test_tools_and_the_second_call_belong_to_the_step_that_made_them(drive: Drive) -> None:
    turn_id, made = await drive.turns.accept("a sunset bar"), house(CALLS, "Try Old Man's.")
    await drive.run(turn_id, models=made.models)
    [attempt] = (await drive.timeline(turn_id)).attempts
    found = {step.step: [(effect.name, effect.index) for effect in step.effects] for step in attempt.steps if step.effects}
    assert found == {"call_model": [("call_model", 0)], "run_tools": [("run_tools", 0), ("call_model", 1)]}


async def test_an_attempt_that_failed_is_told_with_its_step_its_error_and_its_worker(drive: Drive) -> None:
    turn_id, first, second = await drive.turns.accept(), uuid4(), uuid4()
    souls = Failing(LookupError("a secret of the user"))
    with pytest.raises(LookupError):
        await drive.run(turn_id, worker=first, souls=souls)
    await drive.run(turn_id, worker=second, souls=souls)
    failed, ended = (await drive.timeline(turn_id)).attempts
    assert (failed.attempt, failed.end, failed.step, failed.error) == (1, AttemptEnd.FAILED, "load_soul", "LookupError")
    assert (failed.worker, ended.worker) == (first, second)
    reached = [("resolve_user", None), ("take_credit", None), ("load_soul", "LookupError")]
    assert [(step.step, step.error) for step in failed.steps] == reached
    assert (ended.attempt, ended.end, [step.step for step in ended.steps]) == (2, AttemptEnd.ENDED, list(PLOT))
    async with drive.turns.transactions.begin() as tx:
        assert "secret" not in str(await drive.journal.read(tx, turn_id))


async def test_attempts_that_were_not_counted_are_told_apart(drive: Drive) -> None:
    turn_id, souls = await drive.turns.accept(), Failing(StoreUnavailable("down"), StoreUnavailable("down"))
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await drive.run(turn_id, souls=souls)
    await drive.run(turn_id, souls=souls)
    attempts = (await drive.timeline(turn_id)).attempts
    assert [(attempt.attempt, attempt.end, len(attempt.steps)) for attempt in attempts] == [
        (1, AttemptEnd.FAILED, 3),
        (1, AttemptEnd.FAILED, 3),
        (1, AttemptEnd.ENDED, 10),
    ]
    assert len({attempt.epoch for attempt in attempts}) == 3


async def test_a_worker_that_was_killed_is_told_by_the_next_claim(drive: Drive) -> None:
    turn_id, killed, second = await drive.turns.accept(), uuid4(), uuid4()
    async with drive.turns.transactions.begin() as tx:
        claim = await drive.turns.inbox.claim(tx, turn_id, worker=killed)
        assert isinstance(claim, Claim)
        await drive.journal.begin(tx, claim, "call_model", 0, b"{}")
    running = (await drive.timeline(turn_id)).attempts
    assert [(attempt.end, attempt.worker) for attempt in running] == [(AttemptEnd.RUNNING, killed)]
    assert [(step.step, step.us, len(step.effects)) for step in running[0].steps] == [("call_model", None, 1)], "what it is at now"
    async with drive.turns.transactions.begin() as tx:
        await drive.turns.inbox.claim(tx, turn_id, worker=second)
    cut_off, newest = (await drive.timeline(turn_id)).attempts
    assert (cut_off.end, cut_off.worker, cut_off.step) == (AttemptEnd.CUT_OFF, killed, "call_model")
    assert (newest.end, newest.worker, newest.attempt, newest.steps) == (AttemptEnd.RUNNING, second, 2, [])
    assert cut_off.began_at is not None
    assert newest.began_at is not None
    assert cut_off.began_at < newest.began_at


async def test_an_effect_belongs_to_the_attempt_that_finished_it(drive: Drive) -> None:
    turn_id = await drive.turns.accept()
    first = await drive.turns.claim(turn_id)
    async with drive.turns.transactions.begin() as tx:
        await drive.journal.begin(tx, first, "call_model", 0, b"{}")
    second = await drive.turns.claim(turn_id)

    async def answer(_: bytes) -> EffectResult:
        return EffectResult(b"{}", {"backend": "scripted"})

    await run_once(second, "call_model", 0, b"{}", answer, services=drive.services(uuid4()))
    cut_off, newest = (await drive.timeline(turn_id)).attempts
    assert (cut_off.step, cut_off.steps) == ("call_model", [])
    [effect] = newest.steps[0].effects
    assert effect.done_at is not None
    assert newest.began_at is not None
    assert newest.began_at <= effect.done_at - timedelta(microseconds=effect.us or 0)


async def test_each_attempt_that_is_killed_at_the_same_effect_names_it(drive: Drive) -> None:
    turn_id = await drive.turns.accept()
    for _ in range(3):
        claim = await drive.turns.claim(turn_id)
        async with drive.turns.transactions.begin() as tx:
            await drive.journal.begin(tx, claim, "call_model", 0, b"{}")
    first, second, running = (await drive.timeline(turn_id)).attempts
    assert [(each.end, each.step) for each in (first, second)] == [(AttemptEnd.CUT_OFF, "call_model")] * 2
    assert (running.end, [step.step for step in running.steps]) == (AttemptEnd.RUNNING, ["call_model"])


async def test_an_attempt_that_is_cancelled_because_its_process_stops_is_told_by_the_next_claim(drive: Drive) -> None:
    turn_id, stopped = await drive.turns.accept(), uuid4()

    class Stopped:
        async def load(self, *_: Any, **__: Any) -> Any:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await drive.run(turn_id, worker=stopped, souls=Stopped())
    await drive.run(turn_id)
    cut_off, ended = (await drive.timeline(turn_id)).attempts
    assert (cut_off.end, cut_off.worker, ended.end) == (AttemptEnd.CUT_OFF, stopped, AttemptEnd.ENDED)


async def test_a_worker_that_lost_its_claim_notes_nothing(drive: Drive) -> None:
    turn_id, paused, second = await drive.turns.accept(), uuid4(), uuid4()

    class Overtaken:
        async def load(self, *_: Any, **__: Any) -> Any:
            await drive.run(turn_id, worker=second)
            raise ClaimLost

    with pytest.raises(ClaimLost):
        await drive.run(turn_id, worker=paused, souls=Overtaken())
    attempts = (await drive.timeline(turn_id)).attempts
    assert [(attempt.end, attempt.worker, len(attempt.steps)) for attempt in attempts] == [
        (AttemptEnd.CUT_OFF, paused, 0),
        (AttemptEnd.ENDED, second, 10),
    ]


class AwayAfter:
    """A store that answers until a step fails, and is away from then on."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions, self.is_away = transactions, False

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        if self.is_away:
            raise StoreUnavailable("away")
        async with self.transactions.begin() as tx:
            yield tx

    once = begin


async def test_if_the_store_is_away_nothing_is_noted_and_the_error_is_the_first_one(drive: Drive) -> None:
    turn_id, store = await drive.turns.accept(), AwayAfter(drive.turns.transactions)

    class Outage:
        async def load(self, *_: Any, **__: Any) -> Any:
            store.is_away = True
            raise LookupError

    with pytest.raises(LookupError):
        await drive.run(turn_id, souls=Outage(), transactions=store)
    await drive.run(turn_id)
    assert [attempt.end for attempt in (await drive.timeline(turn_id)).attempts] == [AttemptEnd.CUT_OFF, AttemptEnd.ENDED]


async def test_a_turn_that_was_given_up_tells_its_attempts_and_the_apology(drive: Drive) -> None:
    turn_id, worker = await drive.turns.accept(), uuid4()
    with pytest.raises(LookupError):
        await drive.run(turn_id, souls=Failing(LookupError()), limits=TurnLimits(max_attempts=1))
    await drive.run(turn_id, worker=worker, limits=TurnLimits(max_attempts=1))
    timeline = await drive.timeline(turn_id)
    assert (timeline.state, [attempt.end for attempt in timeline.attempts]) == ("dead", [AttemptEnd.FAILED, AttemptEnd.ENDED])
    assert [event.type for event in timeline.attempts[1].events] == ["fallback_used", "credit_voided"]
    assert timeline.attempts[1].worker == worker


async def test_what_became_of_a_turn_comes_after_its_attempts(drive: Drive) -> None:
    turn_id = await drive.turns.accept()
    await drive.run(turn_id)
    async with drive.turns.transactions.begin() as tx:
        await drive.journal.add(tx, turn_id, "response_delivered", {"part": 0})
    assert [event.type for event in (await drive.timeline(turn_id)).later] == ["response_delivered"]


async def test_no_later_event_ends_before_it_began(drive: Drive) -> None:
    turn_id = await drive.turns.accept()
    await drive.run(turn_id)
    async with drive.turns.transactions.begin() as tx:
        for number in range(10):
            await drive.journal.add(tx, turn_id, "memory_saved", {"added": number})
    later = (await drive.timeline(turn_id)).later
    assert len(later) == 10
    assert [event.facts for event in later if event.done_at is None or event.done_at < event.started_at] == []


async def test_a_turn_that_no_worker_has_claimed_has_no_timeline(drive: Drive) -> None:
    turn_id = await drive.turns.accept()
    async with drive.turns.transactions.begin() as tx:
        assert await drive.timelines.read(tx, turn_id) is None
        assert await drive.timelines.read(tx, uuid4()) is None


async def rows_of(drive: Drive, query: str, *values: Any) -> Sequence[Any]:
    async with drive.turns.transactions.begin() as tx:
        return await (await connection_of(tx).execute(query.encode(), values)).fetchall()


@on_postgres
async def test_every_event_has_a_number_and_its_transaction_except_an_effect_that_has_not_ended(drive: Drive) -> None:
    turn_id = await drive.turns.accept()
    with pytest.raises(LookupError):
        await drive.run(turn_id, souls=Failing(LookupError()))
    claim = await drive.turns.claim(turn_id)
    async with drive.turns.transactions.begin() as tx:
        await drive.journal.begin(tx, claim, "call_model", 0, b"{}")
    assert await rows_of(drive, "select type from run_events where event_number is null or xid is null") == [("effect",)]
    async with drive.turns.transactions.begin() as tx:
        await drive.journal.finish(tx, claim, "call_model", 0, b"{}", facts={})
        await drive.journal.add(tx, turn_id, "response_delivered", {})
    assert await rows_of(drive, "select type from run_events where event_number is null or xid is null") == []
    [[numbers, different]] = await rows_of(drive, "select count(event_number), count(distinct event_number) from run_events")
    assert numbers == different
    told = await rows_of(drive, "select type from run_events where type <> 'effect' order by xid, event_number")
    failed = ["user_resolved", "credit_reserved", "attempt_failed"]
    assert [type_ for (type_,) in told] == [*failed, "response_delivered"], "numbered in the order in which they happened"


@on_postgres
async def test_the_run_names_the_process_of_its_newest_attempt(drive: Drive) -> None:
    turn_id, first, second = await drive.turns.accept(), uuid4(), uuid4()
    for worker in (first, second):
        async with drive.turns.transactions.begin() as tx:
            await drive.turns.inbox.claim(tx, turn_id, worker=worker)
        assert await rows_of(drive, "select worker, worker_epoch = epoch from runs where turn_id = %s", turn_id) == [(worker, True)]


@on_postgres
async def test_a_message_that_cannot_be_opened_tells_each_attempt(drive: Drive) -> None:
    turn_id = await drive.turns.accept()
    async with drive.turns.transactions.begin() as tx:
        await connection_of(tx).execute("update inbox set envelope = '\\x00'::bytea where turn_id = %s", [turn_id])
    with pytest.raises(MessageUnreadable):
        await TurnRunner(drive.services(uuid4()), TurnLimits()).run(turn_id)
    [attempt] = (await drive.timeline(turn_id)).attempts
    assert (attempt.end, attempt.step, attempt.error) == (AttemptEnd.FAILED, "claim", "MessageUnreadable")
