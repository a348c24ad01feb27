"""The page of the settings, with the kill switch."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.access import MAX_REASON_CHARS, clean_text
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import Visit, read_form
from hermes.web.errors import ApiError


def settings_page_routes(web: ConsoleWeb) -> APIRouter:
    """`/console/settings`, and the kill switch below it."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/console/settings")
    async def show_settings(visit: Annotated[Visit, Depends(web.visits.find)], q: str = "", origin: str = "") -> Response:
        overview = await web.console.settings.overview()
        words = q.lower().split()
        found = [
            line
            for line in overview.settings
            if all(word in f"{line.section}.{line.name} {line.variable} {line.meaning}".lower() for word in words)
            if origin != "changed" or line.origin != "default"
        ]
        values = {
            "visit": visit,
            "page": "settings",
            "overview": overview,
            "found": found,
            "q": q,
            "origin": origin,
            "switch": await web.console.kill_switch.read(),
        }
        return web.pages.render("settings.html", values)

    @routes.post("/console/settings/kill-switch")
    async def use_kill_switch(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        form = await read_form(request)
        if form.get("engaged") == "on":
            await web.console.kill_switch.engage(visit.actor, require_reason(form.get("reason", "")))
        else:
            await web.console.kill_switch.release(visit.actor)
        return RedirectResponse("/console/settings", 303)

    return routes


def require_reason(reason: str) -> str:
    """Return the reason as the store can hold it, without white space around it. Raises ApiError if it is empty."""
    cleaned = clean_text(reason, MAX_REASON_CHARS)
    if not cleaned:
        raise ApiError(422, "reason_missing", "Give a reason: other operators see it.", param="reason")
    return cleaned
