"""`/console/alerts`: what needs a person, what was sent where, and the buttons to end, mute and test."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.queues import as_number
from hermes.ports.errors import NotFound
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import Visit, read_form

NOTES = {
    "ended": "Ended. Its next time is a new alert, with new messages.",
    "muted": "Muted: no messages are sent about it. It is still recorded.",
    "unmuted": "Messages about it are sent again.",
}


def alert_page_routes(web: ConsoleWeb) -> APIRouter:
    """The page and forms below `/console/alerts`."""
    routes = APIRouter(include_in_schema=False)
    board = web.console.operations.alerts

    async def render(visit: Visit, status: int = 200, *, show: str = "open", place: str | None = None, **message: Any) -> Response:
        page = await board.list(visit.operator, is_open=show == "open", place=place)
        values: dict[str, Any] = {
            "visit": visit,
            "page": "alerts",
            "show": show,
            "alerts": page.alerts,
            "next": page.next,
            "mutes": await board.mutes(visit.operator),
            "destinations": board.destinations,
            "trials": (),
            "message": "",
            "message_kind": "",
        }
        return web.pages.render("alerts.html", {**values, **message}, status=status)

    @routes.get("/console/alerts")
    async def show_alerts(
        visit: Annotated[Visit, Depends(web.visits.find)],
        show: str = "open",
        before: Annotated[str | None, Query(max_length=100)] = None,
        done: str = "",
    ) -> Response:
        chosen = show if show in {"open", "all"} else "open"
        try:
            return await render(visit, show=chosen, place=before, message=NOTES.get(done, ""))
        except NotFound as error:
            return await render(visit, 422, show=chosen, message=f"{error}.", message_kind="bad")

    @routes.post("/console/alerts/{act}")
    async def act_on_alert(act: str, request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        form = await read_form(request)
        event, subject = form.get("event", ""), form.get("subject", "")
        try:
            match act:
                case "end":
                    await board.end(visit.actor, as_number(form.get("id", "")))
                    return back("ended")
                case "mute":
                    await board.mute(visit.actor, event, subject, for_s=float(as_number(form.get("for_s", ""))))
                    return back("muted")
                case "unmute":
                    await board.unmute(visit.actor, event, subject)
                    return back("unmuted")
                case "test":
                    return await render(visit, trials=await board.test(visit.actor), message="A test was sent to each destination.")
                case _:
                    return await render(visit, 404, message="There is no such act.", message_kind="bad")
        except NotFound as error:
            return await render(visit, 409, message=f"{error}.", message_kind="bad")

    return routes


def back(done: str) -> RedirectResponse:
    return RedirectResponse(f"/console/alerts?done={done}", 303)
