"""`/console/keys`: the API keys with what they cost; an owner makes and revokes them here. A secret is shown once."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.key_limits import LIMITS, show_limits
from hermes.console.keys import KeyForm, KeyRefused
from hermes.ports.errors import NotFound
from hermes.ports.users import KEY_SCOPES, ApiKey
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import Visit, read_form

DEFAULT_ACCOUNT = "api"


def key_page_routes(web: ConsoleWeb) -> APIRouter:
    """The page of API keys, and its forms."""
    routes = APIRouter(include_in_schema=False)
    keys, pages, visits = web.console.keys, web.pages, web.visits

    @routes.get("/console/keys")
    async def list_keys(visit: Annotated[Visit, Depends(visits.find)], before: UUID | None = None) -> Response:
        return await render_keys(visit, before=before)

    @routes.post("/console/keys")
    async def create_key(request: Request, visit: Annotated[Visit, Depends(visits.find_posted)]) -> Response:
        form = await read_form(request)
        scopes = [scope for scope in KEY_SCOPES if form.get(f"scope_{scope}")]
        wanted = KeyForm(
            name=form.get("name", "").strip(),
            account=form.get("account", "").strip() or DEFAULT_ACCOUNT,
            tier=form.get("tier") or None,
            trains=form.get("trains") == "yes",
            scopes=scopes or None,
            channels=form.get("channels", "").split() or None,
            limits={limit.option: text for limit in LIMITS if (text := form.get(limit.option, "").strip())},
        )
        try:
            key, secret = await keys.create(visit.actor, wanted)
        except (KeyRefused, NotFound) as error:
            return await render_keys(visit, message=str(error), is_fault=True)
        # The answer itself shows the secret: a page that is asked for again must not have it.
        return await render_keys(visit, made=key, secret=secret)

    @routes.post("/console/keys/{key_id}/revoke")
    async def revoke_key(key_id: UUID, request: Request, visit: Annotated[Visit, Depends(visits.find_posted)]) -> Response:
        form = await read_form(request)
        try:
            await keys.revoke(visit.actor, key_id, form.get("confirm", ""))
        except (KeyRefused, NotFound) as error:
            return await render_keys(visit, message=str(error), is_fault=True)
        return RedirectResponse(f"/console/keys#key-{key_id}", 303)

    async def render_keys(
        visit: Visit,
        *,
        before: UUID | None = None,
        message: str = "",
        is_fault: bool = False,
        made: ApiKey | None = None,
        secret: str = "",
    ) -> Response:
        found = await keys.list(visit.actor, before=before)
        values: dict[str, Any] = {
            "visit": visit,
            "page": "keys",
            "keys": found.keys,
            "next_href": f"/console/keys?before={found.next}" if found.next else "",
            "message": message,
            "is_fault": is_fault,
            "made": made,
            "secret": secret,
            "scopes": KEY_SCOPES,
            "tiers": keys.tiers,
            "limits": LIMITS,
            "usual": {each.label: each.limit for each in show_limits(keys.usual, None)},
            "default_account": next(iter(sorted(visit.operator.accounts)), "") if visit.operator.accounts is not None else DEFAULT_ACCOUNT,
        }
        return pages.render("keys.html", values, status=422 if is_fault else 200)

    return routes
