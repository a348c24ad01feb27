"""Who answers: agents, the adapter that each one speaks through, and every change of it.

An adapter is a model of the catalogue by its logical name (`claude-sonnet`, `claude_local`, `scripted`). The pointer to it is a row, so
that every process follows; it moves by compare-and-set on an epoch, so that two who move it at once do not cross; and it never moves
without an event in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID, uuid4

from hermes.ports.backends import BackendFinding
from hermes.ports.errors import PortError
from hermes.ports.transactions import Transaction

DEFAULT_AGENT = "hermes"
"""The agent that answers where nobody else was chosen. Always there."""


class Tone(StrEnum):
    """How an agent speaks."""

    CHILL = "chill"
    FRIENDLY = "friendly"
    PROFESSIONAL = "professional"
    HYPE = "hype"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Somebody who answers."""

    name: str
    tone: Tone = Tone.FRIENDLY
    role: str = ""
    tier: str | None = None
    """The tier it answers with; None: that of the user who asks."""
    adapter: str | None = None
    """The model it speaks through; None: the tier's own chain."""
    cwd: str | None = None
    """Where its adapter works, for adapters that work in a folder."""
    epoch: int = 0
    """How often its adapter or folder was changed."""
    accounts: tuple[str, ...] = ()
    """Where it answers, in alphabetical order."""


class FleetEventKind(StrEnum):
    """What became of a swap."""

    ADAPTER_SWAPPED = "adapter_swapped"
    ADAPTER_ROLLED_BACK = "adapter_rolled_back"
    ADAPTER_REFUSED = "adapter_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapReason:
    """Why a pointer moves, or does not. Repeated with the same id, it is the same change."""

    kind: FleetEventKind
    by: str
    reason: str = ""
    checks: Sequence[BackendFinding] = ()
    """What the health check of the new adapter said."""
    id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """One line of the fleet's history."""

    id: UUID
    agent: str
    kind: FleetEventKind
    old: str | None
    """The adapter before; None: the tier's own chain."""
    new: str | None
    """The adapter after, or for a refused one the adapter that was wanted."""
    reason: str
    by: str
    checks: Sequence[BackendFinding]
    epoch: int
    """The agent's epoch afterwards."""
    at: datetime


class AgentChanged(PortError):
    """Somebody else pointed this agent elsewhere meanwhile; nothing was changed."""


class Agents(Protocol):
    """Agents and their adapters. Fails closed; whoever answers goes by the pointers that were read last."""

    async def add(self, tx: Transaction, agent: Agent) -> tuple[Agent, bool]:
        """Make an agent, and let it answer on its accounts, where another one may have answered until now.

        Returns the agent of that name and whether it is new; one that was there stays as it is, accounts included."""
        ...

    async def get(self, tx: Transaction, name: str) -> Agent:
        """Return an agent; raise NotThere."""
        ...

    async def list(self, tx: Transaction) -> Sequence[Agent]:
        """Return all agents, by name."""
        ...

    async def point(
        self, tx: Transaction, name: str, *, adapter: str | None, cwd: str | None, expected_epoch: int, because: SwapReason
    ) -> Agent:
        """Move an agent's pointer and add the event; return the agent as that leaves it.

        Raises PointerMoved when its epoch is another one than expected; NotThere. Repeating it changes nothing and returns the same."""
        ...

    async def note(self, tx: Transaction, name: str, *, adapter: str | None, because: SwapReason) -> None:
        """Add an event without moving the pointer: `adapter` was wanted and is not in place. Repeating it changes nothing; NotThere."""
        ...

    async def events(self, tx: Transaction, name: str | None = None, *, limit: int = 50) -> Sequence[FleetEvent]:
        """Return what happened to an agent, or to all of them, the newest first."""
        ...
