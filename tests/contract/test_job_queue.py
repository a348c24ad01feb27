"""Durable work: deferred with the caller's transaction, in order per conversation, taken over from the dead, ended only by its owner."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest
import structlog

from hermes.ports.inbox import Claim, UnreadableMessage
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.job_queue import PostgresJobQueue, TurnClaims, WorkerOptions, open_job_queue
from hermes.stores.postgres.job_worker import Job, RunningJobs, end_job
from hermes.stores.postgres.keyring import Keyring
from tests.contract.turns import new_turn

QUICK = WorkerOptions(
    concurrency=8,
    poll_s=0.2,
    heartbeat_s=0.2,
    stalled_after_s=1.0,
    sweep_s=0.2,
    drain_s=2.0,
    lost_after_s=0.0,
    proactive_waits_s=(0.01, 0.01),
    memory_waits_s=(0.01, 0.01),
)
PATIENCE_S = 20.0


@pytest.fixture
async def work(database: Database) -> AsyncIterator[PostgresJobQueue]:
    async with open_job_queue(database) as work:
        yield work


class Recorder:
    """Hands that note what they were given, and do what they are told to."""

    def __init__(self, act: Callable[[UUID], Awaitable[None]] | None = None) -> None:
        self.begun: list[UUID] = []
        self.ended: list[UUID] = []
        self.delivered: list[UUID] = []
        self.told: list[UUID] = []
        self.learnt: list[UUID] = []
        self.at_once = self.most_at_once = 0
        self.act = act

    async def turn(self, turn_id: UUID) -> None:
        self.begun.append(turn_id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.act is not None:
                await self.act(turn_id)
            self.ended.append(turn_id)
        finally:
            self.at_once -= 1

    async def delivery(self, conversation_id: UUID) -> None:
        self.delivered.append(conversation_id)

    async def proactive(self, conversation_id: UUID) -> None:
        self.told.append(conversation_id)
        self.begun.append(conversation_id)

    async def memory(self, turn_id: UUID) -> None:
        self.learnt.append(turn_id)
        if self.act is not None:
            await self.act(turn_id)


@asynccontextmanager
async def working(
    work: PostgresJobQueue, hands: Recorder, pace: WorkerOptions = QUICK, claims: TurnClaims | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """A worker that runs as long as the block lasts."""
    task = asyncio.create_task(work.run(hands, pace, claims=claims))
    try:
        yield task
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.01)


async def defer(database: Database, work: PostgresJobQueue, conversation: UUID, count: int) -> list[UUID]:
    turns = [uuid4() for _ in range(count)]
    for turn_id in turns:
        async with database.begin() as tx:
            await work.defer_turn(tx, turn_id, conversation)
    return turns


async def jobs_left(database: Database) -> list[tuple[str, int]]:
    async with database.begin() as tx:
        return await (await connection_of(tx).execute("select status::text, attempts from procrastinate_jobs order by id")).fetchall()


async def test_a_job_is_there_exactly_when_its_transaction_was_committed(database: Database, work: PostgresJobQueue) -> None:

    async def change_of_mind() -> None:
        async with database.begin() as tx:
            await work.defer_turn(tx, uuid4(), uuid4())
            raise LookupError

    with pytest.raises(LookupError):
        await change_of_mind()
    assert await jobs_left(database) == []
    await defer(database, work, uuid4(), 1)
    assert await jobs_left(database) == [("todo", 0)]


async def test_turns_of_one_conversation_run_one_at_a_time_in_order(database: Database, work: PostgresJobQueue) -> None:
    turns = await defer(database, work, uuid4(), 20)
    hands = Recorder(lambda _: asyncio.sleep(0.005))
    began = time.monotonic()
    async with working(work, hands, WorkerOptions(concurrency=8, poll_s=60.0)):
        await until(lambda: len(hands.ended) == 20)
    assert (hands.begun, hands.most_at_once) == (turns, 1)
    assert time.monotonic() - began < PATIENCE_S, "each one starts when the one before it ends, not at the next poll"
    assert await jobs_left(database) == []


async def test_conversations_run_side_by_side(database: Database, work: PostgresJobQueue) -> None:
    for _ in range(6):
        await defer(database, work, uuid4(), 1)
    gate = asyncio.Event()

    async def wait(_: UUID) -> None:
        await gate.wait()

    hands = Recorder(wait)
    async with working(work, hands):
        await until(lambda: hands.at_once == 6)
        gate.set()
        await until(lambda: len(hands.ended) == 6)


async def test_a_failed_turn_is_tried_again_and_those_behind_it_wait(database: Database, work: PostgresJobQueue) -> None:
    first, second = await defer(database, work, uuid4(), 2)
    failures = iter([ConnectionError, ValueError])

    async def act(turn_id: UUID) -> None:
        if turn_id == first and (error := next(failures, None)):
            raise error

    hands = Recorder(act)
    async with working(work, hands):
        await until(lambda: len(hands.ended) == 2)
    assert hands.begun == [first, first, first, second]


async def test_a_delayed_head_holds_its_conversation_back(database: Database, work: PostgresJobQueue) -> None:
    """Known of the queue: the lock looks at ids, not at times, so a delayed head holds its conversation. Deliveries count on it."""
    conversation = uuid4()
    async with database.begin() as tx:
        task = work._app.configure_task(
            "turn", queue="turns", lock=f"in:{conversation}", schedule_in={"seconds": 2}, connection=connection_of(tx)
        )
        delayed = uuid4()
        await task.defer_async(id=str(delayed))
    [behind] = await defer(database, work, conversation, 1)
    hands = Recorder()
    async with working(work, hands):
        await until(lambda: len(hands.ended) == 2)
    assert hands.ended == [delayed, behind]


async def test_one_delivery_at_most_waits_for_a_conversation(database: Database, work: PostgresJobQueue) -> None:
    conversation = uuid4()

    async def ask() -> None:
        async with database.begin() as tx:
            await work.defer_delivery(tx, conversation)

    await asyncio.gather(*(ask() for _ in range(8)))
    assert await jobs_left(database) == [("todo", 0)]
    hands = Recorder()
    async with working(work, hands):
        await until(lambda: hands.delivered == [conversation])
    await ask()
    assert await jobs_left(database) == [("todo", 0)]


@pytest.mark.parametrize("way", ["it fails", "its worker dies"])
async def test_a_delivery_gives_way_to_the_one_that_waits_already(database: Database, work: PostgresJobQueue, way: str) -> None:
    """Of one conversation's deliveries one may wait, so the older one must not come back to wait beside it, nor stop the sweep."""
    conversation = uuid4()
    async with database.begin() as tx:
        await work.defer_delivery(tx, conversation)
        await connection_of(tx).execute("insert into procrastinate_workers (id) overriding system value values (1)")
        await connection_of(tx).execute("update procrastinate_jobs set status = 'doing', worker_id = 1, abort_requested = true")
        [(job_id,)] = await (await connection_of(tx).execute("select id from procrastinate_jobs")).fetchall()
        await work.defer_delivery(tx, conversation)
    if way == "it fails":
        await end_job(database, Job(job_id, "delivery", conversation, attempts=0, worker_id=1), "retry", wait_s=0.0)
    else:
        async with database.begin() as tx:
            await connection_of(tx).execute("delete from procrastinate_workers")
        await work.sweep(RunningJobs(), QUICK)
    assert await jobs_left(database) == [("todo", 0)]


