"""How Hermes is now, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.ports.live import BackendFigures, LiveFigures
from hermes.ports.runtime import Transaction
from hermes.ports.turn_list import FAILED_OUTCOMES
from hermes.stores.postgres.database import fetch_row, fetch_rows
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("live")
MAX_TURNS = 100_000
"""Turns of the window that are counted: more than one installation ends in a quarter of an hour."""
MAX_TIMED, MAX_CALLS = 1_000, 1_000
"""The newest turns whose times count, and the newest calls that say how the backends are."""


class PostgresLive:
    """The port LiveReader."""

    async def figures(self, tx: Transaction, *, within_s: float, accounts: frozenset[str] | None) -> LiveFigures:
        values = {**window(within_s, accounts), "max_turns": MAX_TURNS, "max_timed": MAX_TIMED, "failed": list(FAILED_OUTCOMES)}
        found = await fetch_row(tx, LiveFigures, SQL["figures"], values)
        if found is None:
            raise RuntimeError("an aggregate gave no row")
        return found

    async def backends(self, tx: Transaction, *, within_s: float, accounts: frozenset[str] | None) -> Sequence[BackendFigures]:
        return await fetch_rows(tx, BackendFigures, SQL["backends"], {**window(within_s, accounts), "max_calls": MAX_CALLS})


def window(within_s: float, accounts: frozenset[str] | None) -> dict[str, object]:
    return {"within_s": within_s, "accounts": None if accounts is None else sorted(accounts)}
