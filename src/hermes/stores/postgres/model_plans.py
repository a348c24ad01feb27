"""Model plans, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.types.json import Jsonb

from hermes.ports.models import ModelPlan
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_rows
from hermes.stores.postgres.queries import load_queries

PLANS = load_queries("model_plans")


class PostgresModelPlans:
    """The port ModelPlans."""

    async def newest(self, tx: Transaction, *, limit: int = 1) -> Sequence[ModelPlan]:
        return await fetch_rows(tx, read_plan, PLANS["newest"], {"limit": limit})

    async def add(self, tx: Transaction, plan: ModelPlan) -> bool:
        columns = {name: getattr(plan, name) for name in ("version", "percent", "base", "by", "reason")}
        chains = Jsonb({tier: list(chain) for tier, chain in plan.chains.items()})
        return await execute(tx, PLANS["add"], {**columns, "chains": chains}) > 0


def read_plan(*, chains: Mapping[str, Sequence[str]], base_chains: Mapping[str, Sequence[str]], **columns: Any) -> ModelPlan:
    return ModelPlan(chains=freeze_chains(chains), base_chains=freeze_chains(base_chains), **columns)


def freeze_chains(chains: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {tier: tuple(chain) for tier, chain in chains.items()}