async def test_the_jobs_of_a_dead_worker_are_given_to_somebody_else(database: Database, work: PostgresJobQueue) -> None:
    turns = await defer(database, work, uuid4(), 3)
    async with database.begin() as tx:  # a worker that took the first job and was killed
        await connection_of(tx).execute(
            "insert into procrastinate_workers (id, last_heartbeat) overriding system value values (999, now() - interval '1 min')"
        )
        await connection_of(tx).execute(
            "update procrastinate_jobs set status = 'doing', worker_id = 999 where args ->> 'id' = %s", [str(turns[0])]
        )
    hands = Recorder()
    async with working(work, hands):
        await until(lambda: len(hands.ended) == 3)
    assert hands.ended == turns


async def test_a_living_worker_keeps_its_long_job(database: Database, work: PostgresJobQueue) -> None:
    await defer(database, work, uuid4(), 1)
    hands = Recorder(lambda _: asyncio.sleep(2.5))
    async with working(work, hands):
        await until(lambda: len(hands.ended) == 1)
    assert len(hands.begun) == 1


async def test_a_job_whose_end_could_not_be_written_down_is_found_again(database: Database, work: PostgresJobQueue) -> None:
    await defer(database, work, uuid4(), 1)
    hands = Recorder()
    shift = RunningJobs(workers={1})
    async with database.begin() as tx:
        await connection_of(tx).execute("insert into procrastinate_workers (id) overriding system value values (1)")
        await connection_of(tx).execute("update procrastinate_jobs set status = 'doing', worker_id = 1")
    await work.sweep(shift, QUICK)
    assert await jobs_left(database) == [("doing", 0)], "once may be bad luck"
    await work.sweep(shift, QUICK)
    assert await jobs_left(database) == [("todo", 1)]
    assert hands.begun == []


