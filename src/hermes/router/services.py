"""What the ten steps need, by name. Every one of them is a port, so every one of them can be another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from hermes.ports.agents import Agent
from hermes.ports.alerts import Alerts
from hermes.ports.clock import Clock
from hermes.ports.credits import Credits
from hermes.ports.graphs import Graphs
from hermes.ports.histories import Histories
from hermes.ports.images import Images
from hermes.ports.inbox import Claim, Inbox
from hermes.ports.interactions import Interactions
from hermes.ports.journal import Journal
from hermes.ports.meter import TurnMeter
from hermes.ports.models import Models
from hermes.ports.sessions import Sessions
from hermes.ports.souls import Souls
from hermes.ports.tools import Tools
from hermes.ports.transactions import Transaction, Transactions
from hermes.ports.users import User, Users
from hermes.router.compaction_policy import CompactionPolicy
from hermes.router.outbox_delivery import OutboxDelivery
from hermes.router.prompt_cache import CachedToolSets
from hermes.turn import Envelope


class Languages(Protocol):
    """Which language a user is spoken to in."""

    def of(self, user: User, text: str) -> str:
        """The language to answer this text in; without a sign in it the user's own."""
        ...

    def settled(self, user: User, text: str) -> str | None:
        """The language that the user is to be known by from now on; None: the one they are known by. Changes nothing."""
        ...

    def note(self, user: User, text: str) -> None:
        """Remember that the user wrote this. Once for each message."""
        ...


@dataclass(frozen=True, slots=True)
class Links:
    """Where Hermes sends people; None: it does not say."""

    signup: str | None = None
    activation: str | None = None
    upgrade: str | None = None
    referral_reward: int | None = None
    """Credits for each friend who joins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything around the steps."""

    transactions: Transactions
    people: Users
    credits: Credits
    inbox: Inbox
    sessions: Sessions
    histories: Histories
    graphs: Graphs
    journal: Journal
    interactions: Interactions
    outbox_delivery: OutboxDelivery
    souls: Souls
    images: Images
    tools: Tools
    models: Models
    alerts: Alerts
    clock: Clock
    agent_on: Callable[[str], Agent]
    """Who answers on an account."""
    languages: Languages
    meter: TurnMeter
    learn: Callable[[Transaction, Claim], Awaitable[None]]
    """Have a turn's message learnt from, after its end: a job, deferred in the turn's last transaction."""
    step_s: float = 10.0
    """How long a step may take that asks no model and no tool."""
    model_s: float = 90.0
    """How long a model may take with all that the gateway waits for: more than its own deadlines, for what nobody thought of."""
    tools_s: float = 150.0
    """How long the tools may take, with the model's last word."""
    typing: Callable[[Envelope], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
    """Show whoever sent this that an answer is on its way, as long as the block lasts. Never raises, and delays nothing."""
    compaction: CompactionPolicy | None = None
    """What is done with a history that is too long for its model; None: it is shown as it is."""
    cached_tool_sets: CachedToolSets = field(default_factory=CachedToolSets)
    links: Links = Links()
    per_minute: int = 30
    """Messages of one user in a conversation that are answered within a minute."""
    charges_cached: bool = False
    """Whether an answer out of the cache costs a credit."""
