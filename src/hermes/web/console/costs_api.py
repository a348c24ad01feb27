"""`GET /v1/ops/costs`: what was spent, as JSON."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from hermes.console.costs import MAX_EXPORTED_ROWS, CostQueryInvalid, row_as_json
from hermes.ports.operators import Actor
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.errors import ApiError


def cost_api_routes(web: ConsoleWeb) -> APIRouter:
    """The costs, for an operator's programs."""
    routes = APIRouter(tags=["operations"])
    costs, visits = web.console.costs, web.visits

    @routes.get("/v1/ops/costs", summary="What model calls cost, by one dimension")
    async def read_costs(
        actor: Annotated[Actor, Depends(visits.find_program)],
        by: Annotated[str, Query(max_length=40, description="user, tier, channel, agent, key, model, tool, purpose, account, day")] = "day",
        since: Annotated[str, Query(max_length=40, description="`30d` (UTC days, with today), `24h`, or a moment.")] = "30d",
    ) -> dict[str, Any]:
        """`data` has the rows, the most money first; the sums of `bars` are the same money over time. All money is in micro-dollars."""
        try:
            report = await costs.read(actor, by, since, limit=MAX_EXPORTED_ROWS)
        except CostQueryInvalid as error:
            raise ApiError(422, "invalid_costs", str(error)) from None
        return {
            "data": [{**row_as_json(row, report.by), **name_of(row.value, report.names)} for row in report.rows],
            "next": None,
            "since": report.window.since.isoformat(),
            "until": report.window.until.isoformat(),
            "micro_usd": report.micro_usd,
            "micro_usd_before": report.micro_usd_before,
            "unit": report.unit,
            "bars": [{"at": bar.at.isoformat(), "micro_usd": bar.micro_usd} for bar in report.bars],
            "budgets": [
                {"kind": budget.kind, "name": budget.name, "micro_usd": budget.spend.micro_usd, "cap_micro_usd": budget.spend.cap_micro_usd}
                for budget in await costs.budgets(actor)
            ],
        }

    return routes


def name_of(value: str | None, names: Mapping[str, str]) -> dict[str, str]:
    return {"name": names[value]} if value is not None and value in names else {}
