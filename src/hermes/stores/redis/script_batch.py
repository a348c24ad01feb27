"""Scripts that several tasks call at one moment go to Redis in one round trip. The trips follow one another.

So scripts run in the order of the calls: if a task settles a budget hold and another task reserves after it, Redis settles first. Only a
script that the server has lost runs after the others of its trip. A trip takes the scripts that were called during the trip before it,
at most `MAX_SCRIPTS`: up to that load no call waits for more than two trips."""

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
"""Scripts in one trip: more would block the server for its other clients."""


class ScriptCall(NamedTuple):
    script: AsyncScript
    keys: Sequence[str]
    args: Sequence[Any]
    reply: asyncio.Future[Any]


class ScriptBatch:
    """Sends scripts to one Redis in batches."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: list[ScriptCall] = []
        self._trip: asyncio.Task[None] | None = None
        self._is_due = False

    async def run(self, script: AsyncScript, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script and return its reply. Raises the error of the script or of the connection."""
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(ScriptCall(script, keys, args, reply))
        if not self._is_due and self._trip is None:
            self._is_due = True
            loop.call_soon(self._start_trip)  # after the other tasks that are ready now have made their calls
        return await reply

    def _start_trip(self) -> None:
        self._is_due = False
        taken, self._waiting = self._waiting[:MAX_SCRIPTS], self._waiting[MAX_SCRIPTS:]
        if not taken:
            return
        self._trip = asyncio.create_task(self._run_trip(taken))
        self._trip.add_done_callback(partial(self._end_trip, taken))

    def _end_trip(self, taken: Sequence[ScriptCall], trip: asyncio.Task[None]) -> None:
        self._trip = None
        if trip.cancelled():
            fail_calls(taken, ConnectionError("the round trip to Redis was cancelled"))
        if self._waiting:
            self._start_trip()

    async def _run_trip(self, taken: Sequence[ScriptCall]) -> None:
        try:
            replies = await self._round_trip(taken)
        except Exception as error:  # noqa: BLE001  # the callers get it
            # Calls that wait for the next trip would only wait for the same connection: all of them get the error at once.
            waiting, self._waiting = self._waiting, []
            fail_calls([*taken, *waiting], error)
            return
        for call, reply in zip(taken, replies, strict=True):
            if isinstance(reply, NoScriptError):
                await self._run_alone(call)  # the server has lost its scripts; this loads the script again
            elif not call.reply.done():
                resolve_future(call.reply, reply)

    async def _round_trip(self, taken: Sequence[ScriptCall]) -> list[Any]:
        """Send all calls in one write; return a reply for each. Without redis-py's pipeline, which needs twice the processor time."""
        pool = self._redis.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            commands = [("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args) for call in taken]
            await connection.send_packed_command(connection.pack_commands(commands))
            return [await read_reply(connection) for _ in taken]
        except BaseException:
            await connection.disconnect(nowait=True)  # late replies would be read as the replies of later commands
            raise
        finally:
            await pool.release(connection)

    async def _run_alone(self, call: ScriptCall) -> None:
        try:
            reply: Any = await call.script(keys=call.keys, args=call.args)
        except Exception as error:  # noqa: BLE001  # the caller gets it
            reply = error
        if not call.reply.done():
            resolve_future(call.reply, reply)


def fail_calls(calls: Sequence[ScriptCall], error: Exception) -> None:
    for call in calls:
        if not call.reply.done():
            call.reply.set_exception(error)


def resolve_future(future: asyncio.Future[Any], reply: Any) -> None:
    if isinstance(reply, Exception):
        future.set_exception(reply)
    else:
        future.set_result(reply)


async def read_reply(connection: AbstractConnection) -> Any:
    """The next reply; the error of a script is a reply too."""
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error
