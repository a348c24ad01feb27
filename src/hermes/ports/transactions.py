"""A unit of work over several ports: all of it happens, or nothing."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Transaction(Protocol):
    """What happens together. Opaque: it is handed to the ports whose writes belong together, and to nobody else."""


class Transactions(Protocol):
    """Where transactions come from."""

    def begin(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction that commits when the block ends and rolls back when it raises.

        Fails closed: StoreUnavailable when the store cannot be reached. If the connection is lost during the commit itself, nobody knows
        whether it happened; so every write behind these ports can be repeated without doing anything twice."""
        ...

    def once(self) -> AbstractAsyncContextManager[Transaction]:
        """For one call of a port that is whole by itself, or for reads: each statement is committed when it returns. Cheaper than `begin`,
        and no frame for a second write."""
        ...
