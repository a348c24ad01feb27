"""Transactions over several ports: all writes happen, or none."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Transaction(Protocol):
    """Writes that happen together. Opaque: the caller passes it to the ports whose writes belong together, and nowhere else."""


class Transactions(Protocol):
    """Opens transactions."""

    def begin(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction that commits when the block ends and rolls back when it raises.

        Fails closed: raises StoreUnavailable if the store cannot be reached. If the connection is lost during the commit itself, it is
        unknown whether the commit happened; so every write behind these ports can be repeated without doing anything twice."""
        ...

    def once(self) -> AbstractAsyncContextManager[Transaction]:
        """For one port call with one statement, or for reads: each statement is committed when it returns. Cheaper than `begin`, but not
        for two writes that belong together."""
        ...
