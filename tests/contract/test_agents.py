"""The port Agents: a pointer moves once, by who saw it last, and never without its event."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.errors import NotFound
from hermes.ports.runtime import Transactions
from hermes.ports.users import DEFAULT_AGENT, Agent, AgentChanged, Agents, FleetEvent, FleetEventKind, SwapReason, Tone
from hermes.stores.postgres.agents import PostgresAgents
from hermes.stores.postgres.database import Database
from tests.unit.gateway.test_fleet import MemoryAgents

HERMES = Agent(name="hermes")
BALI = Agent(
    name="bali", tone=Tone.CHILL, role="Finds bars.", tier="pro", adapter="claude-sonnet", cwd="/srv/bali", accounts=("shop", "villa")
)
SICK = BackendFinding("refused", FindingLevel.ERROR, "nobody listens there", "start it")
SWAPPED, ROLLED_BACK, REFUSED = FleetEventKind

Store = tuple[Agents, Transactions]


@pytest.fixture(params=["postgres", "memory"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "memory":
        memory = MemoryAgents(HERMES)
        return memory, memory
    return PostgresAgents(), request.getfixturevalue("database")


async def add(store: Store, agent: Agent) -> tuple[Agent, bool]:
    agents, transactions = store
    async with transactions.begin() as tx:
        return await agents.add(tx, agent)


async def point(store: Store, adapter: str | None, *, epoch: int, name: str = "hermes", cwd: str | None = None, **more: Any) -> Agent:
    agents, transactions = store
    because = more.pop("because", None) or SwapReason(kind=SWAPPED, by="ada", **more)
    async with transactions.begin() as tx:
        return await agents.point(tx, name, adapter=adapter, cwd=cwd, expected_epoch=epoch, because=because)


async def stored(store: Store) -> list[Agent]:
    agents, transactions = store
    async with transactions.begin() as tx:
        return list(await agents.list(tx))


async def events(store: Store, name: str | None = None, **more: int) -> list[FleetEvent]:
    agents, transactions = store
    async with transactions.begin() as tx:
        return list(await agents.events(tx, name, **more))


async def test_hermes_is_there_from_the_start_and_speaks_through_the_chain_of_the_tier(store: Store) -> None:
    assert await stored(store) == [HERMES]
    assert HERMES.name == DEFAULT_AGENT


async def test_an_agent_is_added_once_and_comes_back_whole(store: Store) -> None:
    assert await add(store, BALI) == (BALI, True)
    assert await add(store, Agent(name="bali", role="Something else.", accounts=("pier",))) == (BALI, False)
    assert await stored(store) == [BALI, HERMES]
    agents, transactions = store
    async with transactions.begin() as tx:
        assert await agents.get(tx, "bali") == BALI
        with pytest.raises(NotFound, match="there is no agent lombok"):
            await agents.get(tx, "lombok")


async def test_a_spend_cap_is_set_and_removed_and_moves_no_pointer(store: Store) -> None:
    agents, transactions = store
    capped = replace(BALI, name="capped", accounts=(), daily_micro_usd=7)
    assert await add(store, capped) == (capped, True)
    before = await stored(store)
    async with transactions.begin() as tx:
        assert await agents.set_cap(tx, "hermes", 5_000_000) == replace(HERMES, daily_micro_usd=5_000_000)
    assert (await point(store, "green", epoch=0)).daily_micro_usd == 5_000_000
    assert [event.kind for event in await events(store)] == [SWAPPED]
    for wrong, error in (("herms", NotFound), ("hermes", ValueError)):
        with pytest.raises(error):
            async with transactions.begin() as tx:
                await agents.set_cap(tx, wrong, -1 if error is ValueError else 1)
    async with transactions.begin() as tx:
        await agents.set_cap(tx, "hermes", None)
    assert [agent.daily_micro_usd for agent in await stored(store)] == [agent.daily_micro_usd for agent in before]


async def test_one_agent_answers_on_an_account(store: Store) -> None:
    await add(store, BALI)
    await add(store, Agent(name="lombok", accounts=("villa",)))
    assert {agent.name: agent.accounts for agent in await stored(store)} == {"bali": ("shop",), "hermes": (), "lombok": ("villa",)}


async def test_a_pointer_moves_with_its_event(store: Store) -> None:
    await add(store, BALI)
    moved = await point(store, "codex_local", epoch=0, name="bali", cwd="/srv/bali", checks=(SICK,))
    assert moved == replace(BALI, adapter="codex_local", epoch=1)
    back = SwapReason(kind=ROLLED_BACK, by="ada", reason="no answer", checks=(SICK,))
    assert await point(store, None, epoch=1, name="bali", because=back) == replace(BALI, adapter=None, cwd=None, epoch=2)
    assert await stored(store) == [replace(BALI, adapter=None, cwd=None, epoch=2), HERMES]
    newest, first = await events(store)
    assert (newest.id, first.kind) == (back.id, SWAPPED)
    told = {"agent": "bali", "kind": ROLLED_BACK, "old": "codex_local", "new": None, "reason": "no answer", "by": "ada"}
    assert newest == FleetEvent(**told, id=back.id, checks=(SICK,), epoch=2, at=newest.at)
    assert (first.old, first.new, first.checks, first.epoch) == ("claude-sonnet", "codex_local", (SICK,), 1)


async def test_whoever_saw_an_older_pointer_moves_nothing(store: Store) -> None:
    await point(store, "codex_local", epoch=0)
    for epoch in (0, 2):
        with pytest.raises(AgentChanged):
            await point(store, "scripted", epoch=epoch)
    assert await stored(store) == [replace(HERMES, adapter="codex_local", epoch=1)]
    assert len(await events(store)) == 1
    with pytest.raises(NotFound):
        await point(store, "scripted", epoch=0, name="lombok")


async def test_a_move_that_is_repeated_happened_once(store: Store) -> None:
    because = SwapReason(kind=SWAPPED, by="ada")
    first = await point(store, "codex_local", epoch=0, because=because)
    assert await point(store, "codex_local", epoch=0, because=because) == first
    await point(store, "scripted", epoch=1)
    assert await point(store, "codex_local", epoch=0, because=because) == first  # as it left it, and what came later stands
    assert await stored(store) == [replace(HERMES, adapter="scripted", epoch=2)]
    assert [event.new for event in await events(store)] == ["scripted", "codex_local"]


async def test_pointer_and_event_happen_together_or_not_at_all(store: Store) -> None:
    agents, transactions = store

    async def interrupted() -> None:
        async with transactions.begin() as tx:
            await agents.point(tx, "hermes", adapter="x", cwd=None, expected_epoch=0, because=SwapReason(kind=SWAPPED, by="ada"))
            raise KeyError

    with pytest.raises(KeyError):
        await interrupted()
    assert (await stored(store), await events(store)) == ([HERMES], [])


async def test_a_refusal_is_noted_once_and_moves_nothing(store: Store) -> None:
    agents, transactions = store
    because = SwapReason(kind=REFUSED, by="ada", reason=SICK.message, checks=(SICK,))
    for _ in range(2):
        async with transactions.begin() as tx:
            await agents.note(tx, "hermes", adapter="codex_local", because=because)
    [event] = await events(store)
    assert (event.old, event.new, event.kind, event.reason, event.epoch) == (None, "codex_local", REFUSED, SICK.message, 0)
    assert await stored(store) == [HERMES]
    with pytest.raises(NotFound):
        async with transactions.begin() as tx:
            await agents.note(tx, "lombok", adapter=None, because=because)


async def test_the_history_is_newest_first_of_one_or_of_all(store: Store) -> None:
    await add(store, BALI)
    for epoch in range(3):
        await point(store, f"a{epoch}", epoch=epoch)
    await point(store, "b0", epoch=0, name="bali")
    assert [event.new for event in await events(store)] == ["b0", "a2", "a1", "a0"]
    assert [event.new for event in await events(store, "hermes", limit=2)] == ["a2", "a1"]
    assert [event.new for event in await events(store, limit=1)] == ["b0"]
    assert await events(store, "lombok") == []


async def test_of_many_who_move_a_pointer_at_once_one_does(database: Database) -> None:
    store = (PostgresAgents(), database)
    outcomes = await asyncio.gather(*(point(store, f"a{n}", epoch=0) for n in range(12)), return_exceptions=True)
    moved = [outcome for outcome in outcomes if isinstance(outcome, Agent)]
    assert [type(outcome) for outcome in outcomes if not isinstance(outcome, Agent)] == [AgentChanged] * 11
    assert (await stored(store), [event.new for event in await events(store)]) == (moved, [moved[0].adapter])


async def test_whatever_a_vendor_said_can_be_kept(database: Database) -> None:
    store = (PostgresAgents(), database)
    odd = BackendFinding("odd", FindingLevel.ERROR, "a\0b", "\udcff")
    await point(store, "codex_local", epoch=0, reason="nul \0 and half \ud800", checks=(odd,))
    [event] = await events(store)
    assert (event.reason, event.checks) == ("nul � and half ?", (BackendFinding("odd", FindingLevel.ERROR, "a�b", "?"),))
    assert abs(event.at - datetime.now(UTC)) < timedelta(minutes=1)
