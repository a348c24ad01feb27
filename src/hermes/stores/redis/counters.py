"""The counters of budgets and spend in Redis: the scripts that change them, and how lost counters are rebuilt.

The scripts are in `budgets.lua`, with the keys they use. They use several keys at once, so they need one server, not a cluster. The server
should evict nothing, although an evicted counter is only rebuilt. Time comes from the clock that is passed in: the server's own clock only
expires keys, long after they are needed."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from typing import Any
from uuid import UUID, uuid4

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from hermes.ports.credits import BudgetHold
from hermes.ports.errors import StoreUnavailable
from hermes.ports.models import ModelCalls
from hermes.ports.runtime import Transactions
from hermes.stores.redis.script_batch import ScriptBatch

GENERATION_KEY = "hermes:budgets:generation"
KILL_SWITCH_MICRO_USD = 999_999 * 1_000_000
"""The value to which the kill switch sets the global counter."""

KEEP_DAYS = 3
"""How long counters outlive their window, and settled holds their day: a charge that comes later is only in SQL."""
RECENT_S = 300.0
"""During a rebuild, the cost of calls that are younger than this may not have reached the counter yet."""
REBUILD_LOCK_MS = 5_000
REDIS_ERRORS = (RedisError, OSError, TimeoutError)


class BudgetCounters:
    """Runs the scripts, and rebuilds counters that are gone."""

    def __init__(self, batch: ScriptBatch, redis: Redis, wait_s: float) -> None:
        """`batch` may be shared with other users of the same Redis: then their scripts go in the same round trips."""
        self._scripts: dict[str, AsyncScript] = {name: redis.register_script(text) for name, text in SCRIPTS.items()}
        self._batch, self._wait_s = batch, wait_s

    async def run(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script. Raises one of REDIS_ERRORS."""
        return await self._batch.run(self._scripts[name], keys, args)

    async def run_or_rebuild(
        self, name: str, keys: Sequence[str], args: Sequence[Any], *, of: str, rebuild: Callable[[str, str], Awaitable[None]]
    ) -> list[Any]:
        """Run a script that returns `rebuild` if its counters (the hash `of`) are gone; then one process rebuilds them and the others wait.

        Raises StoreUnavailable if that takes too long."""
        give_up, lock = time.monotonic() + self._wait_s, f"{of}:rebuild"
        while (reply := await self.run(name, keys, args))[0] == b"rebuild":
            if time.monotonic() > give_up:
                raise StoreUnavailable("the counters are being rebuilt; try again")
            token = uuid4().hex
            turn = await self.run("lock", [GENERATION_KEY, of, lock], [token, REBUILD_LOCK_MS])
            if turn == b"yours":
                try:
                    await rebuild(lock, token)
                except BaseException:
                    with suppress(*REDIS_ERRORS):
                        await self.run("unlock", [GENERATION_KEY, lock], [token])  # a waiting process may succeed
                    raise
            elif turn == b"busy":
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


def user_keys(user_id: UUID, day: date) -> list[str]:
    month = f"hermes:budgets:{user_id}:{day:%Y-%m}"
    return [GENERATION_KEY, month, f"{month}:leases"]


def settled_key(user_id: UUID, day: date) -> str:
    return f"hermes:budgets:{user_id}:{day.isoformat()}:settled"


def global_keys(day: date) -> list[str]:
    state = f"hermes:budgets:global:{day.isoformat()}"
    return [GENERATION_KEY, f"agnt:global_spend:{day.isoformat()}", state, f"{state}:counted"]


def lease_member(hold: BudgetHold) -> str:
    return f"{hold.id.hex}:{hold.day.day}:{hold.tokens}"


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
