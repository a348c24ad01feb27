"""`/v1/chat/completions` and `/v1/models`: any OpenAI client that uses this address gets failover, budgets and a record of its chats.

This module knows HTTP and OpenAI's JSON. gateway/completions finds the user and the models, and gateway/client_chats records the chats."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from hermes.gateway.chat_request import MAX_SESSION_CHARS, ChatRequest, read_request
from hermes.gateway.completions import ChatCompletions, ChoicePiece, EndUser
from hermes.graph.message import json_encoder
from hermes.ops.metrics import AsgiApp, AsgiReceive, AsgiScope, AsgiSend
from hermes.ports.backends import LOGPROBS, ChatMessage, Completion, Delta, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from hermes.ports.models import Answer, AnswerStarted
from hermes.web.api_auth import ApiAuth
from hermes.web.completion_errors import openai_error, raise_openai_errors
from hermes.web.errors import ApiError, ErrorBody, api_error_response
from hermes.web.limits import address_of
from hermes.web.request_json import parse_json

log = structlog.get_logger()

CHAT_PATH = "/v1/chat/completions"
SESSION_HEADER = "X-Hermes-Session"
WATCH_AFTER_S = 0.5
SEND_TIMEOUT_S = 30.0
ESCAPED_SURROGATE = re.compile(rb"\\ud[89a-f]", re.IGNORECASE)
"""A surrogate as JSON escapes it: half of a pair, perhaps without the other half."""
T = TypeVar("T")
encode_body = json_encoder(sort_keys=False)
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The completion, in the format of OpenAI's API; server-sent events with `stream`.",
        "content": {"application/json": {}},
    },
    **{status: {"model": ErrorBody} for status in (400, 401, 404, 413, 429, 500, 502, 503, 504)},
}
REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A request in the format of OpenAI's chat completions.",
        "content": {"application/json": {"schema": {"type": "object", "required": ["model", "messages"]}}},
    },
    "security": [{"HTTPBearer": []}],
}


@dataclass(frozen=True, slots=True)
class CompletionsEndpoint:
    """Answers `/v1/chat/completions`."""

    completions: ChatCompletions
    api_auth: ApiAuth
    max_choices: int

    async def complete(self, request: Request) -> Response:
        """Hermes recognises a chat by the answers in it, per API key and `user`; or by the header `X-Hermes-Session`."""
        with raise_openai_errors():
            key = await self.api_auth.admit(bearer_secret(request), "completions", address_of(request))
            chat_request = read_request(parse_body(await request.body()), max_choices=self.max_choices)
            end_user = await self.completions.end_user(key, chat_request.user)
            return await send_answers(request, self.completions, chat_request, end_user, ChunkWriter(chat_request))


class AnswerWriter(Protocol):
    """Writes the answers to one request as one API does."""

    def body(self, answers: Sequence[Answer]) -> Mapping[str, Any]:
        """The whole answer."""
        ...

    def chunks(self, choice_piece: ChoicePiece) -> Iterable[bytes]:
        """A piece of a stream."""
        ...

    def end(self) -> Iterable[bytes]:
        """The end of a stream."""
        ...

    def failure(self, error: Exception) -> bytes:
        """The end of a stream that breaks off: the status is sent already."""
        ...


async def send_answers(
    request: Request, completions: ChatCompletions, chat_request: ChatRequest, end_user: EndUser, writer: AnswerWriter
) -> Response:
    """Have a client's request answered: whole, or as a stream. Raises what `ChatCompletions.complete` raises."""
    session = check_session_name(request.headers.get(SESSION_HEADER))
    if not chat_request.stream:
        answers = await cancel_if_client_leaves(request, completions.complete(chat_request, end_user, session))
        content = encode_body(writer.body(answers))
        return Response(content, headers=session_headers(answers), media_type="application/json")
    pieces = completions.stream(chat_request, end_user, session)
    try:
        # An error before the first piece still becomes a response with its own status.
        first = await cancel_if_client_leaves(request, anext(pieces))
    except BaseException:
        await pieces.aclose()
        raise
    return StreamingResponse(stream_events(first, pieces, writer), headers=STREAM_HEADERS, media_type="text/event-stream")