async def test_a_worker_that_wakes_up_late_does_not_end_what_was_given_to_another(database: Database, work: PostgresJobQueue) -> None:
    await defer(database, work, uuid4(), 1)
    async with database.begin() as tx:
        await connection_of(tx).execute("insert into procrastinate_workers (id) overriding system value values (1), (2)")
        await connection_of(tx).execute("update procrastinate_jobs set status = 'doing', worker_id = 2")
        [(job_id,)] = await (await connection_of(tx).execute("select id from procrastinate_jobs")).fetchall()
    late = Job(job_id, "turn", uuid4(), attempts=0, worker_id=1)
    await end_job(database, late, "finish")
    await end_job(database, late, "retry", wait_s=3_600.0)
    assert await jobs_left(database) == [("doing", 0)]
    await end_job(database, late._replace(worker_id=2), "finish")
    assert await jobs_left(database) == []


async def test_a_message_without_any_job_gets_one(database: Database, keyring: Keyring, work: PostgresJobQueue) -> None:
    turns = [await new_turn(database, keyring, text) for text in ("one", "two")]
    hands = Recorder()
    async with database.begin() as tx:
        await connection_of(tx).execute("update inbox set received_at = now() - interval '1 min'")
    await work.sweep(RunningJobs(), QUICK)
    await work.sweep(RunningJobs(), QUICK)
    async with working(work, hands, WorkerOptions(poll_s=0.2)):
        await until(lambda: len(hands.ended) == 2)
    assert hands.ended == turns, "once each, in the order of the conversation"


async def test_a_worker_that_is_told_to_stop_lets_its_turns_end(database: Database, work: PostgresJobQueue) -> None:
    one, two = (await defer(database, work, uuid4(), 1))[0], (await defer(database, work, uuid4(), 1))[0]
    hands = Recorder(lambda turn_id: asyncio.sleep(0.5 if turn_id == one else 60))
    async with working(work, hands, WorkerOptions(drain_s=1.0)):
        await until(lambda: hands.at_once == 2)
    assert hands.ended == [one]
    assert await jobs_left(database) == [("todo", 1)], f"{two} goes back, for the next worker"


async def test_what_waits_is_counted(database: Database, work: PostgresJobQueue) -> None:
    await defer(database, work, uuid4(), 3)
    async with database.begin() as tx:
        await work.defer_delivery(tx, uuid4(), in_s=60)
        await work.defer_memory(tx, uuid4(), uuid4())
        assert await work.waiting(tx) == {"turns": 3, "deliveries": 1, "memory": 1}


