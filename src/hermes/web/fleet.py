"""`/v1/ops/fleet`: the agents with their adapters, health, spend and caps, and swaps of adapters, for the operator's programs.

Needs an operator's token, or an API key with the scope `ops`. A swap here is the swap of `hermes fleet swap`: the same checks, the same
canary, the same rollback. The canary runs in this web process; an adapter that is a program must be on this machine too."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from hermes.console.access import Subject
from hermes.gateway.catalogue import ModelCatalogue
from hermes.gateway.fleet import Canary, Fleet, SwapFailed
from hermes.gateway.fleet_views import checks_json, fleet_event_json, swap_json
from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.errors import NotFound, require_known
from hermes.ports.operators import Actor, Role
from hermes.ports.runtime import Transactions
from hermes.ports.users import Agent, Agents, NewUser
from hermes.router.effects import MICRO_PER_USD
from hermes.web.answers import json_only
from hermes.web.errors import ApiError, ErrorBody
from hermes.web.program_auth import ProgramAuth, make_program_dependency

CHECK_TIMEOUT_S = 5.0
MAX_CAP_USD = 999_998
NO_ADAPTER = (
    BackendFinding("not_in_settings", FindingLevel.ERROR, "the adapter is not in the settings of this process", "see `hermes doctor`"),
)
LEVELS = (FindingLevel.INFO, FindingLevel.WARN, FindingLevel.ERROR)
NEW_USERS_TIER = NewUser().tier
Checks = dict[str, Sequence[BackendFinding]]
"""The findings of each adapter's health check."""


@dataclass(frozen=True, slots=True)
class FleetOperations:
    """What the routes of the fleet need."""

    transactions: Transactions
    agents: Agents
    fleet: Fleet
    catalogue: ModelCatalogue
    chains: Callable[[], Mapping[str, Sequence[str]]]
    """The chains of the tiers, as the plan of the models has them."""
    canary: Canary
    daily_usd: float | None = None
    """The setting `fleet.daily_usd`: the cap of all agents together."""

    async def get(self, name: str) -> Agent:
        """Return an agent. Raises NotFound, which names the nearest one."""
        async with self.transactions.begin() as tx:
            found = {agent.name: agent for agent in await self.agents.list(tx)}
        return found[require_known(name, found, "agent")]

    def adapters_of(self, agent: Agent) -> tuple[str, ...]:
        """The agent's adapter, or else the chain of its tier. An agent without a tier answers with its user's: here, that of new users."""
        if agent.adapter is not None:
            return (agent.adapter,)
        chains = self.chains()
        known = [name for name in (agent.tier, NEW_USERS_TIER, *chains) if name is not None and name in chains]
        return tuple(chains[known[0]])

    async def check(self, agents: Sequence[Agent]) -> Checks:
        """Check every adapter of these agents once, all at the same time."""
        wanted = sorted({adapter for agent in agents for adapter in self.adapters_of(agent)})
        findings = await asyncio.gather(*(self._check(adapter) for adapter in wanted))
        return dict(zip(wanted, findings, strict=True))

    async def _check(self, adapter: str) -> Sequence[BackendFinding]:
        if adapter not in self.catalogue.models:
            return NO_ADAPTER
        return await self.fleet.check(adapter, timeout_s=CHECK_TIMEOUT_S)


class NewAdapter(BaseModel):
    """A swap."""

    model_config = ConfigDict(extra="forbid", strict=True)

    adapter: str | None = Field(description="The new adapter: a model of the settings; null for the chain of the agent's tier.")
    preserve_cwd: bool = Field(default=True, description="Keep the agent's working folder.")
    canary: bool = Field(default=True, description="Make one small real call afterwards, and roll back if it fails.")


