"""`/console/operators`: for owners, the operators with their roles, links, sessions and tokens."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.access import Subject
from hermes.console.operators import OperatorChangeRefused, OperatorDesk, read_accounts, show_accounts
from hermes.console.sign_in import link_address
from hermes.ports.errors import NotFound
from hermes.ports.operators import Actor, OperatorNameTaken, Role
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import Visit, read_form

OPERATORS_PATH = "/console/operators"


@dataclass(frozen=True, slots=True)
class ShownSecret:
    """A link or token, which a page shows this once."""

    title: str
    secret: str


Act = Callable[[OperatorDesk, Actor, Mapping[str, str], str], Awaitable[ShownSecret | None]]
"""Does what a form asks for: the desk, the owner, the fields, and the address of this server."""


def operator_page_routes(web: ConsoleWeb) -> APIRouter:
    """The page of the operators, and its forms."""
    routes = APIRouter(include_in_schema=False)

    async def render(visit: Visit, change: str, *, message: str = "", shown: ShownSecret | None = None, status: int = 200) -> Response:
        await web.console.access.require(visit.actor, Role.OWNER, "operator.list", Subject(kind="operator", id="all"))
        operators = await web.console.desk.list()
        values = {
            "visit": visit,
            "page": "operators",
            "operators": operators,
            "chosen": next((operator for operator in operators if operator.name == change), None),
            "entries": await web.console.desk.entries(),
            "roles": list(Role),
            "message": message,
            "shown": shown,
            "accounts_of": show_accounts,
        }
        return web.pages.render("operators.html", values, status=status)

    @routes.get("/console/operators")
    async def show_operators(
        visit: Annotated[Visit, Depends(web.visits.find)], change: Annotated[str, Query(max_length=100)] = ""
    ) -> Response:
        return await render(visit, change)

    @routes.post("/console/operators")
    async def change_operators(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        form = await read_form(request)
        act, name = ACTS.get(form.get("act", "")), form.get("name", "").strip()
        if act is None:
            return await render(visit, name, message="This form is of another version; load the page again.", status=422)
        try:
            shown = await act(web.console.desk, visit.actor, form, str(request.base_url))
        except (OperatorChangeRefused, OperatorNameTaken, NotFound) as error:
            return await render(visit, name, message=f"{error}.", status=422)
        if shown is not None:
            return await render(visit, name, shown=shown)
        return RedirectResponse(f"{OPERATORS_PATH}?{urlencode({'change': name})}" if name else OPERATORS_PATH, 303)

    return routes


async def add(desk: OperatorDesk, actor: Actor, form: Mapping[str, str], url: str) -> ShownSecret | None:
    """A new operator gets a first link at once."""
    name = form.get("name", "").strip()
    await desk.add(actor, name, read_role(form), read_accounts(form.get("accounts", "")))
    return await make_link(desk, actor, {"name": name}, url)


async def set_role(desk: OperatorDesk, actor: Actor, form: Mapping[str, str], _: str) -> ShownSecret | None:
    await desk.set_role(actor, form.get("name", ""), read_role(form))
    return None


async def set_accounts(desk: OperatorDesk, actor: Actor, form: Mapping[str, str], _: str) -> ShownSecret | None:
    await desk.set_accounts(actor, form.get("name", ""), read_accounts(form.get("accounts", "")))
    return None


async def disable(desk: OperatorDesk, actor: Actor, form: Mapping[str, str], _: str) -> ShownSecret | None:
    name = form.get("name", "")
    if form.get("confirm", "").strip() != name:
        raise OperatorChangeRefused(f"type {name} to disable them")
    await desk.disable(actor, name)
    return None


async def enable(desk: OperatorDesk, actor: Actor, form: Mapping[str, str], _: str) -> ShownSecret | None:
    await desk.enable(actor, form.get("name", ""))
    return None


async def make_link(desk: OperatorDesk, actor: Actor, form: Mapping[str, str], url: str) -> ShownSecret | None:
    name = form.get("name", "")
    secret = await desk.make_link(actor, name)
    return ShownSecret(f"The link for {name}: it works once, within a quarter of an hour", link_address(url, secret))


async def make_token(desk: OperatorDesk, actor: Actor, form: Mapping[str, str], _: str) -> ShownSecret | None:
    name = form.get("name", "")
    return ShownSecret(f"The token of {name}", await desk.make_token(actor, name, form.get("title", "")))


async def revoke(desk: OperatorDesk, actor: Actor, form: Mapping[str, str], _: str) -> ShownSecret | None:
    await desk.revoke(actor, form.get("entry", ""))
    return None


ACTS: dict[str, Act] = {
    "add": add,
    "role": set_role,
    "accounts": set_accounts,
    "disable": disable,
    "enable": enable,
    "link": make_link,
    "token": make_token,
    "revoke": revoke,
}


def read_role(form: Mapping[str, str]) -> Role:
    try:
        return Role(form.get("role", ""))
    except ValueError:
        raise OperatorChangeRefused(f"a role is one of {', '.join(Role)}") from None
