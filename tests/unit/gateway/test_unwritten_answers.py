"""A request that shows an answer waits for that answer's record, and for no other."""

import asyncio
from uuid import uuid4

from hermes.gateway.chat_fingerprints import ChatFingerprinter
from hermes.gateway.unwritten_answers import MAX_TOGETHER, MAX_UNWRITTEN, UnwrittenAnswers

ASKED = {"role": "user", "content": "one"}
SAID = {"role": "assistant", "content": "it is the first number of all"}
ALICE, BOB = uuid4(), uuid4()
[MARK] = ChatFingerprinter([ASKED, SAID]).fingerprints
[OTHER] = ChatFingerprinter([ASKED, {"role": "assistant", "content": "another answer, which nobody shows"}]).fingerprints


async def is_waiting(task: asyncio.Task[None]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


async def test_a_request_waits_for_the_answer_that_it_shows_and_for_no_other() -> None:
    unwritten = UnwrittenAnswers()
    end, end_other = unwritten.add(ALICE, MARK), unwritten.add(ALICE, OTHER)
    for shown in (MARK.shown, MARK.echo):
        task = asyncio.create_task(unwritten.wait_for(ALICE, [shown]))
        assert await is_waiting(task)
        task.cancel()
    await unwritten.wait_for(ALICE, [b"something else"])
    await unwritten.wait_for(BOB, [MARK.shown])
    waiting = asyncio.create_task(unwritten.wait_for(ALICE, [MARK.shown]))
    assert await is_waiting(waiting)
    end()
    assert not await is_waiting(waiting)
    everything = asyncio.create_task(unwritten.wait_for_all(ALICE))
    assert await is_waiting(everything)
    end_other()
    await everything
    assert not unwritten.has_any(ALICE)


async def test_a_request_that_shows_the_list_before_waits_too_because_the_chat_moves_on() -> None:
    unwritten = UnwrittenAnswers()
    end = unwritten.add(ALICE, OTHER, MARK)
    waiting = asyncio.create_task(unwritten.wait_for(ALICE, [MARK.shown]))
    assert await is_waiting(waiting)
    end()
    await waiting


async def test_records_are_made_together_and_at_once_if_a_request_waits() -> None:
    unwritten = UnwrittenAnswers(gather_s=60.0)
    end = unwritten.add(ALICE, MARK)
    turns = [asyncio.create_task(unwritten.gather()) for _ in range(MAX_TOGETHER + 1)]
    assert await is_waiting(turns[0])
    waiting = asyncio.create_task(unwritten.wait_for(ALICE, [MARK.shown]))
    await asyncio.gather(*turns)
    end()
    await waiting
    soon = UnwrittenAnswers(gather_s=0.001)
    await asyncio.gather(*(soon.gather() for _ in range(3 * MAX_TOGETHER)))


async def test_there_is_an_end_to_what_is_unwritten() -> None:
    unwritten = UnwrittenAnswers()
    ends = [unwritten.add(ALICE, None) for _ in range(MAX_UNWRITTEN)]
    assert unwritten.is_full
    ends[0]()
    assert not unwritten.is_full
