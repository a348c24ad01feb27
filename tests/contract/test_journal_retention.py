"""The journal's retention: content of turns that ended long ago goes, facts stay, and a turn that has not ended is never touched.

On both adapters, and with many rows on PostgreSQL."""

import time
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from hermes.ports.inbox import Claim, Inbox
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import Journal
from hermes.ports.timeline import TurnTimelines
from hermes.router.journal_retention import JournalRetention
from hermes.stores.postgres.database import connection_of, fetch_value
from hermes.stores.postgres.journal import PostgresJournal, PostgresTimelines
from hermes.stores.postgres.keyring import Keyring
from hermes.testing.memory import MemoryInbox, MemoryJournal, MemoryTimelines
from tests.contract.turns import Turns, on_postgres

IN_A_MONTH = datetime.now(UTC) + timedelta(days=31)
MAX_BATCH_S = 2.0
"""Far above what a batch takes (35 ms on two busy cores), and far below the 30 s that a statement may take."""


@pytest.fixture
def journal(inbox: Inbox, keyring: Keyring) -> Journal:
    return MemoryJournal(inbox=inbox) if isinstance(inbox, MemoryInbox) else PostgresJournal(keyring)


@pytest.fixture
def timelines(inbox: Inbox) -> TurnTimelines:
    return MemoryTimelines(inbox) if isinstance(inbox, MemoryInbox) else PostgresTimelines()


async def no_pause(_: float) -> None:
    return


def retention(turns: Turns, journal: Journal, *, keep_days: int = 30, batch_size: int = 2) -> JournalRetention:
    return JournalRetention(turns.transactions, journal, keep_days, batch_size=batch_size, pause=no_pause)


async def answered_turn(turns: Turns, journal: Journal, *, has_ended: bool = True, channel: str = "c1") -> UUID:
    claim = await turns.new_claim(channel=channel)
    async with turns.transactions.begin() as tx:
        for step in ("call_model", "run_tools", "compact"):
            await journal.begin(tx, claim, step, 0, b"asked")
            await journal.finish(tx, claim, step, 0, b"answered", facts={"backend": "scripted", "us": 5})
        if has_ended:
            await turns.inbox.finish(tx, claim)
    return claim.turn_id


async def contents(turns: Turns, timelines: TurnTimelines, turn_id: UUID) -> set[bool]:
    async with turns.transactions.begin() as tx:
        found = await timelines.read(tx, turn_id)
    assert found is not None
    return {effect.has_content for attempt in found.attempts for step in attempt.steps for effect in step.effects}


async def test_content_goes_and_facts_stay(turns: Turns, journal: Journal, timelines: TurnTimelines) -> None:
    turn_id = await answered_turn(turns, journal)
    async with turns.transactions.begin() as tx:
        before = await timelines.read(tx, turn_id)
    assert await retention(turns, journal).empty_old(IN_A_MONTH) == 3
    assert await contents(turns, timelines, turn_id) == {False}
    async with turns.transactions.begin() as tx:
        after = await timelines.read(tx, turn_id)
        assert await journal.effect(tx, turn_id, "call_model", 0) is None
    assert before is not None
    assert after is not None
    told = [
        [
            (effect.type, effect.started_at, effect.done_at, effect.us, dict(effect.facts))
            for step in each.attempts[0].steps
            for effect in step.effects
        ]
        for each in (before, after)
    ]
    assert told[0] == told[1]
    assert await retention(turns, journal).empty_old(IN_A_MONTH) == 0, "nothing is left to empty"


async def test_turns_that_ended_lately_and_turns_that_have_not_ended_are_not_touched(
    turns: Turns, journal: Journal, timelines: TurnTimelines
) -> None:
    turn_id, waiting = await answered_turn(turns, journal), await answered_turn(turns, journal, has_ended=False, channel="c2")
    assert await retention(turns, journal).empty_old(datetime.now(UTC) + timedelta(days=29)) == 0
    assert await retention(turns, journal, keep_days=0).empty_old(IN_A_MONTH) == 0, "0 keeps everything"
    assert await contents(turns, timelines, turn_id) == {True}
    assert await retention(turns, journal).empty_old(IN_A_MONTH) == 3
    assert (await contents(turns, timelines, turn_id), await contents(turns, timelines, waiting)) == ({False}, {True})
    again = await turns.claim(waiting)
    async with turns.transactions.begin() as tx:
        assert (await journal.begin(tx, again, "call_model", 0, b"new")).result == b"answered", "a turn that is driven again pays once"


async def test_a_turn_whose_journal_was_emptied_cannot_be_driven_again(turns: Turns, journal: Journal) -> None:
    turn_id = await answered_turn(turns, journal)
    await retention(turns, journal).empty_old(IN_A_MONTH)
    async with turns.transactions.begin() as tx:
        assert await turns.inbox.claim(tx, turn_id) is None


