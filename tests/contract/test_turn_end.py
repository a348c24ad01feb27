"""An ordinary turn that begins and ends in one statement leaves what the stores leave one by one; and if it cannot, it leaves nothing."""

from dataclasses import dataclass, replace
from datetime import date
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.errors import NoDataFound

from hermes.graph import CallRecord
from hermes.ports.credits import ReserveOutcome
from hermes.ports.errors import ClaimLost
from hermes.ports.inbox import Claim
from hermes.ports.models import CallOutcome, CallSource, ModelCall
from hermes.ports.outbox import OutboxState
from hermes.ports.session import Session
from hermes.ports.sessions import AppendResult, GraphEntry, JournalNote
from hermes.ports.turn_end import CallEnd, TurnEnd, appended_meta
from hermes.ports.users import UserState
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.job_queue import open_job_queue
from hermes.stores.postgres.journal import PostgresInteractions, PostgresJournal
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.postgres.turn_end import PostgresTurnEnds
from hermes.stores.postgres.users import PostgresUsers
from tests.contract.turns import stored_turns

NOTES = (
    JournalNote("soul_loaded", {"us": 40, "ms": 0, "began_us": 10, "is_recall_used": False}, 900, 860),
    JournalNote("credit_posted", {}, 500, 500),
    JournalNote("turn_recorded", {"us": 300, "ms": 0, "began_us": 700, "outcome": "answered", "worker": "w"}, 400, 100),
)


@dataclass
class Stores:
    """The stores that a turn's end writes to."""

    database: Database
    keyring: Keyring

    def __post_init__(self) -> None:
        self.turns = stored_turns(self.database, self.keyring)
        self.ends, self.graphs, self.sessions = PostgresTurnEnds(self.keyring), PostgresGraphs(self.keyring), PostgresSessions(self.keyring)
        self.credits, self.outbox, self.journal = PostgresCredits(), PostgresOutbox(self.keyring), PostgresJournal(self.keyring)

    async def begun_turn(self, channel: str, *, has_credit: bool = True) -> tuple[Claim, Session]:
        """A claimed turn with its session and, if the user has one, a reserved credit."""
        claim = await self.turns.new_claim(channel=channel)
        async with self.database.begin() as tx:
            session = await self.sessions.current(tx, claim.conversation_id, claim.user_id)
            if has_credit:
                await self.credits.grant(tx, claim.user_id, 3, f"signup:{claim.user_id}")
                await self.credits.reserve(tx, claim.user_id, claim.turn_id)
        return claim, session

    def end(self, session: Session, *, sample: str = "call-1", **changes: Any) -> TurnEnd:
        answer = {"role": "assistant", "content": "It opens at five."}
        end = TurnEnd(
            session_id=session.id,
            head=session.head,
            entries=[
                GraphEntry({"role": "user", "content": "when does it open?"}),
                GraphEntry(answer, is_sampled=True, call=CallRecord(model="m-1", sample_id=sample), system="You are Hermes."),
            ],
            meta={"outcome": "answered", "tokens_in": 3},
            parts=["It opens at five.", {"text": "More?"}],
            state=OutboxState.PENDING,
            notes=NOTES,
            is_learned=False,
        )
        return replace(end, **changes)

    async def end_at_once(self, claim: Claim, end: TurnEnd) -> AppendResult | None:
        async with self.database.once() as tx:
            return await self.ends.end(tx, claim, end)

    async def end_in_steps(self, claim: Claim, end: TurnEnd) -> AppendResult:
        async with self.database.begin() as tx:
            await self.turns.inbox.hold(tx, claim)
            appended = await self.graphs.append(tx, end.session_id, end.head, end.entries)
            await self.credits.post(tx, claim.turn_id)
            await PostgresInteractions().add(tx, claim, end.session_id, {**end.meta, **appended_meta(appended)})
            await self.outbox.put(tx, claim, end.parts, end.state)
            await self.turns.inbox.finish(tx, claim)
            await self.journal.note(tx, claim, end.notes)
        return appended

    async def rows(self, query: str, *values: object) -> list[Any]:
        async with self.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode(), values)).fetchall()

    async def left(self, claim: Claim, session: Session) -> dict[str, Any]:
        """What a turn left, without its ids and times."""
        async with self.database.begin() as tx:
            graph, answer = await self.graphs.load(tx, session.id), await self.outbox.answer(tx, claim.turn_id)
            balance = await self.credits.balance(tx, claim.user_id)
            faults = await self.credits.audit(tx)
        meta: dict[str, Any] = dict(answer.meta) if answer is not None else {}
        return {
            "messages": [dict(message) for message in graph],
            "samples": [
                (response.call and response.call.model, [dict(message) for message in response.context]) for response in graph.responses()
            ],
            "answer": None if answer is None else answer.text,
            "meta": {name: len(value) if name in {"nodes", "context_ids", "head"} else value for name, value in meta.items()},
            "balance": balance,
            "faults": faults,
            "ledger": await self.rows("select kind, amount from credit_entries where turn_id = %s order by id", claim.turn_id),
            "inbox": await self.rows("select state, ended_at is not null from inbox where turn_id = %s", claim.turn_id),
            "runs": await self.rows("select state, ended_at is not null from runs where turn_id = %s", claim.turn_id),
            "session": await self.rows("select length, head <> %s from sessions where id = %s", session.head, session.id),
            "outbox": await self.rows(
                "select part, seq, state, is_message, news, platform, account_id from outbox where turn_id = %s order by id", claim.turn_id
            ),
            "journal": await self.rows(
                "select step, index, type, attempt, facts - 'us' - 'ms', done_at >= started_at, event_number is not null, xid is not null "
                "from run_events where turn_id = %s order by id",
                claim.turn_id,
            ),
        }


