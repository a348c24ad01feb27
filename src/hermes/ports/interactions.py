"""One row per answered turn: its user, its session, and how the answer was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.inbox import Claim
from hermes.ports.transactions import Transaction


class Interactions(Protocol):
    """The log of answered turns. Fails closed, as part of the turn's last transaction."""

    async def add(self, tx: Transaction, claim: Claim, session_id: UUID, meta: Mapping[str, Any]) -> None:
        """Log a turn with its provenance: times, backend, tools, tokens, cost. Repeating it adds nothing. No message text."""
        ...
