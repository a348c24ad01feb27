"""A connection to Redis for commands that are sent in one write, and whose replies are awaited together.

The client (redis-py) opens it, with its address, password and encryption. From then on this reads the replies itself, as soon as they come:
the client waits for each of them with a task's time limit of its own, which takes ten times the processor time of a small reply."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from hiredis import PushNotification, Reader
from redis._parsers.base import BaseParser
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as LateReply

SECOND_LOOK_S = 0.01


INCOMPLETE = object()
"""In place of a reply whose rest has not come yet."""


def error_of(text: str) -> Exception:
    """An error as the client names it."""
    error: Exception = BaseParser.parse_error(text)  # type: ignore[no-untyped-call]
    return error


class ReplyLine(asyncio.Protocol):
    """Sends commands, and collects their replies. One user at a time."""

    @classmethod
    async def open(cls, redis: Redis) -> ReplyLine:
        """Raises one of REDIS_ERRORS."""
        connection = await redis.connection_pool.get_connection()  # type: ignore[no-untyped-call]
        return cls(connection, redis)

    def __init__(self, connection: AbstractConnection, redis: Redis) -> None:
        self._connection, self._pool = connection, redis.connection_pool
        writer = connection._writer  # the client lends it to no other reader
        if writer is None:
            raise LostConnection("the connection to Redis was closed")
        self._transport: Any = writer.transport
        self._first: asyncio.BaseProtocol = self._transport.get_protocol()  # the client waits for its end
        self._transport.set_protocol(self)
        self._reader = Reader(protocolError=InvalidResponse, replyError=error_of, notEnoughData=INCOMPLETE)
        self._replies: list[Any] = []
        self._expected = 0
        self._done: asyncio.Future[None] | None = None
        self._has_news = False
        """Whether anything came since the last look."""
        self._look: asyncio.TimerHandle | None = None
        self.is_lost = False

    async def ask(self, commands: bytes, count: int) -> list[Any]:
        """Send packed commands and return their replies; the error of a command is a reply too. Raises one of REDIS_ERRORS; then, and if it
        is cancelled, the line must be closed: late replies would be taken for those of later commands."""
        if self.is_lost:
            raise LostConnection("the connection to Redis was lost")
        loop, limit_s = asyncio.get_running_loop(), self._connection.socket_timeout
        self._replies, self._expected, self._has_news = [], count, False
        self._done = loop.create_future()
        self._transport.write(commands)
        if limit_s:
            self._look = loop.call_later(limit_s, self._look_for_news, limit_s)
        try:
            await self._done
        finally:
            if self._look is not None:
                self._look.cancel()
        return self._replies

    async def aclose(self) -> None:
        self.is_lost = True
        await self._connection.disconnect(nowait=True)
        await self._pool.release(self._connection)

    def _look_for_news(self, limit_s: float, *, is_second: bool = False) -> None:
        """Give up if nothing came for so long. Looks twice: after a pause of this process the timer comes before what came meanwhile."""
        if is_second and not self._has_news:
            self._end(LateReply("Redis does not answer in time"))
            return
        next_s = limit_s if self._has_news else SECOND_LOOK_S
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(next_s, partial(self._look_for_news, limit_s, is_second=not self._has_news))
        self._has_news = False

    # --- what the transport calls

    def data_received(self, data: bytes) -> None:
        self._has_news = True
        try:
            self._reader.feed(data)
            self._collect_replies()
        except Exception as error:  # noqa: BLE001  # nothing more of this connection can be understood; the caller gets the error
            self._end(error)
            return
        if self._done is not None and not self._done.done() and len(self._replies) >= self._expected:
            self._done.set_result(None)

    def _collect_replies(self) -> None:
        while (reply := self._reader.gets()) is not INCOMPLETE:
            if isinstance(reply, LostConnection):
                self._end(reply)  # such as: the server is loading its data
            elif not isinstance(reply, PushNotification):  # nothing here asks for any
                self._replies.append(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(LostConnection(f"the connection to Redis was lost: {error}" if error else "Redis closed the connection"))
        self._first.connection_lost(error)

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def pause_writing(self) -> None:
        """Nothing to do: a trip waits for its replies anyway."""

    def resume_writing(self) -> None:
        """Nothing to do."""

    def _end(self, error: Exception) -> None:
        self.is_lost = True
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