@pytest.fixture
def stores(database: Database, keyring: Keyring) -> Stores:
    return Stores(database, keyring)


async def test_it_leaves_what_the_stores_leave_one_by_one(stores: Stores) -> None:
    one, first = await stores.begun_turn("one")
    other, second = await stores.begun_turn("other")
    at_once, in_steps = await stores.end_at_once(one, stores.end(first)), await stores.end_in_steps(other, stores.end(second))
    assert at_once is not None
    assert (len(at_once.nodes), len(at_once.contexts)) == (len(in_steps.nodes), len(in_steps.contexts)) == (2, 1)
    left = await stores.left(one, first)
    assert left == await stores.left(other, second)
    assert (left["answer"], left["inbox"], left["faults"]) == ("It opens at five.\nMore?", [("done", True)], [])
    assert [kind for kind, _ in left["ledger"]] == ["reserve", "post"]


async def test_the_last_note_has_the_time_of_the_statement_too(stores: Stores) -> None:
    claim, session = await stores.begun_turn("one")
    await stores.end_at_once(claim, stores.end(session))
    [(us, lasted)] = await stores.rows(
        "select (facts ->> 'us')::int, extract(epoch from done_at - started_at) * 1e6 from run_events where type = 'turn_recorded'"
    )
    assert us > 300
    assert abs(us - float(lasted)) <= 1


async def nothing_is_written(stores: Stores, claim: Claim, session: Session, before: dict[str, Any]) -> None:
    assert await stores.left(claim, session) == before
    [(state,)] = await stores.rows("select state from inbox where turn_id = %s", claim.turn_id)
    assert state == "waiting"


async def test_a_worker_that_has_lost_its_claim_writes_nothing(stores: Stores) -> None:
    claim, session = await stores.begun_turn("one")
    await stores.turns.claim(claim.turn_id)
    before = await stores.left(claim, session)
    with pytest.raises(ClaimLost):
        await stores.end_at_once(claim, stores.end(session))
    await nothing_is_written(stores, claim, session, before)


@pytest.mark.parametrize("why", ["the list has another head", "no reserve is open", "the sample is known", "the session is unknown here"])
async def test_what_is_not_ordinary_is_left_to_the_stores(stores: Stores, keyring: Keyring, why: str) -> None:
    claim, session = await stores.begun_turn("one", has_credit=why != "no reserve is open")
    end = stores.end(session)
    news = [GraphEntry({"role": "user", "content": "news"})]
    written = {"the list has another head": news, "the sample is known": end.entries}.get(why)
    if written is not None:
        async with stores.database.begin() as tx:
            appended = await stores.graphs.append(tx, session.id, session.head, written)
        end = replace(end, head=appended.head) if why == "the sample is known" else end
    if why == "the session is unknown here":
        stores.ends = PostgresTurnEnds(Keyring(keyring._masters))
    before = await stores.left(claim, session)
    assert await stores.end_at_once(claim, end) is None
    await nothing_is_written(stores, claim, session, before)


async def test_the_turns_job_ends_with_it_and_a_job_to_learn_begins(stores: Stores) -> None:
    claim, session = await stores.begun_turn("one")
    async with open_job_queue(stores.database) as work, stores.database.begin() as tx:
        for turn_id in (claim.turn_id, uuid4()):
            await work.defer_turn(tx, turn_id, claim.conversation_id)
        await connection_of(tx).execute(b"update procrastinate_jobs set status = 'doing' where args ->> 'id' = %s", [str(claim.turn_id)])
    await stores.end_at_once(claim, stores.end(session, is_learned=True))
    query = "select task_name, queue_name, status::text, lock, args ->> 'id' = %s from procrastinate_jobs order by id"
    jobs = await stores.rows(query, str(claim.turn_id))
    assert jobs == [
        ("turn", "turns", "todo", f"in:{claim.conversation_id}", False),
        ("memory", "memory", "todo", f"memory:{claim.user_id}", True),
    ]


# --- the beginning


async def started(stores: Stores, turn_id: UUID, *, per_minute: int = 30) -> Claim:
    inbox = PostgresInbox(stores.keyring, idle_s=60.0)
    async with stores.database.once() as tx:
        claim = await inbox.claim(tx, turn_id, per_minute=per_minute)
    assert isinstance(claim, Claim)
    return claim


