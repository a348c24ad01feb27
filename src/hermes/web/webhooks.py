"""`/webhooks/{platform}/{account}`: what platforms send. Verified, stored, and only then answered with 200; no model is asked in here.

Whatever is authentic gets its 200, also what no account here knows: a platform that is refused sends the same again, and everything behind
it waits. Where it cannot be stored it gets a 503 and comes back.

Meta gives an app one callback URL, so one webhook may hold things for several accounts: each goes to the account that it names, if that
account's own secret verifies the webhook too."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import structlog
from fastapi import APIRouter, Path, Request
from fastapi.responses import PlainTextResponse, Response

from hermes.app.channels import AccountChannels
from hermes.app.gateway import SystemClock
from hermes.ports.channels import Channel, Ignored, InboundEvent, SharesWebhook, Webhook, WebhookNotAuthentic
from hermes.ports.errors import InboxFull, StoreUnavailable
from hermes.router.inbound import InboundRouter
from hermes.turn import Platform
from hermes.web.errors import ApiError
from hermes.web.rate_limit import RateLimit, address_of

log = structlog.get_logger()

Account = Annotated[str, Path(min_length=1, max_length=128)]
RETRY_AFTER_S = "5"
MAX_WEBHOOK_BYTES = 4_000_000
"""The largest that a platform sends is 3 MB."""


def webhook_routes(account_channels: AccountChannels, inbound: InboundRouter, guesses: RateLimit) -> APIRouter:
    """The addresses that platforms are given. `guesses` is how often an address is told that it is not authentic."""
    routes = APIRouter(tags=["webhooks"], include_in_schema=False)

    def known(platform: str, account: str) -> Channel:
        found = account_channels.get(Platform(platform), account) if platform in set(Platform) else None
        if found is None:
            raise ApiError(404, "not_found", "There is no such account.")
        return found

    @routes.get("/webhooks/{platform}/{account}")
    async def challenged(platform: str, account: Account, request: Request) -> Response:
        answer = getattr(known(platform, account), "challenge", None)
        try:
            return PlainTextResponse(answer(dict(request.query_params)) if answer else "", 200 if answer else 405)
        except WebhookNotAuthentic:
            return PlainTextResponse("", 403)

    @routes.post("/webhooks/{platform}/{account}")
    @routes.post("/webhooks/{platform}/{account}/{secret}")
    async def sent(platform: str, account: Account, request: Request, secret: str | None = None) -> Response:
        channel = known(platform, account)
        headers = {name.lower(): value for name, value in request.headers.items()}
        webhook = Webhook(headers=headers, body=await request.body(), query=dict(request.query_params), path_secret=secret)
        try:
            channel.verify(webhook)
        except WebhookNotAuthentic:
            guesses.admit(address_of(request))
            log.warning("webhook_refused", platform=platform, account=account)
            return PlainTextResponse("", 403)
        is_full = False
        for meant, events in events_by_account(channel, webhook, account_channels, now=SystemClock().now()):
            try:
                await inbound.hear(meant, events, newcomer=account_channels.new_user_state(meant.platform, meant.account))
            except InboxFull:
                is_full = True  # of this account; the others take what is theirs all the same
            except StoreUnavailable:
                return retry_response()
        return retry_response() if is_full else PlainTextResponse("")

    return routes


def events_by_account(
    channel: Channel, webhook: Webhook, account_channels: AccountChannels, *, now: datetime
) -> list[tuple[Channel, Sequence[InboundEvent]]]:
    """What a webhook holds, for each account: for the one whose URL it came to, then for others of the same app that it names.

    `channel` has verified it. Another account gets what names it only if it verifies the webhook as well: the signature of one app brings
    nothing into an account of another. What names an account that is not set up stays with `channel`, to be counted."""
    own = channel.parse(webhook, now=now)
    others: dict[str, tuple[Channel, Sequence[InboundEvent]]] = {}
    for meant_for in dict.fromkeys(event.meant_for for event in own if isinstance(event, Ignored) and event.meant_for):
        for other in account_channels.channels_by_webhook_id(channel.platform, meant_for):
            if isinstance(other, SharesWebhook) and is_authentic(other, webhook):
                others[meant_for] = (other, other.parse_shared(webhook, now=now))
                break
    own_events = [event for event in own if not (isinstance(event, Ignored) and event.meant_for in others)]
    return [(channel, own_events), *others.values()]


def is_authentic(channel: Channel, webhook: Webhook) -> bool:
    try:
        channel.verify(webhook)
    except WebhookNotAuthentic:
        return False
    return True


def retry_response() -> Response:
    return PlainTextResponse("", 503, {"Retry-After": RETRY_AFTER_S})
