"""The journal: an effect is noted before and after, its first request and first result stand, a fenced worker starts nothing.

On both adapters."""

from dataclasses import replace
from uuid import uuid4

import pytest

from hermes.ports.errors import ClaimLost, NotFound
from hermes.ports.inbox import Inbox
from hermes.ports.runtime import Transactions
from hermes.ports.sessions import Effect, EffectProgress, Journal, JournalNote
from hermes.router.effects import EffectResult, run_once
from hermes.router.services import Services
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.journal import PostgresJournal
from hermes.stores.postgres.keyring import Keyring
from hermes.testing.memory import MemoryInbox, MemoryJournal
from tests.contract.turns import Turns, on_postgres
from tests.unit.router.test_pipeline import house


@pytest.fixture
def journal(inbox: Inbox, keyring: Keyring) -> Journal:
    return MemoryJournal(inbox=inbox) if isinstance(inbox, MemoryInbox) else PostgresJournal(keyring)


@pytest.fixture
def services(transactions: Transactions, journal: Journal) -> Services:
    return replace(house().services, transactions=transactions, journal=journal)


class Model:
    """Answers with the request and the number of the call; breaks down where it is told to."""

    def __init__(self, *, breaks_at: int | None = None) -> None:
        self.calls: list[bytes] = []
        self.breaks_at = breaks_at

    async def __call__(self, request: bytes) -> EffectResult:
        self.calls.append(request)
        if len(self.calls) == self.breaks_at:
            raise ConnectionError
        return EffectResult(request + b"!%d" % len(self.calls), {"backend": "scripted"})


async def test_an_effect_runs_once_however_often_the_turn_is_driven(turns: Turns, services: Services) -> None:
    turn_id, model = await turns.accept(), Model()
    for prepared in (b"first", b"second", b"third"):
        claim = await turns.claim(turn_id)
        assert await run_once(claim, "call_model", 0, prepared, model, services=services) == (b"first", b"first!1")
    assert model.calls == [b"first"]


async def test_steps_and_indices_are_effects_of_their_own(turns: Turns, services: Services) -> None:
    claim, model = await turns.new_claim(), Model()
    places = [("call_model", 0), ("call_model", 1), ("run_tools", 0)]
    results = [await run_once(claim, step, at, b"x", model, services=services) for step, at in places]
    assert results == [(b"x", b"x!1"), (b"x", b"x!2"), (b"x", b"x!3")]


async def test_an_effect_that_was_cut_off_runs_again_with_its_first_request(turns: Turns, services: Services) -> None:
    turn_id, model = await turns.accept(), Model(breaks_at=1)
    with pytest.raises(ConnectionError):
        await run_once(await turns.claim(turn_id), "call_model", 0, b"as sent", model, services=services)
    again = await run_once(await turns.claim(turn_id), "call_model", 0, b"prepared anew", model, services=services)
    assert again == (b"as sent", b"as sent!2")


async def test_a_fenced_worker_starts_nothing(turns: Turns, journal: Journal, services: Services) -> None:
    turn_id, model = await turns.accept(), Model()
    paused = await turns.claim(turn_id)
    await turns.claim(turn_id)
    with pytest.raises(ClaimLost):
        await run_once(paused, "call_model", 0, b"x", model, services=services)
    assert model.calls == []
    async with turns.transactions.begin() as tx:
        assert [event.type for event in await journal.read(tx, turn_id)] == ["attempt_cut_off"], "the second claim noted it"


async def test_a_fenced_worker_does_not_repeat_what_its_successor_is_doing(turns: Turns, journal: Journal) -> None:
    turn_id = await turns.accept()
    paused = await turns.claim(turn_id)
    successor = await turns.claim(turn_id)
    async with turns.transactions.begin() as tx:
        assert (await journal.begin(tx, successor, "call_model", 0, b"x")).progress is EffectProgress.NEW
    with pytest.raises(ClaimLost):
        async with turns.transactions.begin() as tx:
            await journal.begin(tx, paused, "call_model", 0, b"x")


