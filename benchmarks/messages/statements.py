"""Which statements PostgreSQL runs meanwhile, by its own log; and how many transactions write."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

LOGGED = re.compile(r"LOG:  (?:statement|execute [^:]+): (.*)")
OWN = re.compile("txid_snapshot|log_statement|pg_reload_conf")
TRANSACTION_WORDS = {"BEGIN", "COMMIT", "ROLLBACK", "DISCARD"}


@dataclass(frozen=True, slots=True)
class Statements:
    """What was run in a time."""

    seconds: float
    writes: int
    """Transactions that wrote."""
    texts: Counter[str]

    @property
    def count(self) -> int:
        """Without the words that begin and end transactions."""
        return sum(count for text, count in self.texts.items() if text.split(maxsplit=1)[0].upper() not in TRANSACTION_WORDS)


async def logged(database_url: str, log: Path, act: Callable[[], Awaitable[object]]) -> Statements:
    """Run something, with the server's log of statements on."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await set_log(connection, "all")
        start, before, began = size_of(log), await next_transaction(connection), time.monotonic()
        await act()
        took_s, after = time.monotonic() - began, await next_transaction(connection)
        await set_log(connection, "none")
    return Statements(took_s, after - before, read_statements(log, start))


def size_of(log: Path) -> int:
    return log.stat().st_size


def read_statements(log: Path, start: int) -> Counter[str]:
    """The statements in a log after `start`, without those of this module."""
    found = (match[1].strip() for match in LOGGED.finditer(log.read_bytes()[start:].decode(errors="replace")))
    return Counter(text for text in found if not OWN.search(text))


async def set_log(connection: psycopg.AsyncConnection, value: str) -> None:
    await connection.execute(f"alter system set log_statement = '{value}'")
    await connection.execute("select pg_reload_conf()")
    await asyncio.sleep(0.5)


async def next_transaction(connection: psycopg.AsyncConnection) -> int:
    [found] = await (await connection.execute("select txid_snapshot_xmax(txid_current_snapshot())")).fetchone() or [0]
    return int(found)
