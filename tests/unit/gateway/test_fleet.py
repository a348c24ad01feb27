"""The fleet: an adapter is checked before it is in place and tried after, taken back with the reason, and no call fails because of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from hermes.gateway.catalogue import ModelCatalogue, ModelSpec, Tier
from hermes.gateway.chain import ChainLink
from hermes.gateway.fleet import Adapter, Canary, Fleet, SwapFailed, SwapResult
from hermes.ports.backends import BackendError, BackendFinding, FindingLevel, Overloaded
from hermes.ports.errors import NotFound, StoreUnavailable
from hermes.ports.runtime import Transaction
from hermes.ports.users import Agent, AgentChanged, FleetEvent, FleetEventKind, SwapReason
from tests.unit.gateway.test_chain import HELLO, Scripted, complete

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
FINE = BackendFinding("ok", FindingLevel.INFO, "answers in 3 ms")
SICK = BackendFinding("refused", FindingLevel.ERROR, "nobody listens there", "start it")
SWAPPED, ROLLED_BACK, REFUSED = FleetEventKind


class MemoryAgents:
    """The port Agents without a database, and its transactions. `is_away` makes it unreachable, `loses_answers` commits without saying."""

    def __init__(self, *agents: Agent) -> None:
        self.agents = {agent.name: agent for agent in agents}
        self.history: list[FleetEvent] = []
        self.is_away, self.loses_answers = False, 0

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        if self.is_away:
            raise StoreUnavailable
        before = dict(self.agents), list(self.history)
        try:
            yield self
        except BaseException:
            self.agents, self.history = before
            raise
        if self.loses_answers and before[1] != self.history:
            self.loses_answers -= 1
            raise StoreUnavailable

    async def add(self, tx: Transaction, agent: Agent) -> tuple[Agent, bool]:
        if agent.name in self.agents:
            return self.agents[agent.name], False
        taken = set(agent.accounts)
        self.agents = {name: replace(other, accounts=tuple(sorted({*other.accounts} - taken))) for name, other in self.agents.items()}
        self.agents[agent.name] = replace(agent, accounts=tuple(sorted(taken)), epoch=0)
        return self.agents[agent.name], True

    async def get(self, tx: Transaction, name: str) -> Agent:
        if name not in self.agents:
            raise NotFound(f"there is no agent {name}")
        return self.agents[name]

    async def list(self, tx: Transaction) -> Sequence[Agent]:
        return [self.agents[name] for name in sorted(self.agents)]

    async def point(
        self, tx: Transaction, name: str, *, adapter: str | None, cwd: str | None, expected_epoch: int, because: SwapReason
    ) -> Agent:
        agent = await self.get(tx, name)
        moved = replace(agent, adapter=adapter, cwd=cwd, epoch=expected_epoch + 1)
        if any(event.id == because.id for event in self.history):
            return moved
        if agent.epoch != expected_epoch:
            raise AgentChanged
        self.agents[name] = moved
        self._note(agent, moved.epoch, adapter, because)
        return moved

    async def set_cap(self, tx: Transaction, name: str, daily_micro_usd: int | None) -> Agent:
        if daily_micro_usd is not None and daily_micro_usd < 0:
            raise ValueError(daily_micro_usd)
        self.agents[name] = replace(await self.get(tx, name), daily_micro_usd=daily_micro_usd)
        return self.agents[name]

    async def note(self, tx: Transaction, name: str, *, adapter: str | None, because: SwapReason) -> None:
        agent = await self.get(tx, name)
        if all(event.id != because.id for event in self.history):
            self._note(agent, agent.epoch, adapter, because)

    async def spend(self, tx: Transaction, day: date) -> dict[str, int]:
        return {}

    async def events(self, tx: Transaction, name: str | None = None, *, limit: int = 50) -> Sequence[FleetEvent]:
        return [event for event in reversed(self.history) if name in {None, event.agent}][:limit]

    def _note(self, agent: Agent, epoch: int, new: str | None, because: SwapReason) -> None:
        told = {name: getattr(because, name) for name in ("id", "kind", "reason", "by", "checks")}
        self.history.append(FleetEvent(**told, agent=agent.name, old=agent.adapter, new=new, epoch=epoch, at=NOON))


class Member(Scripted):
    """A backend that knows its health, and how long it takes to say so."""

    def __init__(
        self, name: str, *script: str | type[BackendError] | float, checks: Sequence[BackendFinding] = (FINE,), is_mute: bool = False
    ) -> None:
        """`is_mute`: it says nothing until `may_report` is set."""
        super().__init__(name, *script)
        self.checks, self.is_closed, self.is_checked, self.may_report = checks, False, asyncio.Event(), asyncio.Event()
        if not is_mute:
            self.may_report.set()

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[BackendFinding]:
        self.is_checked.set()
        await self.may_report.wait()
        return self.checks

    async def aclose(self) -> None:
        self.is_closed = True


@dataclass
class Bell:
    rung: list[str] = field(default_factory=list)

    def alert(self, event: str, **_: object) -> None:
        self.rung.append(event)

    def end(self, event: str, **facts: object) -> None:
        """No test here asks."""


def fleet_of(store: MemoryAgents, *members: Member, bell: Bell | None = None) -> Fleet:
    """A process of its own: an adapter for each backend, by the same name, and one whose backend is not set up."""
    models = {member.name: ModelSpec(member.name, f"{member.name}-1", 100) for member in members}
    catalogue = ModelCatalogue(
        {"free": Tier((members[0].name,), 1_000)}, {**models, "claude-sonnet": ModelSpec("anthropic", "sonnet-4-6", 100)}
    )
    backends = {member.name: member for member in members}
    alerts = bell or Bell()
    return Fleet(backends, catalogue=catalogue, agents=store, transactions=store, alerts=alerts, keep_trying_s=0.05)


async def ask(fleet: Fleet, agent: str = "hermes") -> str:
    """As a call does it: the pointer is looked up once."""
    adapter = fleet.adapter_of(agent)
    assert adapter is not None
    answered = await complete(HELLO, [ChainLink(adapter.model, fleet[adapter.model], "m", 100)], deadline_s=5)
    return str(answered.completion.message["content"])


def canary_of(fleet: Fleet) -> Canary:
    async def canary(agent: Agent) -> None:
        backend = fleet[str(agent.adapter)]
        await backend.complete(HELLO, "m", timeout_s=1)

    return canary


def told(store: MemoryAgents) -> list[tuple[FleetEventKind, str | None, str | None, str, str, int]]:
    return [(event.kind, event.old, event.new, event.reason, event.by, event.epoch) for event in store.history]


def house(adapter: str | None = "claude_local", cwd: str | None = "/srv/work") -> MemoryAgents:
    return MemoryAgents(Agent(name="hermes", adapter=adapter, cwd=cwd))


async def test_calls_go_through_the_new_adapter_in_the_same_folder() -> None:
    store = house()
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"))
    assert await fleet.refresh()
    assert (await ask(fleet), fleet.adapter_of("hermes")) == ("old", Adapter("claude_local", "/srv/work"))
    swapped = await fleet.swap("hermes", "codex_local", by="ada", canary=canary_of(fleet))
    moved = Agent(name="hermes", adapter="codex_local", cwd="/srv/work", epoch=1)
    assert swapped == SwapResult(moved, "claude_local", (FINE,))
    assert (await ask(fleet), fleet.adapter_of("hermes")) == ("new", Adapter("codex_local", "/srv/work"))
    assert (store.agents, told(store)) == ({"hermes": moved}, [(SWAPPED, "claude_local", "codex_local", "", "ada", 1)])
    assert store.history[0].checks == (FINE,)


async def test_the_folder_is_left_behind_where_that_is_wanted() -> None:
    store = house()
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"))
    await fleet.swap("hermes", "codex_local", by="ada", preserve_cwd=False)
    assert fleet.adapter_of("hermes") == Adapter("codex_local", None)
    assert (await fleet.swap("hermes", "codex_local", by="ada", preserve_cwd=False)).is_changed is False


async def test_an_adapter_that_is_in_place_already_changes_nothing() -> None:
    store = house()
    fleet = fleet_of(store, Member("claude_local", "x", checks=(SICK,)))
    assert await fleet.swap("hermes", "claude_local", by="ada") == SwapResult(store.agents["hermes"], "claude_local", is_changed=False)
    assert (store.agents["hermes"].epoch, told(store)) == (0, [])
    assert fleet.adapter_of("hermes") == Adapter("claude_local", "/srv/work")


async def test_an_agent_goes_back_to_the_chain_of_its_tier() -> None:
    store = house()
    fleet = fleet_of(store, Member("claude_local", "x"))
    await fleet.refresh()
    assert (await fleet.swap("hermes", None, by="ada")).agent.adapter is None
    assert fleet.adapter_of("hermes") is None
    assert told(store) == [(SWAPPED, "claude_local", None, "", "ada", 1)]


async def test_a_call_under_way_ends_on_the_adapter_on_which_it_began() -> None:
    old = Member("claude_local", 0.05, "old")
    fleet = fleet_of(house(), old, Member("codex_local", "new"))
    await fleet.refresh()
    call = asyncio.create_task(ask(fleet))
    await asyncio.sleep(0.01)
    await fleet.swap("hermes", "codex_local", by="ada")
    assert (await ask(fleet), await call, old.is_closed) == ("new", "old", False)
    await fleet.aclose()
    assert old.is_closed


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("sick", "nobody listens there"),
        ("mute", "mute did not report its health within 0.05 s"),
        ("claude-sonnet", "its backend anthropic is not set up here"),
    ],
)
async def test_a_sick_one_is_refused_and_nothing_changes(to: str, reason: str) -> None:
    store = house()
    fleet = fleet_of(store, Member("claude_local", "old"), Member("sick", "x", checks=(FINE, SICK)), Member("mute", "x", is_mute=True))
    await fleet.refresh()
    before = dict(store.agents)
    with pytest.raises(SwapFailed) as failed:
        await fleet.swap("hermes", to, by="ada", health_s=0.05)
    assert str(failed.value) == f"hermes was not pointed to {to}: {reason}"
    assert failed.value.because.kind is REFUSED
    assert (store.agents, await ask(fleet)) == (before, "old")
    assert told(store) == [(REFUSED, "claude_local", to, reason, "ada", 0)]
    assert store.history[0].checks == failed.value.because.checks != ()


@pytest.mark.parametrize(("script", "reason"), [(Overloaded, "no"), (60.0, "no answer to the canary within 0.05 s")])
async def test_a_failed_canary_takes_the_swap_back(script: type[Overloaded] | float, reason: str) -> None:
    store = house()
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", script))
    with pytest.raises(SwapFailed) as failed:
        await fleet.swap("hermes", "codex_local", by="ada", preserve_cwd=False, canary=canary_of(fleet), canary_s=0.05)
    assert str(failed.value) == f"hermes is pointed back to claude_local: {reason}"
    assert failed.value.because.kind is ROLLED_BACK
    assert store.agents == {"hermes": Agent(name="hermes", adapter="claude_local", cwd="/srv/work", epoch=2)}
    assert (await ask(fleet), fleet.adapter_of("hermes")) == ("old", Adapter("claude_local", "/srv/work"))
    assert told(store) == [
        (SWAPPED, "claude_local", "codex_local", "", "ada", 1),
        (ROLLED_BACK, "codex_local", "claude_local", reason, "ada", 2),
    ]


async def test_a_fault_of_the_canary_itself_takes_the_swap_back_and_is_raised() -> None:
    async def broken(agent: Agent) -> None:
        raise KeyError(agent.name)

    store = house()
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"))
    with pytest.raises(KeyError):
        await fleet.swap("hermes", "codex_local", by="ada", canary=broken)
    assert [kind for kind, *_ in told(store)] == [SWAPPED, ROLLED_BACK]
    assert await ask(fleet) == "old"


async def test_a_swap_that_is_interrupted_in_its_canary_is_taken_back() -> None:
    is_asked = asyncio.Event()

    async def canary(_: Agent) -> None:
        is_asked.set()
        await asyncio.sleep(60)

    store = house()
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"))
    swap = asyncio.create_task(fleet.swap("hermes", "codex_local", by="ada", canary=canary))
    await is_asked.wait()
    assert await ask(fleet) == "new"
    swap.cancel()
    with pytest.raises(asyncio.CancelledError):
        await swap
    assert (store.agents["hermes"].adapter, told(store)[-1][3]) == ("claude_local", "the swap was interrupted")
    assert await ask(fleet) == "old"


async def test_a_swap_that_is_interrupted_in_its_commit_is_taken_back() -> None:
    class Slow(MemoryAgents):
        is_pointed = asyncio.Event()

        async def point(self, *args: Any, **more: Any) -> Agent:
            moved = await super().point(*args, **more)
            self.is_pointed.set()
            await asyncio.sleep(0.01)
            return moved

    store = Slow(Agent(name="hermes", adapter="claude_local"))
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"))
    swap = asyncio.create_task(fleet.swap("hermes", "codex_local", by="ada"))
    await store.is_pointed.wait()
    swap.cancel()
    with pytest.raises(asyncio.CancelledError):
        await swap
    assert [(kind, new) for kind, _, new, *_ in told(store)] == [(SWAPPED, "codex_local"), (ROLLED_BACK, "claude_local")]
    assert await ask(fleet) == "old"


async def test_names_that_nobody_knows_are_told_the_nearest() -> None:
    store = house()
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"))
    with pytest.raises(NotFound, match=r"there is no adapter 'codex-local'; did you mean codex_local\?"):
        await fleet.swap("hermes", "codex-local", by="ada")
    with pytest.raises(NotFound, match=r"there is no agent 'herms'; did you mean hermes\?"):
        await fleet.swap("herms", "codex_local", by="ada")
    with pytest.raises(NotFound, match="there is no agent 'zzz'; there are hermes"):
        await fleet.swap("zzz", "codex_local", by="ada")
    assert told(store) == []


async def test_the_last_known_pointers_hold_while_the_store_is_away() -> None:
    store = house()
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"))
    await fleet.refresh()
    store.is_away = True
    assert await fleet.refresh() is False
    assert await ask(fleet) == "old"
    with pytest.raises(StoreUnavailable):
        await fleet.swap("hermes", "codex_local", by="ada")
    store.is_away = False
    assert await fleet.refresh()
    assert (await ask(fleet), told(store)) == ("old", [])


async def test_a_swap_whose_commit_was_not_answered_is_done_once() -> None:
    store = house()
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"))
    store.loses_answers = 1
    assert (await fleet.swap("hermes", "codex_local", by="ada")).agent.epoch == 1
    assert (await ask(fleet), len(store.history)) == ("new", 1)


async def test_a_store_that_goes_away_in_the_commit_leaves_the_outcome_open() -> None:
    class Leaving(MemoryAgents):
        async def point(self, *args: Any, **more: Any) -> Agent:
            self.is_away, self.loses_answers = True, 1
            return await super().point(*args, **more)

    store = Leaving(Agent(name="hermes", adapter="claude_local"))
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"))
    with pytest.raises(StoreUnavailable, match="hermes may or may not point to codex_local now"):
        await fleet.swap("hermes", "codex_local", by="ada")
    store.is_away = False
    await fleet.refresh()
    assert await ask(fleet) == "new"


async def test_a_person_is_told_when_an_unfit_adapter_cannot_be_taken_back() -> None:
    store, bell = house(), Bell()

    async def canary(_: Agent) -> None:
        store.is_away = True
        raise Overloaded("no room", backend="codex_local", model="m")

    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"), bell=bell)
    with pytest.raises(SwapFailed, match="codex_local is not fit: no room; hermes may still be pointed to it"):
        await fleet.swap("hermes", "codex_local", by="ada", canary=canary)
    assert bell.rung == ["adapter_not_rolled_back"]


async def test_of_two_swaps_that_cross_one_stands_and_the_other_says_so() -> None:
    store = house()
    codex = Member("codex_local", "new", is_mute=True)
    members = [Member("claude_local", "old"), codex, Member("scripted", "other")]
    slow, fast = fleet_of(store, *members), fleet_of(store, *members)
    crossed = asyncio.create_task(slow.swap("hermes", "codex_local", by="ada"))
    await codex.is_checked.wait()
    await fast.swap("hermes", "scripted", by="bob")
    codex.may_report.set()
    with pytest.raises(SwapFailed, match="hermes was not pointed to codex_local: another swap came first, and stands"):
        await crossed
    assert store.agents["hermes"].adapter == "scripted"
    assert [(kind, new, by) for kind, _, new, _, by, _ in told(store)] == [(SWAPPED, "scripted", "bob"), (REFUSED, "codex_local", "ada")]
    await slow.refresh()
    assert await ask(slow) == "other"


async def test_a_rollback_does_not_take_back_what_somebody_else_did_meanwhile() -> None:
    store = house()
    members = [Member("claude_local", "old"), Member("codex_local", "new"), Member("scripted", "other")]
    fleet, elsewhere = fleet_of(store, *members), fleet_of(store, *members)

    async def canary(_: Agent) -> None:
        await elsewhere.swap("hermes", "scripted", by="bob")
        raise Overloaded("no room", backend="codex_local", model="m")

    with pytest.raises(SwapFailed, match="codex_local is not fit: no room; hermes was pointed elsewhere meanwhile, which stands"):
        await fleet.swap("hermes", "codex_local", by="ada", canary=canary)
    assert store.agents["hermes"].adapter == "scripted"
    assert [(kind, by) for kind, _, _, _, by, _ in told(store)] == [(SWAPPED, "ada"), (SWAPPED, "bob"), (ROLLED_BACK, "ada")]


async def test_what_was_read_before_a_swap_does_not_undo_it_here() -> None:
    class Slow(MemoryAgents):
        async def list(self, tx: Transaction) -> Sequence[Agent]:
            found = await super().list(tx)
            await asyncio.sleep(0.02 if self.is_slow else 0)
            return found

        is_slow = False

    store = Slow(Agent(name="hermes", adapter="claude_local"))
    fleet = fleet_of(store, Member("claude_local", "old"), Member("codex_local", "new"))
    await fleet.refresh()
    store.is_slow = True
    refresh = asyncio.create_task(fleet.refresh())
    await asyncio.sleep(0)
    store.is_slow = False
    await fleet.swap("hermes", "codex_local", by="ada")
    await refresh
    assert await ask(fleet) == "new"


async def test_an_adapter_that_this_process_has_no_backend_for_is_the_chain_of_the_tier() -> None:
    store = house("claude-sonnet")
    fleet = fleet_of(store, Member("claude_local", "old"))
    await fleet.refresh()
    assert fleet.adapter_of("hermes") is None
    store.agents["hermes"] = replace(store.agents["hermes"], adapter="gone-from-the-settings")
    await fleet.refresh()
    assert fleet.adapter_of("hermes") is None


async def test_the_agent_of_an_account_answers_there_and_hermes_everywhere_else() -> None:
    store = MemoryAgents(Agent(name="hermes"), Agent(name="bali", accounts=("shop", "villa")))
    fleet = fleet_of(store, Member("claude_local", "x"))
    assert fleet.agent_on("shop") == "hermes"  # nothing was read yet
    await fleet.refresh()
    assert [fleet.agent_on(account) for account in ("shop", "villa", "api")] == ["bali", "bali", "hermes"]
    assert (fleet.adapter_of("bali"), fleet.adapter_of("nobody"), dict(fleet.agents)) == (None, None, store.agents)


async def test_another_process_follows_at_its_next_look() -> None:
    store = house()
    members = [Member("claude_local", "old"), Member("codex_local", "new")]
    here, there = fleet_of(store, *members), fleet_of(store, *members)
    following = asyncio.create_task(there.follow(poll_s=0.005))
    await asyncio.sleep(0.01)
    assert await ask(there) == "old"
    await here.swap("hermes", "codex_local", by="ada")
    await asyncio.sleep(0.02)
    assert await ask(there) == "new"
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


async def test_a_thousand_swaps_under_load_fail_no_call() -> None:
    store = house("blue", None)
    fleet = fleet_of(store, Member("blue", 0.001, "ok"), Member("green", 0.001, "ok"), Member("red", Overloaded))
    await fleet.refresh()
    is_over, answers = False, list[str]()

    async def caller() -> None:
        while not is_over:
            answers.append(await ask(fleet))

    callers = [asyncio.create_task(caller()) for _ in range(16)]
    following = asyncio.create_task(fleet.follow(poll_s=0.001))
    for number in range(1_000):
        to = ("green", "blue")[number % 2]
        assert (await fleet.swap("hermes", to, by="ada", canary=canary_of(fleet))).is_changed
    is_over = True
    await asyncio.gather(*callers)
    following.cancel()
    assert set(answers) == {"ok"}
    assert len(answers) > 1_000
    assert [(event.kind, event.new, event.epoch) for event in store.history] == [
        (SWAPPED, ("green", "blue")[number % 2], number + 1) for number in range(1_000)
    ]
