"""`/webhooks/{platform}/{account}`: what platforms send. Verified, stored, and only then answered with 200; no model is called here.

Every authentic webhook gets 200, also with events for an account that is not set up: after a refusal the platform would send it again, and
hold back all later ones. A webhook that cannot be stored gets 503, and the platform sends it again.

Meta gives an app one callback URL, so one webhook may hold events for several accounts: each event goes to the account that it names, if
that account's own secret verifies the webhook too."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Request
from fastapi.responses import PlainTextResponse, Response

from hermes.app.channels import AccountChannels
from hermes.app.clock import SystemClock
from hermes.ports.channels import Channel, Ignored, InboundEvent, SharesWebhook, Webhook, WebhookNotAuthentic
from hermes.ports.errors import InboxFull, StoreUnavailable
from hermes.router.intake import InboundRouter
from hermes.turn import Platform
from hermes.web.direct_routes import DirectRoute, read_by
from hermes.web.errors import ApiError
from hermes.web.limits import RateLimit, address_of, too_many_requests

log = structlog.get_logger()

MAX_ACCOUNT_CHARS = 128
Account = Annotated[str, Path(min_length=1, max_length=MAX_ACCOUNT_CHARS)]
RETRY_AFTER_S = "5"
MAX_WEBHOOK_BYTES = 4_000_000
"""The largest webhook of a platform is 3 MB."""


def webhook_routes(account_channels: AccountChannels, inbound: InboundRouter, guesses: RateLimit) -> APIRouter:
    """The routes for platforms. `guesses` limits how often an address gets 403 for a webhook or a verify token that is not authentic."""
    routes = APIRouter(tags=["webhooks"], include_in_schema=False, route_class=DirectRoute)

    def find_channel(platform: str, account: str) -> Channel:
        found = account_channels.get(Platform(platform), account) if platform in set(Platform) else None
        if found is None:
            raise ApiError(404, "not_found", "There is no such account.")
        return found

    @routes.get("/webhooks/{platform}/{account}")
    async def answer_challenge(platform: str, account: Account, request: Request) -> Response:
        challenge = getattr(find_channel(platform, account), "challenge", None)
        # A person chose the token, perhaps a short one: after too many wrong ones none is looked at.
        address = address_of(request)
        if wait_s := guesses.spent_s(address):
            raise too_many_requests(wait_s)
        try:
            return PlainTextResponse(challenge(dict(request.query_params)) if challenge else "", 200 if challenge else 405)
        except WebhookNotAuthentic:
            guesses.admit(address)
            log.warning("webhook_refused", platform=platform, account=account)
            return PlainTextResponse("", 403)

    @routes.post("/webhooks/{platform}/{account}")
    @routes.post("/webhooks/{platform}/{account}/{secret}")
    @read_by(read_receive_arguments)
    async def receive(platform: str, account: Account, request: Request, secret: str | None = None) -> Response:
        channel = find_channel(platform, account)
        headers = {name.lower(): value for name, value in request.headers.items()}
        webhook = Webhook(headers=headers, body=await request.body(), query=dict(request.query_params), path_secret=secret)
        try:
            channel.verify(webhook)
        except WebhookNotAuthentic:
            guesses.admit(address_of(request))
            log.warning("webhook_refused", platform=platform, account=account)
            return PlainTextResponse("", 403)
        is_full = False
        for recipient, events in events_by_account(channel, webhook, account_channels, now=SystemClock().now()):
            try:
                await inbound.route(recipient, events, newcomer=account_channels.new_user_state(recipient.platform, recipient.account))
            except InboxFull:
                is_full = True  # the inbox of this account; the events of the other accounts are stored all the same
            except StoreUnavailable:
                return retry_response()
        return retry_response() if is_full else PlainTextResponse("")

    return routes


async def read_receive_arguments(request: Request) -> dict[str, Any] | None:
    """Return the arguments of `receive`; None if the account's name is too long."""
    is_name = len(request.path_params["account"]) <= MAX_ACCOUNT_CHARS
    return {**request.path_params, "request": request} if is_name else None


def events_by_account(
    channel: Channel, webhook: Webhook, account_channels: AccountChannels, *, now: datetime
) -> list[tuple[Channel, Sequence[InboundEvent]]]:
    """Return the events of a webhook for each account: for the one whose URL it came to, then for others of the same app that it names.

    `channel` has verified the webhook. Another account gets its events only if it verifies the webhook as well: a signature of one app
    brings nothing into an account of another. Events for an account that is not set up stay with `channel`, to be counted."""
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
