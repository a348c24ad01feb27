"""Cut a stream of bytes into events: server-sent events, or one JSON value on each line. No I/O, no JSON.

A piece of the stream may end anywhere, also inside a character."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from hermes.backends.json_fields import MalformedAnswer

MAX_LINE_BYTES = 16 * 1024 * 1024
"""The reader gives up a stream after this many bytes without a line break."""


class StreamEvent(NamedTuple):
    """One event. `name` is empty where the server gave none."""

    name: str
    data: str


class Framing(Protocol):
    """Finds events in pieces of a stream."""

    def feed(self, piece: bytes) -> Iterator[StreamEvent]:
        """Yield the events that this piece completes. Raises MalformedAnswer for a line longer than MAX_LINE_BYTES."""
        ...


class LineSplitter:
    """The lines of a stream, ended by LF or CRLF."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        rest = self._rest
        rest += piece
        start = 0
        while (end := rest.find(b"\n", start)) >= 0:
            yield bytes(rest[start : end - 1 if end > start and rest[end - 1] == 13 else end])
            start = end + 1
        del rest[:start]
        if len(rest) > MAX_LINE_BYTES:
            raise MalformedAnswer("a line of the stream does not end")


class ServerSentEvents:
    """The part of the standard that model servers use: `event`, `data` over several lines, comments; `id` and `retry` are ignored."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[StreamEvent]:
        for line in self._lines.feed(piece):
            if not line:
                if self._data:
                    yield StreamEvent(self._name, "\n".join(self._data))
                self._name, self._data = "", []
                continue
            key, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")  # a comment has an empty key
            text = value.removeprefix(b" ").decode("utf-8", "replace")
            if key == b"data":
                self._data.append(text)
            elif key == b"event":
                self._name = text


class JsonLines:
    """One JSON value on each line; empty lines are ignored."""

    def __init__(self) -> None:
        self._lines = LineSplitter()

    def feed(self, piece: bytes) -> Iterator[StreamEvent]:
        for line in self._lines.feed(piece):
            if line.strip():
                yield StreamEvent("", line.decode("utf-8", "replace"))
