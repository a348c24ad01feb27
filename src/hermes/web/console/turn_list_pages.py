"""`/console/turns`: the list of turns, with its filters in the address."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from hermes.console.turn_list import DEFAULT_SINCE, FILTER_FIELDS, FilterInvalid, TurnListPage, parse_filter, parse_list_cursor
from hermes.ports.turn_list import SLOW_S, TurnStatus
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.turn_views import VIEWS
from hermes.web.console.visits import Visit

PATH = "/console/turns"
PERIODS = ("15m", "1h", "24h", "7d", "30d")
FIELD_LABELS = {
    "agent": "Agent",
    "model": "Model",
    "tool": "Tool",
    "platform": "Platform",
    "tier": "Tier",
    "purpose": "Purpose",
    "account": "Account",
    "user": "User id",
    "key": "Key id",
}
PARTS = {"rows": "_turn_rows.html"}


def turn_list_page_routes(web: ConsoleWeb) -> APIRouter:
    """`/console/turns`. With `?part=rows` only the rows, for a page that is open."""
    routes = APIRouter(include_in_schema=False)

    @routes.get(PATH)
    async def show_turns(request: Request, visit: Annotated[Visit, Depends(web.visits.find)]) -> Response:
        fields = {name: request.query_params.get(name, "").strip() for name in FILTER_FIELDS}
        page, message, status = TurnListPage((), None), "", 200
        try:
            wanted = parse_filter(fields, datetime.now(UTC), visit.operator)
            before = parse_list_cursor(request.query_params.get("before"))
        except FilterInvalid as error:
            message, status, before = str(error), 422, None
        else:
            page = await web.console.live.turns.page(wanted, before=before)
        values = {
            "visit": visit,
            "page": "turns",
            "path": PATH,
            "fields": fields,
            "is_filtered": any(fields.values()),
            "command": list_command(fields),
            "status": fields["status"] or str(TurnStatus.ALL),
            "statuses": [str(status) for status in TurnStatus],
            "since": fields["since"] or DEFAULT_SINCE,
            "periods": PERIODS,
            "labels": FIELD_LABELS,
            "slow_s": SLOW_S,
            "list": page,
            "message": message,
            "is_first": before is None and not fields["until"],
            **VIEWS,
        }
        template = PARTS.get(request.query_params.get("part", ""), "turns.html")
        return web.pages.render(template, values, status=status)

    return routes


def list_command(fields: Mapping[str, str]) -> str:
    """The command that shows the same list."""
    words = [word for name, value in fields.items() if value for word in (f"--{name}", value)]
    return shlex.join(["hermes", "turns", "list", *words])
