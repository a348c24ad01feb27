"""The pages for operators: `/metrics`, the description of the API in `/openapi.json`, and the same for people in `/docs`.

They say much about a service, so in production they are closed on its public port: they need a token, or a port of their own."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from hermes.config import Secret
from hermes.web.api_page import PAGE_POLICY, write_api_page
from hermes.web.errors import ApiError, install_error_handlers
from hermes.web.hosts import HostGuard, KnownHosts, is_proxied
from hermes.web.limits import RateLimit, address_of, too_many_requests

MetricsPage = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Returns the page for Prometheus in the format that is accepted, and its content type."""
ApiDescription = Callable[[], Mapping[str, Any]]
"""Returns the OpenAPI description."""

CHALLENGE = 'Bearer realm="Hermes", Basic realm="Hermes", charset="UTF-8"'
"""A browser offers a form for Basic only: any name, and the token as the password."""
CLOSED_MESSAGE = "This page is for the operator: set web.metrics_token and send it as `Authorization: Bearer …`, or use web.metrics_port."


class OperatorAccess:
    """Decides who sees the operator's pages: with a token set, those who send it. Without one, in development the clients of this machine,
    and in production no client."""

    def __init__(self, token: Secret | None, *, is_production: bool, guesses: RateLimit) -> None:
        """`guesses` limits how often an address is told that its token is wrong."""
        self._token, self._is_production, self._guesses = token, is_production, guesses

    def check(self, request: Request) -> None:
        """Raise ApiError if the client may not see the page: 403 if no token is set, 401 for a wrong token, 429 after many of them."""
        if self._token is None:
            if self._is_production or not is_loopback(request):
                raise ApiError(403, "operators_only", CLOSED_MESSAGE)
            return
        given = token_in(request.headers.get("authorization", ""))
        if given is None:
            raise ApiError(401, "missing_token", CLOSED_MESSAGE, headers={"WWW-Authenticate": CHALLENGE})
        if not hmac.compare_digest(given, self._token.reveal().encode()):
            if wait_s := self._guesses.wait_s(address_of(request)):
                raise too_many_requests(wait_s)
            raise ApiError(401, "wrong_token", "This is not the token in web.metrics_token.", headers={"WWW-Authenticate": CHALLENGE})


def token_in(authorization: str) -> bytes | None:
    """Return the token of a header: the one of Bearer, or the password of Basic. None if it holds neither."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1") or None  # the bytes as they came: the server reads headers as Latin-1
    if scheme.lower() == "basic":
        try:
            _, colon, password = base64.b64decode(value, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return None
        return password if colon else None
    return None


def is_loopback(request: Request) -> bool:
    """Whether the client is on this machine. A proxy on this machine speaks for others."""
    try:
        address = ip_address(request.client.host if request.client else "")
    except ValueError:
        return False
    return address.is_loopback and not is_proxied(request.scope)


def operator_routes(metrics: MetricsPage, api: ApiDescription | None, access: OperatorAccess | None) -> APIRouter:
    """The pages. Without `api` there are only metrics; without `access` they are open."""
    checks: Sequence[Any] = [] if access is None else [Depends(access.check)]
    routes = APIRouter(tags=["operations"], dependencies=checks)

    @routes.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
    async def show_metrics(request: Request) -> Response:
        page, content_type = await metrics(request.headers.get("accept", ""))
        return Response(page, headers={"Content-Type": content_type})

    if api is None:
        return routes

    @routes.get("/openapi.json", include_in_schema=False)
    async def show_openapi() -> JSONResponse:
        return JSONResponse(dict(api()))

    @routes.get("/docs", include_in_schema=False)
    async def show_docs() -> HTMLResponse:
        return HTMLResponse(write_api_page(api()), headers=PAGE_POLICY)

    return routes


def operator_app(metrics: MetricsPage, hosts: KnownHosts, api: ApiDescription | None = None) -> FastAPI:
    """Return the app of the operator's own port. `/health` says that the event loop answers, for the probe of a container."""
    app = FastAPI(title="Hermes", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.include_router(operator_routes(metrics, api, None))

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    install_error_handlers(app)
    app.add_middleware(HostGuard, hosts=hosts)
    return app
