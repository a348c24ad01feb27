"""A process of the version before works beside a new one on the migrated schema: either may begin a turn, and the other may end it.

The old process is its own statements, word for word (`version_before/*.sql`), with the values that its code passed."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.gateway.spend_sums import HourSummer
from hermes.ports.inbox import Claim
from hermes.ports.models import CallOutcome, CallPurpose, CallSource, ModelCall
from hermes.ports.sessions import EffectProgress, JournalNote
from hermes.ports.timeline import AttemptEnd, TurnTimeline
from hermes.stores.postgres.database import Database, execute, fetch_rows, fetch_value
from hermes.stores.postgres.journal import PostgresJournal, PostgresTimelines, seal_label
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.queries import split_queries
from hermes.stores.postgres.spend_sums import PostgresSpendSums
from tests.contract.turns import Turns, stored_turns

OLD = {
    file: split_queries((Path(__file__).parent / "version_before" / f"{file}.sql").read_text(encoding="utf-8"))
    for file in ("inbox", "journal", "spend_sums")
}


@dataclass
class OldProcess:
    """A worker of the version before."""

    database: Database
    keyring: Keyring

    async def claim(self, turn_id: UUID) -> dict[str, Any] | None:
        async with self.database.once() as tx:
            rows = await fetch_rows(tx, dict, OLD["inbox"]["claim"], {"turn_id": turn_id})
        return rows[0] if rows else None

    async def begin(self, claim: dict[str, Any], request: bytes) -> tuple[bytes, bytes | None]:
        """Note the first model call; return the request and the result that stand."""
        async with self.database.once() as tx:
            keys = await self.keyring.of(tx, claim["user_id"])
            sealed = keys.seal(seal_label(claim["turn_id"], "call_model", 0, "request"), request)
            if await execute(tx, OLD["journal"]["begin"], {**effect_of(claim), "request": sealed}):
                return request, None
            [known] = await fetch_rows(tx, dict, OLD["journal"]["known"], effect_of(claim))
        result = known["result"]
        opened = None if result is None else keys.open(seal_label(claim["turn_id"], "call_model", 0, "result"), result)
        return keys.open(seal_label(claim["turn_id"], "call_model", 0, "request"), known["request"]), opened

    async def finish(self, claim: dict[str, Any], result: bytes) -> None:
        async with self.database.once() as tx:
            keys = await self.keyring.of(tx, claim["user_id"])
            sealed = keys.seal(seal_label(claim["turn_id"], "call_model", 0, "result"), result)
            await execute(tx, OLD["journal"]["finish"], {**effect_of(claim), "result": sealed, "facts": json.dumps({"backend": "old"})})

    async def record(self, claim: dict[str, Any]) -> None:
        async with self.database.begin() as tx:
            assert await execute(tx, OLD["inbox"]["hold"], claim) == 1
            notes = {"types": ["user_resolved", "credit_posted"], "facts": [json.dumps({"ms": 1}), "{}"]}
            await execute(tx, OLD["journal"]["note"], {**claim, **notes})
            await execute(tx, OLD["inbox"]["finish"], claim)
            await execute(tx, OLD["journal"]["add"], {"turn_id": claim["turn_id"], "type": "memory_saved", "facts": "{}"})


def effect_of(claim: dict[str, Any]) -> dict[str, Any]:
    return {**claim, "step": "call_model", "index": 0}


@pytest.fixture
def old(database: Database, keyring: Keyring) -> OldProcess:
    return OldProcess(database, keyring)


@pytest.fixture
def turns(database: Database, keyring: Keyring) -> Turns:
    return stored_turns(database, keyring)


async def timeline_of(database: Database, turn_id: UUID) -> TurnTimeline:
    async with database.begin() as tx:
        found = await PostgresTimelines().read(tx, turn_id)
    assert found is not None
    return found


async def test_a_turn_that_an_old_process_began_is_ended_by_a_new_one(
    old: OldProcess, turns: Turns, database: Database, keyring: Keyring
) -> None:
    turn_id, worker, journal = await turns.accept(), uuid4(), PostgresJournal(keyring)
    first = await old.claim(turn_id)
    assert first is not None
    assert await old.begin(first, b"asked") == (b"asked", None)
    async with database.begin() as tx:
        claim = await turns.inbox.claim(tx, turn_id, worker=worker)
        assert isinstance(claim, Claim)
        effect = await journal.begin(tx, claim, "call_model", 0, b"asked anew")
        assert (effect.progress, effect.request) == (EffectProgress.STARTED, b"asked"), "what the old one prepared"
        await journal.finish(tx, claim, "call_model", 0, b"answered", facts={"us": 7})
        await journal.note(tx, claim, [JournalNote("turn_recorded", {"worker": str(worker), "began_us": 9, "us": 1})])
        await turns.inbox.finish(tx, claim)
    timeline = await timeline_of(database, turn_id)
    assert [(attempt.attempt, attempt.end, attempt.worker) for attempt in timeline.attempts] == [
        (1, AttemptEnd.CUT_OFF, None),
        (2, AttemptEnd.ENDED, worker),
    ]
    assert [step.step for step in timeline.attempts[1].steps] == ["call_model", "record"]
    assert await old.claim(turn_id) is None, "ended once"


async def test_a_turn_that_a_new_process_began_is_ended_by_an_old_one(
    old: OldProcess, turns: Turns, database: Database, keyring: Keyring
) -> None:
    turn_id, worker, journal = await turns.accept(), uuid4(), PostgresJournal(keyring)
    async with database.begin() as tx:
        claim = await turns.inbox.claim(tx, turn_id, worker=worker)
        assert isinstance(claim, Claim)
        await journal.begin(tx, claim, "call_model", 0, b"asked")
        await journal.finish(tx, claim, "call_model", 0, b"answered", facts={"us": 7})
    second = await old.claim(turn_id)
    assert second is not None
    assert await old.begin(second, b"asked anew") == (b"asked", b"answered"), "paid once"
    await old.record(second)
    timeline = await timeline_of(database, turn_id)
    assert [(attempt.attempt, attempt.end, attempt.worker) for attempt in timeline.attempts] == [
        (1, AttemptEnd.CUT_OFF, None),
        (2, AttemptEnd.ENDED, None),
    ], "no process is named for an attempt that is not its own"
    assert [(step.step, step.us) for step in timeline.attempts[1].steps] == [("resolve_user", 1_000)]
    assert [event.type for event in timeline.later] == ["memory_saved"]
    async with database.begin() as tx:
        assert await turns.inbox.claim(tx, turn_id) is None, "ended once"


async def test_an_old_process_ends_what_it_began_while_the_schema_is_new(old: OldProcess, turns: Turns, database: Database) -> None:
    turn_id = await turns.accept()
    claim = await old.claim(turn_id)
    assert claim is not None
    await old.begin(claim, b"asked")
    await old.finish(claim, b"answered")
    await old.record(claim)
    [attempt] = (await timeline_of(database, turn_id)).attempts
    assert (attempt.end, attempt.worker, [step.step for step in attempt.steps]) == (AttemptEnd.ENDED, None, ["resolve_user", "call_model"])
    async with database.begin() as tx:
        assert await fetch_value(tx, b"select count(*) from run_events where event_number is not null") == 0, "it tells no supervisor"


async def test_a_new_process_fences_an_old_one(old: OldProcess, turns: Turns, database: Database) -> None:
    turn_id = await turns.accept()
    claim = await old.claim(turn_id)
    assert claim is not None
    await turns.claim(turn_id)
    async with database.begin() as tx:
        assert await execute(tx, OLD["inbox"]["hold"], claim) == 0


async def test_what_tools_cost_is_summed_although_an_old_process_sums_the_hour_first(
    turns: Turns, database: Database, keyring: Keyring
) -> None:
    turn_id, journal = await turns.accept(), PostgresJournal(keyring)
    now = datetime.now(UTC)
    hour = (now - timedelta(hours=9)).replace(minute=0, second=0, microsecond=0)
    concluding = ModelCall(
        id=uuid4(),
        day=date(2026, 11, 15),
        account_id="shop",
        source=CallSource.ROUTER,
        tier="free",
        model="m",
        outcome=CallOutcome.ANSWERED,
        latency_ms=1,
        micro_usd=70,
        turn_id=turn_id,
        purpose=CallPurpose.CONCLUDE,
    )
    async with database.begin() as tx:
        claim = await turns.inbox.claim(tx, turn_id)
        assert isinstance(claim, Claim)
        await journal.begin(tx, claim, "run_tools", 0, b"asked")
        await journal.finish(tx, claim, "run_tools", 0, b"found", facts={"name": "search", "ms": 5})
        await PostgresModelCalls().add(tx, concluding)
        at = {"at": hour + timedelta(minutes=5)}
        await execute(tx, b"update calls set created_at = %(at)s", at)
        await execute(
            tx,
            b"with session as (insert into sessions (account_id, conversation_id, user_id, seed, head)"
            b" select account_id, conversation_id, user_id, '', '' from inbox returning id)"
            b" insert into interactions (turn_id, account_id, user_id, session_id, platform, meta, created_at)"
            b" select turn_id, account_id, user_id, session.id, 'rest', '{}', %(at)s from inbox, session",
            at,
        )
        await execute(tx, OLD["spend_sums"]["sum_tools"], {"hour": hour})
        await execute(tx, OLD["spend_sums"]["mark"], {"name": "tools", "summed_to": now})
    await HourSummer(database, PostgresSpendSums()).sum_recent()
    async with database.begin() as tx:
        [sums] = await fetch_rows(tx, dict, b"select tool, runs, micro_usd from tool_hours", {})
    assert sums == {"tool": "search", "runs": 1, "micro_usd": 70}
