"""`/webhooks/{platform}/{account}`: what platforms send. Verified, stored, and only then answered with 200; no model is asked in here.

Whatever is authentic gets its 200, also what nobody knows: a platform that is refused sends the same again, and everything behind it
waits. Where it cannot be stored it gets a 503 and comes back."""

from typing import Annotated

import structlog
from fastapi import APIRouter, Path, Request
from fastapi.responses import PlainTextResponse, Response

from hermes.app.channels import Lines
from hermes.app.gateway import SystemClock
from hermes.ports.channels import Channel, NotAuthentic, Webhook
from hermes.ports.errors import InboxFull, StoreUnavailable
from hermes.router.hearing import Hearing
from hermes.turn import Platform
from hermes.web.errors import Refused
from hermes.web.limits import Limit, address_of

log = structlog.get_logger()

Account = Annotated[str, Path(min_length=1, max_length=128)]
RETRY_S = "5"
WEBHOOK_BYTES = 4_000_000
"""The largest that a platform sends is 3 MB."""


def webhook_routes(lines: Lines, hearing: Hearing, guesses: Limit) -> APIRouter:
    """The addresses that platforms are given. `guesses` is how often an address is told that it is not authentic."""
    routes = APIRouter(tags=["webhooks"], include_in_schema=False)

    def known(platform: str, account: str) -> Channel:
        found = lines.get(Platform(platform), account) if platform in set(Platform) else None
        if found is None:
            raise Refused(404, "not_found", "There is no such account.")
        return found

    @routes.get("/webhooks/{platform}/{account}")
    async def challenged(platform: str, account: Account, request: Request) -> Response:
        answer = getattr(known(platform, account), "challenge", None)
        try:
            return PlainTextResponse(answer(dict(request.query_params)) if answer else "", 200 if answer else 405)
        except NotAuthentic:
            return PlainTextResponse("", 403)

    @routes.post("/webhooks/{platform}/{account}")
    @routes.post("/webhooks/{platform}/{account}/{secret}")
    async def sent(platform: str, account: Account, request: Request, secret: str | None = None) -> Response:
        channel = known(platform, account)
        headers = {name.lower(): value for name, value in request.headers.items()}
        webhook = Webhook(headers=headers, body=await request.body(), query=dict(request.query_params), path_secret=secret)
        try:
            channel.verify(webhook)
        except NotAuthentic:
            guesses.admit(address_of(request))
            log.warning("webhook_refused", platform=platform, account=account)
            return PlainTextResponse("", 403)
        happenings = channel.parse(webhook, now=SystemClock().now())
        try:
            await hearing.hear(channel, happenings, newcomer=lines.newcomer(channel.platform, channel.account))
        except (StoreUnavailable, InboxFull):
            return PlainTextResponse("", 503, {"Retry-After": RETRY_S})
        return PlainTextResponse("")

    return routes
