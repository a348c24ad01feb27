"""Turns for operators: what stands behind the Turn page, `hermes turns show` and `/v1/ops/turns`. Without content, and so without models:
`console_turn_content.py` has that."""

from __future__ import annotations

from hermes.config import Settings
from hermes.console.turn_view import TurnReader
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.journal import PostgresTimelines
from hermes.stores.postgres.turn_record import PostgresTurnRecords


def turn_reader_from(settings: Settings, transactions: Transactions) -> TurnReader:
    """Return what reads turns."""
    return TurnReader(transactions, PostgresTurnRecords(), PostgresTimelines(), live_s=settings.work.stalled_after_s)
