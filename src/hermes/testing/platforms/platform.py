"""One fake platform, and the people with a phone who use it. Knows no wire format.

A platform checks a call as the real one would, then applies the scheduled fault:

    check  →  fault?  →  act (record the message)  →  answer

A call that the real platform would refuse is refused before a fault is used up. A fault with `arrives` records the message although its
sender never gets the platform's answer."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from aiohttp import web

from hermes.tasks import end_tasks
from hermes.testing.platforms.exchanges import (
    AcceptedCall,
    FakeResponse,
    RecordedRequest,
    WebhookAttempt,
    post_webhook,
    reset_connection,
    wait_forever,
)
from hermes.testing.platforms.faults import (
    Disorder,
    Fault,
    FaultSchedule,
    HangFault,
    HtmlFault,
    PlatformRefusal,
    RawFault,
    RefuseFault,
    ResetFault,
    ScheduledFault,
    SlowFault,
)
from hermes.testing.platforms.message_log import MessageLog, PersonMessage, ReceivedMessage
from hermes.testing.platforms.world import World

BAD_GATEWAY_PAGE = b"<!doctype html><html><head><title>Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>"


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
    def people(self) -> Mapping[str, FakePerson]:
        """The people at this platform, by id."""

    @abstractmethod
    def person(self, name: str) -> FakePerson:
        """Add a person. A platform may take more about them, by name."""

    @property
    @abstractmethod
    def facts(self) -> Mapping[str, str]:
        """What an operator needs to connect to it: URLs, tokens, secrets."""

    # --- webhooks

    @abstractmethod
    def connect(self, url: str) -> None:
        """Post webhooks to a URL, without asking the receiver first."""

    async def subscribe(self, url: str, verify_token: str | None = None) -> None:  # noqa: ARG002  # for platforms that ask first
        """Connect as the platform does it. Raises VerificationFailed if it asks the receiver first, and gets a wrong answer."""
        self.connect(url)

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


class FakePerson(ABC):
    """One person at one platform. They can do the same at all platforms; each platform brings it to the account in its own way.

    Each action returns the platform's id for it. Its webhook is then on its way; `platform.wait_until_quiet()` waits for the delivery."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_blocking = False
        """They have blocked the account."""
        self.last_wrote_at: float | None = None
        """In the platform's seconds. The window for free replies begins here."""
        self.typing_shown = 0
        """How often they saw a typing indicator."""
        self.seen_by_account: list[str] = []
        """Their messages that the account marked as read."""
        self.is_reader = True
        """Whether they read their messages. Platforms with read receipts then tell the account so."""

    @property
    @abstractmethod
    def platform(self) -> FakePlatform: ...

    @property
    @abstractmethod
    def id(self) -> str:
        """The platform's id of the person."""

    @abstractmethod
    def say(self, text: str, *, reply_to: str | None = None) -> str: ...

    @abstractmethod
    def send_picture(self, picture: bytes | None = None, caption: str = "") -> str:
        """Send an image; None: a small sample."""

    @abstractmethod
    def send_voice(self, sound: bytes = b"OggS") -> str: ...

    @abstractmethod
    def send_document(self, data: bytes, name: str = "menu.pdf", mime_type: str = "application/pdf", caption: str = "") -> str: ...

    @abstractmethod
    def send_location(self, latitude: float, longitude: float) -> str: ...

    @abstractmethod
    def send_album(self, pictures: Sequence[bytes | None], caption: str = "") -> list[str]:
        """Send several images that belong together."""

    @abstractmethod
    def react(self, message_id: str, emoji: str) -> None:
        """React to a message with an emoji; an empty one removes the reaction."""

    @property
    def own_acts(self) -> Mapping[str, Callable[[Mapping[str, Any]], str | None]]:
        """What else `/_control` lets them do at this platform: by its name, a function of the request's body."""
        return {}

    def block(self) -> None:
        self.is_blocking = True

    def unblock(self) -> None:
        self.is_blocking = False

    # --- what they received

    @property
    def received(self) -> list[ReceivedMessage]:
        """The messages they received, in order, with every copy."""
        return self.platform.message_log.of(self.id)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.received]

    @property
    def talk(self) -> list[ReceivedMessage | PersonMessage]:
        """The messages of both sides, in order."""
        return self.platform.message_log.talk(self.id)

    async def wait_for_messages(self, count: int = 1, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """Wait until they have received so many messages in all, and return all of them. Raises TimeoutError; the seconds are real ones."""
        await self.platform.world.changes.wait_until(lambda: self.platform.message_log.count(self.id) >= count, timeout_s)
        return self.received
