"""The backends in use, and which of them each agent uses; how the operator changes that while calls are under way.

    the new adapter's health  →  the pointer moves, in SQL and then here  →  a canary call through it
              │                            │                                        │
              └ refused: nothing changed   └ another swap came first: it stands     └ failed: the pointer moves back, with the reason

The gateway reads an agent's pointer once for each call, when it admits the call. So a call ends on the adapter on which it began; the
backends stay open. Other processes follow at their next poll. Every outcome is an event in the fleet's history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import structlog

from hermes.gateway.catalogue import ModelCatalogue
from hermes.ports.backends import Backend, BackendError, BackendFinding, FindingLevel
from hermes.ports.errors import PortError, StoreUnavailable, require_known
from hermes.ports.models import NoAnswer
from hermes.ports.runtime import Alerts, Transactions
from hermes.ports.users import DEFAULT_AGENT, Agent, AgentChanged, Agents, FleetEventKind, SwapReason, adapter_label
from hermes.tasks import stop_if_cancelled

log = structlog.get_logger()

Canary = Callable[[Agent], Awaitable[object]]
"""One small real call for an agent as it is now; raises when the new adapter is not fit after all."""

CANARY_ERRORS = (BackendError, NoAnswer, PortError, TimeoutError)
"""How a canary fails. Any other error is a fault of the canary itself: the pointer moves back then too, and the error is raised."""

INTERRUPTED = "the swap was interrupted"
RETRY_PAUSE_S = 0.1


class SwapFailed(Exception):
    """The swap failed. The message says why, and where the agent points now."""

    def __init__(self, message: str, agent: Agent, because: SwapReason) -> None:
        """`agent` is the agent before the swap; `because` is the reason in the fleet's history."""
        super().__init__(message)
        self.agent, self.because = agent, because


@dataclass(frozen=True, slots=True)
class Adapter:
    """The model of the catalogue that an agent uses, and the folder in which it works."""

    model: str
    cwd: str | None


@dataclass(frozen=True, slots=True)
class SwapResult:
    """The agent as it is now, its old adapter, and the findings of the new adapter's health check."""

    agent: Agent
    old: str | None
    checks: tuple[BackendFinding, ...] = ()
    is_changed: bool = True
    """False: the adapter was in place already, and nothing was done."""


