"""`/console/workers`: which processes live, which are stalled or silent, what each does, and who does the chores."""

from collections import Counter
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.workers import RESTART_EVENTS
from hermes.ports.errors import NotFound
from hermes.ports.processes import ProcessState
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import Visit, read_form

NOTES = {
    "given": "Its turns wait for other workers now.",
    "asked": "A worker does the chore within a quarter of a minute.",
}


def worker_page_routes(web: ConsoleWeb) -> APIRouter:
    """The page and forms below `/console/workers`."""
    routes = APIRouter(include_in_schema=False)
    board = web.console.operations.workers

    async def render(visit: Visit, status: int = 200, *, message: str = "", message_kind: str = "") -> Response:
        views = await board.list(visit.operator)
        events = await board.events(visit.operator)
        tally = Counter(str(view.state) for view in views)
        values: dict[str, Any] = {
            "visit": visit,
            "page": "workers",
            "now": datetime.now(UTC),
            "present": [view for view in views if view.state is not ProcessState.STOPPED],
            "stopped": [view for view in views if view.state is ProcessState.STOPPED],
            "tally": {state: tally[state] for state in ("live", "stalled", "silent")},
            "restarts": sum(event.type in RESTART_EVENTS for event in events),
            "events": events,
            "chores": await board.list_chores(),
            "stalled_after_s": board.stalled_after_s,
            "message": message,
            "message_kind": message_kind,
        }
        return web.pages.render("workers.html", values, status=status)

    @routes.get("/console/workers")
    async def show_workers(visit: Annotated[Visit, Depends(web.visits.find)], done: str = "") -> Response:
        return await render(visit, message=NOTES.get(done, ""))

    @routes.post("/console/workers/give-away")
    async def give_away(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        try:
            await board.give_away(visit.actor, UUID((await read_form(request)).get("process", "")))
        except NotFound as error:
            return await render(visit, 409, message=f"{error}.", message_kind="bad")
        except ValueError:
            return await render(visit, 422, message="That is not the id of a process.", message_kind="bad")
        return RedirectResponse("/console/workers?done=given", 303)

    @routes.post("/console/workers/chore")
    async def ask_for_chore(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        try:
            await board.ask_for_chore(visit.actor, (await read_form(request)).get("chore", ""))
        except NotFound as error:
            return await render(visit, 409, message=f"{error}.", message_kind="bad")
        return RedirectResponse("/console/workers?done=asked#chores", 303)

    return routes
