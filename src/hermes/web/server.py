"""The web app made of its services and routes, and the HTTP server that runs it on a socket until cancelled.

It does not handle signals: the caller cancels it, and it answers the requests that have begun before it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse

from hermes import __version__
from hermes.app.canary import canary_of
from hermes.app.channels import AccountChannels
from hermes.app.console import Console, console_from
from hermes.app.master_keys import visitor_keys
from hermes.app.root import Hermes
from hermes.app.web_port import PROCESS_HEADER
from hermes.config import ApiSettings, CompletionsSettings, ConsoleSettings, Environment, WebSettings
from hermes.gateway.completions import ChatCompletions
from hermes.ops.metrics import AsgiApp, Metrics, RequestCounter
from hermes.ports.events import OperationsEvents
from hermes.ports.inbox import AnswerSignals, Inbox
from hermes.ports.key_use import KeyUse
from hermes.ports.models import ModelCalls
from hermes.ports.outbox import Outbox
from hermes.ports.runtime import Transactions
from hermes.ports.users import ApiKeys
from hermes.router.intake import InboundRouter, Intake
from hermes.router.stop import TurnStopper
from hermes.soul.my_data import MyDataStores
from hermes.tasks import end_tasks
from hermes.web.answers import TurnAnswers
from hermes.web.anthropic_messages import COUNT_PATH as MESSAGES_COUNT_PATH
from hermes.web.anthropic_messages import MESSAGES_PATH, AnthropicEndpoint, anthropic_routes
from hermes.web.api_auth import ApiAuth
from hermes.web.chat_page import chat_routes
from hermes.web.completions import CHAT_PATH, CompletionsEndpoint, CompletionsShortcut, completion_routes
from hermes.web.connections import ConnectionLimits, Connections, GuardedProtocol, end_dead_connections
from hermes.web.console.routes import CONSOLE_PATH, console_web_from, install_console
from hermes.web.embeddings import EMBEDDINGS_PATH, EmbeddingsEndpoint, embeddings_routes
from hermes.web.errors import install_error_handlers
from hermes.web.event_feed import EventFeed
from hermes.web.fleet import FleetOperations, fleet_routes
from hermes.web.hosts import HostGuard, KnownHosts, PeerMemory, PlainHttpGuard
from hermes.web.limits import BodyLimit, RateLimit
from hermes.web.messages import message_routes, proactive_routes, visitor_proactive_routes
from hermes.web.my_data import user_data_routes, visitor_data_routes
from hermes.web.open_streams import OpenStreams
from hermes.web.operations import event_routes
from hermes.web.operator_pages import OperatorAccess, operator_app, operator_routes
from hermes.web.program_auth import ProgramAuth
from hermes.web.readiness import PartDegraded, check_queue, check_workers
from hermes.web.request_ids import RequestIds
from hermes.web.responses import COUNT_PATH as RESPONSES_COUNT_PATH
from hermes.web.responses import RESPONSES_PATH, ResponsesEndpoint, responses_routes
from hermes.web.run_states import RunReader
from hermes.web.runs import RunServices, run_routes
from hermes.web.visitors import Visitors
from hermes.web.webhooks import MAX_WEBHOOK_BYTES, webhook_routes

Probe = Callable[[], Awaitable[object]]
"""Checks that a part answers; raises if it does not, PartDegraded with the reason if it works less well than it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebServices:
    """The services behind the routes."""

    transactions: Transactions
    intake: Intake
    inbox: Inbox
    outbox: Outbox
    replies: AnswerSignals
    api_keys: ApiKeys
    key_use: KeyUse
    completions: ChatCompletions
    metrics: Metrics
    settings: WebSettings
    completions_settings: CompletionsSettings
    api_settings: ApiSettings
    visitor_keys: Sequence[bytes]
    """Make and recognise the cookies of the chat page's visitors."""
    probes: Mapping[str, Probe]
    """The parts that `/ready` asks, by name."""
    process_id: str = ""
    """The id of this process, in a header of `/health`: `hermes doctor` knows by it whether this is its own Hermes."""
    needed: frozenset[str] = frozenset({"postgres"})
    """The parts without which Hermes can accept no message. Without the others it answers later or more slowly."""
    has_chat: bool = True
    """Whether the chat page is served."""
    my_data: MyDataStores | None = None
    """The stores from which users see and erase their data; None: there are no such routes."""
    account_channels: AccountChannels | None = None
    """The channel accounts whose webhooks Hermes accepts; None, or no `inbound`: there are no such routes."""
    inbound: InboundRouter | None = None
    """Handles the events of webhooks."""
    stopper: TurnStopper | None = None
    """Stops runs; None, or no `event_feed`: there are no routes of runs."""
    stream_events: OperationsEvents | None = None
    calls: ModelCalls | None = None
    event_feed: EventFeed | None = None
    """The events of all turns, adapters and processes; None: there are no such routes."""
    fleet: FleetOperations | None = None
    """The agents and their adapters, for operators; None: there are no such routes."""
    console: Console | None = None
    """What operators see and do; None: there is no console."""
    console_settings: ConsoleSettings = field(default_factory=ConsoleSettings)
    is_production: bool = False
    """Whether `/metrics`, `/docs` and `/openapi.json` are closed without a token."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the server when it is about to stop."""


