"""Hermes as a whole in one event loop: the web on a free port, a worker, real PostgreSQL and Valkey behind them."""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from hermes.app.root import Hermes, OpenTracer, open_hermes, open_no_tracer
from hermes.config import DatabaseSettings, InboxSettings, MemorySettings, RedisSettings, Secret, Settings, WebSettings, WorkSettings
from hermes.ports.models import Models
from hermes.stores.postgres.database import Database
from hermes.web.server import serve_until_cancelled
from tests.flows.echo import Echo


@dataclass
class Thinker:
    """Answers with an echo, while it is let."""

    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)

    async def think(self, text: str) -> None:
        self.asked.append(text)
        await self.may_answer.wait()


@dataclass(frozen=True)
class Service:
    """A running Hermes, and a client to talk to it with."""

    url: str
    client: aiohttp.ClientSession
    hermes: Hermes
    thinker: Thinker

    @property
    def database(self) -> Database:
        return self.hermes.database

    async def key(self, account: str = "shop", **about: Any) -> dict[str, str]:
        """A new API key, as the headers that carry it."""
        async with self.database.begin() as tx:
            _, secret = await self.hermes.adapters.api_keys.create(tx, "test", account, **about)
        return {"Authorization": f"Bearer {secret}"}

    async def turns(self) -> int:
        """How many messages were taken in so far."""
        async with self.database.pool.connection() as connection:
            row = await (await connection.execute("select count(*) from inbox")).fetchone()
        assert row is not None
        return int(row[0])

    async def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> "Got":
        async with self.client.post(self.url + path, json=body, headers=headers) as response:
            return await got(response)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> "Got":
        async with self.client.get(self.url + path, headers=headers) as response:
            return await got(response)


@dataclass(frozen=True)
class Got:
    """An answer over HTTP."""

    status: int
    body: Any
    """JSON read, anything else as text."""
    headers: Mapping[str, str]


async def got(response: aiohttp.ClientResponse) -> Got:
    body = await (response.json() if response.content_type == "application/json" else response.text())
    return Got(response.status, body, response.headers)


@asynccontextmanager
async def running(
    database_url: str,
    redis_url: str,
    *,
    cap: int = 10_000,
    has_worker: bool = True,
    echoes: bool = True,
    models: Models | None = None,
    open_tracer: OpenTracer = open_no_tracer,
    more: Mapping[str, Any] | None = None,
    adapters: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Service]:
    """Run everything as long as the block lasts; `settings` are the web's, `more` are others, and `adapters` stand in for ours. The thinker
    may answer from the start; without echoes it is the models of the settings that answer; `models` answers in place of both."""
    thinker = Thinker()
    thinker.may_answer.set()
    async with AsyncExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-"))
        chosen = Settings(
            home=Path(home),
            database_url=Secret(database_url),
            redis_url=Secret(redis_url),
            database=DatabaseSettings(connect_timeout_s=3.0),
            web=WebSettings(**settings),
            **{
                "redis": RedisSettings(timeout_s=2.0),  # a busy machine is no outage
                "work": WorkSettings(drain_s=0.1),
                "inbox": InboxSettings(max_waiting=cap),
                "memory": MemorySettings(asks_models=False),
                **(more or {}),
            },
        )
        hermes = await stack.enter_async_context(
            open_hermes(
                chosen,
                adjust=lambda parts: replace(parts, **{"models": models or (Echo(thinker.think) if echoes else None), **(adapters or {})}),
                open_tracer=open_tracer,
            )
        )
        if has_worker:
            stack.push_async_callback(stopped, asyncio.create_task(hermes.run_worker()))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        is_ready = asyncio.Event()
        stack.push_async_callback(stopped, asyncio.create_task(serve_until_cancelled(hermes, listener, is_ready.set)))
        await is_ready.wait()
        # No cookie jar: a test says itself who it is.
        client = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
        yield Service(f"http://127.0.0.1:{listener.getsockname()[1]}", client, hermes, thinker)


async def stopped(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
