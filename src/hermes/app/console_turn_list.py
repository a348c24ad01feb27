"""The list of turns, for a whole Hermes and for commands."""

from __future__ import annotations

from hermes.console.turn_list import TurnLists
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.turn_list import PostgresTurnList


def turn_lists_from(transactions: Transactions) -> TurnLists:
    """Return what reads pages of the list."""
    return TurnLists(transactions, PostgresTurnList())