# --- news


async def test_news_are_written_between_the_turns_before_and_those_after(database: Database, work: PostgresJobQueue) -> None:
    """A turn that failed and waits for its next try has pinned its list already; nothing may come in between."""
    conversation, failures = uuid4(), iter([ValueError])
    before = await defer(database, work, conversation, 2)
    async with database.begin() as tx:
        await work.defer_proactive(tx, conversation)
        await work.defer_proactive(tx, conversation)
    after = await defer(database, work, conversation, 1)

    async def act(turn_id: UUID) -> None:
        if turn_id == before[0] and (error := next(failures, None)):
            raise error

    hands = Recorder(act)
    async with working(work, hands):
        await until(lambda: len(hands.ended) == 3)
    assert hands.begun == [before[0], *before, conversation, *after], "once, though it was asked for twice"


async def test_news_that_cannot_be_written_do_not_hold_their_conversation_for_ever(database: Database, work: PostgresJobQueue) -> None:
    conversation = uuid4()
    async with database.begin() as tx:
        await work.defer_proactive(tx, conversation)
    [behind] = await defer(database, work, conversation, 1)

    class Clumsy(Recorder):
        async def proactive(self, conversation_id: UUID) -> None:
            self.told.append(conversation_id)
            raise ValueError

    hands = Clumsy()
    async with working(work, hands):
        await until(lambda: hands.ended == [behind])
    assert hands.told == [conversation] * 3
    assert await jobs_left(database) == []


# --- memory


async def learn_from(database: Database, work: PostgresJobQueue, *turns: UUID, user_id: UUID | None = None) -> None:
    for turn_id in turns:
        async with database.begin() as tx:
            await work.defer_memory(tx, turn_id, user_id or uuid4())


async def test_a_message_is_learnt_from_exactly_when_its_transaction_was_committed(database: Database, work: PostgresJobQueue) -> None:

    async def change_of_mind() -> None:
        async with database.begin() as tx:
            await work.defer_memory(tx, uuid4(), uuid4())
            raise LookupError

    with pytest.raises(LookupError):
        await change_of_mind()
    assert await jobs_left(database) == []
    turn_id = uuid4()
    await learn_from(database, work, turn_id)
    hands = Recorder()
    async with working(work, hands):
        await until(lambda: hands.learnt == [turn_id])


async def test_what_cannot_be_learnt_is_given_up_after_a_few_tries(database: Database, work: PostgresJobQueue) -> None:
    turn_id = uuid4()
    await learn_from(database, work, turn_id)

    async def fail(_: UUID) -> None:
        raise ConnectionError

    hands = Recorder(fail)
    with structlog.testing.capture_logs() as logs:
        async with working(work, hands):
            await until(lambda: len(hands.learnt) == 3)
            await until_none_is_left(database)
    assert hands.learnt == [turn_id] * 3
    given_up = [line for line in logs if line["event"] == "job_given_up"]
    assert given_up == [{"event": "job_given_up", "log_level": "warning", "task": "memory", "id": str(turn_id), "tries": 3}]


async def test_what_kills_whoever_learns_from_it_is_given_up_too(database: Database, work: PostgresJobQueue) -> None:
    await learn_from(database, work, uuid4())
    async with database.begin() as tx:
        await connection_of(tx).execute("update procrastinate_jobs set attempts = 3")
    hands = Recorder()
    async with working(work, hands):
        await until_none_is_left(database)
    assert hands.learnt == []


async def test_the_messages_of_one_user_are_learnt_from_in_order_and_those_of_others_beside_them(
    database: Database, work: PostgresJobQueue
) -> None:
    vegan, fish, other = uuid4(), uuid4(), uuid4()
    gate = asyncio.Event()

    async def act(turn_id: UUID) -> None:
        if turn_id == vegan:
            await gate.wait()

    hands = Recorder(act)
    await learn_from(database, work, vegan, fish, user_id=uuid4())
    await learn_from(database, work, other)
    async with working(work, hands):
        await until(lambda: len(hands.learnt) == 2)
        assert hands.learnt == [vegan, other], "the second one would otherwise be superseded by the first"
        gate.set()
        await until(lambda: len(hands.learnt) == 3)


