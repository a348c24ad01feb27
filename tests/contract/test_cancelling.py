"""Everything that runs until it is cancelled ends when it is cancelled once, at whichever of its awaits that happens.

On the real stores, because their clients lose cancellations: before Python 3.12 every command that is sent to Redis may."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from procrastinate.manager import JobManager
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from structlog.testing import capture_logs

from hermes.app import channels
from hermes.app.channels import AccountChannels, TelegramPollers
from hermes.channels.platform_client import open_platform_client
from hermes.channels.telegram import BotApi, TelegramChannel
from hermes.gateway.catalogue import ModelCatalogue
from hermes.gateway.fleet import Fleet
from hermes.ports.users import User, UserState
from hermes.router.chores import Chore, ChoreScheduler
from hermes.stores.postgres.agents import PostgresAgents
from hermes.stores.postgres.channel_accounts import PostgresChannelAccounts
from hermes.stores.postgres.chores import PostgresChores
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.job_queue import TURNS, PostgresJobQueue, open_job_queue
from hermes.stores.postgres.job_worker import JobTask, JobWorker, RunningJobs
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.redis.answer_signals import RedisAnswerSignals
from hermes.stores.redis.budgets import BudgetCharge, RedisBudgets
from hermes.tasks import end_tasks
from hermes.turn import Platform
from tests.cancelling import Moment, cancelled_at, deaf
from tests.contract.test_budgets import DAY, LEASE_S, MONTH, NOON, Bell, HandClock
from tests.contract.test_job_queue import QUICK, Recorder

Begin = Callable[[], Coroutine[Any, Any, object]]
KILL = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
SOON_S = 5.0
"""Longer than any time-out of a store here; a loop that goes on would take for ever."""


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url, socket_timeout=0.25, socket_connect_timeout=0.25, retry=Retry(NoBackoff(), 0))
    yield client
    await client.aclose()


async def ends_wherever_cancelled(begin: Begin, *, places: int, rounds: int = 1, moments: Iterable[Moment] = Moment) -> None:
    """Cancel it once at each of its first awaits, in both moments, in each round from the start; a loop has no end of its own."""
    for _ in range(rounds):
        for place in range(places):
            for moment in moments:
                task = cancelled_at(place, moment, begin())
                done, _ = await asyncio.wait([task], timeout=SOON_S)
                if not done:
                    await end_tasks(task)
                assert done, f"it goes on after a cancellation at await {place}, {moment}"
                assert task.cancelled(), f"it ended otherwise at await {place}, {moment}: {task}"


async def test_the_reader_of_replies_ends_after_one_cancellation_wherever_it_comes(redis: Redis) -> None:
    # A thousand times: 25 awaits are several pings of a connection that is quiet for a thousandth of a second.
    await ends_wherever_cancelled(lambda: RedisAnswerSignals(redis, idle_s=0.001)._read(), places=25, rounds=20)


async def test_listening_ends_at_once_wherever_the_reader_is(redis: Redis) -> None:
    for steps in range(100):
        replies = RedisAnswerSignals(redis, idle_s=0.001)
        async with replies.listen(uuid4()):
            for _ in range(steps):
                await asyncio.sleep(0)
        with capture_logs() as logs:
            async with asyncio.timeout(SOON_S):
                await replies.aclose()
        assert logs == []


async def test_what_sends_owed_charges_ends_after_one_cancellation_wherever_it_comes(redis: Redis, database: Database, user: User) -> None:
    async def replay() -> None:
        budgets = RedisBudgets(redis, database, PostgresModelCalls(), alerts=Bell(), clock=HandClock())
        hold = await budgets.reserve(user.id, day_limit=DAY, month_limit=MONTH, tokens=1, lease_s=LEASE_S)
        while True:  # it has an end where nothing is owed any more
            budgets._owed[hold.id] = BudgetCharge(hold, 0, 0, datetime.now(UTC))
            await budgets._replay()

    await ends_wherever_cancelled(replay, places=50)


async def test_what_follows_the_accounts_ends_after_one_cancellation_wherever_it_comes(
    database: Database, keyring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "REFRESH_S", 0)
    await ends_wherever_cancelled(lambda: AccountChannels(PostgresChannelAccounts(keyring), database).follow(), places=60, rounds=2)


async def test_what_follows_the_fleet_ends_after_one_cancellation_wherever_it_comes(database: Database) -> None:
    fleet = Fleet({}, catalogue=ModelCatalogue({}, {}), agents=PostgresAgents(), transactions=database, alerts=Bell())
    await ends_wherever_cancelled(lambda: fleet.follow(poll_s=0), places=60, rounds=2)


async def test_what_follows_ends_when_its_connection_dies_together_with_the_cancellation(
    database: Database, database_url: str, keyring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A query whose connection dies while it is cancelled says that the connection died, and the cancellation is lost.
    monkeypatch.setattr(channels, "REFRESH_S", 0)
    with psycopg.connect(database_url, autocommit=True) as nemesis, capture_logs() as logs:
        for _ in range(10):
            task = asyncio.create_task(AccountChannels(PostgresChannelAccounts(keyring), database).follow())
            await asyncio.sleep(0.005)
            nemesis.execute(KILL)
            async with asyncio.timeout(SOON_S):
                await end_tasks(task, cleanup_s=0.1)
            assert task.cancelled()
    assert {line["event"] for line in logs} <= {"channels_not_read"}


def turn_worker(database: Database, work: PostgresJobQueue, manager: JobManager | None = None) -> JobWorker:
    return JobWorker(
        database=database,
        manager=manager or work._app.job_manager,
        queue=TURNS,
        tasks={"turn": JobTask(Recorder().turn, lambda _: 0.1)},
        running_jobs=RunningJobs(),
        concurrency=2,
        poll_s=QUICK.poll_s,
        drain_s=QUICK.drain_s,
        stalled_after_s=QUICK.stalled_after_s,
    )


async def test_a_worker_ends_after_one_cancellation_wherever_it_comes(database: Database) -> None:
    async with open_job_queue(database) as work:

        async def serve() -> None:
            await work._serve(lambda: turn_worker(database, work), TURNS, QUICK)

        # What it waits for comes when it is told to stop, and not before.
        await ends_wherever_cancelled(serve, places=1, moments=[Moment.WAITING])
        await ends_wherever_cancelled(lambda: work.run(Recorder(), QUICK), places=1, moments=[Moment.WAITING])
        await ends_wherever_cancelled(lambda: work._sweep(RunningJobs(), replace(QUICK, sweep_s=0.0), None), places=60)


async def test_a_worker_whose_start_loses_the_cancellation_ends(database: Database) -> None:
    starting, has_answer = asyncio.Event(), asyncio.Event()

    class DeafAtTheStart(JobManager):
        async def register_worker(self) -> int:
            starting.set()
            with suppress(asyncio.CancelledError):  # as where the pool's connection comes in the same moment
                await has_answer.wait()
            await has_answer.wait()
            return await super().register_worker()

    async with open_job_queue(database) as work:
        manager = DeafAtTheStart(work._app.connector)
        serving = asyncio.create_task(work._serve(lambda: turn_worker(database, work, manager), TURNS, QUICK))
        await starting.wait()
        serving.cancel()
        await asyncio.sleep(0)
        has_answer.set()
        done, _ = await asyncio.wait([serving], timeout=SOON_S)
        await end_tasks(serving)
        assert done, "it works on"
        assert serving.cancelled()


async def test_a_chore_ends_after_one_cancellation_wherever_it_comes(database: Database) -> None:
    async def do(_: object) -> None:
        async with database.begin() as tx:
            await PostgresChores().take(tx, "other", 0, lease_s=1)

    async def work() -> None:
        while True:
            clockwork = ChoreScheduler(database, PostgresChores(), [Chore(name="c", every_s=0.001, do=do)], lease_s=0.01)
            await clockwork.tick(NOON + timedelta(seconds=1))
            await clockwork.aclose()

    await ends_wherever_cancelled(work, places=60)


class OneBot:
    """The ports Channels, and the router of inbound events, for one bot."""

    def __init__(self, base_url: str) -> None:
        self.channel = TelegramChannel(account="bali", api=BotApi(token=f"123456789:{'A' * 35}", base_url=base_url))

    def get(self, platform: Platform, name: str) -> TelegramChannel:
        return self.channel

    def new_user_state(self, *_: object) -> UserState:
        return UserState.STRANGER


async def test_what_polls_a_platform_ends_after_one_cancellation_wherever_it_comes() -> None:
    async def nothing_new(_: web.Request) -> web.Response:
        return web.json_response({"ok": True, "result": []})

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", nothing_new)
    async with TestServer(app) as server, open_platform_client() as post:
        bot: Any = OneBot(str(server.make_url("/")).rstrip("/"))
        await ends_wherever_cancelled(lambda: TelegramPollers(bot, post, bot)._poll("bali"), places=60, rounds=2)


@pytest.mark.parametrize("times", [1, 3])
async def test_what_waits_for_a_deaf_reader_does_not_wait_for_ever(redis: Redis, times: int) -> None:
    replies = RedisAnswerSignals(redis)
    replies._reader = asyncio.create_task(deaf(asyncio.Event().wait(), times))
    await asyncio.sleep(0)
    async with asyncio.timeout(times + SOON_S):
        await replies.aclose()
