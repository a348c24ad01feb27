"""A message that was given up and revived: answered once, charged once, as the newest of its conversation; also if its worker is killed."""

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hermes.app.console_operations import queue_actions_from
from hermes.app.console_queues import worker_board_from
from hermes.cli.actor import command_actor
from hermes.console.queues import RevivalRefused
from hermes.stores.embedded import StoreUrls
from tests.faults.house import APOLOGY, House, Nursery, open_house
from tests.faults.worker import Trap


@pytest.fixture
async def strict_house(nursery: Nursery, database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """A house that tries everything twice."""
    async with open_house(nursery, tmp_path, StoreUrls(database_url, redis_url), HERMES_INBOX_MAX_ATTEMPTS="2") as house:
        yield house


@pytest.mark.parametrize(
    "trap",
    [Trap("answer", is_after=False), Trap("commit:inbox.hold", is_after=True)],
    ids=["asking", "recorded"],
)
async def test_a_revived_message_whose_worker_is_killed_is_answered_once(strict_house: House, trap: Trap) -> None:
    house = strict_house
    sick = house.worker(poison="poison")
    await house.send_all("a poison", "b1", "b2")
    await house.until_quiet()
    await house.check(calls={}, buried=["a poison"])
    await house.dismiss(sick)
    [turn] = [turn for turn, message in house.accepted.items() if message.text == "a poison"]
    tried = len([call for call in house.calls() if call.text == "a poison"])

    actions = queue_actions_from(house.hermes)
    both = await asyncio.gather(*(actions.revive(command_actor(), turn) for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in both if each is not None] == [RevivalRefused]
    # On a busy machine neither may take its own job for one of a dead worker: each time costs the message one of its attempts.
    victim = house.worker(trap, environ={"HERMES_WORK_STALLED_AFTER_S": "30"})
    await house.until(lambda: not victim.is_alive, "the worker is killed over the revived message")
    house.worker(environ={"HERMES_WORK_STALLED_AFTER_S": "5"})
    await house.until_quiet()
    answered_again = 2 if trap.place == "answer" else 1
    await house.check(calls={"a poison": tried + answered_again})
    assert await house.answer(turn) not in {None, APOLOGY}


async def test_a_revived_message_runs_as_the_newest_of_its_conversation(strict_house: House) -> None:
    house = strict_house
    sick = house.worker(poison="poison")
    await house.send_all("a poison", "a2")
    await house.until_quiet()
    await house.dismiss(sick)
    [turn] = [turn for turn, message in house.accepted.items() if message.text == "a poison"]
    await queue_actions_from(house.hermes).revive(command_actor(), turn)
    await house.send_all("a3")
    house.worker()
    await house.until_quiet()
    assert [call.text for call in house.calls() if call.answer is not None] == ["a2", "a poison", "a3"]
    assert await house.answer(turn) != APOLOGY
    async with house.hermes.database.begin() as tx:
        assert await house.hermes.adapters.credits.audit(tx) == []


@pytest.mark.parametrize(
    "trap",
    [Trap("answer", is_after=True, blow=signal.SIGSTOP), Trap("commit:inbox.hold", is_after=True, blow=signal.SIGSTOP)],
    ids=["asking", "recorded"],
)
async def test_a_turn_that_was_given_away_and_whose_process_wakes_up_is_answered_once(strict_house: House, trap: Trap) -> None:
    house, late = strict_house, {"HERMES_WORK_STALLED_AFTER_S": "60"}  # no sweep is quicker than the operator
    frozen = house.worker(trap, environ=late)
    await house.send_all("a1")
    await house.until(lambda: frozen.is_stopped, "the worker is frozen over the message")
    [(process_id,)] = await house.ask("select worker from runs")
    board = replace(worker_board_from(house.hermes.settings, house.hermes.database), stalled_after_s=0.0)
    is_open = trap.place == "answer"
    assert await board.give_away(command_actor(), process_id) == (1 if is_open else 0), "a turn that was recorded is nobody's to give"
    house.worker(environ=late)
    if is_open:
        await house.until(lambda: len(house.calls()) == 2, "another worker has asked again")
    await house.send_all("b1")
    frozen.strike(signal.SIGCONT)
    await house.until_quiet()
    await house.check(calls={"a1": 2} if is_open else None)
    async with house.hermes.database.begin() as tx:
        assert await house.hermes.adapters.credits.audit(tx) == []
