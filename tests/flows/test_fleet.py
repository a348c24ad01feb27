"""Two processes on one PostgreSQL: a swap in one of them is followed by the other, and no call fails, whatever the database does.

First the fleet alone, then all of Hermes twice, with the gateway's calls and the canaries of the command line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from hermes.app.canary import canary_of as canary_through
from hermes.app.root import Hermes, open_hermes
from hermes.config import load
from hermes.gateway.catalogue import ModelCatalogue, ModelSpec, Tier
from hermes.gateway.fleet import Adapter, Fleet, SwapFailed
from hermes.ports.backends import Overloaded
from hermes.ports.models import Caller, CallSource
from hermes.ports.users import Agent, FleetEvent, FleetEventKind, UserState
from hermes.stores.postgres.agents import PostgresAgents
from hermes.stores.postgres.database import Database, connection_of, open_database
from hermes.turn import Platform
from tests.fakes.vendors import vendors
from tests.unit.gateway.test_chain import HELLO
from tests.unit.gateway.test_fleet import Bell, Member, ask, canary_of

POLL_S = 0.05
MEMBERS = ("blue", "green", "red")
CATALOGUE = ModelCatalogue({"free": Tier(("blue",), 1_000)}, {name: ModelSpec(name, f"{name}-1", 100) for name in MEMBERS})


@dataclass
class Process:
    """What one process has: a pool and a fleet of its own, and backends of its own."""

    database: Database
    fleet: Fleet
    following: "asyncio.Task[None]"

    async def events(self) -> list[FleetEvent]:
        async with self.database.begin() as tx:
            return list(await PostgresAgents().events(tx, limit=10_000))


@pytest.fixture
async def processes(database_url: str) -> AsyncIterator[tuple[Process, Process]]:
    """Two of them; hermes speaks through blue."""
    async with open_database(database_url, connect_timeout_s=1) as one, open_database(database_url, connect_timeout_s=1) as other:
        both = tuple([await process(database) for database in (one, other)])
        await both[0].fleet.swap("hermes", "blue", by="test")
        await both[1].fleet.refresh()
        yield both
        for each in both:
            each.following.cancel()


async def process(database: Database) -> Process:
    backends = {"blue": Member("blue", 0.001, "blue"), "green": Member("green", 0.001, "green"), "red": Member("red", Overloaded)}
    fleet = Fleet(backends, catalogue=CATALOGUE, agents=PostgresAgents(), transactions=database, alerts=Bell(), keep_trying_s=10)
    return Process(database, fleet, asyncio.create_task(fleet.follow(poll_s=POLL_S)))


async def follows(process: Process, adapter: str) -> None:
    """Wait until a process answers through an adapter; a poll is enough, but for a busy machine."""
    async with asyncio.timeout(POLL_S + 2):
        while await ask(process.fleet) != adapter:  # noqa: ASYNC110  # nobody rings a bell for it
            await asyncio.sleep(0.005)


async def test_the_other_process_follows_within_its_poll(processes: tuple[Process, Process]) -> None:
    here, there = processes
    assert await ask(there.fleet) == "blue"
    await here.fleet.swap("hermes", "green", by="ada", canary=canary_of(here.fleet))
    assert await ask(here.fleet) == "green"
    await follows(there, "green")
    assert there.fleet.adapter_of("hermes") == Adapter("green", None)


async def test_two_hundred_swaps_under_load_fail_no_call_in_either_process(processes: tuple[Process, Process]) -> None:
    is_over, answers = False, list[list[str]]([[], []])

    async def caller(number: int) -> None:
        while not is_over:
            answers[number].append(await ask(processes[number].fleet))

    callers = [asyncio.create_task(caller(number % 2)) for number in range(8)]
    for number in range(200):
        # Now from the one, now from the other: each reads the pointer before it moves it.
        fleet = processes[number % 2].fleet
        assert (await fleet.swap("hermes", ("green", "blue")[number % 2], by="ada", canary=canary_of(fleet))).is_changed
    is_over = True
    await asyncio.gather(*callers)
    for fleet in (processes[0].fleet, processes[1].fleet):
        with pytest.raises(SwapFailed, match="hermes is pointed back to blue: no"):
            await fleet.swap("hermes", "red", by="ada", canary=canary_of(fleet))
    assert all(set(heard) == {"blue", "green"} for heard in answers)
    assert min(map(len, answers)) > 200
    events = (await processes[0].events())[::-1]
    assert [event.epoch for event in events] == list(range(1, 206))
    assert all(earlier.new == later.old for earlier, later in pairwise(events))
    assert [event.kind for event in events[-4:]] == [FleetEventKind.ADAPTER_SWAPPED, FleetEventKind.ADAPTER_ROLLED_BACK] * 2


async def test_of_swaps_that_cross_each_is_done_or_refused_and_the_history_has_all(processes: tuple[Process, Process]) -> None:
    async def swap(number: int) -> str:
        try:
            await processes[number % 2].fleet.swap("hermes", ("green", "blue")[number // 2 % 2], by=f"{number}")
        except SwapFailed as error:
            return error.because.kind
        return "done"

    before = len(await processes[0].events())
    outcomes = await asyncio.gather(*(swap(number) for number in range(40)))
    assert set(outcomes) <= {"done", FleetEventKind.ADAPTER_REFUSED}
    events = (await processes[0].events())[::-1][before:]
    moves = [event for event in events if event.kind is FleetEventKind.ADAPTER_SWAPPED]
    assert all(earlier.new == later.old for earlier, later in pairwise(moves))
    assert len([event for event in events if event.kind is FleetEventKind.ADAPTER_REFUSED]) == outcomes.count(
        FleetEventKind.ADAPTER_REFUSED
    )
    for each in processes:
        await follows(each, str(moves[-1].new))


async def test_calls_go_on_through_an_outage_and_a_swap_that_has_begun_waits_for_its_end(
    processes: tuple[Process, Process], database_url: str
) -> None:
    here, there = processes
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    with psycopg.connect(psycopg.conninfo.make_conninfo(database_url, dbname="postgres"), autocommit=True) as operator:

        async def canary(_: Agent) -> None:
            """The database goes away in the middle of the swap, and comes back a second later."""
            operator.execute(f"alter database {name} allow_connections false")
            operator.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
            asyncio.get_running_loop().call_later(1.0, operator.execute, f"alter database {name} allow_connections true")
            assert await there.fleet.refresh(timeout_s=0.5) is False
            assert [await ask(each.fleet) for each in processes] == ["green", "blue"]
            raise Overloaded("no room", backend="green", model="m")

        with pytest.raises(SwapFailed, match="hermes is pointed back to blue: no room"):
            await here.fleet.swap("hermes", "green", by="ada", canary=canary)
    for each in processes:
        await follows(each, "blue")
    assert [event.kind for event in await here.events()][:2] == [FleetEventKind.ADAPTER_ROLLED_BACK, FleetEventKind.ADAPTER_SWAPPED]


SETTINGS = """
[backends.blue]
kind = "scripted"
[backends.green]
kind = "scripted"
[backends.red]
kind = "vllm"
base_url = "{url}"
api_key = "{key}"

