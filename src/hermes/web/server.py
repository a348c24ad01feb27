"""Runs the HTTP server on a socket until cancelled.

It does not handle signals: the caller cancels it, and it answers the requests that have begun before it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from hermes.app import Hermes
from hermes.config import Environment
from hermes.web.create import create_web
from hermes.web.services import WebServices

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
        settings=hermes.settings.web,
        completions_settings=hermes.settings.completions,
        api_settings=hermes.settings.api,
        has_chat=hermes.settings.environment is Environment.DEVELOPMENT if chat is None else chat,
    )