def completion_routes(endpoint: CompletionsEndpoint) -> APIRouter:
    """The routes for OpenAI clients."""
    routes = APIRouter(tags=["chat completions"])
    completions, api_auth = endpoint.completions, endpoint.api_auth

    @routes.post(CHAT_PATH, responses=RESPONSES, openapi_extra=REQUEST_BODY, summary="Complete a chat, as OpenAI's API does")
    async def complete(request: Request) -> Response:
        return await endpoint.complete(request)

    @routes.get("/v1/models", summary="The models that this key may ask for")
    async def models(request: Request) -> Response:
        with raise_openai_errors():
            key = await api_auth.admit(bearer_secret(request), "completions", address_of(request), is_counted=False)
            names = completions.models(key.tier or completions.tier, key.limits)
            return JSONResponse({"object": "list", "data": [model_entry(name) for name in names]})

    @routes.get("/v1/models/{name:path}", responses={404: {"model": ErrorBody}}, summary="One model")
    async def model(name: str, request: Request) -> Response:
        with raise_openai_errors():
            key = await api_auth.admit(bearer_secret(request), "completions", address_of(request), is_counted=False)
            completions.chain(name, key.tier or completions.tier, key.limits)
            return JSONResponse(model_entry(name))

    return routes


class CompletionsShortcut:
    """ASGI middleware that calls some handlers of POST requests directly: the way through FastAPI costs as much as the call of the model
    itself.

    The routes exist all the same, for the readers of the API's description."""

    def __init__(self, app: AsgiApp, handlers: Mapping[str, Callable[[Request], Awaitable[Response]]]) -> None:
        self._app, self._handlers = app, handlers
        self._routes = {path: SimpleNamespace(path=path) for path in handlers}
        """The routes under which the metrics count these requests."""

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        handler = self._handlers.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = self._routes[scope["path"]]
        try:
            response = await handler(Request(scope, receive))
        except ApiError as error:
            response = api_error_response(error)
        except HTTPException as error:  # the body is too large
            response = api_error_response(ApiError(error.status_code, "too_large", str(error.detail), kind="invalid_request_error"))
        except ClientDisconnect:  # before its request was whole
            return
        if isinstance(response, StreamingResponse):
            await stream_to_reader(response, scope, receive, send)
        else:
            await response(scope, receive, send)