async def test_no_turn_waits_for_what_is_being_learnt(database: Database, work: PostgresJobQueue) -> None:
    turns = {uuid4() for _ in range(4)}
    await learn_from(database, work, *turns)
    stuck = asyncio.Event()

    async def act(turn_id: UUID) -> None:
        if turn_id in turns:
            await stuck.wait()

    hands = Recorder(act)
    async with working(work, hands, WorkerOptions(concurrency=1, poll_s=0.2, memory_concurrency=2)):
        await until(lambda: len(hands.learnt) == 2)
        [turn_id] = await defer(database, work, uuid4(), 1)
        await until(lambda: hands.ended == [turn_id])
        assert len(hands.learnt) == 2
        stuck.set()


async def until_none_is_left(database: Database) -> None:
    end = time.monotonic() + PATIENCE_S
    while await jobs_left(database):
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.05)


# --- turns that are claimed with the fetch of their jobs


class ClaimRecorder(Recorder):
    """Hands that also note the claims that came with their jobs."""

    def __init__(self, act: Callable[[UUID], Awaitable[None]] | None = None) -> None:
        super().__init__(act)
        self.claims: list[Claim] = []

    async def claimed(self, turn_id: UUID, claim: Claim | UnreadableMessage) -> None:
        assert isinstance(claim, Claim)
        self.claims.append(claim)
        await self.turn(turn_id)


async def deferred_turn(database: Database, keyring: Keyring, work: PostgresJobQueue, text: str, channel: str) -> UUID:
    turn_id = await new_turn(database, keyring, text, channel=channel)
    async with database.begin() as tx:
        query = "select conversation_id from inbox where turn_id = %s"
        [conversation_id] = await (await connection_of(tx).execute(query, [turn_id])).fetchone() or [None]
        await work.defer_turn(tx, turn_id, conversation_id)
    return turn_id


def claims_of(keyring: Keyring, hands: ClaimRecorder) -> TurnClaims:
    return TurnClaims(PostgresInbox(keyring, idle_s=3_600.0), uuid4(), 30, hands.claimed)


async def test_a_turn_is_claimed_with_the_fetch_of_its_job(database: Database, keyring: Keyring, work: PostgresJobQueue) -> None:
    turns = [await deferred_turn(database, keyring, work, f"hello from {channel}", channel) for channel in ("ada", "bob")]
    hands = ClaimRecorder()
    async with working(work, hands, claims=claims_of(keyring, hands)):
        await until(lambda: len(hands.ended) == 2)
    by_turn = {claim.turn_id: claim for claim in hands.claims}
    assert [by_turn[turn_id].envelope.event.text for turn_id in turns] == ["hello from ada", "hello from bob"]
    assert [(claim.attempt, claim.epoch, claim.seq, claim.recent) for claim in hands.claims] == [(1, 1, 1, 1)] * 2
    starts = [by_turn[turn_id].start for turn_id in turns]
    assert [(start.user.id, start.session, start.credit) for start in starts if start is not None] == [
        (by_turn[turn_id].user_id, None, "out of credit") for turn_id in turns
    ]
    assert await jobs_left(database) == []


async def test_each_attempt_of_a_turn_has_a_claim_of_its_own(database: Database, keyring: Keyring, work: PostgresJobQueue) -> None:
    async def fail_once(_: UUID) -> None:
        if len(hands.begun) == 1:
            raise RuntimeError("the first attempt fails")

    hands = ClaimRecorder(fail_once)
    turn_id = await deferred_turn(database, keyring, work, "hello", "ada")
    async with working(work, hands, claims=claims_of(keyring, hands)):
        await until(lambda: len(hands.ended) == 1)
    assert [(claim.turn_id, claim.attempt, claim.epoch) for claim in hands.claims] == [(turn_id, 1, 1), (turn_id, 2, 2)]


