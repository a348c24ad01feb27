"""`/console/people` and the page of one person: numbers for all, their memory once it is opened, and what an owner does for them."""

from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response

from hermes.app.console import Console
from hermes.console.amounts import show_round_usd
from hermes.console.people import MAX_GRANT, PersonDetails, PersonQueryInvalid
from hermes.console.why import CREDIT_WORDS
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.people import PeopleCursor, PersonSummary
from hermes.ports.replays import REPLAY_PAYER
from hermes.ports.users import UserState
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.cost_chart import round_up
from hermes.web.console.pages import ConsolePages
from hermes.web.console.visits import Visit, read_form
from hermes.web.errors import ApiError

SHOWN_STATES = tuple(UserState)
STATE_KINDS = {UserState.ACTIVE: "ok", UserState.INVITED: "warn", UserState.STRANGER: "", UserState.DELETED: "bad"}
DONE = {
    "credit": "The credits are given.",
    "again": "These credits were given before; nothing changed.",
    "tier": "The tier is changed; it holds from the next message on.",
}
MAX_DIGITS = 10
BAR_WIDTH, BAR_HEIGHT = 10, 40
"""Of a day in the small chart, in units of its own."""


def is_payer(person: PersonSummary) -> bool:
    """Whether this is the user who pays for replays: no person, and shown as such."""
    return REPLAY_PAYER in person.channels


class PersonPage:
    """Renders the page of one person, also after a form that was refused."""

    def __init__(self, console: Console, pages: ConsolePages) -> None:
        self._console, self._pages = console, pages

    async def render(self, user_id: UUID, visit: Visit, *, message: str = "", is_fault: bool = False) -> Response:
        people = self._console.people
        try:
            person = await people.read(visit.actor, user_id)
        except NotFound as error:
            return self._pages.render("person_missing.html", {"visit": visit, "page": "people", "message": str(error)}, status=404)
        values = {
            "visit": visit,
            "page": "people",
            "person": person,
            "user": person.summary.user,
            "kinds": STATE_KINDS,
            "message": message,
            "is_fault": is_fault,
            "memory": None,
            "opened": None,
            "needs_reason": self._console.access.needs_reason,
            "tiers": people.tiers,
            "max_grant": MAX_GRANT,
            "grant_key": uuid4(),
            "credit_words": CREDIT_WORDS,
            **small_chart(person),
            **await self._read_opened(person, visit),
        }
        return self._pages.render("person.html", values, status=422 if is_fault else 200)

    async def _read_opened(self, person: PersonDetails, visit: Visit) -> dict[str, Any]:
        """What is known about them, if this operator opened it a short while ago."""
        opened = None if person.is_erased else await self._console.access.find_opened(visit.actor, person.subject)
        if opened is None:
            return {}
        try:
            return {"opened": opened, "memory": await self._console.people.read_memory(opened)}
        except UserErased:
            return {}


def people_page_routes(web: ConsoleWeb) -> APIRouter:
    """The list of people, and the page of each."""
    routes = APIRouter(include_in_schema=False)
    console, pages, visits = web.console, web.pages, web.visits
    person_page = PersonPage(console, pages)

    @routes.get("/console/people")
    async def list_people(
        visit: Annotated[Visit, Depends(visits.find)],
        q: Annotated[str, Query(max_length=200)] = "",
        state: Annotated[str, Query(max_length=20)] = "",
        before: Annotated[str, Query(max_length=100)] = "",
    ) -> Response:
        wanted = UserState(state) if state in {*UserState} else None
        values: dict[str, Any] = {"visit": visit, "page": "people", "q": q, "state": wanted, "states": SHOWN_STATES, "kinds": STATE_KINDS}
        values |= {"is_payer": is_payer, "message": "", "people": [], "next_href": ""}
        try:
            found = await console.people.list(visit.actor, search=q, state=wanted, before=read_cursor(before))
        except PersonQueryInvalid as error:
            return pages.render("people.html", {**values, "message": str(error)}, status=422)
        if found.next is not None:
            following = {**({"state": wanted.value} if wanted else {}), "before": write_cursor(found.next)}
            values["next_href"] = f"/console/people?{urlencode(following)}"
        return pages.render("people.html", {**values, "people": found.people})

    @routes.get("/console/people/{user_id}")
    async def show_person(
        user_id: UUID, visit: Annotated[Visit, Depends(visits.find)], done: Annotated[str, Query(max_length=20)] = ""
    ) -> Response:
        return await person_page.render(user_id, visit, message=DONE.get(done, ""))

    return routes


