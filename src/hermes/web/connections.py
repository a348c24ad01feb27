"""The connections of a server: how many there may be, and how long each may keep the server waiting.

A client that never finishes its request costs a socket. Uvicorn waits for it without an end, so a thousand half-sent requests take all the
sockets of a process. Here each connection is in one phase, and each phase in which the server waits for the client has an end:

    HEAD      the head of a request is to come, from the first byte on, or from the beginning of the connection
    BODY      the body is to come; its end moves with what came
    ANSWERING the server works, and the client waits; only bytes that the client does not take have an end
    IDLE      the connection waits for another request

At its limits the server does not refuse the next client: it closes the connection that has waited longest for its own."""

from __future__ import annotations

import asyncio
import math
import socket
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from hermes.config import WebSettings
from hermes.web.hosts import is_in, is_local_name
from hermes.web.limits import source_of
from hermes.web.open_files import RESERVED_FILES, open_file_limit

log = structlog.get_logger()

MAX_HEAD_BYTES = 65_536
BODY_BYTES_PER_S = 10_000
"""So many bytes of a body give its client one second more."""
SEND_TIMEOUT_S = 30.0
"""How long a client may leave bytes of a response untaken."""
SWEEP_S = 0.5
MIN_CONNECTIONS = 64
LOG_EVERY_S = 10.0
OVERLOADED = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Phase(Enum):
    """What a connection waits for."""

    HEAD = auto()
    BODY = auto()
    ANSWERING = auto()
    IDLE = auto()


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one server."""

    connections: int
    per_address: int
    head_timeout_s: float
    body_timeout_s: float
    trusted_proxies: tuple[str, ...] = ()

    @classmethod
    def of(cls, web: WebSettings) -> ConnectionLimits:
        return cls(
            min(web.max_connections, max(open_file_limit() - RESERVED_FILES, MIN_CONNECTIONS)),
            web.max_connections_per_address,
            web.head_timeout_s,
            web.body_timeout_s,
            web.trusted_proxies,
        )


class Connections:
    """The open connections of one server."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: dict[GuardedProtocol, str] = {}
        """Each with its source; without one, its address has no limit of its own."""
        self._waiting: dict[GuardedProtocol, None] = {}
        """Those that wait for their client, the longest wait first."""
        self._by_source: defaultdict[str, dict[GuardedProtocol, None]] = defaultdict(dict)
        self._dropped = self._refused = 0

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: GuardedProtocol, address: str) -> bool:
        """Take a connection in, in the place of another one if need be. False if all others are being answered."""
        source = self._source_of(address)
        alike = self._by_source[source] if source else {}
        has_place = (len(alike) < self.limits.per_address or self._drop_first(alike)) and (
            len(self._open) < self.limits.connections or self._drop_first(self._waiting)
        )
        if not has_place:
            self._refused += 1
            return False
        self._open[connection] = source
        if source:
            self._by_source[source][connection] = None
        return True

    def forget(self, connection: GuardedProtocol) -> None:
        source = self._open.pop(connection, "")
        self._waiting.pop(connection, None)
        if source:
            alike = self._by_source[source]
            alike.pop(connection, None)
            if not alike:
                del self._by_source[source]

    def note_waiting(self, connection: GuardedProtocol, *, is_waiting: bool) -> None:
        """Note that a connection waits for its client from now on, or no longer."""
        self._waiting.pop(connection, None)
        if is_waiting and connection in self._open:
            self._waiting[connection] = None

    async def sweep(self) -> None:
        """Close connections whose client is too late, again and again. Runs until cancelled."""
        loop = asyncio.get_running_loop()
        logged_at = -math.inf
        while True:
            await asyncio.sleep(SWEEP_S)
            now = loop.time()
            for connection in [each for each in self._open if each.is_late(now)]:
                connection.give_up()
            if (self._dropped or self._refused) and now - logged_at >= LOG_EVERY_S:
                logged_at = now
                log.warning("connections_limited", dropped=self._dropped, refused=self._refused, open=len(self._open))
                self._dropped = self._refused = 0

    def _source_of(self, address: str) -> str:
        is_exempt = is_local_name(address) or is_in(address, self.limits.trusted_proxies)
        return "" if is_exempt else source_of(address)

    def _drop_first(self, among: Iterable[GuardedProtocol]) -> bool:
        """Close the first connection that waits for its client; return whether there was one."""
        found = next((each for each in among if each.phase is not Phase.ANSWERING), None)
        if found is None:
            return False
        self._dropped += 1
        self.forget(found)
        found.transport.abort()
        return True


class GuardedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with an end to each wait."""

    def __init__(self, config: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        self.guard: Connections = config.guard
        self.phase = Phase.HEAD
        self.deadline = self.untaken_until = math.inf
        self.head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        super().connection_made(transport)
        if self.guard.admit(self, self.client[0] if self.client else ""):
            self._wait(Phase.HEAD, self.guard.limits.head_timeout_s)
        else:
            self._end_with(OVERLOADED)

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.IDLE:
            self._wait(Phase.HEAD, self.guard.limits.head_timeout_s)
        super().data_received(data)
        if self.phase is Phase.HEAD:
            self.head_bytes += len(data)
            if self.head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._end_with(HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self.phase is not Phase.HEAD:  # a request behind another one, in the same bytes
            self._wait(Phase.HEAD, self.guard.limits.head_timeout_s)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Fields behind a body would stand among those of the head, where a proxy has looked for forged ones.
        if self.phase is Phase.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._wait(Phase.BODY, self.guard.limits.body_timeout_s)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.deadline += len(body) / BODY_BYTES_PER_S
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.cycle.response_complete:  # answered before its body had come
            self._wait(Phase.IDLE, self.timeout_keep_alive)
        else:
            self._wait(Phase.ANSWERING, math.inf)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.phase is Phase.ANSWERING and self.cycle.response_complete:
            self._wait(Phase.IDLE, self.timeout_keep_alive)

    def pause_writing(self) -> None:
        self.untaken_until = self.loop.time() + SEND_TIMEOUT_S
        super().pause_writing()

    def resume_writing(self) -> None:
        self.untaken_until = math.inf
        super().resume_writing()

    def is_late(self, now: float) -> bool:
        """Whether the client is. A body that the server itself does not take yet is not late."""
        is_ours = self.phase is Phase.BODY and self.flow.read_paused
        return (now > self.deadline and not is_ours) or now > self.untaken_until

    def give_up(self) -> None:
        """End a connection whose client is too late."""
        self.guard.forget(self)
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request, whatever its declaration says
        is_between = cycle is None or cycle.response_complete
        if self.transport.is_closing() or not is_between:
            self.transport.abort()
        elif self.phase is Phase.HEAD and self.head_bytes > 0:
            self._end_with(TOO_LATE)
        else:
            self.transport.close()

    def _wait(self, phase: Phase, timeout_s: float) -> None:
        self.phase, self.deadline = phase, self.loop.time() + timeout_s
        self.head_bytes = 0
        self.guard.note_waiting(self, is_waiting=phase is not Phase.ANSWERING)

    def _end_with(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.transport.close()


def end_dead_connections(listener: socket.socket) -> None:
    """Have the system end connections whose client takes no byte any more, where it can; accepted connections inherit it."""
    with suppress(AttributeError, OSError):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(2 * SEND_TIMEOUT_S * 1_000))