async def test_a_locked_conversation_holds_no_other_turn_back(database: Database, keyring: Keyring, work: PostgresJobQueue) -> None:
    locked, free = [await deferred_turn(database, keyring, work, "hello", channel) for channel in ("ada", "bob")]
    hands = ClaimRecorder()
    async with database.begin() as tx:
        query = "select from conversations where id = (select conversation_id from inbox where turn_id = %s) for update"
        await connection_of(tx).execute(query, [locked])
        async with working(work, hands, claims=claims_of(keyring, hands)):
            await until(lambda: len(hands.ended) == 2)
    assert [claim.turn_id for claim in hands.claims] == [free]
    assert set(hands.begun) == {locked, free}  # the locked one without a claim: its handler waits for the lock, and nothing else does


async def test_a_job_whose_turn_has_ended_is_fetched_without_a_claim(database: Database, keyring: Keyring, work: PostgresJobQueue) -> None:
    turn_id = await deferred_turn(database, keyring, work, "hello", "ada")
    async with database.begin() as tx:
        await connection_of(tx).execute("update inbox set state = 'done', ended_at = now() where turn_id = %s", [turn_id])
    hands = ClaimRecorder()
    async with working(work, hands, claims=claims_of(keyring, hands)):
        await until(lambda: hands.ended == [turn_id])
    assert hands.claims == []
    assert await jobs_left(database) == []


async def test_a_fetch_that_runs_into_a_deadlock_fetches_the_jobs_alone(
    database: Database, keyring: Keyring, work: PostgresJobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lock_each_other(*_: object, **__: object) -> None:
        async with database.begin() as tx:
            raise_deadlock = "do $$ begin raise exception using errcode = 'deadlock_detected'; end $$"
            await connection_of(tx).execute(raise_deadlock)

    turn_id = await deferred_turn(database, keyring, work, "hello", "ada")
    hands = ClaimRecorder()
    claims = claims_of(keyring, hands)
    monkeypatch.setattr(claims.inbox, "start_turns", lock_each_other)
    async with working(work, hands, claims=claims):
        await until(lambda: hands.ended == [turn_id])
    assert hands.claims == []


async def test_a_turn_that_cannot_be_claimed_holds_no_other_turn_back(database: Database, keyring: Keyring, work: PostgresJobQueue) -> None:
    bad, good = [await deferred_turn(database, keyring, work, "hello", channel) for channel in ("ada", "bob")]
    async with database.begin() as tx:
        query = "update conversations set epoch = %s where id = (select conversation_id from inbox where turn_id = %s)"
        await connection_of(tx).execute(query, [2**63 - 1, bad])  # the claim counts it up, and that is an error
    hands = ClaimRecorder()
    async with working(work, hands, claims=claims_of(keyring, hands)):
        await until(lambda: good in hands.ended)


async def test_a_locked_balance_holds_no_other_turn_back(database: Database, keyring: Keyring, work: PostgresJobQueue) -> None:
    locked, free = [await deferred_turn(database, keyring, work, "hello", channel) for channel in ("ada", "bob")]
    async with database.begin() as tx:
        connection = connection_of(tx)
        await connection.execute("update users set state = 'active'")
        added = "insert into credit_balances (user_id, available) select user_id, 5 from inbox"
        await connection.execute(f"{added} on conflict (user_id) do update set available = 5")
    hands = ClaimRecorder()
    async with database.begin() as tx:
        query = "select from credit_balances where user_id = (select user_id from inbox where turn_id = %s) for update"
        await connection_of(tx).execute(query, [locked])
        async with working(work, hands, claims=claims_of(keyring, hands)):
            await until(lambda: free in hands.ended)
