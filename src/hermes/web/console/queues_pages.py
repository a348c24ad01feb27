"""`/console/queues`: what waits and why, what was given up, and the buttons to revive, requeue and drop."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.queues import QUEUE_NAMES
from hermes.ports.errors import NotFound
from hermes.ports.outbox import DeadLetterQuery
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import Visit, read_form

Place = Annotated[str | None, Query(max_length=100)]
REVIVE_ALL = timedelta(hours=24)
MAX_REFUSALS = 3
NOTES = {
    "revived": "Revived. It waits for a worker:",
    "revived-all": "Every message of the last 24 hours that could be revived waits for a worker now.",
    "requeued": "Requeued: it is sent again, last in its conversation.",
    "dropped": "Dropped for good.",
}
"""What a page says after an act, by the word in its address: no text of an address is ever shown."""


def queue_page_routes(web: ConsoleWeb) -> APIRouter:
    """The page `/console/queues`."""
    routes = APIRouter(include_in_schema=False)
    routes.include_router(queue_form_routes(web))

    @routes.get("/console/queues")
    async def show_queues(
        visit: Annotated[Visit, Depends(web.visits.find)],
        queue: str = "waiting",
        after: Place = None,
        done: str = "",
        turn: UUID | None = None,
    ) -> Response:
        chosen = queue if queue in {*QUEUE_NAMES, "jobs"} else "waiting"
        try:
            revived = turn if done == "revived" else None
            return await render_queue(web, visit, chosen, after, message=NOTES.get(done, ""), message_turn=revived)
        except NotFound as error:
            return await refuse_act(web, visit, chosen, f"{error}", 422)

    return routes


def queue_form_routes(web: ConsoleWeb) -> APIRouter:
    """The forms below `/console/queues`."""
    routes = APIRouter(include_in_schema=False)
    actions = web.console.operations.queue_actions

    @routes.post("/console/queues/revive")
    async def revive(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        try:
            turn_id = UUID((await read_form(request)).get("turn_id", ""))
            await actions.revive(visit.actor, turn_id)
        except NotFound as error:
            return await refuse_act(web, visit, "buried", str(error))
        except ValueError:
            return await refuse_act(web, visit, "buried", "that is not the id of a turn", 422)
        return back_to("buried", f"revived&turn={turn_id}")

    @routes.post("/console/queues/revive-all")
    async def revive_all(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        if (await read_form(request)).get("confirm") != "all":
            return await refuse_act(web, visit, "buried", "to revive all, type all", 422)
        done = await actions.revive_all(visit.actor, since=datetime.now(UTC) - REVIVE_ALL)
        if done.refused:
            refusals = ". ".join(list(done.refused.values())[:MAX_REFUSALS])
            return await refuse_act(web, visit, "buried", f"{len(done.revived)} revived. {refusals}")
        return back_to("buried", "revived-all")

    @routes.post("/console/queues/requeue")
    async def requeue(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        try:
            await actions.requeue(visit.actor, DeadLetterQuery(ids=[letter_number(await read_form(request))]))
        except NotFound as error:
            return await refuse_act(web, visit, "dead", str(error))
        return back_to("dead", "requeued")

    @routes.post("/console/queues/drop")
    async def drop(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        form = await read_form(request)
        if form.get("confirm") != form.get("id"):
            return await refuse_act(web, visit, "dead", "to drop a letter, type its number; nothing changed", 422)
        try:
            await actions.drop(visit.actor, DeadLetterQuery(ids=[letter_number(form)]))
        except NotFound as error:
            return await refuse_act(web, visit, "dead", str(error))
        return back_to("dead", "dropped")

    return routes


async def render_queue(web: ConsoleWeb, visit: Visit, queue: str, after: str | None, status: int = 200, **message: Any) -> Response:
    """Return the page of one queue. Raises NotFound for a place that is none."""
    operations, operator = web.console.operations, visit.operator
    board = operations.queues
    values: dict[str, Any] = {
        "entries": (),
        "next": None,
        "jobs": (),
        "chores": (),
        "message": "",
        "message_kind": "",
        "message_turn": None,
    }
    if queue in QUEUE_NAMES:
        page = await board.entries(queue, operator, place=after)
        values |= {"entries": page.entries, "next": page.next}
    else:
        values |= {"jobs": await board.jobs(operator), "chores": await operations.workers.list_chores()}
    values |= {"visit": visit, "page": "queues", "queue": queue, "counts": await board.counts(operator), "now": datetime.now(UTC)}
    return web.pages.render("queues.html", {**values, **message}, status=status)


async def refuse_act(web: ConsoleWeb, visit: Visit, queue: str, why: str, status: int = 409) -> Response:
    """Return the page with what went wrong."""
    return await render_queue(web, visit, queue, None, status, message=f"{why[:1].upper()}{why[1:]}.", message_kind="bad")


def letter_number(form: Mapping[str, str]) -> int:
    text = form.get("id", "")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise NotFound("that is not the number of a dead letter")
    return int(text)


def back_to(queue: str, done: str) -> RedirectResponse:
    return RedirectResponse(f"/console/queues?queue={queue}&done={done}", 303)
