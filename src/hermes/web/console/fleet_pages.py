"""`/console/fleet`: the agents, their adapters, spend and caps; swap, roll back, cap. Below them the models and their plan."""

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.fleet import SwapRefused, worst_level
from hermes.console.models import describe_plan
from hermes.gateway.model_plans import ALL_CHATS, PlanRefused
from hermes.ports.errors import NotFound, StoreUnavailable
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import Visit, read_form
from hermes.web.errors import ApiError

MICRO_PER_USD = 1_000_000
NOTES = {
    "swapped": "Swapped: its health and a small real call were well. Calls that had begun end on the old adapter.",
    "unchanged": "The agent had this adapter already.",
    "capped": "The cap is set, for all processes.",
    "planned": "The plan holds. Every process follows within about a second; calls that had begun end on the old chain.",
}


def fleet_page_routes(web: ConsoleWeb) -> APIRouter:
    """The page and forms below `/console/fleet`."""
    routes = APIRouter(include_in_schema=False)
    board, models = web.console.operations.fleet, web.console.models

    async def render(visit: Visit, status: int = 200, *, is_checked: bool = False, message: str = "", message_kind: str = "") -> Response:
        agents = await board.list(visit.operator)
        sees_all = visit.operator.accounts is None  # what a model costs and answers belongs to all accounts
        values: dict[str, Any] = {
            "visit": visit,
            "page": "fleet",
            "agents": agents,
            "adapters": board.switch.adapters,
            "events": await board.events(visit.operator),
            "spent": sum(view.spent_micro_usd for view in agents),
            "cap": board.cap_micro_usd,
            "checks": await board.check([adapter for view in agents for adapter in view.chain]) if is_checked else None,
            "worst": worst_level,
            "models": await models.read() if sees_all else None,
            "plans": await models.plans() if sees_all else (),
            "describe_plan": describe_plan,
            "message": message,
            "message_kind": message_kind,
        }
        return web.pages.render("fleet.html", values, status=status)

    @routes.get("/console/fleet")
    async def show_fleet(visit: Annotated[Visit, Depends(web.visits.find)], check: str = "", done: str = "") -> Response:
        return await render(visit, is_checked=check == "1", message=NOTES.get(done, ""))

    @routes.post("/console/fleet/swap")
    async def swap(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        form = await read_form(request)
        try:
            is_changed = await board.swap(visit.actor, form.get("agent", ""), form.get("adapter") or None)
        except (NotFound, SwapRefused, StoreUnavailable) as error:
            return await render(visit, 409, message=f"{error}.", message_kind="bad")
        return RedirectResponse(f"/console/fleet?done={'swapped' if is_changed else 'unchanged'}", 303)

    @routes.post("/console/fleet/cap")
    async def cap(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        form = await read_form(request)
        try:
            await board.set_cap(visit.actor, form.get("agent", ""), parse_cap(form.get("daily_usd", "")))
        except NotFound as error:
            return await render(visit, 409, message=f"{error}.", message_kind="bad")
        return RedirectResponse("/console/fleet?done=capped", 303)

    @routes.post("/console/fleet/plan")
    async def change_plan(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        form = await read_form(request)
        if visit.operator.accounts is not None:
            raise ApiError(403, "access_refused", "The models belong to no account: they are for operators of all accounts.")
        try:
            share = parse_share(form.get("share", ""))
            if form.get("act") == "rollback":
                await models.roll_back(visit.actor)
            elif form.get("act") == "share":
                await models.set_share(visit.actor, share)
            else:
                await models.swap(visit.actor, form.get("old", ""), form.get("new", ""), percent=share)
        except (NotFound, PlanRefused, StoreUnavailable) as error:
            return await render(visit, 409, message=f"{error}.", message_kind="bad")
        return RedirectResponse("/console/fleet?done=planned#models", 303)

    return routes


def parse_share(text: str) -> int:
    """Read a share in per cent; all chats if the field is empty. Raises PlanRefused."""
    if not text.strip():
        return ALL_CHATS
    if not text.strip().isdecimal():
        raise PlanRefused(f"{text[:30]!r} is not a share; expected 1 to 100")
    return int(text)


def parse_cap(text: str) -> int | None:
    """Read an amount in dollars as micro-dollars; None if the field is empty. Raises NotFound."""
    if not text.strip():
        return None
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        raise NotFound(f"{text[:30]!r} is not an amount; expected 5 or 0.50, or nothing for no cap") from None
    if not amount.is_finite():
        raise NotFound("a cap is a finite amount")
    return int(amount * MICRO_PER_USD)
