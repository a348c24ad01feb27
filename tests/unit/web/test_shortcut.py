"""The way of the API's frequent calls, beside FastAPI: what is sent, counted and noted is what FastAPI's way has."""

import json
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from structlog.contextvars import get_contextvars
from structlog.testing import capture_logs

from hermes.ops.metrics import AsgiMessage, AsgiScope, Metrics, RequestCounter
from hermes.web.completions import CHAT_PATH, AnswerResponse, CompletionsShortcut, read_body
from hermes.web.errors import install_error_handlers, unexpected_error_response
from hermes.web.hosts import PEER, header_value
from hermes.web.request_ids import RequestIds

ONE = {"type": "http.request", "body": b"{}", "more_body": False}
LEFT = {"type": "http.disconnect"}


def scope_of(*headers: tuple[bytes, bytes], path: str = CHAT_PATH) -> AsgiScope:
    return {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": list(headers), "client": ("10.0.0.7", 1)}


async def ask(app: Any, scope: AsgiScope, sent: list[AsgiMessage] | None = None) -> list[AsgiMessage]:
    sent = [] if sent is None else sent

    async def receive() -> AsgiMessage:
        return ONE

    async def send(message: AsgiMessage) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


async def break_down(_: Request) -> Response:
    raise RuntimeError("hunter2")


@pytest.mark.parametrize("is_shortcut", [True, False])
async def test_an_unexpected_error_is_answered_counted_and_goes_on_to_the_server(is_shortcut: bool) -> None:
    pages = FastAPI()
    pages.post(CHAT_PATH)(break_down)
    install_error_handlers(pages)
    metrics, sent = Metrics(), list[AsgiMessage]()
    app = CompletionsShortcut(pages, {CHAT_PATH: break_down}) if is_shortcut else pages
    with pytest.raises(RuntimeError, match="hunter2"), capture_logs():
        await ask(RequestCounter(app, metrics, error_page=unexpected_error_response()), scope_of(), sent=sent)
    start, body = sent
    assert (start["status"], json.loads(body["body"])["error"]["code"]) == (500, "internal_error")
    assert b"hunter2" not in body["body"]
    labels = {"method": "POST", "route": CHAT_PATH}
    counted = [
        metrics.registry.get_sample_value(f"hermes_request_{name}", {**labels, **more})
        for name, more in (("count_total", {"status": "500"}), ("errors_total", {}), ("latency_seconds_count", {}))
    ]
    assert counted == [1, 1, 1]


async def test_an_error_in_the_midst_of_an_answer_is_not_answered_again() -> None:
    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("broken off")

    sent = list[AsgiMessage]()
    with pytest.raises(RuntimeError):
        await ask(RequestCounter(app, Metrics(), error_page=unexpected_error_response()), scope_of(), sent=sent)
    assert [message["type"] for message in sent] == ["http.response.start"]


@pytest.mark.parametrize("session_id", [None, UUID(int=7)])
async def test_an_answer_has_the_bytes_of_an_ordinary_response(session_id: UUID | None) -> None:
    headers = {"Cache-Control": "no-store", **({"X-Hermes-Session": str(session_id)} if session_id else {})}
    ordinary = Response('{"a":1}', headers=headers, media_type="application/json")
    answer = AnswerResponse(b'{"a":1}', session_id)
    for response in (ordinary, answer):
        response.headers["request-id"] = "1"  # as Anthropic's clients expect it
    assert await ask(answer, scope_of()) == await ask(ordinary, scope_of())


@pytest.mark.parametrize(
    "coming",
    [
        [ONE],
        [{"type": "http.request"}],
        [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b", "more_body": True}, ONE],
        [LEFT],
        [{"type": "http.request", "body": b"a", "more_body": True}, LEFT],
    ],
)
async def test_a_body_is_read_as_the_framework_reads_it(coming: list[AsgiMessage]) -> None:
    found = []
    for read in (Request.body, read_body):
        messages = iter(coming)

        async def receive(messages: Any = messages) -> AsgiMessage:
            return next(messages)

        try:
            found.append(await read(Request(scope_of(), receive)))
        except ClientDisconnect:
            found.append(None)
    assert found[0] == found[1]


def test_a_header_is_read_as_the_framework_reads_it() -> None:
    request = Request(scope_of((b"x-a", b"1"), (b"authorization", b"Bearer \xe9"), (b"x-a", b"2")))
    for name in ("authorization", "x-a", "x-b"):
        assert header_value(request, name.encode()) == request.headers.get(name)


async def test_each_request_has_an_id_and_its_peer_is_noted() -> None:
    noted = list[Any]()

    async def app(scope: AsgiScope, _: Any, send: Any) -> None:
        noted.append((scope[PEER], get_contextvars()["request_id"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-request-id", b"the app's"), (b"a", b"b")]})

    ids = []
    for given in ([], [b"trace-1"], [b"a b", b"second"], [b"x" * 200]):
        [start] = await ask(RequestIds(app), scope_of(*((b"x-request-id", value) for value in given)))
        (name, value), (last, made) = start["headers"]
        assert (name, value, last) == (b"a", b"b", b"x-request-id")
        ids.append(made.decode())
    assert noted == [(("10.0.0.7", 1), made) for made in ids]
    assert (ids[1], ids[2]) == ("trace-1", "second")
    assert all(made.startswith("req_") and len(made) == 36 for made in (ids[0], ids[3]))
