"""The stores in memory, from a message that comes in to the answer that its client waits for."""

import asyncio
from uuid import UUID, uuid4

import pytest

from hermes.ports.backends import ModelRequest
from hermes.ports.errors import ClaimLost, NotFound
from hermes.ports.inbox import AcceptedMessage, Claim
from hermes.ports.models import Caller, CallSource
from hermes.ports.sessions import SessionQuery
from hermes.router.turns import TurnLimits, TurnRunner
from hermes.testing import RouterHarness, ScriptedModel
from hermes.testing.memory import MemoryInbox, MemorySessions
from hermes.turn import Envelope, MessageEvent, Platform

TX = None


def envelope(text: str, key: str, *, is_shared: bool = False) -> Envelope:
    event = MessageEvent(platform=Platform.REST, sender_id="u", text=text)
    return Envelope(event=event, account="api", channel_id="u", event_key=key, is_shared=is_shared)


def new_harness(*replies: str) -> RouterHarness:
    harness = RouterHarness(models=ScriptedModel([*replies]))
    harness.credits.available[harness.user.id] = 3
    return harness


async def accept(harness: RouterHarness, text: str, key: str, *, is_shared: bool = False) -> AcceptedMessage:
    return await harness.inbox.accept(TX, envelope(text, key, is_shared=is_shared), harness.user, uuid4())


async def claim(inbox: MemoryInbox, turn_id: UUID) -> Claim:
    found = await inbox.claim(TX, turn_id)
    assert found is not None
    return found


async def test_a_turn_runs_from_the_inbox_to_the_outbox_and_its_client_is_woken() -> None:
    harness = new_harness("Hello!")
    accepted = await accept(harness, "hi", "1")
    async with harness.answer_signals.listen(accepted.turn_id) as signal:
        assert not await signal.wait(0)
        waiter = asyncio.create_task(signal.wait(5))
        await TurnRunner(harness.services, TurnLimits()).run(accepted.turn_id)
        assert await waiter
    answer = await harness.outbox.answer(TX, accepted.turn_id)
    assert answer is not None
    assert answer.text == "Hello!"
    origin = await harness.inbox.origin(TX, accepted.turn_id)
    assert origin is not None
    assert origin.has_ended
    assert (await harness.inbox.waiting(TX), await harness.inbox.claim(TX, accepted.turn_id)) == (0, None)
    events = await harness.journal.read(TX, accepted.turn_id)
    assert [(event.step, event.facts) for event in events] == harness.journal.notes


async def test_a_repeated_message_is_accepted_once_and_order_is_by_conversation() -> None:
    harness = new_harness()
    first, second = await accept(harness, "one", "1"), await accept(harness, "two", "2")
    again = await accept(harness, "one", "1")
    assert (again.turn_id, again.seq, again.is_new) == (first.turn_id, 1, False)
    assert (second.conversation_id, second.seq, second.is_new) == (first.conversation_id, 2, True)


async def test_a_later_claim_ends_an_earlier_one_and_an_attempt_can_be_uncounted() -> None:
    harness = new_harness()
    turn_id = (await accept(harness, "one", "1")).turn_id
    old = await claim(harness.inbox, turn_id)
    new = await claim(harness.inbox, turn_id)
    assert (old.attempt, new.attempt) == (1, 2)
    with pytest.raises(ClaimLost):
        await harness.inbox.hold(TX, old)
    await harness.inbox.uncount_attempt(TX, old)
    await harness.inbox.uncount_attempt(TX, new)
    assert (await claim(harness.inbox, turn_id)).attempt == 2


async def test_waiting_messages_join_the_first_and_have_no_turn_of_their_own() -> None:
    harness = new_harness()
    first, second = await accept(harness, "one", "1"), await accept(harness, "two", "2")
    held = await claim(harness.inbox, first.turn_id)
    behind = await harness.inbox.waiting_behind(TX, held, 10)
    joined = await harness.inbox.join(TX, held, behind)
    assert (joined.envelope.event.text, (await claim(harness.inbox, first.turn_id)).envelope.event.text) == ("one\ntwo", "one\ntwo")
    assert await harness.inbox.claim(TX, second.turn_id) is None


async def test_joined_messages_count_once_and_a_message_that_was_attempted_does_not_join() -> None:
    harness = new_harness()
    first, second, third = [await accept(harness, text, text) for text in ("one", "two", "three")]
    await claim(harness.inbox, third.turn_id)
    held = await claim(harness.inbox, first.turn_id)
    behind = await harness.inbox.waiting_behind(TX, held, 10)
    assert [message.turn_id for message in behind] == [second.turn_id]
    await harness.inbox.join(TX, held, behind)
    assert (await claim(harness.inbox, third.turn_id)).recent == 2


async def test_a_conversation_that_was_shared_once_stays_shared() -> None:
    harness = new_harness()
    private = await accept(harness, "one", "1")
    assert not (await claim(harness.inbox, private.turn_id)).envelope.is_shared
    await accept(harness, "two", "2", is_shared=True)
    assert (await claim(harness.inbox, private.turn_id)).envelope.is_shared
    assert await harness.inbox.last_private(TX, harness.user.id, "api") is None


async def test_sessions_are_found_by_their_id_and_by_their_conversation() -> None:
    sessions, conversation_id = MemorySessions(new_harness().graphs), uuid4()
    session = await sessions.current(TX, conversation_id, uuid4())
    for names in ((), (str(session.id),), (str(conversation_id), str(session.id))):
        assert await sessions.find(TX, SessionQuery(names=names)) == [session.id]
    with pytest.raises(NotFound):
        await sessions.find(TX, SessionQuery(names=("nothing",)))


async def test_a_model_that_is_asked_too_often_says_so() -> None:
    harness = new_harness("Hello!")
    caller = Caller(user_id=harness.user.id, account="api", tier="free", source=CallSource.ROUTER)
    request = ModelRequest(messages=[{"role": "user", "content": "hi"}], max_tokens=10)
    await harness.models.complete(request, caller)
    with pytest.raises(AssertionError, match="asked 2 times"):
        await harness.models.complete(request, caller)
