"""The web app made of its services and routes, and the HTTP server that runs it on a socket until cancelled.

It does not handle signals: the caller cancels it, and it answers the requests that have begun before it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from hermes import __version__
from hermes.app.channels import AccountChannels
from hermes.app.root import Hermes
from hermes.app.web_port import PROCESS_HEADER
from hermes.config import ApiSettings, CompletionsSettings, Environment, WebSettings
from hermes.gateway.completions import ChatCompletions
from hermes.ops.metrics import Metrics, RequestCounter
from hermes.ports.inbox import AnswerSignals, Inbox
from hermes.ports.outbox import Outbox
from hermes.ports.runtime import Transactions
from hermes.ports.users import ApiKeys
from hermes.router.intake import InboundRouter, Intake
from hermes.soul.my_data import MyDataStores
from hermes.web.answers import TurnAnswers
from hermes.web.api_auth import ApiAuth
from hermes.web.chat_page import chat_routes
from hermes.web.completions import CHAT_PATH, CompletionsEndpoint, CompletionsShortcut, completion_routes
from hermes.web.errors import install_error_handlers
from hermes.web.limits import BodyLimit, RateLimit
from hermes.web.messages import message_routes, proactive_routes, visitor_proactive_routes
from hermes.web.my_data import user_data_routes, visitor_data_routes
from hermes.web.webhooks import MAX_WEBHOOK_BYTES, webhook_routes

Probe = Callable[[], Awaitable[object]]
"""Checks that a part answers; raises if it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebServices:
    """The services behind the routes."""

    transactions: Transactions
    intake: Intake
    inbox: Inbox
    outbox: Outbox
    replies: AnswerSignals
    api_keys: ApiKeys
    completions: ChatCompletions
    metrics: Metrics
    settings: WebSettings
    completions_settings: CompletionsSettings
    api_settings: ApiSettings
    probes: Mapping[str, Probe]
    """The parts that `/ready` asks, by name."""
    process_id: str = ""
    """The id of this process, in a header of `/health`: `hermes doctor` knows by it whether this is its own Hermes."""
    needed: frozenset[str] = frozenset({"postgres"})
    """The parts without which Hermes can accept no message. The others only make it faster."""
    has_chat: bool = True
    """Whether the chat page is served."""
    my_data: MyDataStores | None = None
    """The stores from which users see and erase their data; None: there are no such routes."""
    account_channels: AccountChannels | None = None
    """The channel accounts whose webhooks Hermes accepts; None, or no `inbound`: there are no such routes."""
    inbound: InboundRouter | None = None
    """Handles the events of webhooks."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the server when it is about to stop."""


DESCRIPTION = "Send messages to Hermes, and get its answers: at once, later, or as a stream of events."