DESCRIPTION = "Send messages to Hermes, and get its answers: at once, later, or as a stream of events."


def create_web(services: WebServices) -> FastAPI:
    """Return the whole web as one ASGI app. It opens nothing: the caller keeps the services open."""
    # FastAPI's own documentation loads its scripts from another server; operator_pages.py has ours.
    no_docs: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    web = FastAPI(title="Hermes", version=__version__, description=DESCRIPTION, redirect_slashes=False, **no_docs)
    streams = OpenStreams(services.api_settings.max_streams)
    visitors = Visitors(services.visitor_keys)
    answers = TurnAnswers(
        services.transactions, services.inbox, services.outbox, services.replies, services.settings.ping_s, services.closing, streams
    )
    guesses = RateLimit(services.settings.refused_per_minute)
    # Routers are asked in their order. Webhooks come first, and messages soon: they are the most frequent.
    if services.account_channels is not None and services.inbound is not None:
        web.include_router(webhook_routes(services.account_channels, services.inbound, guesses))
    web.include_router(health_routes(services))
    api_auth = ApiAuth(services.transactions, services.api_keys, guesses=guesses, use=services.key_use)
    api_limit = RateLimit(services.api_settings.per_minute)
    console = services.console
    programs = ProgramAuth(
        api_auth,
        guesses,
        sign_in=None if console is None else console.desk.sign_in,
        access=None if console is None else console.access,
    )
    web.include_router(message_routes(services.intake, answers, api_auth, api_limit, answer_timeout_s=services.settings.answer_timeout_s))
    web.include_router(proactive_routes(services.transactions, services.outbox, services.inbox, services.intake.people, api_auth))
    endpoint = CompletionsEndpoint(services.completions, api_auth, services.completions_settings.max_choices)
    web.include_router(completion_routes(endpoint))
    responses = ResponsesEndpoint(services.completions, api_auth)
    web.include_router(responses_routes(responses))
    anthropic = AnthropicEndpoint(services.completions, api_auth)
    web.include_router(anthropic_routes(anthropic))
    embeddings = EmbeddingsEndpoint(services.completions, api_auth)
    web.include_router(embeddings_routes(embeddings))
    if services.has_chat:
        web.include_router(chat_routes(services.intake, answers, RateLimit(services.settings.per_minute), visitors))
        web.include_router(visitor_proactive_routes(services.transactions, services.outbox, visitors))
    if services.stopper is not None and services.stream_events is not None and services.calls is not None:
        reader = RunReader(
            services.transactions,
            services.inbox,
            services.outbox,
            services.stream_events,
            services.replies,
            services.calls,
            services.settings.ping_s,
            services.closing,
        )
        web.include_router(run_routes(RunServices(services.intake, answers, reader, services.stopper), api_auth, api_limit))
    if services.event_feed is not None:
        web.include_router(event_routes(services.event_feed, programs, streams, ping_s=services.settings.ping_s, closing=services.closing))
    if services.fleet is not None:
        web.include_router(fleet_routes(services.fleet, programs))
    if services.my_data is not None:
        web.include_router(user_data_routes(services.my_data, api_auth, services.completions.stores.unwritten.wait_for_all))
        if services.has_chat:
            web.include_router(visitor_data_routes(services.my_data, visitors))
    access = OperatorAccess(services.settings.metrics_token, is_production=services.is_production, guesses=guesses)
    web.include_router(operator_routes(services.metrics.exposition, web.openapi, access))
    if console is not None:
        if services.is_production:
            web.add_middleware(PlainHttpGuard, prefix=CONSOLE_PATH)
        console_web = console_web_from(console, services.console_settings, programs, guesses, has_chat=services.has_chat)
        install_console(web, console_web, services.event_feed, ping_s=services.settings.ping_s, closing=services.closing)
    install_error_handlers(web)
    shortcuts = {CHAT_PATH: endpoint.complete, RESPONSES_PATH: responses.create, MESSAGES_PATH: anthropic.create}
    install_middleware(web, services, shortcuts)
    return web


