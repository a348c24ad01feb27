"""Twenty messages at once in each of fifty conversations, every one of them delivered twice, two workers: all, once, in order."""

import asyncio
from collections import defaultdict
from uuid import UUID

import pytest

from tests.faults.house import House

CONVERSATIONS, MESSAGES = 50, 20


async def flood(house: House, conversations: int, messages: int) -> None:
    """Send everything at once, twice each, as platforms do that did not hear the first acknowledgement."""
    wanted = [(f"c{channel}", f"c{channel}/{number}") for number in range(messages) for channel in range(conversations)]
    receipts = await asyncio.gather(*(house.send_until_acknowledged(*message) for message in wanted for _ in range(2)))
    twins = list(zip(receipts[::2], receipts[1::2], strict=True))
    assert all((one.turn_id, one.seq) == (other.turn_id, other.seq) for one, other in twins)
    assert all(one.is_new != other.is_new for one, other in twins)


async def test_twenty_messages_at_once_in_fifty_conversations_are_answered_once_and_in_order(house: House) -> None:
    workers = [house.worker(), house.worker()]
    await flood(house, CONVERSATIONS, MESSAGES)
    await house.until_quiet()
    await house.check(calls={})
    await house.check_order()
    places: dict[UUID, list[int]] = defaultdict(list)
    for message in house.accepted.values():
        places[message.receipt.conversation_id].append(message.receipt.seq)
    assert [len(numbers) for numbers in places.values()] == [MESSAGES] * CONVERSATIONS
    assert {call.pid for call in house.calls()} == {worker.pid for worker in workers}, "both had a part in it"


@pytest.mark.slow
async def test_the_same_with_five_times_as_many(house: House) -> None:
    for _ in range(3):
        house.worker()
    await flood(house, CONVERSATIONS, 5 * MESSAGES)
    await house.until_quiet(600)
    await house.check(calls={})
    await house.check_order()