async def stream_to_reader(response: StreamingResponse, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
    """Send a stream until its end, or until the client takes nothing for `SEND_TIMEOUT_S`. A client whose network fails does not
    disconnect, and its call would hold a slot for as long as TCP retries."""

    async def send_in_time(message: MutableMapping[str, Any]) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await send(message)

    try:
        await response(scope, receive, send_in_time)
    except TimeoutError:
        log.warning("stream_not_read", waited_s=SEND_TIMEOUT_S)
    finally:
        if isinstance(response.body_iterator, AsyncGenerator):
            await response.body_iterator.aclose()


# --- requests


def bearer_secret(request: Request) -> str | None:
    """Return the API key of a request."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


async def cancel_if_client_leaves(request: Request, answering: Awaitable[T]) -> T:
    """Wait for an answer while the client is connected. If it disconnects, the call is cancelled: its slot is free, and the user pays
    only for the models that were asked.

    The client is watched only after `WATCH_AFTER_S`, and no task is made before that, because every call comes through here."""
    handler, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert handler is not None  # noqa: S101  # a request is handled in a task
    watchers: list[asyncio.Task[None]] = []

    async def watch() -> None:
        await wait_for_disconnect(request)
        handler.cancel()

    timer = loop.call_later(WATCH_AFTER_S, lambda: watchers.append(loop.create_task(watch())))
    try:
        return await answering
    except asyncio.CancelledError:
        if any(watcher.done() and not watcher.cancelled() for watcher in watchers):
            handler.uncancel()
            raise ApiError(499, "client_left", "The client has disconnected.") from None
        raise
    finally:
        timer.cancel()
        for watcher in watchers:
            watcher.cancel()


async def wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def parse_body(body: bytes) -> Any:
    value = parse_json(body)
    return join_surrogates(value) if ESCAPED_SURROGATE.search(body) else value


def join_surrogates(value: Any) -> Any:
    """Join the halves of surrogate pairs in all texts: some servers cut an emoji in two when they stream it, and clients send that back."""
    try:
        if isinstance(value, str):
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if isinstance(value, list):
            return [join_surrogates(item) for item in value]
        return {join_surrogates(name): join_surrogates(item) for name, item in value.items()} if isinstance(value, dict) else value
    except RecursionError:
        raise ApiError(400, "invalid_json", "The body is nested too deeply.") from None


def check_session_name(session: str | None) -> str | None:
    if session is None or 0 < len(session) <= MAX_SESSION_CHARS:
        return session
    raise ApiError(400, "invalid_session", f"{SESSION_HEADER} has 1 to {MAX_SESSION_CHARS} characters.", param=SESSION_HEADER)


# --- answers


def completion_body(answers: Sequence[Answer], chat_request: ChatRequest) -> dict[str, Any]:
    """Return a completion in the format of OpenAI's API. Hermes' own fields are under `hermes`."""
    first = answers[0]
    return {
        "id": f"chatcmpl-{first.call_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": first.completion.model,
        "choices": [
            {
                "index": at,
                "message": message_of(answer.completion.message),
                "logprobs": logprobs_of(answer.completion) if chat_request.wants_logprobs else None,
                "finish_reason": finish_of(answer.completion),
            }
            for at, answer in enumerate(answers)
        ],
        "usage": usage_of([answer.completion.usage for answer in answers]),
        "hermes": hermes_fields(answers),
    }


def message_of(message: ChatMessage) -> dict[str, Any]:
    body: dict[str, Any] = {"role": "assistant", "content": message.get("content"), "refusal": message.get("refusal")}
    if message.get("tool_calls"):
        body["tool_calls"] = message["tool_calls"]
    if message.get("reasoning"):
        body["reasoning_content"] = message["reasoning"]
    return body


def logprobs_of(completion: Completion, sent: int = 0) -> dict[str, Any] | None:
    """Return the entries for the tokens, without the first `sent`."""
    entries = (completion.extra.get(LOGPROBS) or [])[sent:]
    return {"content": replace_infinity(entries), "refusal": None} if entries else None


def replace_infinity(value: Any) -> Any:
    """Replace infinite numbers by -9999, as OpenAI does: JSON has no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else -9999.0
    if isinstance(value, list):
        return [replace_infinity(item) for item in value]
    return {name: replace_infinity(item) for name, item in value.items()} if isinstance(value, dict) else value


def finish_of(completion: Completion) -> str:
    """Return the finish reason in OpenAI's words. For OpenAI a refusal has a text of its own, or is a content filter's."""
    if completion.finish_reason != "refusal":
        return completion.finish_reason
    return "stop" if completion.message.get("refusal") else "content_filter"


def usage_of(usages: Sequence[Usage]) -> dict[str, Any]:
    """Return the tokens of all answers together. Each answer was a call with the whole prompt."""
    tokens_in, tokens_out = sum(usage.tokens_in for usage in usages), sum(usage.tokens_out for usage in usages)
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cache_read for usage in usages)},
    }


