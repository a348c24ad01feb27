"""Hands out the answers of turns: at once, within a time, or as a stream of events.

The turn runs in a worker. A waiting request looks into the outbox when the answer signal comes; and now and then, because signals may be
lost. A client that disconnects cancels nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import anyio
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from hermes.ports.errors import NotFound, StoreUnavailable, UserErased
from hermes.ports.inbox import AnswerSignals, Inbox, TurnOrigin
from hermes.ports.outbox import Outbox, OutboxAnswer
from hermes.ports.runtime import Transactions
from hermes.turn import AgentResponse, Platform, response_json
from hermes.web.errors import ApiError
from hermes.web.open_streams import EventStream, OpenStreams
from hermes.web.request_json import parse_json

NO_ANSWER = "There will be no answer to this message."
MIN_LOOK_S = 0.5
MAX_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class TurnAnswers:
    """The answers of turns, for the clients that may see them."""

    transactions: Transactions
    inbox: Inbox
    outbox: Outbox
    answer_signals: AnswerSignals
    ping_s: float
    closing: asyncio.Event
    """Set when the server is about to stop: a waiting request returns without the answer, and a stream ends; the client asks again."""
    streams: OpenStreams

    async def now(self, turn_id: UUID) -> AgentResponse | None:
        """Return the turn's answer; None while it runs. Raises StoreUnavailable. For a turn that has ended without an answer it raises
        UserErased if the sender was erased, and ApiError if its client stopped it or the message could never be opened."""
        async with self.transactions.once() as tx:
            answer = await self.outbox.answer(tx, turn_id)
            origin = await self.inbox.origin(tx, turn_id) if answer is None else None
            if origin is not None and origin.has_ended:
                answer = await self.outbox.answer(tx, turn_id)  # the turn may have ended between the two queries
                if answer is None:
                    raise UserErased if origin.is_sender_erased else stopped_error() if origin.is_stopped else given_up_error()
        return None if answer is None else response_from(answer)

    async def owned_turn(self, turn_id: str, account: str, platform: Platform, may_see: Callable[[TurnOrigin], bool] | None = None) -> UUID:
        """Return the id of a turn in this account, that the client may see. Raises NotFound for any other, so that no other client learns
        that it exists."""
        try:
            found = UUID(turn_id)
        except ValueError:
            raise NotFound from None
        async with self.transactions.once() as tx:
            origin = await self.inbox.origin(tx, found)
        if origin is None or (origin.account, origin.platform) != (account, platform) or not (may_see is None or may_see(origin)):
            raise NotFound
        return found

    async def wait(self, turn_id: UUID, timeout_s: float, source: str) -> AgentResponse | None:
        """Return the answer to a message that was just accepted, as soon as there is one; None after the timeout, when the server is about
        to stop, and at once if too many requests of the source wait already."""
        if not self.streams.has_place(source):
            return await self.now(turn_id)
        with self.streams.holding(source):
            return await self._wait(turn_id, timeout_s)

    async def _wait(self, turn_id: UUID, timeout_s: float) -> AgentResponse | None:
        began, waited_s = time.monotonic(), 0.0
        async with self.answer_signals.listen(turn_id) as signal:
            while waited_s < timeout_s and not self.closing.is_set():
                await signal.wait(min(self._next_look_s(waited_s), timeout_s - waited_s))
                if (response := await self._look_if_up(turn_id)) is not None:
                    return response
                waited_s = time.monotonic() - began
        return None

    def stream(self, turn_id: UUID, headers: Mapping[str, str], source: str, *, is_new: bool = False) -> EventStream:
        """Return a response that streams the turn's events until the turn has ended. `is_new`: its message was just accepted."""
        return self.streams.respond(source, self.events(turn_id, is_new=is_new), headers)

    async def events(self, turn_id: UUID, *, is_new: bool = False) -> AsyncIterator[bytes]:
        """Yield `accepted`, pings, and then `message` and `done`, or `error`."""
        yield sse_event("accepted", {"turn_id": str(turn_id)})
        async with self.answer_signals.listen(turn_id) as signal:
            began = pinged = time.monotonic()
            if is_new:
                await signal.wait(min(self._next_look_s(0.0), self.ping_s))
            while True:
                try:
                    response = await self._look_if_up(turn_id)
                except UserErased:
                    yield sse_event("error", {"code": "user_erased", "message": NO_ANSWER})
                    return
                except ApiError as error:
                    yield sse_event("error", {"code": error.code, "message": NO_ANSWER})
                    return
                if response is not None:
                    break
                if self.closing.is_set():
                    return  # the client connects again, and the next process sends the rest
                now = time.monotonic()
                if now - pinged >= self.ping_s:
                    yield b": ping\n\n"
                    pinged = now
                await signal.wait(min(self._next_look_s(now - began), pinged + self.ping_s - now))
        yield sse_event("message", response_json(response), identity=str(turn_id))
        yield sse_event("done", {"turn_id": str(turn_id)})

    def _next_look_s(self, waited_s: float) -> float:
        """How long to rely on the signal alone: longest while signals arrive, and otherwise a tenth of the wait so far."""
        return MAX_LOOK_S if self.answer_signals.is_heard else min(MAX_LOOK_S, max(MIN_LOOK_S, waited_s / 10))

    async def _look_if_up(self, turn_id: UUID) -> AgentResponse | None:
        """Look for the answer; None also while the database is away. The message is stored, so its answer will come."""
        response = None
        try:
            # When a client disconnects, Starlette cancels its stream again and again until the stream ends. A query that is cancelled
            # costs its database connection. A look is short, so the shield lets it finish.
            with anyio.CancelScope(shield=True):
                response = await self.now(turn_id)
        except StoreUnavailable:
            await asyncio.sleep(0.1)
        return response


