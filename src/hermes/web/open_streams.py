"""How many streams of events a process keeps open: in all, and for each API key, operator or visitor.

An open stream looks into the database now and then, and holds a connection. A thousand of one key would leave nothing to the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager

from fastapi.responses import StreamingResponse

from hermes.ops.metrics import AsgiReceive, AsgiScope, AsgiSend
from hermes.web.errors import ApiError

MAX_STREAMS = 500
RETRY_AFTER_S = "5"
UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class OpenStreams:
    """Counts the open streams of a process."""

    def __init__(self, per_source: int, in_all: int = MAX_STREAMS) -> None:
        self._per_source, self._in_all = per_source, in_all
        self._open: Counter[str] = Counter()

    def has_place(self, source: str) -> bool:
        return self._open[source] < self._per_source and self._open.total() < self._in_all

    @contextmanager
    def holding(self, source: str) -> Iterator[None]:
        """Count one stream of a source for as long as the block lasts. Raises ApiError: 429 if the source has too many, 503 if all have."""
        if not self.has_place(source):
            own = self._open[source] >= self._per_source
            whose = "you have" if own else "there are"
            message = f"Too many streams: {whose} {self._per_source if own else self._in_all} open; close some, or try again later."
            headers = {"Retry-After": RETRY_AFTER_S}
            raise ApiError(429 if own else 503, "too_many_streams", message, headers=headers)
        self._open[source] += 1
        try:
            yield
        finally:
            self._open[source] -= 1
            if not self._open[source]:
                del self._open[source]

    def respond(self, source: str, events: AsyncIterator[bytes], headers: Mapping[str, str] | None = None) -> EventStream:
        """Return the response that streams events of a source."""
        return EventStream(self, source, events, headers or {})


class EventStream(StreamingResponse):
    """A stream of server-sent events that counts while it is open. Over the limit it is refused before its first byte."""

    def __init__(self, streams: OpenStreams, source: str, events: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(events, headers={**UNBUFFERED, **headers}, media_type="text/event-stream")
        self._streams, self._source = streams, source

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        with self._streams.holding(self._source):
            await super().__call__(scope, receive, send)
