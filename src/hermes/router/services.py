"""What the ten steps need, by name: ports, so that each of them can be replaced, and a few settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID, uuid4

from hermes.ports.channels import Channels
from hermes.ports.credits import Credits
from hermes.ports.inbox import AnswerSignals, Claim, Inbox, InboxMessage
from hermes.ports.memories import Souls
from hermes.ports.models import Models, TurnMeter
from hermes.ports.outbox import Outbox
from hermes.ports.runtime import Alerts, Clock, Transaction, Transactions
from hermes.ports.sessions import Graphs, Histories, Interactions, Journal, Sessions
from hermes.ports.tools import Images, Offers, Tools
from hermes.ports.traces import NO_TRACER, Tracer
from hermes.ports.turn_end import TurnEnds
from hermes.ports.users import Agent, User, Users
from hermes.router.compaction_policy import CompactionPolicy
from hermes.router.sticky_tools import StickyTools
from hermes.turn import Envelope


class Languages(Protocol):
    """Chooses the language in which Hermes answers a user."""

    def of(self, user: User, text: str) -> str:
        """The language to answer this text in; the user's own if the text does not show one."""
        ...

    def new_language(self, user: User, text: str) -> str | None:
        """The language to store for the user from now on; None to keep the stored one. Changes nothing."""
        ...

    def note(self, user: User, text: str) -> None:
        """Remember that the user wrote this. Call it once for each message."""
        ...


@dataclass(frozen=True, slots=True)
class Links:
    """The links that Hermes gives to users; it does not mention a link that is None."""

    signup: str | None = None
    activation: str | None = None
    upgrade: str | None = None
    referral_reward: int | None = None
    """Credits for each friend who joins, as the reply about credits says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that the steps use."""

    transactions: Transactions
    people: Users
    credits: Credits
    inbox: Inbox
    sessions: Sessions
    histories: Histories
    graphs: Graphs
    journal: Journal
    interactions: Interactions
    outbox: Outbox
    channels: Channels
    answer_signals: AnswerSignals
    deliver: Callable[[UUID], Awaitable[None]]
    """Send the outbox messages of a conversation that are due."""
    souls: Souls
    images: Images
    tools: Tools
    offers: Offers
    models: Models
    alerts: Alerts
    clock: Clock
    agent_on: Callable[[str], Agent]
    """The agent that answers on an account."""
    languages: Languages
    meter: TurnMeter
    learns_from: Callable[[Claim, str], bool]
    """Whether the message of a turn in this tier may hold something to remember."""
    learn: Callable[[Transaction, Claim], Awaitable[None]]
    """Defer the job that learns from a turn's message, in the turn's last transaction; the job runs after the turn."""
    note_private: Callable[[Transaction, InboxMessage], Awaitable[None]]
    """Defer the delivery of a proactive message in the private chat of this message, and its entry in that chat's history."""
    turn_ends: TurnEnds | None = None
    """Ends an ordinary turn in one statement; None: the stores write one after the other."""
    tracer: Tracer = NO_TRACER
    process_id: UUID = field(default_factory=uuid4)
    """The process that drives the turns."""
    step_s: float = 10.0
    """Time limit of a step that asks no model and no tool."""
    model_s: float = 90.0
    """Time limit of a model call with all that the gateway waits for. Longer than the gateway's own deadlines, to end what those miss."""
    tools_s: float = 150.0
    """Time limit of the tools and of the second model call together."""
    typing: Callable[[Envelope], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
    """Show the sender that an answer is on its way, as long as the block lasts. Never raises, and delays nothing."""
    compaction: CompactionPolicy | None = None
    """How to compact a history that is too long for its model; None: the model is shown the history as it is."""
    sticky_tools: StickyTools = field(default_factory=StickyTools)
    links: Links = Links()
    per_minute: int = 30
    """Messages of one user in one conversation that Hermes answers within a minute."""
    charges_cached: bool = False
    """Whether an answer from the cache costs a credit."""