def given_up_error() -> ApiError:
    return ApiError(410, "given_up", "Hermes could not read this message, and gave it up without an answer.")


def stopped_error() -> ApiError:
    return ApiError(410, "stopped", "The client stopped this turn; there will be no answer.")


def sse_event(name: str, data: Mapping[str, Any], identity: str | None = None) -> bytes:
    """Write one server-sent event. JSON has no line breaks outside its strings' escapes, so the data is one line."""
    head = f"id: {identity}\n" if identity else ""
    return f"{head}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def response_from(answer: OutboxAnswer) -> AgentResponse:
    """Return the answer with the numbers of its interaction."""
    meta: Mapping[str, Any] = answer.meta
    return AgentResponse(
        turn_id=answer.turn_id,
        text=answer.text,
        tokens_in=meta.get("tokens_in", 0),
        tokens_out=meta.get("tokens_out", 0),
        cost_usd=meta.get("cost_usd", 0.0),
        tool_calls_made=len(meta.get("tools", ())),
        backend=meta.get("llm_backend", ""),
        cache_hit=meta.get("llm_cache_hit", False),
        saved_usd=meta.get("saved_usd", 0.0),
        offers=answer.offers,
    )


async def json_only(request: Request) -> None:
    """Refuse a body that is not JSON, or that two readers could read in two ways. A form of another site cannot send JSON, so a foreign
    page cannot write as a visitor."""
    if not is_json(request):
        raise ApiError(415, "not_json", "Send the message as `Content-Type: application/json`.")
    parse_json(await request.body())


def is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def turn_response(turn_id: UUID, response: AgentResponse | None, headers: dict[str, str], prefix: str) -> JSONResponse:
    """Respond with the answer, or with its future address below `prefix`: `/v1` or `/web`."""
    headers = {**headers, "Cache-Control": "no-store"}
    if response is not None:
        return JSONResponse(response_json(response), headers=headers)
    return JSONResponse({"turn_id": str(turn_id), "status": "running"}, 202, {**headers, "Location": f"{prefix}/messages/{turn_id}"})


def resume_events(answers: TurnAnswers, turn_id: UUID, request: Request, source: str) -> Response:
    """Respond with the events of a turn. A client that has seen the last one gets 204, which tells a browser to stop asking."""
    if request.headers.get("last-event-id") == str(turn_id):
        return Response(status_code=204)
    return answers.stream(turn_id, {}, source)
