"""One fake platform: it checks a call as the real platform would, then applies the scheduled fault. Knows no wire format.

    check  →  fault?  →  act (record the message)  →  answer

A call that the real platform would refuse is refused before a fault is used up. A fault with `arrives` records the message although its
sender never gets the platform's answer."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import aiohttp
from aiohttp import web

from hermes.demo.platforms.change_signal import ChangeSignal
from hermes.demo.platforms.faults import (
    Fault,
    FaultSchedule,
    HangFault,
    HtmlFault,
    RawFault,
    RefuseFault,
    ResetFault,
    ScheduledFault,
    SlowFault,
)
from hermes.demo.platforms.message_log import MessageLog
from hermes.demo.platforms.platform_clock import PlatformClock
from hermes.demo.platforms.refusal import PlatformRefusal
from hermes.demo.platforms.seeded_random import SeededRandom
from hermes.demo.platforms.webhook_post import Disorder, WebhookAttempt, post_webhook
from hermes.tasks import end_tasks

BAD_GATEWAY_PAGE = b"<!doctype html><html><head><title>Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>"


@dataclass(frozen=True, slots=True)
class World:
    """What all platforms share."""

    url: str
    """The base URL of all platforms: each has its real paths below it."""
    clock: PlatformClock
    random: SeededRandom
    changes: ChangeSignal
    client: aiohttp.ClientSession
    """Posts the webhooks."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One call as it came, also one that the platform refused."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    """The parsed JSON body; None if the body is not JSON."""
    status: int | None = None
    """The HTTP status of the answer; None if there was no answer."""


