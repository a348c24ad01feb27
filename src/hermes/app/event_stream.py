"""The stored events, for a command that follows them. Apart from the tables: no other command needs what reading events needs."""

from __future__ import annotations

from hermes.ports.events import OperationsEvents
from hermes.stores.postgres.events import PostgresOperationsEvents


def stored_events() -> OperationsEvents:
    """Return the reader of events."""
    return PostgresOperationsEvents()
