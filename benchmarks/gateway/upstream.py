"""A server of chat completions that costs nearly nothing, so that what is measured is whatever stands before it.

The first part of the path says how it behaves: `/v1/chat/completions` answers at once, `/slow/v1/…` after 200 ms, `/529/v1/…` never well.
Every answer is another one (it holds a number), because a target that finds chats again by their answers must not find all of them at once.
`GET /hits` tells how often each behaviour was asked for completions, and forgets it. Ends when its standard input does."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import uvloop

SLOW_S = 0.2
DRIP_S = 0.01
HEALTHY = "ok"

WORDS = (
    "Walk ten minutes north along the beach to the second river mouth, where the cliff keeps the wind off and the bean bags are far enough "
    "from the speakers for two children to fall asleep. They open at four, a young coconut is thirty thousand rupiah (about two dollars), "
    "and the kitchen grills corn and fish until eight. Shall I ask them to keep four places for you near the steps? Ref "
)
PIECES = 20


def answer(number: int) -> str:
    """About 380 characters, the last 12 of which are the answer's number."""
    return f"{WORDS}{number:012d}"


def completion(number: int) -> bytes:
    message = {"role": "assistant", "content": answer(number), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return json.dumps({**envelope(number, "chat.completion"), "choices": [choice], "usage": USAGE}).encode()


def envelope(number: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number:012d}", "object": kind, "created": 1_763_200_000, "model": "bench"}


USAGE = {"prompt_tokens": 150, "completion_tokens": 90, "total_tokens": 240}


def events(number: int, *, with_usage: bool) -> Iterator[bytes]:
    """A streamed answer: the role, its text in pieces, the end, and the usage for whoever asked for it."""
    text = answer(number)
    size = -(-len(text) // PIECES)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": text[at : at + size]} for at in range(0, len(text), size)]
    for delta in deltas:
        yield event(number, choices=[{"index": 0, "delta": delta, "finish_reason": None}])
    yield event(number, choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    if with_usage:
        yield event(number, choices=[], usage=USAGE)
    yield b"data: [DONE]\n\n"


def event(number: int, **fields: Any) -> bytes:
    return b"data: " + json.dumps({**envelope(number, "chat.completion.chunk"), **fields}).encode() + b"\n\n"


# The answers at full speed are cut out of these, and only their number is written in.
MARK = 999_999_999_999
WHOLE = completion(MARK)
STREAMED = {
    with_usage: b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in events(MARK, with_usage=with_usage)) + b"0\r\n\r\n"
    for with_usage in (False, True)
}
MARKED = b"%012d" % MARK


def head(status: str, length: int | None, *, kind: str = "application/json", more: str = "") -> bytes:
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{framing}\r\n{more}\r\n".encode()


WHOLE_HEAD = head("200 OK", len(WHOLE))
STREAM_HEAD = head("200 OK", None, kind="text/event-stream")


def refusal(status: str, message: str, kind: str, more: str = "") -> bytes:
    body = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()
    return head(status, len(body), more=more) + body


REFUSALS = {
    "529": refusal("529 Overloaded", "Overloaded", "overloaded_error"),
    "429": refusal("429 Too Many Requests", "Rate limit reached", "rate_limit_error", "Retry-After: 5\r\n"),
    "400": refusal("400 Bad Request", "Invalid value for 'messages'", "invalid_request_error"),
    "401": refusal("401 Unauthorized", "Incorrect API key provided", "invalid_request_error"),
    "empty": head("200 OK", 0),
}
MODELS = json.dumps({"object": "list", "data": [{"id": "bench", "object": "model", "created": 1, "owned_by": "bench"}]}).encode()

hits: Counter[str] = Counter()
numbers = itertools.count(1)


class Connection(asyncio.Protocol):
    """One client. Requests have a Content-Length, and the next one comes when the last was answered."""

    def __init__(self) -> None:
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        top = self._received[:end].lower()
        at = top.find(b"content-length:")
        assert at >= 0 or b"transfer-encoding" not in top, "requests in chunks are not read here"
        length = int(top[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._received) < end + 4 + length:
            return
        line, body = self._received.split(b"\r\n", 1)[0], self._received[end + 4 :]
        self._received = b""
        self._answer(line.split(b" ")[1].decode(), body)

    def _answer(self, path: str, body: bytes) -> None:
        if path == "/hits":
            told = json.dumps(hits).encode()
            hits.clear()
            self._write(head("200 OK", len(told)) + told)
        elif path.endswith("/models"):
            self._write(head("200 OK", len(MODELS)) + MODELS)
        else:
            first = path.split("/", 2)[1]
            behaviour = HEALTHY if first == "v1" else first
            hits[behaviour] += 1
            self._complete(behaviour, body)

    def _complete(self, behaviour: str, body: bytes) -> None:
        is_stream = b'"stream":true' in body or b'"stream": true' in body
        number = next(numbers)
        if behaviour in REFUSALS:
            self._write(REFUSALS[behaviour])
        elif behaviour == "hang":
            pass
        elif behaviour == "cut":
            self._cut(number, is_stream=is_stream)
        elif behaviour == "drip" and is_stream:
            self._write(STREAM_HEAD)
            self._drip(events(number, with_usage=b'"include_usage"' in body))
        else:
            whole = STREAM_HEAD + STREAMED[b'"include_usage"' in body] if is_stream else WHOLE_HEAD + WHOLE
            whole = whole.replace(MARKED, b"%012d" % number)
            if behaviour == "slow":
                asyncio.get_running_loop().call_later(SLOW_S, self._write, whole)
            else:
                self._write(whole)

    def _cut(self, number: int, *, is_stream: bool) -> None:
        """Begin well, and go away in the middle."""
        self._write(STREAM_HEAD if is_stream else WHOLE_HEAD + WHOLE[:200])
        if is_stream:
            for piece in itertools.islice(events(number, with_usage=False), 2):  # the role, and the first words
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if self._transport is not None:
            self._transport.close()

    def _drip(self, pieces: Iterator[bytes]) -> None:
        if self._transport is None:
            return  # its reader has left
        piece = next(pieces, b"")
        self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if piece:
            asyncio.get_running_loop().call_later(DRIP_S, self._drip, pieces)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
