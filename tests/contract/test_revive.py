"""A message that was given up waits again: once, with all its tries, and without what giving it up had left behind. On both adapters."""

import asyncio
from uuid import UUID, uuid4

import pytest

from hermes.ports.inbox import Claim, Inbox, Revival
from hermes.ports.outbox import Outbox, OutboxState
from hermes.ports.sessions import EffectProgress, Journal
from hermes.ports.timeline import AttemptEnd
from hermes.ports.users import UserState
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.journal import PostgresJournal, PostgresTimelines
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.testing.memory import MemoryInbox, MemoryJournal, MemoryOutbox, MemoryTimelines
from hermes.turn import Platform
from tests.contract.test_journal_retention import IN_A_MONTH, retention
from tests.contract.turns import Turns, on_postgres


@pytest.fixture
def journal(inbox: Inbox, keyring: Keyring) -> Journal:
    return MemoryJournal(inbox=inbox) if isinstance(inbox, MemoryInbox) else PostgresJournal(keyring)


@pytest.fixture
def outbox(inbox: Inbox, keyring: Keyring) -> Outbox:
    return MemoryOutbox(inbox=inbox) if isinstance(inbox, MemoryInbox) else PostgresOutbox(keyring)


async def bury(turns: Turns, claim: Claim) -> None:
    async with turns.transactions.begin() as tx:
        await turns.inbox.bury(tx, claim, "gave up")


async def revive(turns: Turns, turn_id: UUID) -> Revival:
    async with turns.transactions.begin() as tx:
        return await turns.inbox.revive(tx, turn_id)


async def test_a_buried_message_waits_again_with_all_its_tries(turns: Turns) -> None:
    claim = await turns.new_claim("find me a bar")
    await bury(turns, claim)
    assert await revive(turns, claim.turn_id) is Revival.REVIVED
    async with turns.transactions.begin() as tx:
        assert await turns.inbox.waiting(tx) == 1
        origin = await turns.inbox.origin(tx, claim.turn_id)
    assert origin is not None
    assert not origin.has_ended
    again = await turns.claim(claim.turn_id)
    assert (again.attempt, again.revived_after, again.tries, again.seq) == (2, 1, 1, 1)
    assert (again.envelope.event.text, again.age_s < 60) == ("find me a bar", True)


async def test_only_a_buried_message_is_revived_and_once(turns: Turns) -> None:
    waiting, done, stopped = await turns.new_claim(), await turns.new_claim(channel="c2"), await turns.new_claim(channel="c3")
    async with turns.transactions.begin() as tx:
        await turns.inbox.finish(tx, done)
        await turns.inbox.stop(tx, stopped.turn_id)
    for turn_id in (waiting.turn_id, done.turn_id, stopped.turn_id, uuid4()):
        assert await revive(turns, turn_id) is Revival.NOT_BURIED
    await bury(turns, waiting)
    both = await asyncio.gather(revive(turns, waiting.turn_id), revive(turns, waiting.turn_id))
    assert sorted(both) == [Revival.NOT_BURIED, Revival.REVIVED]


async def test_a_message_of_a_deleted_sender_is_not_revived(turns: Turns) -> None:
    claim = await turns.new_claim()
    await bury(turns, claim)
    async with turns.transactions.begin() as tx:
        sender, _ = await turns.people.find_or_create(tx, "shop", Platform.REST, "c1", state=UserState.STRANGER)
        await turns.people.forget(tx, sender.id)
    assert await revive(turns, claim.turn_id) is not Revival.REVIVED


async def test_what_was_paid_for_is_kept_and_what_was_only_begun_is_begun_anew(turns: Turns, journal: Journal) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await journal.begin(tx, claim, "run_tools", 0, b"look")
        await journal.finish(tx, claim, "run_tools", 0, b"found", facts={"us": 1})
        await journal.begin(tx, claim, "call_model", 0, b"asked long ago")
    await bury(turns, claim)
    assert await revive(turns, claim.turn_id) is Revival.REVIVED
    again = await turns.claim(claim.turn_id)
    async with turns.transactions.begin() as tx:
        tool = await journal.begin(tx, again, "run_tools", 0, b"look again")
        call = await journal.begin(tx, again, "call_model", 0, b"asked now")
    assert (tool.progress, tool.result) == (EffectProgress.DONE, b"found")
    assert (call.progress, call.request) == (EffectProgress.NEW, b"asked now")


async def test_a_message_whose_results_were_emptied_is_not_revived(turns: Turns, journal: Journal) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await journal.begin(tx, claim, "call_model", 0, b"asked")
        await journal.finish(tx, claim, "call_model", 0, b"answered", facts={"us": 1})
    await bury(turns, claim)
    await retention(turns, journal).empty_old(IN_A_MONTH)
    assert await revive(turns, claim.turn_id) is Revival.EMPTIED


async def test_the_attempt_that_apologised_has_ended_and_is_not_cut_off(turns: Turns, journal: Journal) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await journal.add(tx, claim.turn_id, "fallback_used", {"kind": "apology"})
    await bury(turns, claim)
    await revive(turns, claim.turn_id)
    await turns.claim(claim.turn_id)
    timelines = MemoryTimelines(turns.inbox) if isinstance(turns.inbox, MemoryInbox) else PostgresTimelines()
    async with turns.transactions.begin() as tx:
        found = await timelines.read(tx, claim.turn_id)
    assert found is not None
    assert [(each.attempt, each.end) for each in found.attempts] == [(1, AttemptEnd.ENDED), (2, AttemptEnd.RUNNING)]


async def test_a_withdrawn_answer_makes_room_for_another(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await outbox.put(tx, claim, ["sorry"], OutboxState.SENT)
        assert await outbox.withdraw(tx, claim.turn_id) == 1
        assert await outbox.answer(tx, claim.turn_id) is None
        await outbox.put(tx, claim, ["it is the Old Man's"])
        found = await outbox.answer(tx, claim.turn_id)
        assert found is not None
        assert found.text == "it is the Old Man's"
        assert await outbox.withdraw(tx, claim.turn_id) == 0
        assert await outbox.take(tx, claim.conversation_id) is None


@on_postgres
async def test_the_doubts_of_a_withdrawn_answer_are_kept(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await outbox.put(tx, claim, ["sorry"])
        await connection_of(tx).execute("update outbox set doubts = 2")
        await outbox.withdraw(tx, claim.turn_id)
        row = await (await connection_of(tx).execute("select past_doubts from conversations")).fetchone()
    assert row == (2,)


@on_postgres
async def test_what_the_platform_has_of_a_withdrawn_answer_keeps_its_receipts(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    for number in (1, 2):
        async with turns.transactions.begin() as tx:
            await outbox.put(tx, claim, [f"sorry {number}", "and more"])
            await connection_of(tx).execute("update outbox set state = 'sent', message_id = 'm' || id where news = '' and part = 0")
            assert await outbox.withdraw(tx, claim.turn_id) == 1
            assert await outbox.answer(tx, claim.turn_id) is None
            assert await outbox.take_proactive(tx, claim.conversation_id) == []
    async with turns.transactions.begin() as tx:
        kept = await (await connection_of(tx).execute("select news, part, state from outbox order by id")).fetchall()
        listed = await outbox.proactive_messages(tx, "shop", Platform.REST, "c1")
    assert kept == [("withdrawn/1", 0, "sent"), ("withdrawn/2", 0, "sent")]
    assert [message.text for message in listed] == ["sorry 1", "sorry 2"], "they can still be opened"