class Fleet(Mapping[str, Backend]):
    """The backends by name, and the agents' pointers as this process read them last. Looking up either is one lookup in a dict."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        *,
        catalogue: ModelCatalogue,
        agents: Agents,
        transactions: Transactions,
        alerts: Alerts,
        keep_trying_s: float = 5.0,
    ) -> None:
        """`keep_trying_s` is how long a swap that has begun retries while the store is unreachable."""
        self._backends, self._catalogue, self._keep_trying_s = dict(backends), catalogue, keep_trying_s
        self._store, self._transactions, self._alerts = agents, transactions, alerts
        self._agents: dict[str, Agent] = {}
        self._adapters: dict[str, Adapter] = {}
        self._caps: dict[str, int] = {}
        self._agent_by_account: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._is_store_away = False
        self._missing: set[tuple[str, str]] = set()

    def __getitem__(self, name: str) -> Backend:
        return self._backends[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._backends)

    def __len__(self) -> int:
        return len(self._backends)

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents by name, as this process read them last."""
        return self._agents

    def adapter_of(self, agent: str) -> Adapter | None:
        """The adapter of an agent; None: the tier's own chain, also where this process has no backend for the adapter."""
        return self._adapters.get(agent)

    def agent_on(self, account: str) -> str:
        """The name of the agent that answers on an account."""
        return self._agent_by_account.get(account, DEFAULT_AGENT)

    def caps(self) -> Mapping[str, int]:
        """The agents that have a spend cap, in micro-dollars of a UTC day, by name."""
        return self._caps

    async def set_cap(self, name: str, daily_micro_usd: int | None) -> Agent:
        """Limit what an agent may spend in a UTC day, in all processes; None: no limit. Raises NotFound and StoreUnavailable."""
        async with self._transactions.begin() as tx:
            agent = await self._store.set_cap(tx, name, daily_micro_usd)
        log.info("spend_cap_set", agent=name, cap_micro_usd=daily_micro_usd)
        self._use_agents({**self._agents, name: self._newer(agent)})
        return agent

    async def refresh(self, *, timeout_s: float = 5.0) -> bool:
        """Read the pointers again. False when the store is unreachable: then the pointers that were read last stay in use."""
        try:
            async with asyncio.timeout(timeout_s), self._transactions.begin() as tx:
                found = await self._store.list(tx)
        except (StoreUnavailable, TimeoutError) as error:
            if not self._is_store_away:
                log.warning("fleet_not_read", error=type(error).__name__)
            self._is_store_away = True
            return False
        if self._is_store_away:
            log.info("fleet_read_again")
        self._is_store_away = False
        # The rows may be older than a swap that ended in this process meanwhile.
        self._use_agents({agent.name: self._newer(agent) for agent in found})
        return True

    async def follow(self, *, poll_s: float = 1.0) -> None:
        """Read the pointers again and again, until cancelled."""
        while True:
            await self.refresh()
            stop_if_cancelled()
            await asyncio.sleep(poll_s)

    async def check(self, adapter: str, *, timeout_s: float = 10.0) -> tuple[BackendFinding, ...]:
        """Check the health of an adapter's backend. Raises NotFound for a name that is not in the catalogue, and nothing else."""
        backend = self._catalogue.models[self.require_adapter(adapter)].backend
        if backend not in self._backends:
            return (BackendFinding("no_backend", FindingLevel.ERROR, f"its backend {backend} is not set up here", "see `hermes doctor`"),)
        try:
            async with asyncio.timeout(timeout_s):
                return tuple(await self._backends[backend].health_check(timeout_s=timeout_s))
        except TimeoutError:
            return (BackendFinding("timeout", FindingLevel.ERROR, f"{backend} did not report its health within {timeout_s:g} s"),)

    def require_adapter(self, adapter: str) -> str:
        """Return the name of an adapter of the catalogue. Raises NotFound, which names the nearest one."""
        return require_known(adapter, self._catalogue.models, "adapter")

    async def swap(
        self,
        name: str,
        to: str | None,
        *,
        by: str,
        preserve_cwd: bool = True,
        canary: Canary | None = None,
        health_s: float = 10.0,
        canary_s: float = 60.0,
    ) -> SwapResult:
        """Point an agent to another adapter, or with None to the chain of its tier, in all processes. No call fails because of the swap.
        A call that comes while the canary runs uses the new adapter, fit or not, so a chain should not end with it.

        Raises SwapFailed if the new adapter is refused or rolled back; NotFound for an unknown agent or adapter; StoreUnavailable, whose
        message says if the pointer may have moved. `preserve_cwd` keeps the folder. A swap that is interrupted is taken back."""
        if to is not None:
            self.require_adapter(to)
        async with self._locks.setdefault(name, asyncio.Lock()):
            async with self._transactions.begin() as tx:
                found = {agent.name: agent for agent in await self._store.list(tx)}
            agent = found[require_known(name, found, "agent")]
            if agent.adapter == to and (preserve_cwd or agent.cwd is None):
                self._use_agents({**self._agents, name: self._newer(agent)})
                return SwapResult(agent, to, is_changed=False)
            checks = await self.check(to, timeout_s=health_s) if to is not None else ()
            change = AdapterSwap(agent, to, agent.cwd if preserve_cwd else None, by, checks)
            errors = [check for check in checks if check.level is FindingLevel.ERROR]
            if errors:
                raise await self._refuse(change, errors[0].message)
            moved = await self._move(change)
            if canary is not None:
                await self._run_canary(canary, change, moved, canary_s)
            log.info("adapter_swapped", **change.facts)
            return SwapResult(moved, agent.adapter, checks)

    async def aclose(self) -> None:
        """Close all backends."""
        for backend in self._backends.values():
            await backend.aclose()

    # --- the steps of a swap

    async def _refuse(self, change: AdapterSwap, reason: str) -> SwapFailed:
        because = change.because(FleetEventKind.ADAPTER_REFUSED, reason)
        with suppress(StoreUnavailable):  # nothing changed, and the log has the reason too
            async with self._transactions.begin() as tx:
                await self._store.note(tx, change.agent.name, adapter=change.to, because=because)
        log.warning("adapter_refused", **change.facts, reason=reason)
        return SwapFailed(f"{change.agent.name} was not pointed to {adapter_label(change.to)}: {reason}", change.agent, because)

    async def _move(self, change: AdapterSwap) -> Agent:
        """Move the pointer. If the caller is cancelled meanwhile, wait for the outcome and move the pointer back."""
        because = change.because(FleetEventKind.ADAPTER_SWAPPED)
        moving = asyncio.ensure_future(self._move_pointer(change.agent, change.to, change.cwd, because))
        try:
            return await asyncio.shield(moving)
        except asyncio.CancelledError:
            with suppress(PortError):
                await self._move_back(change, await moving, INTERRUPTED)
            raise
        except AgentChanged as error:
            raise await self._refuse(change, "another swap came first, and stands") from error
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{change.agent.name} may or may not point to {adapter_label(change.to)} now: {error}") from error

    async def _run_canary(self, canary: Canary, change: AdapterSwap, moved: Agent, canary_s: float) -> None:
        try:
            async with asyncio.timeout(canary_s):
                await canary(moved)
        except CANARY_ERRORS as error:
            raise await self._move_back(change, moved, str(error) or f"no answer to the canary within {canary_s:g} s") from error
        except BaseException:
            await asyncio.shield(self._move_back(change, moved, INTERRUPTED))
            raise

    async def _move_back(self, change: AdapterSwap, moved: Agent, reason: str) -> SwapFailed:
        """Move the pointer back to the old adapter. If another swap moved it meanwhile, that swap stands."""
        agent, because = change.agent, change.because(FleetEventKind.ADAPTER_ROLLED_BACK, reason)
        message = f"{agent.name} is pointed back to {adapter_label(agent.adapter)}: {reason}"
        try:
            await self._move_pointer(moved, agent.adapter, agent.cwd, because)
            log.warning("adapter_rolled_back", **change.facts, reason=reason)
        except AgentChanged:
            message = f"{adapter_label(change.to)} is not fit: {reason}; {agent.name} was pointed elsewhere meanwhile, which stands"
            with suppress(StoreUnavailable):
                async with self._transactions.begin() as tx:
                    await self._store.note(tx, agent.name, adapter=change.to, because=because)
        except StoreUnavailable as error:
            message = f"{adapter_label(change.to)} is not fit: {reason}; {agent.name} may still be pointed to it: {error}"
            self._alerts.alert("adapter_not_rolled_back", **change.facts, reason=reason)
        return SwapFailed(message, agent, because)

    async def _move_pointer(self, agent: Agent, adapter: str | None, cwd: str | None, because: SwapReason) -> Agent:
        """Move a pointer, in SQL and then here. While the store is unreachable, try again: a move that did happen may be repeated."""
        until = time.monotonic() + self._keep_trying_s
        while True:
            try:
                async with self._transactions.begin() as tx:
                    moved = await self._store.point(tx, agent.name, adapter=adapter, cwd=cwd, expected_epoch=agent.epoch, because=because)
            except StoreUnavailable:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                self._use_agents({**self._agents, agent.name: self._newer(moved)})
                return moved

    # --- the pointers of this process

    def _newer(self, read: Agent) -> Agent:
        known = self._agents.get(read.name, read)
        return known if known.epoch > read.epoch else read

    def _use_agents(self, agents: dict[str, Agent]) -> None:
        """Use these agents for calls from now on. No reader sees a state in between."""
        adapters, missing = dict[str, Adapter](), set[tuple[str, str]]()
        for agent in agents.values():
            if agent.adapter is None:
                continue
            model = self._catalogue.models.get(agent.adapter)
            if model is not None and model.backend in self._backends:
                adapters[agent.name] = Adapter(agent.adapter, agent.cwd)
            else:
                missing.add((agent.name, agent.adapter))
        for name, adapter in missing - self._missing:
            # An answer of the tier's chain is better than none; but the operator should know that this process is set up differently.
            log.warning("adapter_not_here", agent=name, adapter=adapter)
        self._missing = missing
        self._agents, self._adapters = agents, adapters
        self._caps = {agent.name: agent.daily_micro_usd for agent in agents.values() if agent.daily_micro_usd is not None}
        self._agent_by_account = {account: agent.name for agent in agents.values() for account in agent.accounts}


@dataclass(frozen=True, slots=True)
class AdapterSwap:
    """A swap that is under way: the agent before it, and the adapter and folder it is to get."""

    agent: Agent
    to: str | None
    cwd: str | None
    by: str
    checks: tuple[BackendFinding, ...]

    def because(self, kind: FleetEventKind, reason: str = "") -> SwapReason:
        return SwapReason(kind=kind, by=self.by, reason=reason, checks=self.checks)

    @property
    def facts(self) -> dict[str, str | None]:
        """The fields of its log events."""
        return {"agent": self.agent.name, "old": self.agent.adapter, "new": self.to, "by": self.by}