async def test_many_turns_are_emptied_batch_by_batch_past_those_that_wait(turns: Turns, journal: Journal, timelines: TurnTimelines) -> None:
    waiting = await answered_turn(turns, journal, has_ended=False, channel="first")
    ended = [await answered_turn(turns, journal, channel=f"c{n}") for n in range(5)]
    assert await retention(turns, journal).empty_old(IN_A_MONTH) == 15
    assert [await contents(turns, timelines, turn_id) for turn_id in ended] == [{False}] * 5
    assert await contents(turns, timelines, waiting) == {True}


class Interrupted(Exception):
    """The process was killed here."""


async def test_a_run_that_was_cut_off_is_continued(turns: Turns, journal: Journal, timelines: TurnTimelines) -> None:
    ended = [await answered_turn(turns, journal, channel=f"c{n}") for n in range(4)]

    async def killed(_: float) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        await JournalRetention(turns.transactions, journal, 30, batch_size=2, pause=killed).empty_old(IN_A_MONTH)
    async with turns.transactions.begin() as tx:
        left = [await journal.effect(tx, turn_id, "call_model", 0) is not None for turn_id in ended]
    assert True in left
    assert False in left
    await retention(turns, journal).empty_old(IN_A_MONTH)
    assert [await contents(turns, timelines, turn_id) for turn_id in ended] == [{False}] * 4


@on_postgres
async def test_what_tools_brought_and_the_keys_of_an_earlier_version_go_too(turns: Turns, journal: Journal) -> None:
    turn_id = await answered_turn(turns, journal)
    async with turns.transactions.begin() as tx:
        message = await turns.inbox.message_of(tx, turn_id)
        assert message is not None
        await journal.add(tx, turn_id, "memory_saved", {"added": 1, "keys": ["allergies"]})
        await connection_of(tx).execute(
            "insert into tool_effects (turn_id, call_index, user_id, tool, result) values (%s, 0, %s, 'venue_search', 'sealed')",
            [turn_id, message.user_id],
        )
    await retention(turns, journal).empty_old(IN_A_MONTH)
    async with turns.transactions.begin() as tx:
        assert await fetch_value(tx, b"select count(*) from tool_effects where result is not null") == 0
        assert [dict(event.facts) for event in await journal.read(tx, turn_id) if event.type == "memory_saved"] == [{"added": 1}]


@on_postgres
async def test_of_a_hundred_thousand_rows_one_batch_is_short_and_reads_no_more_than_its_own(turns: Turns, journal: Journal) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await fill(tx, claim, turns=10_000, notes=8)
    took = []
    after_id, has_more, emptied = 0, True, 0
    while has_more:
        began = time.perf_counter()
        async with turns.transactions.once() as tx:
            batch = await journal.empty(tx, ended_before=IN_A_MONTH - timedelta(days=30), after_id=after_id, limit=1_000)
        took.append(time.perf_counter() - began)
        after_id, has_more, emptied = batch.last_id, batch.has_more, emptied + batch.emptied
    assert emptied == 20_000
    assert max(took) < MAX_BATCH_S
    async with turns.transactions.begin() as tx:
        assert await fetch_value(tx, b"select count(*) from run_events where request is not null") == 1, "that of the turn that waits"
        plan = str(await (await connection_of(tx).execute(EXPLAIN)).fetchall())
    assert "Seq Scan" not in plan
    assert plan.count("Index Only Scan") == plan.count("_id_idx") + plan.count("_with_content"), "what was emptied is not read again"


EXPLAIN = """
explain select id from run_events where (request is not null or result is not null) and id > 0 order by id limit 1000
"""


async def fill(tx: Transaction, claim: Claim, *, turns: int, notes: int) -> None:
    """Add ended turns to the claim's conversation, each with two effects of a few kilobytes and some notes; and one effect of the claim."""
    values = {"turn_id": claim.turn_id, "turns": turns, "notes": notes, "marker": str(uuid4())}
    connection = connection_of(tx)
    await connection.execute(
        """insert into inbox (turn_id, account_id, event_key, conversation_id, user_id, seq, envelope, state, ended_at)
        select gen_random_uuid(), account_id, %(marker)s || n, conversation_id, user_id, 1 + n, envelope, 'done', now() - interval '40 days'
        from inbox, generate_series(1, %(turns)s) as n where turn_id = %(turn_id)s""",
        values,
    )
    await connection.execute(
        """insert into run_events (turn_id, step, index, type, attempt, request, result, started_at, done_at)
        select turn_id, case when part < 2 then 'call_model' else 'note' end, part, case when part < 2 then 'effect' else 'note' end, 1,
            case when part < 2 then decode(repeat(md5(part::text || turn_id), 100), 'hex') end,
            case when part < 2 then decode(repeat(md5(turn_id || part::text), 30), 'hex') end,
            now() - interval '40 days', now() - interval '40 days'
        from inbox, generate_series(0, 1 + %(notes)s) as part where state = 'done'""",
        values,
    )
    await connection.execute(
        "insert into run_events (turn_id, step, index, type, attempt, request) values (%(turn_id)s, 'call_model', 0, 'effect', 1, 'x')",
        values,
    )
    # As autovacuum does in a Hermes that has run for a month: without figures about so many new rows, PostgreSQL plans for an empty table.
    await connection.execute("analyze inbox, run_events")
