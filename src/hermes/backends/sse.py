"""Cut a stream of bytes into events: server-sent events, or one JSON value on each line. No I/O, no JSON.

A piece of the stream may end anywhere, also inside a character."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from hermes.backends.shape import Malformed

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes without a line break after which a stream is given up."""


class Event(NamedTuple):
    """One event. `name` is empty where the server gave none."""

    name: str
    data: str


class Framing(Protocol):
    """Finds events in pieces of a stream."""

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that this piece completes. Raises Malformed for a line that does not end."""
        ...


class Lines:
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
        if len(rest) > LONGEST_LINE:
            raise Malformed("a line of the stream does not end")


class ServerSentEvents:
    """The part of the standard that model servers use: `event`, `data` over several lines, comments; `id` and `retry` are ignored."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        for line in self._lines.feed(piece):
            if not line:
                if self._data:
                    yield Event(self._name, "\n".join(self._data))
                self._name, self._data = "", []
                continue
            key, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")  # a comment has an empty key
            text = value.removeprefix(b" ").decode("utf-8", "replace")
            if key == b"data":
                self._data.append(text)
            elif key == b"event":
                self._name = text


class JsonLines:
    """One JSON value on each line; empty lines are nothing."""

    def __init__(self) -> None:
        self._lines = Lines()

    def feed(self, piece: bytes) -> Iterator[Event]:
        for line in self._lines.feed(piece):
            if line.strip():
                yield Event("", line.decode("utf-8", "replace"))
