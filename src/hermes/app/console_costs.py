"""Costs of the console, for a whole Hermes and for commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from hermes.console.costs import ConsoleCosts
from hermes.ports.credits import SpendToday
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.costs import PostgresCosts


def costs_from(transactions: Transactions, spent_today: Callable[[], Awaitable[SpendToday | None]] | None = None) -> ConsoleCosts:
    """Return the reader of costs. Budgets need the counters of a whole Hermes."""
    return ConsoleCosts(transactions, PostgresCosts(), now=lambda: datetime.now(UTC), spent_today=spent_today)