async def test_a_claim_finds_user_and_session_and_reserves_the_credit(stores: Stores) -> None:
    first, session = await stores.begun_turn("one")
    await stores.end_at_once(first, stores.end(session))
    claim = await started(stores, await stores.turns.accept(channel="one"))
    assert claim.start is not None
    async with stores.database.begin() as tx:
        assert claim.start.user == await PostgresUsers(stores.keyring).get(tx, claim.user_id)
        assert claim.start.session == await stores.sessions.find_current(tx, claim.conversation_id)
        balance = await stores.credits.balance(tx, claim.user_id)
    assert (claim.start.credit, balance.reserved, balance.available) == (ReserveOutcome.RESERVED, 1, 1)
    again = await started(stores, claim.turn_id)
    assert again.start is not None
    assert again.start.credit is ReserveOutcome.RESERVED, "the same credit, not another one"
    async with stores.database.begin() as tx:
        assert await stores.credits.balance(tx, claim.user_id) == balance


async def test_a_claim_reserves_nothing_for_a_sender_who_is_refused_or_has_no_credit(stores: Stores) -> None:
    poor = await started(stores, await stores.turns.accept(channel="poor"))
    assert poor.start is not None
    assert (poor.start.credit, poor.start.session) == (ReserveOutcome.OUT_OF_CREDIT, None)
    stranger = await stores.turns.accept(channel="stranger")
    change = "update users set state = %s where id = (select user_id from inbox where turn_id = %s) returning id"
    await stores.rows(change, UserState.STRANGER, stranger)
    refused = await started(stores, stranger)
    assert refused.start is not None
    assert refused.start.credit is None
    assert await stores.rows("select from credit_entries where kind = 'reserve'") == []


# --- a model call of a turn


def call_of(claim: Claim, *, micro_usd: int = 70) -> ModelCall:
    return ModelCall(
        id=uuid4(),
        day=date(2026, 3, 2),
        account_id="shop",
        source=CallSource.ROUTER,
        tier="free",
        model="m-1",
        outcome=CallOutcome.ANSWERED,
        latency_ms=12,
        user_id=claim.user_id,
        turn_id=claim.turn_id,
        micro_usd=micro_usd,
    )


async def end_call(stores: Stores, claim: Claim, result: bytes, call: ModelCall) -> bytes:
    async with stores.database.once() as tx:
        return await stores.ends.end_call(tx, claim, CallEnd("call_model", 0, result, {"us": 1_000, "backend": "m"}, call))


async def cost_of(stores: Stores, claim: Claim) -> tuple[int, int]:
    async with stores.database.begin() as tx:
        totals = await PostgresModelCalls().cost_of_turn(tx, claim.turn_id)
    return totals.calls, totals.micro_usd


async def test_a_model_call_leaves_its_row_and_its_result_together(stores: Stores) -> None:
    claim = await stores.turns.new_claim()
    async with stores.database.begin() as tx:
        await stores.journal.begin(tx, claim, "call_model", 0, b"as sent")
    assert await end_call(stores, claim, b"paid", call_of(claim)) == b"paid"
    assert await cost_of(stores, claim) == (1, 70)
    async with stores.database.begin() as tx:
        effect = await stores.journal.effect(tx, claim.turn_id, "call_model", 0)
        [event] = [event for event in await stores.journal.read(tx, claim.turn_id) if event.step == "call_model"]
    assert effect is not None
    assert (effect.request, effect.result) == (b"as sent", b"paid")
    assert (event.attempt, event.epoch, event.facts, event.done_at is not None) == (1, claim.epoch, {"us": 1_000, "backend": "m"}, True)


async def test_the_first_result_of_a_model_call_stands_and_each_paid_call_has_its_row(stores: Stores) -> None:
    turn_id = await stores.turns.accept()
    paused = await stores.turns.claim(turn_id)
    async with stores.database.begin() as tx:
        await stores.journal.begin(tx, paused, "call_model", 0, b"as sent")
    second = await stores.turns.claim(turn_id)
    async with stores.database.begin() as tx:
        await stores.journal.begin(tx, second, "call_model", 0, b"as sent")
    assert await end_call(stores, paused, b"first", call_of(paused, micro_usd=70)) == b"first"
    assert await end_call(stores, second, b"second", call_of(second, micro_usd=30)) == b"first"
    assert await cost_of(stores, second) == (2, 100)


async def test_a_model_call_that_is_noted_twice_has_one_row(stores: Stores) -> None:
    claim = await stores.turns.new_claim()
    async with stores.database.begin() as tx:
        await stores.journal.begin(tx, claim, "call_model", 0, b"as sent")
    call = call_of(claim)
    assert [await end_call(stores, claim, b"paid", call) for _ in range(2)] == [b"paid", b"paid"]
    assert await cost_of(stores, claim) == (1, 70)


async def test_a_result_without_a_beginning_is_refused_and_leaves_no_row(stores: Stores) -> None:
    claim = await stores.turns.new_claim()
    with pytest.raises(NoDataFound, match=r"call_model\[0\]"):
        await end_call(stores, claim, b"paid", call_of(claim))
    assert await cost_of(stores, claim) == (0, 0)
