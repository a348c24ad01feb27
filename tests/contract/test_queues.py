"""What waits, on PostgreSQL: the pages follow each other, accounts are kept apart, and a long queue or history makes no page slow."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from hermes.ports.queues import MAX_COUNTED, WaitReason
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.job_queue import open_job_queue
from hermes.stores.postgres.queues import PostgresQueues
from tests.contract.turns import Turns, on_postgres

MAX_PAGE_S = 1.0
"""A page takes about 10 ms; the machine that runs the tests may be busy."""
MANY, WAITING = 100_000, 5_000

LOAD = """
insert into conversations (id, account_id, platform, channel_id, user_id, last_seq)
    select gen_random_uuid(), account_id, platform, 'many' || n, user_id, 0 from conversations, generate_series(1, 500) as n;
create temporary table places as
    select row_number() over () - 1 as n, id, account_id, user_id from conversations where channel_id like 'many%';
insert into inbox (turn_id, account_id, event_key, conversation_id, user_id, seq, state, envelope, received_at, ended_at, reason)
    select gen_random_uuid(), account_id, 'many' || i, places.id, user_id, 1 + i / 500,
        case when i < WAITING then 'waiting' when i % 10 = 0 then 'dead' else 'done' end, '',
        now() - make_interval(secs => i), case when i >= WAITING then now() - make_interval(secs => i) end, 'gave up'
    from generate_series(0, MANY - 1) as i join places on places.n = i % 500;
insert into outbox (account_id, platform, channel_id, conversation_id, user_id, turn_id, seq, part, state, body, died_at)
    select inbox.account_id, 'telegram', 'c', conversation_id, user_id, turn_id, seq, 0,
        case when state = 'dead' then 'dead' else 'sent' end, '',
        case when state = 'dead' then ended_at end
    from inbox where state <> 'waiting';
insert into procrastinate_jobs (queue_name, task_name, lock, args, status)
    select 'turns', 'turn', 'in:' || conversation_id, json_build_object('id', turn_id)::jsonb, 'todo' from inbox where state = 'waiting';
analyze inbox; analyze outbox; analyze procrastinate_jobs; analyze conversations;
"""


@on_postgres
async def test_the_reason_why_a_message_waits(turns: Turns, database: Database) -> None:
    queues = PostgresQueues()
    first, second, lost = await turns.accept(channel="a"), await turns.accept(channel="a"), await turns.accept(channel="b")
    failed = await turns.claim(await turns.accept(channel="c"))
    async with open_job_queue(database) as jobs, database.begin() as tx:
        message = await turns.inbox.message_of(tx, first)
        assert message is not None
        conversation = message.conversation_id
        await jobs.defer_turn(tx, first, conversation)
        await jobs.defer_turn(tx, second, conversation)
        await jobs.defer_turn(tx, failed.turn_id, failed.conversation_id, in_s=30)
    async with database.begin() as tx:
        found = await queues.waiting(tx, None)
        assert [(each.turn_id, each.reason, each.behind) for each in found] == [
            (first, WaitReason.WORKER, None),
            (second, WaitReason.BEHIND, first),
            (lost, WaitReason.LOST, None),
            (failed.turn_id, WaitReason.RETRY, None),
        ]
        assert found[3].retry_at is not None
        assert [each.turn_id for each in await queues.waiting(tx, None, after=(found[1].since, second))] == [lost, failed.turn_id]
        assert await queues.waiting(tx, ["elsewhere"]) == []
        assert [(job.queue, job.status, job.jobs) for job in await queues.jobs(tx)] == [("turns", "todo", 3)]
    worker = uuid4()
    async with database.begin() as tx:
        await connection_of(tx).execute("update procrastinate_jobs set status = 'doing' where (args ->> 'id')::uuid = %s", [first])
        await turns.inbox.claim(tx, first, worker=worker)
    async with database.begin() as tx:
        [running, *_] = await queues.waiting(tx, None)
        assert (running.reason, running.worker) == (WaitReason.RUNNING, worker)
        assert [(turn.turn_id, turn.worker) for turn in await queues.running(tx)] == [(first, worker)]
        assert await queues.give_away(tx, uuid4()) == 0
        assert await queues.give_away(tx, worker) == 1
        assert await queues.give_away(tx, worker) == 0
        assert (await queues.waiting(tx, None))[0].reason is WaitReason.WORKER


@on_postgres
async def test_pages_of_long_queues_follow_each_other_and_are_quick(turns: Turns, database: Database) -> None:
    await turns.accept(channel="first")
    queues, took = PostgresQueues(), dict[str, float]()
    async with database.begin() as tx:
        for statement in LOAD.replace("MANY", str(MANY)).replace("WAITING", str(WAITING)).split(";")[:-1]:
            await connection_of(tx).execute(statement.encode())

    async def timed(name: str, read: Callable[[Any], Awaitable[Any]]) -> Any:
        async with database.begin() as tx:
            began = time.monotonic()
            found = await read(tx)
            took[name] = time.monotonic() - began
        return found

    counts = {each.queue: each.entries for each in await timed("counts", lambda tx: queues.counts(tx, None))}
    assert counts == {"waiting": MAX_COUNTED, "buried": MAX_COUNTED, "outbox": 0, "retrying": 0, "proactive": 0, "dead": MAX_COUNTED}
    waiting = await timed("waiting", lambda tx: queues.waiting(tx, None))
    assert (len(waiting), waiting[0].reason, waiting[1].since >= waiting[0].since) == (50, WaitReason.WORKER, True)
    last = waiting[-1]
    after = await timed("waiting, page 2", lambda tx: queues.waiting(tx, None, after=(last.since, last.turn_id)))
    assert not {each.turn_id for each in waiting} & {each.turn_id for each in after}
    buried = await timed("buried", lambda tx: queues.buried(tx, None))
    deep = await timed(
        "buried, deep", lambda tx: queues.buried(tx, None, before=(datetime.now(UTC) - timedelta(seconds=MANY // 2), uuid4()))
    )
    assert (len(buried), len(deep)) == (50, 50)
    assert buried[-1].ended_at > deep[0].ended_at
    dead = await timed("dead", lambda tx: queues.dead(tx, ["shop"]))
    more = await timed("dead, page 2", lambda tx: queues.dead(tx, ["shop"], before=(dead[-1].died_at, dead[-1].id)))
    assert (len(dead), len(more), dead[-1].died_at >= more[0].died_at) == (50, 50, True)
    await timed("running", queues.running)
    await timed("jobs", queues.jobs)
    print({name: f"{seconds * 1000:.1f} ms" for name, seconds in took.items()})  # noqa: T201  # shown with -s
    assert max(took.values()) < MAX_PAGE_S, took
