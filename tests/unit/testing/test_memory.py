"""The stores in memory, from a message that comes in to the answer that its client waits for."""

import asyncio
from uuid import uuid4

import pytest

from hermes.ports.backends import ModelRequest
from hermes.ports.errors import NotFound
from hermes.ports.inbox import AcceptedMessage
from hermes.ports.models import Caller, CallSource
from hermes.ports.sessions import SessionQuery
from hermes.ports.users import UserChannel
from hermes.router.turns import TurnLimits, TurnRunner
from hermes.testing import RouterHarness, ScriptedModel
from hermes.testing.memory import MemorySessions
from hermes.turn import Envelope, MessageEvent, Platform

TX = None


def envelope(text: str, key: str) -> Envelope:
    event = MessageEvent(platform=Platform.REST, sender_id="u", text=text)
    return Envelope(event=event, account="api", channel_id="u", event_key=key)


def new_harness(*replies: str) -> RouterHarness:
    harness = RouterHarness(models=ScriptedModel([*replies]))
    harness.credits.available[harness.user.id] = 3
    harness.people.addresses[UserChannel("api", Platform.REST, "u")] = harness.user.id
    return harness


async def accept(harness: RouterHarness, text: str, key: str) -> AcceptedMessage:
    accepted = await harness.inbox.accept(TX, envelope(text, key), uuid4())
    assert accepted is not None
    return accepted


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
