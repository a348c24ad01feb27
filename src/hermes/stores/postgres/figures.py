"""The figures of PostgreSQL for the operator's metrics."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.ports.figures import StoreFigure
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import fetch_rows
from hermes.stores.postgres.job_queue import DELIVERIES, MEMORY, TURNS
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("figures")


async def read_figures(tx: Transaction, *, stalled_after_s: float) -> Sequence[StoreFigure]:
    """Read all figures with one statement. A process counts as stalled if it has not written a heartbeat for `stalled_after_s`."""
    values = {"job_queues": [TURNS, DELIVERIES, MEMORY], "stalled_after_s": stalled_after_s}
    return await fetch_rows(tx, read_figure, SQL["read"], values)


def read_figure(*, name: str, labels: list[str], value: float) -> StoreFigure:
    return StoreFigure(name, tuple(labels), value)