def person_form_routes(web: ConsoleWeb) -> APIRouter:
    """What an owner does for a person."""
    routes = APIRouter(include_in_schema=False)
    people, visits, person_page = web.console.people, web.visits, PersonPage(web.console, web.pages)

    @routes.post("/console/people/{user_id}/credit")
    async def grant_credits(user_id: UUID, request: Request, visit: Annotated[Visit, Depends(visits.find_posted)]) -> Response:
        form = await read_form(request)
        text = form.get("amount", "").strip()
        try:
            key = str(UUID(form.get("key", "")))  # of the form: a form that is sent twice gives once
        except ValueError:
            raise ApiError(422, "invalid_form", "The form could not be read.") from None
        try:
            is_new = await people.grant(visit.actor, user_id, int(text) if text.isdecimal() and len(text) < MAX_DIGITS else 0, key)
        except (PersonQueryInvalid, NotFound, UserErased) as error:
            return await person_page.render(user_id, visit, message=str(error), is_fault=True)
        return RedirectResponse(f"/console/people/{user_id}?done={'credit' if is_new else 'again'}", 303)

    @routes.post("/console/people/{user_id}/tier")
    async def change_tier(user_id: UUID, request: Request, visit: Annotated[Visit, Depends(visits.find_posted)]) -> Response:
        form = await read_form(request)
        try:
            await people.set_tier(visit.actor, user_id, form.get("tier", ""))
        except (NotFound, UserErased) as error:
            return await person_page.render(user_id, visit, message=str(error), is_fault=True)
        return RedirectResponse(f"/console/people/{user_id}?done=tier", 303)

    @routes.post("/console/people/{user_id}/forget")
    async def erase_person(user_id: UUID, request: Request, visit: Annotated[Visit, Depends(visits.find_posted)]) -> Response:
        form = await read_form(request)
        try:
            is_gone = await people.forget(visit.actor, user_id, form.get("confirm", ""))
        except (PersonQueryInvalid, NotFound) as error:
            return await person_page.render(user_id, visit, message=str(error), is_fault=True)
        # An operator of single accounts does not see a person without a channel in them.
        is_seen = is_gone and visit.operator.accounts is None
        return RedirectResponse(f"/console/people/{user_id}" if is_seen else "/console/people", 303)

    return routes


def small_chart(person: PersonDetails) -> dict[str, Any]:
    """The bars of the last 30 days."""
    top = round_up(max(day.micro_usd for day in person.days))
    bars = [
        (place * BAR_WIDTH, round(BAR_HEIGHT - height, 2), round(height, 2), f"{day.day:%a %-d %b} · {show_round_usd(day.micro_usd)}", day)
        for place, day in enumerate(person.days)
        for height in [day.micro_usd / top * BAR_HEIGHT]
    ]
    return {"bars": bars, "bars_width": len(bars) * BAR_WIDTH, "spent": sum(day.micro_usd for day in person.days)}


def write_cursor(cursor: PeopleCursor) -> str:
    return f"{cursor.created_at.isoformat()}/{cursor.user_id}"


def read_cursor(text: str) -> PeopleCursor | None:
    """Read the place behind a page. Raises ApiError for a text that is none."""
    if not text:
        return None
    at, _, user_id = text.partition("/")
    try:
        return PeopleCursor(datetime.fromisoformat(at).astimezone(UTC), UUID(user_id))
    except (ValueError, OverflowError):
        raise ApiError(422, "invalid_cursor", "`before` is not a place in this list; take `next` of the page before.") from None
