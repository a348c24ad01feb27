"""A message that always fails: its sender gets an apology, pays nothing, and the next message is answered."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.stores.embedded import StoreUrls
from tests.faults.house import APOLOGY, House, Nursery, open_house


@pytest.fixture
async def strict_house(nursery: Nursery, database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """A house that tries everything twice."""
    async with open_house(nursery, tmp_path, StoreUrls(database_url, redis_url), HERMES_INBOX_MAX_ATTEMPTS="2") as house:
        yield house


async def grave(house: House, text: str) -> tuple[str, str | None, int]:
    """The answer to a message, why it was buried, and at which attempt."""
    [turn] = [turn for turn, message in house.accepted.items() if message.text == text]
    [(state, reason, attempts)] = await house.ask("select state, reason, attempts from inbox where turn_id = %s", [turn])
    assert state == "dead"
    answer = await house.answer(turn)
    assert answer is not None
    return answer, reason, attempts


async def test_a_message_that_the_model_cannot_take_is_buried_with_an_apology(strict_house: House) -> None:
    house = strict_house
    house.worker(poison="poison")
    await house.send_all("a1", "a poison", "a2", "b1")
    await house.until_quiet()
    await house.check(calls={}, buried=["a poison"])
    answer, reason, attempts = await grave(house, "a poison")
    assert (answer, attempts) == (APOLOGY, 3)
    assert reason is not None
    assert reason.startswith("gave up at attempt 3")
    assert [call.text for call in house.calls() if call.text == "a poison"] == ["a poison"] * 2


async def test_a_message_that_kills_its_worker_is_buried_with_an_apology(strict_house: House) -> None:
    house = strict_house
    alone = {"HERMES_WORK_CONCURRENCY": "1"}
    await house.send_all("a1", "a deadly", "a2", "b1")
    for _ in range(2):
        victim = house.worker(deadly="deadly", environ=alone)
        await house.until(lambda worker=victim: not worker.is_alive, "the message kills its worker")
    survivor = house.worker(deadly="deadly")
    await house.until_quiet()
    assert survivor.is_alive
    await house.check(calls={}, buried=["a deadly"])
    answer, reason, attempts = await grave(house, "a deadly")
    assert (answer, attempts) == (APOLOGY, 3)
    assert reason is not None
    assert [call.text for call in house.calls() if call.text == "a deadly"] == ["a deadly"] * 2
