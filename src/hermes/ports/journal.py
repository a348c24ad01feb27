"""The journal: what a turn did, step by step. It records paid and outward effects, so that a turn that runs again does not repeat them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.inbox import Claim
from hermes.ports.transactions import Transaction


class EffectProgress(StrEnum):
    """How far an effect got, as far as the journal knows."""

    NEW = "new"
    """Never tried before; it is noted as started now."""
    STARTED = "started"
    """An earlier attempt started it and did not note how it ended: it may have happened."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect of a turn as the journal knows it."""

    progress: EffectProgress
    request: bytes
    """The request prepared before the first try; a later try uses it unchanged."""
    result: bytes | None


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """One entry of the journal, for reading."""

    step: str
    index: int
    type: str
    attempt: int
    started_at: datetime
    done_at: datetime | None
    facts: Mapping[str, Any]
    """Numbers and names, never message text."""


class Journal(Protocol):
    """The effects and events of turns, sealed. Fails closed: an effect that cannot be noted is not started."""

    async def begin(self, tx: Transaction, claim: Claim, step: str, index: int, request: bytes) -> Effect:
        """Note that an effect is about to start, or return what is known of it. Raises ClaimLost if the claim no longer stands."""
        ...

    async def finish(self, tx: Transaction, claim: Claim, step: str, index: int, result: bytes, *, facts: Mapping[str, Any]) -> bytes:
        """Note how an effect ended, and return the result that stands: the first one noted, by whichever attempt."""
        ...

    async def has_result(self, tx: Transaction, claim: Claim, step: str, index: int) -> bool:
        """Whether an effect has ended, in any attempt."""
        ...

    async def note(self, tx: Transaction, claim: Claim, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Add events that are no effects, each with a type and its facts: user_resolved, credit_reserved, tools_gated, …"""
        ...

    async def add(self, tx: Transaction, turn_id: UUID, type_: str, facts: Mapping[str, Any]) -> None:
        """Add an event to a turn that has ended: memory_saved. No change for an unknown turn."""
        ...

    async def effect(self, tx: Transaction, turn_id: UUID, step: str, index: int) -> Effect | None:
        """Return what is known of an effect, for callers outside of the turn; None for an effect that never began. Raises UserErased."""
        ...

    async def read(self, tx: Transaction, turn_id: UUID) -> Sequence[JournalEvent]:
        """Return the events of a turn in the order in which they were noted."""
        ...