[models.blue]
backend = "blue"
[models.green]
backend = "green"
[models.red]
backend = "red"
id = "{model}"
prices = [{{input = 1.0, output = 1.0}}]

[tiers.free]
chain = ["blue"]
day_tokens = 100_000_000
"""


async def test_all_of_hermes_twice_under_load_answers_every_call_through_fit_and_unfit_adapters(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        vendor = (await stack.enter_async_context(vendors())).vllm
        (tmp_path / "hermes.toml").write_text(SETTINGS.format(url=vendor.url, key=vendor.key, model=vendor.models[0]))
        environ = {"HERMES_HOME": str(tmp_path), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url}
        both = [await stack.enter_async_context(open_hermes(load(environ, file=tmp_path / "hermes.toml"))) for _ in range(2)]
        async with both[0].database.begin() as tx:
            user, _ = await both[0].adapters.people.find_or_create(tx, "shop", Platform.REST, "alice", state=UserState.ACTIVE)
        caller = Caller(user_id=user.id, account="shop", tier="free", source=CallSource.ROUTER, may_use_cache=False, agent="hermes")
        is_over, answered = False, list[str]()

        async def talk(hermes: Hermes) -> None:
            while not is_over:
                answered.append((await hermes.gateway.complete(HELLO, caller)).backend)

        talking = [asyncio.create_task(talk(hermes)) for hermes in both for _ in range(4)]
        for task in talking:
            stack.callback(task.cancel)
        for number in range(20):
            hermes = both[number % 2]
            await hermes.fleet.swap("hermes", ("green", "blue")[number % 2], by="ada", canary=canary_through(hermes))
        for hermes in both:
            for _ in range(1_000):
                vendor.fail(503)
            with pytest.raises(SwapFailed, match="hermes is pointed back to blue: no model answered"):
                await hermes.fleet.swap("hermes", "red", by="ada", canary=canary_through(hermes))
        is_over = True
        await asyncio.gather(*talking)
        async with both[0].database.begin() as tx:
            rows = await (
                await connection_of(tx).execute("select source, outcome, count(*) from calls group by 1, 2 order by 1, 2")
            ).fetchall()
    assert rows == [("canary", "answered", 20), ("canary", "failed", 2), ("router", "answered", len(answered))]
    assert set(answered) == {"blue", "green"}
