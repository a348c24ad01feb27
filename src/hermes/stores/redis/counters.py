"""The counters of budgets and spend in Redis: the scripts that change them, and how lost counters are rebuilt.

The scripts are in `budgets.lua`, with the keys they use. They use several keys at once, so they need one server, not a cluster. The server
should evict nothing, although an evicted counter is only rebuilt. Time comes from the clock that is passed in: the server's own clock only
expires keys, long after they are needed.

Scripts that several tasks call at one moment go to Redis in one round trip, and the trips follow one another. So scripts run in the order
of the calls: if a task settles a budget hold and another task reserves after it, Redis settles first. A script that this process has not
used yet is loaded in the same write, before it runs. Scripts that the server has lost are loaded and run again, in their order. A trip has
the scripts that were called during the trip before it, at most `MAX_SCRIPTS`: up to that load no call waits for more than two trips."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum, auto
from functools import lru_cache, partial
from importlib import resources
from typing import Any
from uuid import UUID, uuid4

from hiredis import pack_command
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError

from hermes.ports.credits import BudgetHold
from hermes.ports.errors import StoreUnavailable
from hermes.ports.key_limits import KeyClaim
from hermes.ports.models import ModelCalls
from hermes.ports.runtime import Transactions
from hermes.stores.redis import REDIS_ERRORS
from hermes.stores.redis.reply_line import ReplyLine

GENERATION_KEY = "hermes:budgets:generation"
KILL_SWITCH_MICRO_USD = 999_999 * 1_000_000
"""The value to which the kill switch sets the global counter."""

KEEP_DAYS = 3
"""How long counters outlive their window, and settled holds their day: a charge that comes later is only in SQL."""
RECENT_S = 300.0
"""During a rebuild, the cost of calls that are younger than this may not have reached the counter yet."""
REBUILD_LOCK_MS = 5_000
MAX_NAMES = 1_000
"""How many names of counters are kept, so that they are not written anew for each call. One takes 700 bytes, and 1 µs to write."""
MAX_SCRIPTS = 128
"""Scripts in one trip: more would block the server for its other clients."""


Rebuild = Callable[[str, str], Awaitable[None]]
"""Makes counters anew, given the key of the lock and the token that holds it."""


class BudgetCounters:
    """Runs the scripts, and rebuilds counters that are gone."""

    def __init__(self, batch: ScriptBatch, redis: Redis, wait_s: float) -> None:
        """`batch` may be shared with other users of the same Redis: then their scripts go in the same round trips."""
        self._scripts: dict[str, AsyncScript] = {name: redis.register_script(text) for name, text in SCRIPTS.items()}
        self._batch, self._wait_s = batch, wait_s

    async def run(self, name: str, keys: Sequence[str], args: Sequence[Any], *, joined: Joined | None = None) -> Any:
        """Run a script. Raises one of REDIS_ERRORS."""
        return await self._batch.run(self._scripts[name], keys, args, joined=joined)

    async def run_or_rebuild(
        self,
        name: str,
        keys: Sequence[str],
        args: Sequence[Any],
        *,
        of: str,
        rebuild: Rebuild,
        more: Mapping[bytes, tuple[str, Rebuild]] | None = None,
        joined: Joined | None = None,
    ) -> list[Any]:
        """Run a script that returns `rebuild` if its counters (the hash `of`) are gone; then one process rebuilds them and the others wait.
        `more` has the same for scripts that use further counters, by what the script returns. `joined`: other calls may share its reply.

        Raises StoreUnavailable if it waits too long for others."""
        give_up, rebuilds = time.monotonic() + self._wait_s, {b"rebuild": (of, rebuild), **(more or {})}
        while (reply := await self.run(name, keys, args, joined=joined))[0] in rebuilds:
            if time.monotonic() > give_up:
                raise StoreUnavailable("the counters are being rebuilt; try again")
            token, (of, rebuild) = uuid4().hex, rebuilds[reply[0]]
            lock = f"{of}:rebuild"
            try:
                turn = await self.run("lock", [GENERATION_KEY, of, lock], [token, REBUILD_LOCK_MS])
                if turn == b"yours":
                    began = time.monotonic()
                    await rebuild(lock, token)
                    give_up += time.monotonic() - began  # it worked, and did not wait
            except BaseException:
                with suppress(*REDIS_ERRORS):
                    # A waiting process may succeed. If only the lock's reply was lost, this process would wait for its own lock.
                    await self.run("unlock", [GENERATION_KEY, lock], [token])
                raise
            if turn == b"busy":
                await asyncio.sleep(random.uniform(0.002, 0.01))  # noqa: S311  # no secret
        return list(reply)


async def is_first_alert(transactions: Transactions, calls: ModelCalls, subject: str, period: str, percent: int) -> bool:
    """Whether the operator was not alerted to this threshold before. SQL decides, because the flag in Redis may have been lost.

    True if SQL cannot be reached: better two alerts than none."""
    try:
        async with transactions.begin() as tx:
            return await calls.note_alert(tx, subject, period, percent)
    except StoreUnavailable:
        return True


def split_scripts(text: str) -> dict[str, str]:
    """Split a file of scripts at its `-- name:` lines; the text before the first one is put in front of each script."""
    shared, *parts = re.split(r"^-- name: ([a-z_]+)$", text, flags=re.MULTILINE)
    return {name: shared + body for name, body in zip(parts[::2], parts[1::2], strict=True)}


SCRIPTS = split_scripts((resources.files(__package__) / "budgets.lua").read_text(encoding="utf-8"))


@lru_cache(MAX_NAMES)
def user_keys(user_id: UUID, day: date) -> tuple[str, ...]:
    month = f"hermes:budgets:{user_id}:{day:%Y-%m}"
    return GENERATION_KEY, month, f"{month}:leases"


@lru_cache(MAX_NAMES)
def settled_key(user_id: UUID, day: date) -> str:
    return f"hermes:budgets:{user_id}:{day.isoformat()}:settled"


@lru_cache(MAX_NAMES)
def key_keys(key_id: UUID, day: date) -> tuple[str, ...]:
    """The counters of an API key, without the generation: month, leases, calls, settled, minute."""
    key = f"hermes:budgets:keys:{key_id}"
    month = f"{key}:{day:%Y-%m}"
    return month, f"{month}:leases", f"{key}:calls", f"{key}:settled", f"{key}:minute"


@lru_cache(MAX_NAMES)
def global_keys(day: date) -> tuple[str, ...]:
    state = f"hermes:budgets:global:{day.isoformat()}"
    return GENERATION_KEY, f"agnt:global_spend:{day.isoformat()}", state, f"{state}:counted"


def agent_keys(day: date) -> list[str]:
    agents = f"hermes:budgets:agents:{day.isoformat()}"
    return [GENERATION_KEY, agents, f"{agents}:counted"]


def lease_member(hold: BudgetHold) -> str:
    return f"{hold.id.hex}:{hold.day.day}:{hold.tokens}"


def key_lease_member(hold: BudgetHold, key: KeyClaim) -> str:
    return f"{hold.id.hex}:{hold.day.day}:{hold.tokens}:{key.micro_usd}:{to_ms(hold.reserved_at) // 1000}"


def next_day(day: date) -> date:
    return day + timedelta(days=1)


def next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def midnight(day: date) -> datetime:
    """The time when a day begins, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def to_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def counter_ttl_s(end: date, now: datetime) -> int:
    """How long to keep the keys of a window that ends at the beginning of `end`. In seconds from now, because the server's clock may be
    another one."""
    return max(1, round((midnight(end) - now).total_seconds())) + KEEP_DAYS * 86_400