def install_middleware(web: FastAPI, services: WebServices, shortcuts: Mapping[str, Callable[[Request], Awaitable[Response]]]) -> None:
    """Add what every request passes through, from the inside to the outside."""
    whole_chats = (*shortcuts, EMBEDDINGS_PATH, RESPONSES_COUNT_PATH, MESSAGES_COUNT_PATH)
    wider = {**dict.fromkeys(whole_chats, services.completions_settings.max_body_bytes), "/webhooks/": MAX_WEBHOOK_BYTES}
    web.add_middleware(CompletionsShortcut, handlers=shortcuts)
    web.add_middleware(BodyLimit, max_bytes=services.settings.max_body_bytes, wider=wider)
    web.add_middleware(HostGuard, hosts=KnownHosts.of(services.settings))
    web.add_middleware(RequestCounter, metrics=services.metrics)  # the outermost: it sees every response


# --- health

PROBE_TIMEOUT_S = 2.0


def health_routes(services: WebServices) -> APIRouter:
    """`/health` and `/ready`."""
    routes = APIRouter(tags=["operations"])

    @routes.get("/health", summary="Whether the process runs")
    async def health(response: Response) -> dict[str, str]:
        response.headers[PROCESS_HEADER] = services.process_id
        return {"status": "ok"}

    @routes.get("/ready", summary="Whether Hermes can accept messages, part by part", responses={503: {"description": "It cannot."}})
    async def ready() -> JSONResponse:
        """`ready`; `degraded` if messages are accepted, but are answered late or slowly; `unavailable` with 503 if none can be accepted."""
        states = await asyncio.gather(*(state_of(probe) for probe in services.probes.values()))
        parts = dict(zip(services.probes, states, strict=True))
        down = {name for name, state in parts.items() if state != "ok"}
        status = "unavailable" if down & services.needed else "degraded" if down else "ready"
        return JSONResponse({"status": status, "parts": parts}, 503 if status == "unavailable" else 200, {"Cache-Control": "no-store"})

    # Some monitors ask with HEAD.
    routes.add_api_route("/health", health, methods=["HEAD"], include_in_schema=False)
    routes.add_api_route("/ready", ready, methods=["HEAD"], include_in_schema=False)
    return routes


