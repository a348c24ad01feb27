"""Agents, the adapter that each agent answers through, and every change of it.

An adapter is a model of the catalogue by its logical name (`claude-sonnet`, `claude_local`, `scripted`). The agent's pointer to its adapter
is a row, so that every process follows it. It moves by compare-and-set on an epoch, so that of two moves at the same time one is refused.
Every move adds an event in the same transaction."""

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
"""The agent that answers where no other agent was chosen. It always exists."""


class Tone(StrEnum):
    """How an agent speaks."""

    CHILL = "chill"
    FRIENDLY = "friendly"
    PROFESSIONAL = "professional"
    HYPE = "hype"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A named answerer of messages, with its tone, its model and its accounts."""

    name: str
    tone: Tone = Tone.FRIENDLY
    role: str = ""
    tier: str | None = None
    """The tier it answers with; None: the tier of the user who asks."""
    adapter: str | None = None
    """The model it answers through; None: the tier's own chain."""
    cwd: str | None = None
    """The folder of its adapter, for adapters that work in a folder."""
    epoch: int = 0
    """How often its adapter or folder was changed."""
    accounts: tuple[str, ...] = ()
    """The accounts it answers on, in alphabetical order."""


class FleetEventKind(StrEnum):
    """How a swap of adapters ended."""

    ADAPTER_SWAPPED = "adapter_swapped"
    ADAPTER_ROLLED_BACK = "adapter_rolled_back"
    ADAPTER_REFUSED = "adapter_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapReason:
    """Why a pointer moves, or stays. Two with the same id are the same change."""

    kind: FleetEventKind
    by: str
    reason: str = ""
    checks: Sequence[BackendFinding] = ()
    """What the health check of the new adapter found."""
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
    """The adapter after; for a refused swap, the adapter that was asked for."""
    reason: str
    by: str
    checks: Sequence[BackendFinding]
    epoch: int
    """The agent's epoch afterwards."""
    at: datetime


class AgentChanged(PortError):
    """This agent was pointed at another adapter meanwhile; nothing was changed."""


class Agents(Protocol):
    """Agents and their adapters. Fails closed; a running process answers by the pointers that it read last."""

    async def add(self, tx: Transaction, agent: Agent) -> tuple[Agent, bool]:
        """Create an agent, and let it answer on its accounts in place of the agents that answered there.

        Returns the agent of that name and whether it is new; an agent that exists stays as it is, accounts included."""
        ...

    async def get(self, tx: Transaction, name: str) -> Agent:
        """Return an agent; raise NotFound."""
        ...

    async def list(self, tx: Transaction) -> Sequence[Agent]:
        """Return all agents, by name."""
        ...

    async def point(
        self, tx: Transaction, name: str, *, adapter: str | None, cwd: str | None, expected_epoch: int, because: SwapReason
    ) -> Agent:
        """Move an agent's pointer and add the event; return the agent after the move.

        Raises NotFound, and AgentChanged if the epoch is not `expected_epoch`. Repeating it changes nothing and returns the same."""
        ...

    async def note(self, tx: Transaction, name: str, *, adapter: str | None, because: SwapReason) -> None:
        """Add an event without moving the pointer: `adapter` was asked for and is not in place. It was refused, or rolled back after
        another swap had moved the pointer. Raises NotFound. Repeating it changes nothing."""
        ...

    async def events(self, tx: Transaction, name: str | None = None, *, limit: int = 50) -> Sequence[FleetEvent]:
        """Return the events of one agent, or of all agents, the newest first."""
        ...
