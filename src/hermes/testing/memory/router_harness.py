"""The router with all its stores in memory.

harness = RouterHarness(models=…, souls=…, tools=…, images=…)
await handle_message(harness.claim("find me a sunset bar"), harness.services)
harness.outbox.answers
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID, uuid4

from hermes.ports.channels import Channel
from hermes.ports.errors import NotFound
from hermes.ports.inbox import AnswerSignals, Claim
from hermes.ports.memories import Souls
from hermes.ports.models import Models
from hermes.ports.runtime import Transaction
from hermes.ports.tools import Images, Tools
from hermes.ports.users import Agent, User, UserState
from hermes.router.services import Links, Services
from hermes.testing.memory.credits import MemoryCredits
from hermes.testing.memory.sessions import MemoryGraphs, MemoryHistories, MemorySessions
from hermes.testing.memory.turn_records import MemoryInbox, MemoryInteractions, MemoryJournal, MemoryOutbox, MemoryTransactions
from hermes.turn import Envelope, MessageEvent, Platform


def new_user() -> User:
    return User(uuid4(), UserState.ACTIVE, "free", "en", "friend-1", trains=False)


@dataclass(slots=True)
class RouterHarness:
    """Every service of the router in memory; the caller gives the models, souls, tools and images."""

    models: Models
    souls: Souls
    tools: Tools
    images: Images
    user: User = field(default_factory=new_user)
    links: Links = field(default_factory=Links)
    keep: int = 100
    credits: MemoryCredits = field(default_factory=MemoryCredits)
    graphs: MemoryGraphs = field(default_factory=MemoryGraphs)
    inbox: MemoryInbox = field(default_factory=MemoryInbox)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    interactions: MemoryInteractions = field(default_factory=MemoryInteractions)
    outbox: MemoryOutbox = field(default_factory=MemoryOutbox)
    sessions: MemorySessions = field(init=False)
    meter: MemoryTurnMeter = field(default_factory=lambda: MemoryTurnMeter())  # noqa: PLW0108  # it stands below
    learnt_from: list[UUID] = field(default_factory=list)
    conversation_id: UUID = field(default_factory=uuid4)

    def __post_init__(self) -> None:
        self.sessions = MemorySessions(self.graphs)

    def claim(self, text: str, **event: Any) -> Claim:
        """A claim on a turn with a message of the user."""
        return claim_for(self.user, self.conversation_id, text, **event)

    @property
    def services(self) -> Services:
        transactions = MemoryTransactions()
        return Services(
            transactions=transactions,
            people=cast("Any", OneUser(self)),
            credits=self.credits,
            inbox=cast("Any", self.inbox),
            sessions=cast("Any", self.sessions),
            histories=MemoryHistories(self.graphs, self.keep),
            graphs=self.graphs,
            journal=cast("Any", self.journal),
            interactions=self.interactions,
            outbox=cast("Any", self.outbox),
            channels=NoChannels(),
            answer_signals=cast("AnswerSignals", SilentNotifier()),
            deliver=deliver_nothing,
            souls=self.souls,
            images=self.images,
            tools=self.tools,
            models=self.models,
            alerts=cast("Any", SilentNotifier()),
            clock=WallClock(),
            agent_on=lambda _: Agent(name="hermes"),
            languages=FixedLanguages(),
            meter=self.meter,
            learn=self._learn,
            links=self.links,
        )

    async def _learn(self, _: Transaction, claim: Claim) -> None:
        self.learnt_from.append(claim.turn_id)


def claim_for(user: User, conversation_id: UUID, text: str, **event: Any) -> Claim:
    message = MessageEvent(platform=Platform.REST, sender_id="u", text=text, **event)
    envelope = Envelope(event=message, account="api", channel_id="u", event_key=str(uuid4()))
    return Claim(uuid4(), conversation_id, user.id, seq=1, epoch=1, attempt=1, envelope=envelope, age_s=0.0)


class NoChannels:
    """The port Channels: no account is set up, so texts are not rendered."""

    def get(self, _: Platform, __: str) -> Channel | None:
        return None


async def deliver_nothing(_: UUID) -> None:
    """On the harness's platform clients fetch their answers."""


@dataclass(frozen=True, slots=True)
class OneUser:
    """The method of the port Users that a turn needs, for the only user of the harness."""

    harness: RouterHarness

    async def get(self, _: Transaction, user_id: UUID) -> User:
        if user_id != self.harness.user.id:
            raise NotFound(f"there is no user {user_id}")
        return self.harness.user


@dataclass(slots=True)
class MemoryTurnMeter:
    """The port TurnMeter."""

    steps: list[str] = field(default_factory=list)
    turns: list[tuple[str, str]] = field(default_factory=list)

    def count_step(self, step: str, _: float) -> None:
        self.steps.append(step)

    def count_turn(self, outcome: str, intent: str) -> None:
        self.turns.append((outcome, intent))


class FixedLanguages:
    """The port Languages: a user's language never changes; a user without one is answered in English."""

    def of(self, user: User, _: str) -> str:
        return user.language or "en"

    def new_language(self, _: User, __: str) -> str | None:
        return None

    def note(self, _: User, __: str) -> None:
        return


class WallClock:
    """The port Clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class SilentNotifier:
    """The ports AnswerSignals and Alerts, without any effect."""

    async def announce(self, *_: object) -> None:
        return

    def alert(self, _: str, **__: object) -> None:
        return
