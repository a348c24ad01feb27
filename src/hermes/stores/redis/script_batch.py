"""Scripts that are asked for in one moment go to Redis in one trip, one trip after the other.

So they run in the order of asking: what is settled is settled before whatever is reserved later. Under load a trip takes along all that
was asked for while the one before it was under way; nobody waits for more than two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError, ResponseError

MAX_SCRIPTS = 128
"""Scripts in one trip: more would keep the server from others."""


class ScriptCall(NamedTuple):
    script: AsyncScript
    keys: Sequence[str]
    args: Sequence[Any]
    reply: asyncio.Future[Any]


class ScriptBatch:
    """The way of scripts to one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._asked: list[ScriptCall] = []
        self._trip: asyncio.Task[None] | None = None
        self._is_due = False

    async def run(self, script: AsyncScript, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Return what a script says; raise what it raises, or what the connection does."""
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        self._asked.append(ScriptCall(script, keys, args, reply))
        if not self._is_due and self._trip is None:
            self._is_due = True
            loop.call_soon(self._leave)  # after everybody who runs in this moment has asked
        return await reply

    def _leave(self) -> None:
        self._is_due = False
        taken, self._asked = self._asked[:MAX_SCRIPTS], self._asked[MAX_SCRIPTS:]
        if not taken:
            return
        self._trip = asyncio.create_task(self._travel(taken))
        self._trip.add_done_callback(partial(self._back, taken))

    def _back(self, taken: Sequence[ScriptCall], trip: asyncio.Task[None]) -> None:
        self._trip = None
        if trip.cancelled():
            fail_calls(taken, ConnectionError("the trip was given up"))
        if self._asked:
            self._leave()

    async def _travel(self, taken: Sequence[ScriptCall]) -> None:
        try:
            replies = await self._there_and_back(taken)
        except Exception as error:  # noqa: BLE001  # whoever asked gets it
            # Whoever waits behind this trip would only wait for the same connection: all of them are told at once.
            waiting, self._asked = self._asked, []
            fail_calls([*taken, *waiting], error)
            return
        for asked, reply in zip(taken, replies, strict=True):
            if isinstance(reply, NoScriptError):
                await self._alone(asked)  # the server has forgotten its scripts; this teaches it again
            elif not asked.reply.done():
                resolve_future(asked.reply, reply)

    async def _there_and_back(self, taken: Sequence[ScriptCall]) -> list[Any]:
        """One write, and a reply for each. On the bare connection: the client's pipeline takes twice the processor time for the same."""
        pool = self._redis.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            commands = [("EVALSHA", asked.script.sha, len(asked.keys), *asked.keys, *asked.args) for asked in taken]
            await connection.send_packed_command(connection.pack_commands(commands))
            return [await read_reply(connection) for _ in taken]
        except BaseException:
            await connection.disconnect(nowait=True)  # what is still on its way would be taken for the answer to something else
            raise
        finally:
            await pool.release(connection)

    async def _alone(self, asked: ScriptCall) -> None:
        try:
            reply: Any = await asked.script(keys=asked.keys, args=asked.args)
        except Exception as error:  # noqa: BLE001  # whoever asked gets it
            reply = error
        if not asked.reply.done():
            resolve_future(asked.reply, reply)


def fail_calls(asked: Sequence[ScriptCall], error: Exception) -> None:
    for one in asked:
        if not one.reply.done():
            one.reply.set_exception(error)


def resolve_future(future: asyncio.Future[Any], reply: Any) -> None:
    if isinstance(reply, Exception):
        future.set_exception(reply)
    else:
        future.set_result(reply)


async def read_reply(connection: AbstractConnection) -> Any:
    """The next reply; an error of its script is a reply too."""
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error
