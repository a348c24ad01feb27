"""`GET /v1/ops/overview` and `GET /v1/ops/turns`, for the operator's programs."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse

from hermes.console.live import overview_json
from hermes.console.turn_list import (
    FILTER_FIELDS,
    MAX_ROWS,
    PAGE_ROWS,
    FilterInvalid,
    open_json,
    parse_filter,
    parse_list_cursor,
    turn_json,
)
from hermes.ports.operators import Actor
from hermes.ports.turn_list import TurnStatus
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.errors import ApiError, ErrorBody

RESPONSES: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 422, 503)}
NO_STORE = {"Cache-Control": "no-store"}
KNOWN = frozenset({*FILTER_FIELDS, "before", "limit"})
Text = Annotated[str, Query(max_length=200)]


def live_api_routes(web: ConsoleWeb) -> APIRouter:
    """The routes; each needs an operator's token."""
    routes = APIRouter(tags=["operations"])

    @routes.get("/v1/ops/overview", responses=RESPONSES, summary="How Hermes is now")
    async def overview(actor: Annotated[Actor, Depends(web.visits.find_program)]) -> JSONResponse:
        """Turns, failures and times of the last 15 minutes, what waits and runs, backends, channels, processes, open alerts, spend."""
        found = await web.console.live.overviews.read(actor.operator)
        return JSONResponse({"data": overview_json(found, actor.operator)}, headers=NO_STORE)

    @routes.get("/v1/ops/turns", responses=RESPONSES, summary="Turns, newest first")
    async def turns(  # one parameter for each field of the filter
        request: Request,
        actor: Annotated[Actor, Depends(web.visits.find_program)],
        *,
        status: TurnStatus = TurnStatus.ALL,
        agent: Text = "",
        model: Text = "",
        tool: Text = "",
        platform: Text = "",
        tier: Text = "",
        purpose: Text = "",
        account: Text = "",
        user: Text = "",
        key: Text = "",
        since: Annotated[str, Query(max_length=50, description="24h, 7d, or a time.")] = "24h",
        until: Annotated[str, Query(max_length=50)] = "",
        before: Annotated[str, Query(max_length=80, description="`next` of the page before.")] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = PAGE_ROWS,
    ) -> JSONResponse:
        """Turns that have ended, and calls of the completions API. `open` has those that wait or run, on the first page. If
        `looked_through` is a number, the page may be short: a filter that no index serves looks through so many rows a page. No words of
        users or models."""
        fields = {"status": str(status), "agent": agent, "model": model, "tool": tool, "platform": platform, "tier": tier}
        fields |= {"purpose": purpose, "account": account, "user": user, "key": key, "since": since, "until": until}
        refuse_unknown(request)
        try:
            wanted = parse_filter(fields, datetime.now(UTC), actor.operator)
            cursor = parse_list_cursor(before)
        except FilterInvalid as error:
            raise ApiError(422, "invalid_filter", str(error), param=str(error).partition(" ")[0]) from None
        page = await web.console.live.turns.page(wanted, before=cursor, limit=limit)
        body = {
            "data": [turn_json(row, actor.operator) for row in page.rows],
            "next": None if page.next is None else str(page.next),
            "looked_through": page.looked_through,
            "open": [open_json(turn, actor.operator) for turn in page.open],
        }
        return JSONResponse(body, headers=NO_STORE)

    return routes


def refuse_unknown(request: Request) -> None:
    """A filter with a typing error must not show everything. Raises ApiError."""
    if unknown := next((name for name in request.query_params if name not in KNOWN), None):
        raise ApiError(422, "unknown_filter", f"{unknown[:50]} is no filter; there are {', '.join(sorted(KNOWN))}", param=unknown[:50])