def create_web(services: WebServices) -> FastAPI:
    """Return the whole web as one ASGI app. It opens nothing: the caller keeps the services open."""
    # No interactive documentation: FastAPI's pages load their scripts from another server.
    no_docs: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    web = FastAPI(title="Hermes", version=__version__, description=DESCRIPTION, redirect_slashes=False, **no_docs)
    answers = TurnAnswers(
        services.transactions, services.inbox, services.outbox, services.replies, services.settings.ping_s, services.closing
    )
    web.include_router(health_routes(services))
    guesses = RateLimit(services.settings.refused_per_minute)
    api_auth = ApiAuth(services.transactions, services.api_keys, guesses=guesses)
    api_limit = RateLimit(services.api_settings.per_minute)
    web.include_router(message_routes(services.intake, answers, api_auth, api_limit, answer_timeout_s=services.settings.answer_timeout_s))
    web.include_router(proactive_routes(services.transactions, services.outbox, api_auth))
    endpoint = CompletionsEndpoint(services.completions, api_auth, services.completions_settings.max_choices)
    web.include_router(completion_routes(endpoint))
    if services.has_chat:
        web.include_router(chat_routes(services.intake, answers, RateLimit(services.settings.per_minute)))
        web.include_router(visitor_proactive_routes(services.transactions, services.outbox))
    if services.account_channels is not None and services.inbound is not None:
        web.include_router(webhook_routes(services.account_channels, services.inbound, guesses))
    if services.my_data is not None:
        web.include_router(user_data_routes(services.my_data, api_auth))
        if services.has_chat:
            web.include_router(visitor_data_routes(services.my_data))

    @web.get("/openapi.json", include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return web.openapi()

    install_error_handlers(web)
    wider = {CHAT_PATH: services.completions_settings.max_body_bytes, "/webhooks/": MAX_WEBHOOK_BYTES}
    web.add_middleware(CompletionsShortcut, endpoint=endpoint)
    web.add_middleware(BodyLimit, max_bytes=services.settings.max_body_bytes, wider=wider)
    web.add_middleware(RequestCounter, metrics=services.metrics)  # the last one is the outermost: it sees every response
    return web


# --- health

PROBE_TIMEOUT_S = 2.0


def health_routes(services: WebServices) -> APIRouter:
    """`/health`, `/ready` and `/metrics`."""
    routes = APIRouter(tags=["operations"])

    @routes.get("/health", summary="Whether the process runs")
    async def health(response: Response) -> dict[str, str]:
        response.headers[PROCESS_HEADER] = services.process_id
        return {"status": "ok"}

    @routes.get("/ready", summary="Whether Hermes can accept messages, part by part", responses={503: {"description": "It cannot."}})
    async def ready() -> JSONResponse:
        """`ready`; `degraded` if a part is down that only makes Hermes faster; `unavailable` with 503 if a part is down that it needs."""
        states = await asyncio.gather(*(state_of(probe) for probe in services.probes.values()))
        parts = dict(zip(services.probes, states, strict=True))
        down = {name for name, state in parts.items() if state != "ok"}
        status = "unavailable" if down & services.needed else "degraded" if down else "ready"
        return JSONResponse({"status": status, "parts": parts}, 503 if status == "unavailable" else 200, {"Cache-Control": "no-store"})

    @routes.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
    async def metrics(request: Request) -> Response:
        page, content_type = await services.metrics.exposition(request.headers.get("accept", ""))
        return Response(page, headers={"Content-Type": content_type})

    # Some monitors ask with HEAD.
    routes.add_api_route("/health", health, methods=["HEAD"], include_in_schema=False)
    routes.add_api_route("/ready", ready, methods=["HEAD"], include_in_schema=False)
    return routes


async def state_of(probe: Probe) -> str:
    """Probe a part; return `ok`, or the reason in a few words that name no host."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            await probe()
    except TimeoutError:
        return f"down: no answer within {PROBE_TIMEOUT_S:g} s"
    except Exception as error:  # noqa: BLE001  # a probe may fail in any way, and each means that the part is down
        return f"down: {type(error).__name__}"
    return "ok"


# --- the server

SHUTDOWN_TIMEOUT_S = 5.0
"""How long open requests may take after the server was told to stop. Requests that wait for a turn end before that."""


async def serve_until_cancelled(hermes: Hermes, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests; call `ready` as soon as the server accepts them."""
    services = web_services_from(hermes)
    config = uvicorn.Config(
        create_web(services),
        log_config=None,  # its loggers write into the log of Hermes
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=round(SHUTDOWN_TIMEOUT_S),
    )
    # Accepted connections inherit TCP_NODELAY. asyncio sets it only on sockets that name their protocol, and these do not; without it the
    # body of a response waits 40 ms for the client to acknowledge its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = WebServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110  # uvicorn has a flag for this, and no event
            await asyncio.sleep(0.01)
        if server.started:
            ready()
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        services.closing.set()
        server.should_exit = True
        await serving
        raise


class WebServer(uvicorn.Server):
    """A server that leaves signals alone. Uvicorn would raise them again after it has stopped, and end the process before its stores."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def web_services_from(hermes: Hermes) -> WebServices:
    """Return the services of Hermes that the web needs."""
    adapters, chat = hermes.adapters, hermes.settings.web.chat
    return WebServices(
        transactions=hermes.database,
        intake=hermes.intake,
        inbox=adapters.inbox,
        outbox=adapters.outbox,
        replies=adapters.replies,
        api_keys=adapters.api_keys,
        completions=hermes.completions,
        my_data=hermes.my_data,
        account_channels=hermes.account_channels,
        inbound=hermes.inbound,
        metrics=hermes.metrics,
        probes={"postgres": hermes.database.ping, "redis": hermes.ping_redis},
        process_id=str(hermes.process_id),
        settings=hermes.settings.web,
        completions_settings=hermes.settings.completions,
        api_settings=hermes.settings.api,
        has_chat=hermes.settings.environment is Environment.DEVELOPMENT if chat is None else chat,
    )
