"""`/console/enter`, `/console/leave`, `/console/open`, and the files of the pages."""

from typing import Annotated
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.access import AccessRefused, ReasonMissing
from hermes.ports.errors import NotFound
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.pages import STATIC, static_response
from hermes.web.console.visits import REASON_HEADER, SESSION_COOKIE, SignInNeeded, Visit, is_same_origin, read_form
from hermes.web.errors import ApiError, api_error_response

HOME, ARRIVE_PATH = "/console", "/console/arrive"
MAX_PATH_CHARS = 4_000


def sign_in_page_routes(web: ConsoleWeb) -> APIRouter:
    """How an operator comes in, opens content, and leaves."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/console/static/{name}")
    async def show_static(name: str, request: Request) -> Response:
        if name not in STATIC:
            raise ApiError(404, "not_found", "There is no such file.")
        return static_response(STATIC[name], request)

    @routes.get("/console/enter")
    async def show_enter() -> Response:
        return web.pages.render("enter.html", {"message": ""})

    @routes.post("/console/enter")
    async def enter(request: Request) -> Response:
        if not is_same_origin(request):  # a foreign page must not sign a browser in as another operator
            await web.visits.refuse_form(request, None, "another origin")
        secret = (await read_form(request)).get("secret", "").strip()
        # A person may paste the whole link.
        session = await web.visits.enter(request, secret.rpartition("#")[2])
        if session is None:
            return web.pages.render("enter.html", {"message": "This link was used, or is too old."}, status=403)
        response = RedirectResponse(HOME, 303)
        SESSION_COOKIE.put(request, response, session)
        return response

    @routes.get("/console/arrive")
    async def arrive(next: Annotated[str, Query(max_length=MAX_PATH_CHARS)] = HOME) -> Response:  # noqa: A002  # the parameter's name
        return RedirectResponse(own_path(next), 303)

    @routes.post("/console/leave")
    async def leave(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        await web.console.desk.sign_in.sign_out(visit.actor, visit.session_id)
        response = web.pages.render("left.html", {})
        SESSION_COOKIE.delete(request, response)
        return response

    @routes.post("/console/open")
    async def open_content(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        form = await read_form(request)
        target = own_path(form.get("next", ""))
        try:
            subject = await web.console.subjects.find(form.get("kind", ""), form.get("id", ""))
        except NotFound as error:
            return web.pages.render("refused.html", {"message": f"{error}.", "is_audited": False, "back": target}, status=404)
        try:
            await web.console.access.open(visit.actor, subject, form.get("reason", ""))
        except ReasonMissing as error:
            return web.pages.render("refused.html", {"message": f"{error}.", "is_audited": True, "back": target}, status=422)
        return RedirectResponse(target, 303)

    return routes


def install_sign_in(app: FastAPI, web: ConsoleWeb) -> None:
    """Add the answers to requests that have no session, or may not do what they ask for."""

    @app.exception_handler(SignInNeeded)
    async def ask_to_sign_in(request: Request, _: SignInNeeded) -> Response:
        if request.method != "GET":
            return web.pages.render("sign_in.html", {}, status=401)
        session = await web.visits.enter_by_proxy(request)
        site, has_cookie = request.headers.get("sec-fetch-site"), SESSION_COOKIE.read(request) is not None
        if session is None and (site != "cross-site" or has_cookie):
            return web.pages.render("sign_in.html", {}, status=401)
        # A browser leaves a strict cookie out when a page of another site sends it here. This page of ours sends it to the address once
        # more. Not by a reload: that counts as coming from the other site still. If the cookie is missing after that too, the person
        # clicks: a page that always goes on would do it for ever.
        here = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        target = f"{ARRIVE_PATH}?{urlencode({'next': here})}"
        response = web.pages.render("bounce.html", {"is_automatic": site != "same-origin" or has_cookie, "target": target})
        if session is not None:
            SESSION_COOKIE.put(request, response, session)
        return response

    @app.exception_handler(AccessRefused)
    async def refuse(request: Request, error: AccessRefused) -> Response:
        if request.url.path.startswith("/v1/") and isinstance(error, ReasonMissing):
            words = f"Say why you open this, in the header {REASON_HEADER}; it goes into the audit log."
            return api_error_response(ApiError(403, "reason_missing", words))
        if request.url.path.startswith("/v1/"):
            return api_error_response(ApiError(403, "access_refused", f"{error}."))
        return web.pages.render("refused.html", {"message": f"{error}.", "is_audited": True, "back": HOME}, status=403)


def own_path(path: str) -> str:
    """Return the path if it is a page of the console, else that of its first page: a form must not lead to another site."""
    parts = urlsplit(path.replace("\\", "/"))
    is_own = not parts.scheme and not parts.netloc and (parts.path == HOME or parts.path.startswith(f"{HOME}/"))
    return path if is_own and path.isprintable() and ".." not in path else HOME
