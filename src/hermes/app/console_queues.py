"""Queues and workers of the console, from the database alone: what commands that only read need."""

from __future__ import annotations

from datetime import UTC, datetime

from hermes.app.console_access import access_from
from hermes.config import Settings
from hermes.console.queues import QueueBoard
from hermes.console.workers import WorkerBoard
from hermes.ports.runtime import Transactions
from hermes.router.chores import CHORE_SCHEDULES
from hermes.stores.postgres.chores import PostgresChores
from hermes.stores.postgres.processes import PostgresProcesses
from hermes.stores.postgres.queues import PostgresQueues


def queue_board_from(transactions: Transactions) -> QueueBoard:
    """Return what reads the queues."""
    return QueueBoard(transactions, PostgresQueues())


def worker_board_from(settings: Settings, transactions: Transactions) -> WorkerBoard:
    """Return what reads the processes and chores, and acts on them."""
    queues = PostgresQueues()
    return WorkerBoard(
        transactions,
        access_from(settings, transactions),
        PostgresProcesses(),
        PostgresChores(),
        queues,
        queues,
        CHORE_SCHEDULES,
        current_time,
        settings.work.stalled_after_s,
    )


def current_time() -> datetime:
    return datetime.now(UTC)