async def state_of(probe: Probe) -> str:
    """Probe a part; return `ok`, or the reason in a few words that name no host."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            await probe()
    except PartDegraded as error:
        return f"degraded: {error}"
    except TimeoutError:
        return f"down: no answer within {PROBE_TIMEOUT_S:g} s"
    except Exception as error:  # noqa: BLE001  # a probe may fail in any way, and each means that the part is down
        return f"down: {type(error).__name__}"
    return "ok"


# --- the server

SHUTDOWN_TIMEOUT_S = 5.0
"""How long open requests may take after the server was told to stop. Requests that wait for a turn end before that."""


async def serve_until_cancelled(
    hermes: Hermes, listener: socket.socket, ready: Callable[[], None], *, operator_listener: socket.socket | None = None
) -> None:
    """Answer requests; call `ready` as soon as the server accepts them. On `operator_listener` the operator's pages need no token."""
    services = web_services_from(hermes)
    web = create_web(services)
    async with AsyncExitStack() as stack:
        if operator_listener is not None:
            operator_web = operator_app(services.metrics.exposition, KnownHosts.of(services.settings), web.openapi)
            await stack.enter_async_context(open_server(operator_web, operator_listener, services.settings))
        if services.event_feed is not None:
            stack.push_async_callback(services.event_feed.aclose)
        if services.console is not None:
            stack.push_async_callback(services.console.live.watch.aclose)
        async with open_server(web, listener, services.settings, closing=services.closing) as serving:
            if not serving.done():
                ready()
            await asyncio.shield(serving)


@asynccontextmanager
async def open_server(
    app: AsgiApp, listener: socket.socket, settings: WebSettings, *, closing: asyncio.Event | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """Accept requests until the block ends, then answer those that have begun; `closing` is set before that. Yield the server's task."""
    config = WebConfig(app, settings)
    # Accepted connections inherit TCP_NODELAY. asyncio sets it only on sockets that name their protocol, and these do not; without it the
    # body of a response waits 40 ms for the client to acknowledge its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end_dead_connections(listener)
    server = WebServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    sweeping = asyncio.create_task(config.guard.sweep(), name="connections")
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110  # uvicorn has a flag for this, and no event
            await asyncio.sleep(0.01)
        yield serving
    finally:
        if closing is not None:
            closing.set()
        server.should_exit = True
        try:
            await serving
        finally:
            await end_tasks(sweeping)


class WebConfig(uvicorn.Config):
    """A server that names each request, believes only the proxies of the settings, and remembers who really connects. No client keeps a
    connection for ever."""

    def __init__(self, app: AsgiApp, settings: WebSettings) -> None:
        self.guard = Connections(ConnectionLimits.of(settings))
        super().__init__(
            app,
            http=GuardedProtocol,
            log_config=None,  # its loggers write into the log of Hermes
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",  # a client that asks for a WebSocket is answered over HTTP
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),  # without this, a variable of uvicorn's own would say it
            timeout_graceful_shutdown=round(SHUTDOWN_TIMEOUT_S),
        )

    def load(self) -> None:
        super().load()
        self.loaded_app = RequestIds(PeerMemory(self.loaded_app))


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
        key_use=adapters.key_use,
        completions=hermes.completions,
        my_data=hermes.my_data,
        account_channels=hermes.account_channels,
        inbound=hermes.inbound,
        metrics=hermes.metrics,
        visitor_keys=visitor_keys(hermes.settings),
        probes={
            "postgres": hermes.database.ping,
            "redis": hermes.ping_redis,
            "models": hermes.model_health.probe,
            "workers": lambda: check_workers(hermes),
            "queue": lambda: check_queue(hermes),
        },
        process_id=str(hermes.process_id),
        settings=hermes.settings.web,
        completions_settings=hermes.settings.completions,
        api_settings=hermes.settings.api,
        stopper=TurnStopper(hermes.database, adapters.inbox, adapters.credits, adapters.journal, adapters.replies),
        stream_events=adapters.stream_events,
        calls=adapters.calls,
        event_feed=EventFeed(hermes.database, adapters.stream_events),
        fleet=FleetOperations(
            hermes.database,
            adapters.agents,
            hermes.fleet,
            hermes.gateway.catalogue,
            hermes.planner.chains,
            canary_of(hermes),
            hermes.settings.fleet.daily_usd,
        ),
        console=console_from(hermes) if hermes.settings.console.enabled else None,
        console_settings=hermes.settings.console,
        has_chat=hermes.settings.environment is Environment.DEVELOPMENT if chat is None else chat,
        is_production=hermes.settings.environment is Environment.PRODUCTION,
    )
