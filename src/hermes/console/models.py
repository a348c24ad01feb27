"""The models for operators: place, price, health and speed of each one, and the plan that puts other chains in place of the settings'."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from hermes.console.access import ConsoleAccess, Subject
from hermes.gateway.model_plans import ALL_CHATS, CheckModel, ModelChains, ModelPlanner
from hermes.gateway.prices import PER_MILLION
from hermes.ports.models import ModelPlan
from hermes.ports.operators import Actor, Role

PLAN_ACTION = "models.plan"


class ModelState(StrEnum):
    """Whether a model is asked."""

    OK = "ok"
    FAILING = "failing"
    """Its last call failed; it is asked all the same."""
    OPEN = "open"
    """Its breaker is open: it is left out."""
    PROBING = "probing"
    """Its breaker is open, and the next call finds out whether it answers again."""
    NOT_SET_UP = "not set up"
    """Its backend has no key or is not in the settings, so it is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """A model of a backend."""

    name: str
    backend: str
    model: str
    places: Sequence[str]
    """Its tiers with its place in the chain: `pro 1`."""
    usd_in: float | None
    """For a million tokens; None: it has no price."""
    usd_out: float | None
    state: ModelState
    since: datetime | None = None
    """Since when its calls fail."""
    next_probe_at: datetime | None = None
    error: str = ""
    answers_today: int = 0
    failures_today: int = 0
    p50_ms: int | None = None
    """Of the last 15 minutes, as the two below."""
    tokens_per_s: float | None = None
    recent_answers: int = 0


@dataclass(frozen=True, slots=True)
class ModelBoard:
    """Reads the models, and changes the plan. Every change is in the audit log."""

    access: ConsoleAccess
    planner: ModelPlanner
    read: Callable[[], Awaitable[Sequence[ModelStatus]]]
    check: CheckModel

    async def plans(self, *, limit: int = 20) -> Sequence[ModelPlan]:
        """The plans, the newest first."""
        return await self.planner.history(limit=limit)

    async def set_chain(self, actor: Actor, tier: str, chain: Sequence[str], *, percent: int = ALL_CHATS, reason: str = "") -> ModelPlan:
        """Give a tier another chain; an empty one for the settings'. Raises NotFound, PlanRefused and AccessRefused."""
        await self._permit(actor, reason, tier=tier, chain=list(chain), percent=percent)
        return await self.planner.set_chain(tier, chain, percent=percent, by=actor.operator.name, reason=reason, check=self.check)

    async def swap(self, actor: Actor, old: str, new: str, *, percent: int = ALL_CHATS, reason: str = "") -> ModelPlan:
        """Put a model into the place of another one in every chain. Raises NotFound, PlanRefused and AccessRefused."""
        await self._permit(actor, reason, old=old, new=new, percent=percent)
        return await self.planner.swap(old, new, percent=percent, by=actor.operator.name, reason=reason, check=self.check)

    async def set_share(self, actor: Actor, percent: int, *, reason: str = "") -> ModelPlan:
        """Give the plan on trial another share of the chats; 100 ends the trial. Raises PlanRefused and AccessRefused."""
        await self._permit(actor, reason, percent=percent)
        return await self.planner.set_share(percent, by=actor.operator.name, reason=reason)

    async def roll_back(self, actor: Actor, *, reason: str = "") -> ModelPlan:
        """End the trial, or else return to the chains before. Raises PlanRefused and AccessRefused."""
        await self._permit(actor, reason, roll_back=True)
        return await self.planner.roll_back(by=actor.operator.name, reason=reason)

    async def _permit(self, actor: Actor, reason: str, **facts: Any) -> None:
        await self.access.permit(actor, Role.OPERATOR, PLAN_ACTION, Subject(kind="setting", id="model_plan"), reason=reason, facts=facts)


def places_of(chains: ModelChains) -> dict[str, list[str]]:
    """The places of each model, by its name."""
    found: dict[str, list[str]] = {}
    for tier, chain in chains.items():
        for at, name in enumerate(chain, start=1):
            found.setdefault(name, []).append(f"{tier} {at}")
    return found


def usd_per_million(micro_usd: int | None) -> float | None:
    """The price of a million tokens in dollars."""
    return None if micro_usd is None else micro_usd / PER_MILLION


def model_json(model: ModelStatus) -> dict[str, Any]:
    times = {name: None if (at := getattr(model, name)) is None else at.isoformat() for name in ("since", "next_probe_at")}
    return {**asdict(model), "places": list(model.places), **times}


def plan_json(plan: ModelPlan) -> dict[str, Any]:
    return {
        "version": plan.version,
        "percent": plan.percent,
        "chains": {tier: list(chain) for tier, chain in plan.chains.items()},
        "base": plan.base,
        "by": plan.by,
        "reason": plan.reason,
        "at": plan.at.isoformat(),
    }


def describe_plan(plan: ModelPlan) -> str:
    """A plan in a few words."""
    chains = "; ".join(f"{tier}: {' → '.join(chain)}" for tier, chain in sorted(plan.chains.items())) or "the chains of the settings"
    return chains if plan.percent == ALL_CHATS else f"{plan.percent} % of the chats: {chains}"
