"""One fake vendor: it checks a request as the vendor would, and then does what its script says. Knows no wire format."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from aiohttp import web

from tests.fakes.script import Act, Cut, Fail, Hang, Raw, Refusal, Reset, Say, Seen, ToolCall

NONE: Mapping[str, str] = MappingProxyType({})
PAGE = b"<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>"


class Vendor(ABC):
    """One vendor: a script of what to do next, and what was asked so far."""

    key: str
    models: list[str]
    media_type: str

    def __init__(self, base: str) -> None:
        self.base = base
        self.requests: list[Seen] = []
        self.active = 0
        """Requests that are being answered."""
        self.abandoned = 0
        """Requests whose client went away."""
        self.otherwise: Callable[[dict[str, Any]], Say] = lambda _: Say()
        """What it answers to a request's body when the script has come to its end."""
        self._script: deque[Act] = deque()
        self._moved = asyncio.Condition()

    @property
    @abstractmethod
    def url(self) -> str:
        """The address to give to a client."""

    # --- the script

    def say(
        self,
        text: str = "ok",
        *,
        reasoning: str = "",
        tool_calls: Sequence[ToolCall] = (),
        finish: str | None = None,
        tokens_in: int | None = 12,
        tokens_out: int | None = 5,
        cached: int = 0,
        cache_written: int = 0,
        prompt_token_ids: Sequence[int] | None = None,
        token_ids: Sequence[int] | None = None,
        logprobs: Sequence[float] | None = None,
        weight_version: str = "default",
        drip_s: float = 0.0,
        cut: Cut | None = None,
        cut_after: int = 1,
        error: str = "",
    ) -> None:
        """Answer the next request with this; see Say for what each means."""
        said = {key: value for key, value in locals().items() if key != "self"}
        self._script.append(Say(**said))

    def fail(self, status: int, message: str = "scripted", *, code: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Refuse the next request, in the vendor's shape."""
        self._script.append(Fail(status=status, message=message, code=code, headers=headers or {}))

    def raw(self, body: bytes, *, status: int = 200, content_type: str = "application/json") -> None:
        """Answer the next request with exactly this."""
        self._script.append(Raw(status=status, body=body, content_type=content_type))

    def html(self, status: int = 200) -> None:
        """Answer the next request with a page, as a proxy does."""
        self.raw(PAGE, status=status, content_type="text/html")

    def empty(self) -> None:
        """Answer the next request with success and nothing."""
        self.raw(b"")

    def hang(self) -> None:
        """Never answer the next request."""
        self._script.append(Hang())

    def reset(self) -> None:
        """Drop the connection of the next request."""
        self._script.append(Reset())

    async def asked(self, count: int = 1, timeout_s: float = 5.0) -> None:
        """Wait until so many requests have come."""
        async with asyncio.timeout(timeout_s), self._moved:
            await self._moved.wait_for(lambda: len(self.requests) >= count)

    async def hung_up(self, count: int = 1, timeout_s: float = 5.0) -> None:
        """Wait until so many clients have gone away before their answer was whole."""
        async with asyncio.timeout(timeout_s), self._moved:
            await self._moved.wait_for(lambda: self.abandoned >= count)

    # --- the wire format

    @abstractmethod
    def routes(self) -> list[web.RouteDef]:
        """Where it listens."""

    @abstractmethod
    def authorize(self, headers: Mapping[str, str]) -> None:
        """Refuse a request without the right key."""

    @abstractmethod
    def check(self, body: dict[str, Any], headers: Mapping[str, str] = NONE) -> None:
        """Refuse a body that the vendor would refuse."""

    @abstractmethod
    def whole(self, say: Say, body: dict[str, Any]) -> dict[str, Any]:
        """The answer in one body."""

    @abstractmethod
    def stream(self, say: Say, body: dict[str, Any]) -> Iterator[tuple[bool, bytes]]:
        """The answer in pieces, each with whether it is a piece of the answer itself."""

    @abstractmethod
    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """A refusal's body."""

    @abstractmethod
    def wrong(self, say: Say) -> bytes:
        """The piece of a stream that says that something went wrong."""

    def wants_stream(self, body: dict[str, Any]) -> bool:
        return bool(body.get("stream", False))

    # --- serving

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer one request for an answer."""
        self.active += 1
        try:
            return await self._chat(request)
        except (asyncio.CancelledError, ConnectionResetError):
            self.abandoned += 1
            raise
        finally:
            self.active -= 1
            async with self._moved:
                self._moved.notify_all()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await self._checked(request)
        except Refusal as refusal:
            return self._json(refusal.status, self.error(refusal.status, refusal.message, refusal.code))
        act = self._script.popleft() if self._script else self.otherwise(body)
        match act:
            case Say() if self.wants_stream(body):
                return await self._stream(act, body, request)
            case Say():
                return await self._whole(act, body, request)
            case Fail():
                return self._json(act.status, self.error(act.status, act.message, act.code), act.headers)
            case Raw():
                return web.Response(status=act.status, body=act.body, content_type=act.content_type, headers=act.headers)
            case Reset():
                await vanish(request)
        return await forever()

    async def _checked(self, request: web.Request) -> dict[str, Any]:
        data = await request.read()
        try:
            body = json.loads(data)
        except ValueError:
            raise Refusal(400, "The body is not JSON") from None
        self.requests.append(Seen(request.path, dict(request.headers), body))
        async with self._moved:
            self._moved.notify_all()
        self.authorize(request.headers)
        self.check(body, request.headers)
        return body

    async def _whole(self, say: Say, body: dict[str, Any], request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(say.drip_s)
        data = json.dumps(self.whole(say, body)).encode()
        match say.cut:
            case Cut.ERROR:
                return self._json(200, self.error(500, "scripted", say.error))
            case Cut.END | Cut.GARBAGE:
                return web.Response(body=data[: len(data) // 2], content_type="application/json")
            case Cut.HANG:
                return await forever()
            case Cut.RESET:
                response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(data))})
                await response.prepare(request)
                await response.write(data[: len(data) // 2])
                await vanish(request)
        return web.Response(body=data, content_type="application/json", headers={"request-id": f"req_{len(self.requests)}"})

    async def _stream(self, say: Say, body: dict[str, Any], request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": self.media_type, "request-id": f"req_{len(self.requests)}"})
        await response.prepare(request)
        come = 0
        for is_piece, data in self.stream(say, body):
            if say.cut and is_piece and come >= say.cut_after:
                return await self._cut(say, response, request)
            if is_piece:
                await asyncio.sleep(say.drip_s)
                come += 1
            await response.write(data)
        await response.write_eof()
        return response

    async def _cut(self, say: Say, response: web.StreamResponse, request: web.Request) -> web.StreamResponse:
        match say.cut:
            case Cut.ERROR:
                await response.write(self.wrong(say))
            case Cut.GARBAGE:
                await response.write(b'data: {"half": \n\n')
            case Cut.HANG:
                return await forever()
            case Cut.RESET:
                await asyncio.sleep(0.01)  # what was written before is on its way
                await vanish(request)
        await response.write_eof()
        return response

    @staticmethod
    def _json(status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> web.Response:
        return web.Response(status=status, body=json.dumps(body).encode(), content_type="application/json", headers=headers or {})

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Answer what needs no body: lists of models. The script does not matter, the key does."""
        try:
            self.authorize(request.headers)
            return self._json(200, self.listed(request.match_info.get("model")))
        except Refusal as refusal:
            return self._json(refusal.status, self.error(refusal.status, refusal.message, refusal.code))

    @abstractmethod
    def listed(self, model: str | None) -> dict[str, Any]:
        """One model, or all of them."""


async def vanish(request: web.Request) -> None:
    """Drop the connection, and wait to be cancelled for it."""
    if request.transport is not None:
        request.transport.abort()
    await forever()


async def forever() -> web.StreamResponse:
    """Wait for the client to go away."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this")
