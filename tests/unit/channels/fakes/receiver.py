"""A small receiver of webhooks that fails on cue, and a caller of the platforms: what the tests of the fake platforms share."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from hermes.channels.fakes import FakePlatforms
from hermes.testing.platforms import FakePlatform

RIGHT = "right"
"""The word by which the receiver knows Meta."""


@dataclass(frozen=True)
class Got:
    """One webhook as it came."""

    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Any


@dataclass
class Receiver:
    """Takes every webhook, and answers the next ones as its script says; after that with 200."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    script: deque[Callable[[Got], web.Response]] = field(default_factory=deque)
    answers: Callable[[Got], web.Response] | None = None
    """For all of them, instead of the script."""
    hangs: int = 0
    """So many are never answered."""

    def then(self, *statuses: int, headers: Mapping[str, str] | None = None, body: str = "") -> None:
        self.script.extend(lambda _, status=status: web.Response(status=status, headers=headers, text=body) for status in statuses)

    async def take(self, request: web.Request) -> web.Response:
        raw = await request.read()
        if request.method == "GET":
            is_right = request.query["hub.verify_token"] == RIGHT
            return web.Response(text=request.query["hub.challenge"] if is_right else "no", status=200 if is_right else 403)
        got = Got(request.path, dict(request.headers), raw, json.loads(raw))
        self.got.append(got)
        if self.hangs:
            self.hangs -= 1
            await asyncio.Event().wait()
        if self.answers:
            return self.answers(got)
        return self.script.popleft()(got) if self.script else web.Response()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", receiver.take)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def next_try(platforms: FakePlatforms, platform: FakePlatform, after_s: float, at_most_s: float | None = None) -> None:
    """See the next try to deliver a webhook come after so many seconds, and not before. For platforms whose time stands still."""
    tries = len(platform.attempts)
    for _ in range(10):
        await asyncio.sleep(0)  # whoever waits for it lies down first
    if after_s:
        platforms.skip(after_s - 0.1)
        await asyncio.sleep(0.02)
        assert len(platform.attempts) == tries, f"it came before {after_s} s"
        platforms.skip((at_most_s or after_s) - after_s + 0.2)
    await platforms.world.changes.wait_until(lambda: len(platform.attempts) > tries, 5)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: Any


class Caller:
    """Calls a platform as somebody's program would."""

    def __init__(self, client: aiohttp.ClientSession, base: str) -> None:
        self._client, self._base = client, base

    async def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0) -> Reply:
        limit = aiohttp.ClientTimeout(total=timeout_s)
        async with self._client.post(f"{self._base}{path}", json=body, headers=headers, timeout=limit) as response:
            return await said(response)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        async with self._client.get(path if path.startswith("http") else f"{self._base}{path}", headers=headers) as response:
            return await said(response)

    async def delete(self, path: str) -> Reply:
        async with self._client.delete(f"{self._base}{path}") as response:
            return await said(response)


async def said(response: aiohttp.ClientResponse) -> Reply:
    data = await response.read()
    try:
        body: Any = json.loads(data)
    except ValueError:
        body = data
    return Reply(response.status, response.headers, body)
