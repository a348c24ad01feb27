"""`/console`: how Hermes is now; the strip on every page; and the search box."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.live import WINDOW_S
from hermes.console.search import MAX_QUERY_CHARS, page_of
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.turn_views import VIEWS
from hermes.web.console.visits import Visit

SLOW_P95_MS, LONG_WAIT_S = 30_000, 60.0
"""From when on a figure is drawn as a warning."""


def live_page_routes(web: ConsoleWeb) -> APIRouter:
    """`/console`, `/console/strip` and `/console/search`."""
    routes = APIRouter(include_in_schema=False)
    live = web.console.live

    @routes.get("/console")
    async def show_live(request: Request, visit: Annotated[Visit, Depends(web.visits.find)]) -> Response:
        values = {
            "visit": visit,
            "page": "live",
            "now": await live.overviews.read(visit.operator),
            "window_min": round(WINDOW_S / 60),
            "slow_p95_ms": SLOW_P95_MS,
            "long_wait_s": LONG_WAIT_S,
            **VIEWS,
        }
        return web.pages.render("_live.html" if request.query_params.get("part") == "live" else "live.html", values)

    @routes.get("/console/strip")
    async def show_strip(visit: Annotated[Visit, Depends(web.visits.find)]) -> Response:
        values = {"visit": visit, "now": await live.overviews.read(visit.operator), "long_wait_s": LONG_WAIT_S}
        return web.pages.render("_strip.html", values)

    @routes.get("/console/search")
    async def show_search(
        visit: Annotated[Visit, Depends(web.visits.find)], q: Annotated[str, Query(max_length=MAX_QUERY_CHARS)] = ""
    ) -> Response:
        hits = await live.search.find(q, visit.operator)
        if len(hits) == 1:
            return RedirectResponse(page_of(hits[0]), 303)
        return web.pages.render("search.html", {"visit": visit, "page": "search", "q": q, "hits": hits, "page_of": page_of})

    return routes