class NewCap(BaseModel):
    """A spend cap."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    daily_usd: float | None = Field(ge=0, le=MAX_CAP_USD, description="US dollars that its calls may cost in a UTC day; null for no cap.")


ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 404, 409, 422, 429, 503)}


def fleet_routes(operations: FleetOperations, programs: ProgramAuth) -> APIRouter:
    """The routes of `/v1/ops/fleet`."""
    routes = APIRouter(tags=["operations"], responses=ERRORS)
    find_program = make_program_dependency(programs)

    async def find_actor(actor: Annotated[Actor, Depends(find_program)]) -> Actor:
        if actor.operator.accounts is not None:
            raise ApiError(403, "access_refused", "The fleet belongs to no account: it is for operators of all accounts.")
        return actor

    @routes.get("/v1/ops/fleet", summary="The agents, with adapter, health and spend of today")
    async def agents(_: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        async with operations.transactions.begin() as tx:
            found = await operations.agents.list(tx)
            spend = await operations.agents.spend(tx, datetime.now(UTC).date())
        checks = await operations.check(found)
        data = [agent_json(operations, agent, checks, spend.get(agent.name, 0)) for agent in found]
        money = {"daily_cap_usd": operations.daily_usd, "spend_today_usd": sum(spend.values()) / MICRO_PER_USD}
        return respond({"data": data, "next": None, **money})

    @routes.get("/v1/ops/fleet/events", summary="The swaps of adapters, newest first")
    async def events(
        _: Annotated[Actor, Depends(find_actor)],
        agent: Annotated[str | None, Query(max_length=64)] = None,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    ) -> JSONResponse:
        async with operations.transactions.begin() as tx:
            return respond({"data": [fleet_event_json(event) for event in await operations.agents.events(tx, agent, limit=limit)]})

    @routes.get("/v1/ops/fleet/{agent}/health", summary="The health checks of an agent's adapters")
    async def health(agent: str, _: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        """Each finding has a code for programs, a level (`info`, `warn`, `error`), a message, and a hint if there is something to do."""
        found = await find_agent(operations, agent)
        checks = await operations.check([found])
        return respond({"agent": found.name, "health": health_of(checks), "adapters": adapters_json(checks)})

    @routes.post("/v1/ops/fleet/{agent}/swap", summary="Give an agent another adapter", dependencies=[Depends(json_only)])
    async def swap(agent: str, body: NewAdapter, actor: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        """409 if the swap was refused or rolled back: then the old adapter is in place, and the error's code says which."""
        found = await find_agent(operations, agent)
        await programs.permit(actor, Role.OPERATOR, "fleet.swap", Subject(kind="agent", id=found.name))
        canary = operations.canary if body.canary else None
        try:
            done = await operations.fleet.swap(
                found.name, body.adapter, by=actor.operator.name, preserve_cwd=body.preserve_cwd, canary=canary
            )
        except NotFound as error:
            raise ApiError(404, "adapter_not_found", f"{error}.", param="adapter") from None
        except SwapFailed as error:
            raise ApiError(409, str(error.because.kind), str(error)) from None
        return respond(swap_json(done, body.adapter))

    @routes.post("/v1/ops/fleet/{agent}/cap", summary="Limit what an agent may spend in a day", dependencies=[Depends(json_only)])
    async def cap(agent: str, body: NewCap, actor: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        """As `hermes fleet cap`, for owners: at the cap the agent pauses until the next day (UTC)."""
        found = await find_agent(operations, agent)
        await programs.permit(actor, Role.OWNER, "fleet.cap", Subject(kind="agent", id=found.name))
        wanted = None if body.daily_usd is None else round(body.daily_usd * MICRO_PER_USD)
        return respond({"agent": found.name, "daily_cap_usd": cap_usd(await operations.fleet.set_cap(found.name, wanted))})

    return routes


async def find_agent(operations: FleetOperations, name: str) -> Agent:
    try:
        return await operations.get(name)
    except NotFound as error:
        raise ApiError(404, "agent_not_found", f"{error}.", param="agent") from None


def agent_json(operations: FleetOperations, agent: Agent, checks: Checks, micro_usd: int) -> dict[str, Any]:
    own = {adapter: checks[adapter] for adapter in operations.adapters_of(agent)}
    return {
        "name": agent.name,
        "adapter": agent.adapter,
        "tier": agent.tier,
        "epoch": agent.epoch,
        "cwd": agent.cwd,
        "accounts": list(agent.accounts),
        "models": [model.id for adapter in own if (model := operations.catalogue.models.get(adapter)) is not None],
        "health": health_of(own),
        "adapters": adapters_json(own),
        "spend_today_usd": micro_usd / MICRO_PER_USD,
        "daily_cap_usd": cap_usd(agent),
    }


def cap_usd(agent: Agent) -> float | None:
    return None if agent.daily_micro_usd is None else agent.daily_micro_usd / MICRO_PER_USD


def adapters_json(checks: Checks) -> list[dict[str, Any]]:
    return [{"adapter": adapter, "checks": checks_json(findings)} for adapter, findings in checks.items()]


def health_of(checks: Checks) -> str:
    """`error` if no adapter is fit, so that the agent cannot answer; `warn` if one of them has something to look at; else `ok`."""
    worst = [max((LEVELS.index(finding.level) for finding in findings), default=0) for findings in checks.values()]
    return "error" if min(worst) == LEVELS.index(FindingLevel.ERROR) else "warn" if max(worst) else "ok"


def respond(body: dict[str, Any]) -> JSONResponse:
    return JSONResponse(body, headers={"Cache-Control": "no-store"})