@dataclass(frozen=True, slots=True)
class FakeResponse:
    """The platform's answer to a call."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class CallAction(Protocol):
    """Does what a call asks for, and returns the answer. `is_answered`: whether the caller will get this answer."""

    async def __call__(self, *, is_answered: bool) -> FakeResponse: ...


@dataclass(frozen=True, slots=True)
class AcceptedCall:
    """A call that the platform accepts."""

    method: str
    to: str | None
    act: CallAction


def as_action(do: Callable[[], Awaitable[FakeResponse]]) -> CallAction:
    """The action of a call that sends no message: it does the same whether the caller gets the answer or not."""

    async def act(*, is_answered: bool) -> FakeResponse:  # noqa: ARG001  # the protocol's signature
        return await do()

    return act


class FakePlatform(ABC):
    """One account at one platform, with the people who talk to it."""

    name: str
    title: str

    patience_s: float
    """How long the receiver of a webhook has to answer, in real seconds."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: list[RecordedRequest] = []
        self.attempts: list[WebhookAttempt] = []
        """Every attempt to deliver a webhook, in order."""
        self.disorder = Disorder()
        self.schedule = FaultSchedule()
        self.message_log = MessageLog(world.changes.notify)
        self._tasks: set[asyncio.Task[None]] = set()

    # --- faults

    def fail(
        self,
        status: int,
        code: int | None = None,
        *,
        subcode: int | None = None,
        message: str = "",
        retry_after: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        method: str | None = None,
        to: object = None,
        times: int | None = 1,
    ) -> None:
        """Refuse the next calls, with an error in the platform's shape."""
        fault = RefuseFault(
            status=status, code=code, subcode=subcode, message=message, retry_after=retry_after, parameters=parameters or {}
        )
        self.schedule_fault(fault, method=method, to=to, times=times)

    def html(self, status: int = 502, *, method: str | None = None, to: object = None, times: int | None = 1) -> None:
        """Answer the next calls with an HTML page, as a proxy does."""
        self.schedule_fault(HtmlFault(status=status), method=method, to=to, times=times)

    def raw(
        self, body: str, *, status: int = 200, arrives: bool = True, method: str | None = None, to: object = None, times: int | None = 1
    ) -> None:
        """Answer the next calls with exactly this body."""
        self.schedule_fault(RawFault(status=status, body=body, arrives=arrives), method=method, to=to, times=times)

    def hang(self, *, arrives: bool = True, method: str | None = None, to: object = None, times: int | None = 1) -> None:
        """Never answer the next calls."""
        self.schedule_fault(HangFault(arrives=arrives), method=method, to=to, times=times)

    def reset(self, *, arrives: bool = True, method: str | None = None, to: object = None, times: int | None = 1) -> None:
        """Read the next calls, and drop their connections. By default the messages arrive."""
        self.schedule_fault(ResetFault(arrives=arrives), method=method, to=to, times=times)

    def slow(self, over_s: float, *, method: str | None = None, to: object = None, times: int | None = 1) -> None:
        """Take so many real seconds to send the bodies of the next answers."""
        self.schedule_fault(SlowFault(over_s=over_s), method=method, to=to, times=times)

    def outage(self, seconds: float, fault: Fault | None = None) -> None:
        """Fail every call for so many of the platform's seconds."""
        self.schedule.add(ScheduledFault(fault=fault or HtmlFault(status=503), times=None, until=self.world.clock.now() + seconds))
        self.world.changes.notify()

    def heal(self) -> None:
        """Remove every fault that is still to come."""
        self.schedule.clear()
        self.world.changes.notify()

    def schedule_fault(
        self, fault: Fault, *, method: str | None = None, to: object = None, times: int | None = 1, for_s: float | None = None
    ) -> None:
        """Apply a fault to the next calls that fit; `to` is a person, a group, or an id."""
        until = None if for_s is None else self.world.clock.now() + for_s
        self.schedule.add(
            ScheduledFault(fault=fault, method=method, to=None if to is None else str(getattr(to, "id", to)), times=times, until=until)
        )
        self.world.changes.notify()

    # --- people

    @property
    @abstractmethod
    def people(self) -> Mapping[str, Any]:
        """The people at this platform, by id."""

    @property
    @abstractmethod
    def facts(self) -> Mapping[str, str]:
        """What an operator needs to connect to it: URLs, tokens, secrets."""

    @abstractmethod
    def is_quiet(self) -> bool:
        """Whether no webhook is on its way to the receiver."""

    async def wait_until_quiet(self, timeout_s: float = 10.0) -> None:
        """Wait until every webhook is delivered or given up. Raises TimeoutError; the seconds are real ones."""
        await self.world.changes.wait_until(self.is_quiet, timeout_s)

    # --- calls

    @abstractmethod
    def error(self, refusal: PlatformRefusal) -> FakeResponse:
        """A refusal as an answer in the platform's shape."""

    async def serve(self, request: web.Request, read: Callable[[Any], Awaitable[AcceptedCall]]) -> web.StreamResponse:
        """Answer one call; `read` checks its body, which is None if it is not JSON."""
        data = await request.read()
        try:
            body = json.loads(data)
        except ValueError:
            body = None
        place = len(self.requests)
        self.requests.append(RecordedRequest(request.method, request.path, dict(request.query), dict(request.headers), body))
        self.world.changes.notify()
        try:
            call = await read(body)
            fault = self.schedule.take(call.method, call.to, self.world.clock.now())
            return await self.apply_fault(fault, call, request, place)
        except PlatformRefusal as refusal:
            return self._respond(place, self.error(refusal))

    async def apply_fault(self, fault: Fault | None, call: AcceptedCall, request: web.Request, place: int) -> web.StreamResponse:
        """Answer a call with a fault; without a fault, answer it normally."""
        match fault:
            case RefuseFault():
                raise PlatformRefusal(
                    fault.status,
                    fault.message or self.words(fault.status, fault.code, fault.retry_after),
                    code=fault.code,
                    subcode=fault.subcode,
                    retry_after=fault.retry_after,
                    parameters=fault.parameters,
                )
            case HtmlFault():
                self._record_status(place, fault.status)
                return web.Response(status=fault.status, body=BAD_GATEWAY_PAGE, content_type="text/html")
            case RawFault():
                if fault.arrives:
                    await call.act(is_answered=False)
                self._record_status(place, fault.status)
                return web.Response(status=fault.status, body=fault.body.encode(), content_type=fault.content_type)
            case HangFault() | ResetFault():
                if fault.arrives:
                    await call.act(is_answered=False)
                await (reset_connection(request) if isinstance(fault, ResetFault) else wait_forever())
            case SlowFault():
                return await self._respond_slowly(await call.act(is_answered=True), request, place, fault.over_s)
        return self._respond(place, await call.act(is_answered=True))

    def words(self, status: int, code: int | None, retry_after: int | None) -> str:
        """The platform's text for a refusal, if the fault has none."""
        return f"scripted {status} {code or ''} {retry_after or ''}".strip()

    def _respond(self, place: int, answer: FakeResponse) -> web.Response:
        self._record_status(place, answer.status)
        return web.Response(
            status=answer.status,
            body=answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode(),
            headers={"Content-Type": "application/json", **answer.headers},
        )

    async def _respond_slowly(self, answer: FakeResponse, request: web.Request, place: int, over_s: float) -> web.StreamResponse:
        data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        response = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json", **answer.headers})
        response.content_length = len(data)
        await response.prepare(request)
        pieces = 8
        step = -(-len(data) // pieces)
        for start in range(0, len(data), step):
            await asyncio.sleep(over_s / pieces)
            await response.write(data[start : start + step])
        await response.write_eof()
        self._record_status(place, answer.status)
        return response

    def _record_status(self, place: int, status: int) -> None:
        recorded = self.requests[place]
        self.requests[place] = RecordedRequest(recorded.method, recorded.path, recorded.query, recorded.headers, recorded.body, status)

    # --- webhooks

    async def attempt(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAttempt:
        """Post a webhook once, and record the attempt."""
        done = await post_webhook(self.world.client, url, body, headers, patience_s=self.patience_s, at=self.world.clock.now())
        self.attempts.append(done)
        self.world.changes.notify()
        return done

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task. It ends with the platforms at the latest."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.world.changes.notify()
        if not task.cancelled() and (error := task.exception()):
            raise error  # a bug of the fake; the event loop's exception handler shows it

    async def aclose(self) -> None:
        """Stop all background tasks."""
        await end_tasks(*self._tasks)


async def reset_connection(request: web.Request) -> NoReturn:
    """Reset the connection, and wait until the server cancels this handler for it."""
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        # Closing without lingering makes it a reset; otherwise it would look like an orderly end.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    await wait_forever()


async def wait_forever() -> NoReturn:
    """Wait until the caller disconnects and the server cancels this handler."""
    await asyncio.Event().wait()
    raise AssertionError("no code sets this event")