def check_amount(amount: object, *, least: int = 0) -> int:
    if not isinstance(amount, int) or amount < least:
        raise ValueError(f"expected a whole number from {least} up, got {amount!r}")
    return amount


@contextmanager
def translate_redis_errors() -> Iterator[None]:
    """Raise StoreUnavailable in place of Redis errors."""
    try:
        yield
    except REDIS_ERRORS as error:
        raise StoreUnavailable(f"Redis cannot be used: {type(error).__name__}") from error


# --- scripts that go together


class Joined(Enum):
    """What calls of one script that wait for one trip have in common, so that they go as one call and get one reply."""

    ALL = auto()
    """Everything: they only read. The reply may be older than what this process wrote in the same trip."""
    KEYS = auto()
    """The keys: the script takes the arguments of any number of calls."""
    SCRIPT = auto()
    """The script alone: it takes the keys of any number of calls, and no arguments."""


@dataclass(slots=True)
class ScriptCall:
    """A call that waits for its trip, the script that it runs, and the futures that get its reply. Without a script, a command."""

    script: AsyncScript | None
    keys: list[str]
    args: list[Any]
    replies: list[asyncio.Future[Any]]

    @property
    def command(self) -> tuple[Any, ...]:
        if self.script is None:
            return tuple(self.args)
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args)


