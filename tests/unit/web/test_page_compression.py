"""Only pages and files of the console are compressed."""

import gzip

import pytest
from starlette.types import Message, Receive, Scope, Send

from hermes.web.console.compression import PageCompression

BODY = b"a word of the page, " * 100


async def ask(path: str, content_type: str, *, accepts: bytes = b"gzip, br") -> tuple[dict[bytes, bytes], bytes]:
    """The headers and the body of a response that goes through the middleware."""

    async def answer(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type.encode())]})
        await send({"type": "http.response.body", "body": BODY})

    sent: list[Message] = []

    async def keep(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    scope = {"type": "http", "path": path, "method": "GET", "headers": [(b"accept-encoding", accepts)]}
    await PageCompression(answer)(scope, receive, keep)
    return dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "text/css", "text/javascript", "image/svg+xml"])
async def test_a_page_and_its_files_are_compressed(content_type: str) -> None:
    headers, body = await ask("/console/turns", content_type)
    assert headers[b"content-encoding"] == b"gzip"
    assert gzip.decompress(body) == BODY
    assert len(body) < len(BODY) / 10


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/console/events", "text/event-stream"),
        ("/v1/ops/turns", "application/json"),
        ("/chat", "text/html"),
        ("/v1/runs", "text/event-stream"),
    ],
)
async def test_streams_and_the_rest_of_the_web_are_left_as_they_are(path: str, content_type: str) -> None:
    headers, body = await ask(path, content_type)
    assert b"content-encoding" not in headers
    assert body == BODY


async def test_a_browser_that_takes_no_gzip_gets_none() -> None:
    headers, body = await ask("/console", "text/html", accepts=b"identity")
    assert b"content-encoding" not in headers
    assert body == BODY