async def test_the_first_result_stands_whoever_noted_it(turns: Turns, journal: Journal) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await journal.begin(tx, claim, "call_model", 0, b"x")
        assert await journal.finish(tx, claim, "call_model", 0, b"one", facts={}) == b"one"
        assert await journal.finish(tx, claim, "call_model", 0, b"two", facts={}) == b"one"
        assert await journal.begin(tx, claim, "call_model", 0, b"y") == Effect(EffectProgress.DONE, b"x", b"one")
        with pytest.raises(NotFound):
            await journal.finish(tx, claim, "call_model", 1, b"z", facts={})


async def test_events_are_read_in_the_order_they_were_noted(turns: Turns, journal: Journal) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await journal.note(tx, claim, [JournalNote("user_resolved", {"tier": "free"})])
        await journal.begin(tx, claim, "call_model", 0, b"x")
        twice = [JournalNote("fallback_used", {"kind": "busy"}), JournalNote("fallback_used", {"kind": "paused"})]
        await journal.note(tx, claim, [*twice, JournalNote("credit_voided", {})])
        await journal.note(tx, claim, twice[:1])
        await journal.finish(tx, claim, "call_model", 0, b"one", facts={"backend": "scripted"})
        events = await journal.read(tx, claim.turn_id)
    assert [(event.step, event.index, event.type, dict(event.facts), event.done_at is not None) for event in events] == [
        ("user_resolved", 0, "user_resolved", {"tier": "free"}, True),
        ("call_model", 0, "llm_called", {"backend": "scripted"}, True),
        ("fallback_used", 0, "fallback_used", {"kind": "busy"}, True),
        ("fallback_used", 1, "fallback_used", {"kind": "paused"}, True),
        ("credit_voided", 0, "credit_voided", {}, True),
        ("fallback_used", 2, "fallback_used", {"kind": "busy"}, True),
    ]


async def test_an_effect_can_be_read_after_the_turn(turns: Turns, journal: Journal) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        assert await journal.effect(tx, claim.turn_id, "call_model", 0) is None
        await journal.begin(tx, claim, "call_model", 0, b"asked")
        assert await journal.effect(tx, claim.turn_id, "call_model", 0) == Effect(EffectProgress.STARTED, b"asked", None)
        await journal.finish(tx, claim, "call_model", 0, b"answered", facts={})
        await turns.inbox.finish(tx, claim)
        assert await journal.effect(tx, claim.turn_id, "call_model", 0) == Effect(EffectProgress.DONE, b"asked", b"answered")
        await turns.people.forget(tx, claim.user_id)
    async with turns.transactions.begin() as tx:
        assert await journal.effect(tx, claim.turn_id, "call_model", 0) is None


async def test_what_became_of_a_turn_later_is_added_to_it(turns: Turns, journal: Journal) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await turns.inbox.finish(tx, claim)
        for added in (1, 2):
            await journal.add(tx, claim.turn_id, "memory_saved", {"added": added})
        await journal.add(tx, uuid4(), "memory_saved", {"added": 3})
        events = await journal.read(tx, claim.turn_id)
    assert [(event.type, event.index, event.attempt, dict(event.facts)) for event in events] == [
        ("memory_saved", 0, 1, {"added": 1}),
        ("memory_saved", 1, 1, {"added": 2}),
    ]


@on_postgres
async def test_requests_and_results_are_sealed(turns: Turns, journal: Journal) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await journal.begin(tx, claim, "call_model", 0, b"sunset")
        await journal.finish(tx, claim, "call_model", 0, b"canggu", facts={})
        rows = str(await (await connection_of(tx).execute("select run_events::text from run_events")).fetchall())
    assert b"sunset".hex() not in rows
    assert b"canggu".hex() not in rows