def hermes_fields(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the session of the chat, the backend that answered, its attempts, and the cost."""
    first = answers[0]
    return {
        "session": str(first.session_id) if first.session_id else None,
        "backend": first.backend,
        "attempts": [attempt.outcome for attempt in first.attempts],
        "cost_usd": sum(answer.micro_usd for answer in answers) / 1_000_000,
    }


def session_headers(answers: Sequence[Answer]) -> dict[str, str]:
    session_id = answers[0].session_id
    return {"Cache-Control": "no-store", **({SESSION_HEADER: str(session_id)} if session_id else {})}


def model_entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hermes"}


# --- streams


async def stream_events(first: ChoicePiece, pieces: AsyncGenerator[ChoicePiece], writer: AnswerWriter) -> AsyncGenerator[bytes]:
    """Yield the answers as server-sent events.

    A stream that breaks off ends with an error and without its usual end, so that no client takes half an answer for a whole one."""
    async with aclosing(pieces):
        try:
            for chunk in writer.chunks(first):
                yield chunk
            async for piece in pieces:
                for chunk in writer.chunks(piece):
                    yield chunk
        except Exception as error:  # noqa: BLE001  # the status is sent already, so the error is the last event
            yield writer.failure(error)
            return
    for chunk in writer.end():
        yield chunk


class ChunkWriter:
    """Writes answers as chat completions: whole, or as chunks, the usage if the client asked for it, `[DONE]`."""

    def __init__(self, chat_request: ChatRequest) -> None:
        self._chat_request = chat_request
        self._created = int(time.time())
        self._name = "chatcmpl-"
        self._model = chat_request.model
        self._answers: dict[int, Answer] = {}
        self._scored: dict[int, int] = {}
        """How many entries of logprobs were sent, by choice."""

    def body(self, answers: Sequence[Answer]) -> dict[str, Any]:
        return completion_body(answers, self._chat_request)

    def failure(self, error: Exception) -> bytes:
        return sse_data(openai_error(error))

    def chunks(self, choice_piece: ChoicePiece) -> list[bytes]:
        choice = choice_piece.choice
        match choice_piece.piece:
            case AnswerStarted(call_id, model):
                if self._name == "chatcmpl-":
                    self._name, self._model = f"chatcmpl-{call_id}", model
                return [self._chunk(choice, {"role": "assistant", "content": ""})]
            case Answer() as answer:
                self._answers[choice] = answer
                return self._last(choice, answer.completion)
            case ReasoningDelta(text=""):
                return []
            case delta:
                entries = list(delta.logprobs) if self._chat_request.wants_logprobs else []
                self._scored[choice] = self._scored.get(choice, 0) + len(entries)
                logprobs = {"content": replace_infinity(entries), "refusal": None} if entries else None
                return [self._chunk(choice, delta_of(delta), logprobs=logprobs)]

    def end(self) -> list[bytes]:
        """Return the usage with Hermes' own fields, if the client asked for it, and the end of the stream."""
        answers = [answer for _, answer in sorted(self._answers.items())]
        last = []
        if self._chat_request.wants_usage and answers:
            usage = usage_of([answer.completion.usage for answer in answers])
            last.append(sse_data({**self._head(), "choices": [], "usage": usage, "hermes": hermes_fields(answers)}))
        return [*last, b"data: [DONE]\n\n"]

    def _last(self, choice: int, completion: Completion) -> list[bytes]:
        """Return the chunk with the finish reason, and with the refusal and those logprobs that no delta had."""
        logprobs = logprobs_of(completion, self._scored.get(choice, 0)) if self._chat_request.wants_logprobs else None
        refusal = completion.message.get("refusal")
        return [self._chunk(choice, {"refusal": refusal} if refusal else {}, finish_of(completion), logprobs)]

    def _chunk(self, choice: int, delta: Mapping[str, Any], finish: str | None = None, logprobs: Any = None) -> bytes:
        chunk = {**self._head(), "choices": [{"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]}
        return sse_data({**chunk, "usage": None} if self._chat_request.wants_usage else chunk)

    def _head(self) -> dict[str, Any]:
        return {"id": self._name, "object": "chat.completion.chunk", "created": self._created, "model": self._model}


def delta_of(delta: Delta) -> dict[str, Any]:
    match delta:
        case TextDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case ToolCallDelta(index, call_id, name, arguments):
            if call_id is None and name is None:
                return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}
            function = {"name": name, "arguments": arguments}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}


def sse_data(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"
