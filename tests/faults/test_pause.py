"""A worker is stopped in the middle of a turn for longer than it may be silent, another one takes over, and then the first one wakes up.

The sleeper must find that its turn is another worker's by now: it ends nothing, charges nothing and says nothing. It does not have to be
started again; after that it works on new messages like any other."""

import asyncio
import signal
from uuid import UUID

import pytest

from hermes.turn import Platform
from tests.faults.house import House, Worker
from tests.faults.worker import Trap

ALONE = {"HERMES_WORK_CONCURRENCY": "1"}

IN_THE_CALL = Trap("answer", is_after=False, blow=signal.SIGSTOP)
BEFORE_ITS_ENTRY = Trap("answer", is_after=True, blow=signal.SIGSTOP)
BEFORE_THE_END = Trap("journal.finish", is_after=True, blow=signal.SIGSTOP)
BEFORE_THE_SEND = Trap("commit:outbox.take", is_after=True, blow=signal.SIGSTOP)
IN_THE_LAST_TRANSACTION = Trap("commit:inbox.hold", is_after=False, blow=signal.SIGSTOP)


async def put_to_sleep(house: House, trap: Trap, *texts: str, platform: Platform = Platform.REST) -> Worker:
    """Have a worker begin the first of these messages, and stop where it is told to."""
    sleeper = house.worker(trap, environ=ALONE)
    await house.send_all(*texts, platform=platform)
    await house.until(lambda: sleeper.is_stopped, "the worker stops")
    return sleeper


async def attempts(house: House) -> dict[str, int]:
    turns: dict[UUID, int] = dict(await house.ask("select turn_id, attempts from inbox"))
    return {message.text: turns[turn] for turn, message in house.accepted.items()}


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["while it counts as stalled", "after its row was cleared away"])
@pytest.mark.parametrize("trap", [IN_THE_CALL, BEFORE_ITS_ENTRY, BEFORE_THE_END], ids=["in the call", "before its entry", "before the end"])
async def test_a_worker_that_slept_too_long_is_fenced_and_then_works_on(house: House, trap: Trap, *, is_forgotten: bool) -> None:
    sleeper = await put_to_sleep(house, trap, "a1", "a2", "a3", "b1")
    if is_forgotten:
        await asyncio.sleep(1.5)  # whoever starts now takes the silent worker out of the list of workers
    successor = house.worker()
    await house.until_quiet()
    answers = {turn: await house.answer(turn) for turn in house.accepted}
    calls = {"a1": 1 if trap is BEFORE_THE_END else 2}
    await house.check(calls=calls)

    sleeper.strike(signal.SIGCONT)
    await house.until(lambda: bool(sleeper.said("job_was_taken_over")), "the sleeper notices")
    assert sleeper.failures() == ["ClaimLost"]
    assert {turn: await house.answer(turn) for turn in house.accepted} == answers
    await house.check(calls=calls)
    assert await attempts(house) == {"a1": 2, "a2": 1, "a3": 1, "b1": 1}

    assert await house.dismiss(successor) == 0
    await house.send_all("a4", "b2")
    await house.until_quiet()
    await house.check(calls=calls)
    assert {call.pid for call in house.calls() if call.text in ("a4", "b2")} == {sleeper.pid}
    assert await house.dismiss(sleeper) == 0


async def process_events(house: House, worker: Worker) -> list[str]:
    query = "select type from process_events where (facts ->> 'pid')::int = %s order by number"
    return [kind for (kind,) in await house.ask(query, [worker.pid])]


async def test_a_worker_that_sleeps_is_reported_once_by_another_process_and_again_when_it_wakes(house: House) -> None:
    house.environ = {**house.environ, "HERMES_WORK_STALLED_AFTER_S": "3"}
    sleeper = await put_to_sleep(house, IN_THE_CALL, "a1", "b1")
    others = [house.worker() for _ in range(2)]
    await house.until_quiet()
    await house.until(lambda: any(other.said("process_stalled") for other in others), "another worker reports it")
    assert await process_events(house, sleeper) == ["process_started", "process_stalled"]
    sleeper.strike(signal.SIGCONT)
    await house.until(lambda: bool(sleeper.said("job_was_taken_over")), "the sleeper notices")
    await house.check(calls={"a1": 2})
    assert await house.dismiss(sleeper) == 0
    assert await process_events(house, sleeper) == ["process_started", "process_stalled", "process_recovered", "process_stopped"]
    alerts = [alert for other in others for alert in other.said("process_stalled") if alert["pid"] == sleeper.pid]
    assert [(alert["alert"], alert["role"]) for alert in alerts] == [(True, "worker")]


async def test_a_worker_that_slept_with_a_parcel_in_its_hands_sends_a_marked_copy_at_most(house: House) -> None:
    sleeper = await put_to_sleep(house, BEFORE_THE_SEND, "a1", "a2", platform=Platform.TELEGRAM)
    house.worker()
    await house.until_quiet()
    texts = {message.receipt.turn_id: message.text for message in house.accepted.values()}
    assert [(texts[parcel.turn_id], parcel.is_ambiguous) for parcel in house.sent()] == [("a1", True), ("a2", False)]
    sleeper.strike(signal.SIGCONT)
    await house.until(lambda: bool(sleeper.said("turn_ended")), "the sleeper goes on")
    await house.until_quiet()
    await house.check(calls={})
    # A lock cannot keep a parcel from a platform: the copy is what the mark on the other one warned of.
    assert [(texts[parcel.turn_id], parcel.is_ambiguous) for parcel in house.sent()] == [("a1", True), ("a2", False), ("a1", False)]


async def test_a_worker_that_sleeps_within_its_last_transaction_does_not_hold_its_conversation_for_ever(house: House) -> None:
    house.environ = {**house.environ, "HERMES_DATABASE_STATEMENT_TIMEOUT_S": "2"}
    sleeper = await put_to_sleep(house, IN_THE_LAST_TRANSACTION, "a1", "a2")
    house.worker()
    await house.until_quiet(10)
    await house.check(calls={})
    sleeper.strike(signal.SIGCONT)
    await house.until(lambda: bool(sleeper.said("job_was_taken_over")), "the sleeper notices")
    await house.check(calls={})