class ScriptBatch:
    """Sends scripts, and other commands, to one Redis in batches."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: list[ScriptCall] = []
        self._joined: dict[tuple[Any, ...], ScriptCall] = {}
        """Those among them that further calls may join."""
        self._trip: asyncio.Task[None] | None = None
        self._is_due = False
        self._loaded: set[str] = set()
        self._line: ReplyLine | None = None

    async def run(self, script: AsyncScript, keys: Sequence[str], args: Sequence[Any], *, joined: Joined | None = None) -> Any:
        """Run a script and return its reply. Raises the error of the script or of the connection."""
        return await self._add(script, keys, args, joined)

    async def read(self, *command: Any) -> Any:
        """Run a command that only reads, and return its reply, as `run` does."""
        return await self._add(None, (), command, Joined.ALL)

    def post(self, script: AsyncScript, keys: Sequence[str], *, joined: Joined | None = None) -> asyncio.Future[Any]:
        """Have a script run; a caller may wait for its reply, and need not."""
        reply = self._add(script, keys, (), joined)
        reply.add_done_callback(lambda reply: reply.cancelled() or reply.exception())
        return reply

    async def execute(self, *command: Any) -> Any:
        """Run a command and return its reply, as `run` does."""
        return await self._add(None, (), command, None)

    async def execute_all(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Run commands in one trip and return their replies; raises the first error among them. Not a transaction: commands of other
        callers may come between."""
        return await asyncio.gather(*(self._add(None, (), command, None) for command in commands))

    async def aclose(self) -> None:
        """End the trip under way. Callers that still wait for it, or for the next one, get a ConnectionError."""
        waiting, self._waiting = self._waiting, []
        self._joined.clear()
        fail_calls(waiting, ConnectionError("the connection to Redis is being closed"))
        if self._trip is not None:
            self._trip.cancel()
            await asyncio.gather(self._trip, return_exceptions=True)
        line, self._line = self._line, None
        if line is not None:
            await line.aclose()

    def _add(self, script: AsyncScript | None, keys: Sequence[str], args: Sequence[Any], joined: Joined | None) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        sha = None if script is None else script.sha
        alike: tuple[Any, ...] | None = None
        if joined is not None:
            alike = {Joined.ALL: (sha, *keys, *args), Joined.KEYS: (sha, *keys), Joined.SCRIPT: (sha,)}[joined]
        call = self._joined.get(alike) if alike is not None else None
        if call is not None:
            call.replies.append(reply)
            if joined is Joined.KEYS:
                call.args += args
            elif joined is Joined.SCRIPT:
                call.keys += keys
            return reply
        call = ScriptCall(script, list(keys), list(args), [reply])
        self._waiting.append(call)
        if alike is not None:
            self._joined[alike] = call
        if not self._is_due and self._trip is None:
            self._is_due = True
            loop.call_soon(self._start_trip)  # after the other tasks that are ready now have made their calls
        return reply

    def _start_trip(self) -> None:
        self._is_due = False
        taken, self._waiting = self._waiting[:MAX_SCRIPTS], self._waiting[MAX_SCRIPTS:]
        self._joined.clear()  # what comes from now on is for a later trip
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

    async def _run_trip(self, taken: Sequence[ScriptCall], *, is_repeated: bool = False) -> None:
        try:
            replies = await self._round_trip(taken)
        except Exception as error:  # noqa: BLE001  # the callers get it
            # Calls that wait for the next trip would only wait for the same connection: all of them get the error at once.
            waiting, self._waiting = self._waiting, []
            self._loaded.clear()  # the server may have been restarted
            fail_calls([*taken, *waiting], error)
            return
        lost: list[ScriptCall] = []
        for call, reply in zip(taken, replies, strict=True):
            if isinstance(reply, NoScriptError) and not is_repeated:
                lost.append(call)
            else:
                settle_call(call, reply)
        if lost:
            self._loaded.clear()
            await self._run_trip(lost, is_repeated=True)

    async def _round_trip(self, taken: Sequence[ScriptCall]) -> list[Any]:
        """Send all calls in one write, after the texts of scripts that the server may not have; return a reply for each call."""
        line = self._line
        if line is None or line.is_lost:
            self._line = None
            if line is not None:
                await line.aclose()
            line = self._line = await ReplyLine.open(self._redis)
        try:
            scripts = [call.script for call in taken if call.script is not None]
            texts = {script.sha: script.script for script in scripts if script.sha not in self._loaded}
            commands: list[tuple[Any, ...]] = [("SCRIPT", "LOAD", text) for text in texts.values()]
            commands += [call.command for call in taken]
            replies = await line.ask(b"".join(map(pack_command, commands)), len(commands))
            self._loaded |= texts.keys()
            return replies[len(texts) :]
        except BaseException:
            self._line = None
            await line.aclose()
            raise


def fail_calls(calls: Sequence[ScriptCall], error: Exception) -> None:
    for call in calls:
        settle_call(call, error)


def settle_call(call: ScriptCall, reply: Any) -> None:
    for future in call.replies:
        if future.done():  # its caller was cancelled
            continue
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)
