"""`/console/costs`: what was spent, by what the operator asks for, with the day's budgets; and the same as CSV."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from hermes.console.costs import MAX_EXPORTED_ROWS, CostQueryInvalid, DailyBudget, write_csv
from hermes.ports.costs import TIME_DIMENSIONS, CostDimension
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.cost_chart import color_place, draw_chart, show_change, show_exact_usd, time_href, turns_href
from hermes.web.console.pages import CONSOLE_HEADERS
from hermes.web.console.visits import Visit
from hermes.web.errors import ApiError

SHOWN_DIMENSIONS = tuple(dimension for dimension in CostDimension if dimension is not CostDimension.HOUR)
PERIODS = ("24h", "7d", "30d", "90d")
DEFAULT_BY, DEFAULT_SINCE = CostDimension.AGENT.value, "30d"
By = Annotated[str, Query(max_length=40)]
Since = Annotated[str, Query(max_length=40)]


def cost_page_routes(web: ConsoleWeb) -> APIRouter:
    """The page of costs, and its CSV."""
    routes = APIRouter(include_in_schema=False)
    costs, pages, visits = web.console.costs, web.pages, web.visits

    @routes.get("/console/costs")
    async def show_costs(visit: Annotated[Visit, Depends(visits.find)], by: By = DEFAULT_BY, since: Since = DEFAULT_SINCE) -> Response:
        try:
            report = await costs.read(visit.actor, by, since)
        except CostQueryInvalid as error:
            raise ApiError(422, "invalid_costs", str(error)) from None
        budgets = await costs.budgets(visit.actor)
        cap = next((budget.spend.cap_micro_usd for budget in budgets if budget.kind == "platform"), None)
        chart, is_time = draw_chart(report, cap), report.by in TIME_DIMENSIONS
        return pages.render(
            "costs.html",
            {
                "visit": visit,
                "page": "costs",
                "report": report,
                "chart": chart,
                "cap": cap,
                "shown_budgets": [budget for budget in budgets if budget.spend.cap_micro_usd is not None],
                "warn": budget_kind,
                "since": since,
                "periods": PERIODS,
                "dimensions": SHOWN_DIMENSIONS,
                "href": lambda **changed: f"/console/costs?{urlencode({'by': report.by, 'since': since, **changed})}",
                "csv_href": f"/console/costs.csv?{urlencode({'by': report.by, 'since': since})}",
                "turns": lambda value: turns_href(report.by, value, report.window.since, report.window.until),
                "time_turns": time_href,
                "tone": lambda value: color_place(report, value),
                "is_time": is_time,
                "change": show_change,
                "exact": show_exact_usd,
            },
        )

    @routes.get("/console/costs.csv")
    async def download_costs(visit: Annotated[Visit, Depends(visits.find)], by: By = DEFAULT_BY, since: Since = DEFAULT_SINCE) -> Response:
        try:
            report = await costs.read(visit.actor, by, since, limit=MAX_EXPORTED_ROWS)
        except CostQueryInvalid as error:
            raise ApiError(422, "invalid_costs", str(error)) from None
        name = f"hermes-costs-by-{report.by}-{report.window.since:%Y-%m-%d}.csv"
        headers = {**CONSOLE_HEADERS, "Content-Type": "text/csv; charset=utf-8", "Content-Disposition": f'attachment; filename="{name}"'}
        return Response(write_csv(report), headers=headers)

    return routes


def budget_kind(budget: DailyBudget) -> str:
    """How a budget is shown: at 100 % bad, from 80 % on a warning."""
    percent = budget.percent or 0
    return "bad" if percent >= 100 else "warn" if percent >= 80 else "ok"
