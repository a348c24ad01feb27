"""The router with all its stores in memory. The caller gives at least the models.

harness = RouterHarness(models=ScriptedModel(["Try the Driftwood Deck."]))
harness.credits.available[harness.user.id] = 1
await handle_message(harness.claim("find me a sunset bar"), harness.services)
harness.outbox.answers"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from hermes.ports.channels import Channel
from hermes.ports.inbox import Claim, InboxMessage
from hermes.ports.memories import Soul, Souls
from hermes.ports.models import Models
from hermes.ports.runtime import Transaction
from hermes.ports.tools import ImagePrompt, Images, Offers, Tools
from hermes.ports.users import Agent, User, UserState
from hermes.router.services import Links, Services
from hermes.testing.memory.journal import MemoryJournal
from hermes.testing.memory.messages import MemoryAnswerSignals, MemoryInbox, MemoryOutbox
from hermes.testing.memory.offers import MemoryOffers
from hermes.testing.memory.runtime import MemoryAlerts, MemoryTransactions, MemoryTurnMeter, WallClock
from hermes.testing.memory.sessions import MemoryGraphs, MemoryHistories, MemoryInteractions, MemorySessions
from hermes.testing.memory.users import MemoryCredits, MemoryUsers
from hermes.tools.no_tools import NoTools
from hermes.turn import Envelope, MessageEvent, Platform


@dataclass(frozen=True, slots=True)
class FixedSouls:
    """The port Souls: the same for every user."""

    personality: str = "You are Hermes."

    async def load(self, user: User, agent: Agent, text: str, *, now: datetime, conversation_id: UUID) -> Soul:  # noqa: ARG002  # the port's
        return Soul(self.personality, None, is_recall_used=False, load_ms=0)

    async def for_room(self, user: User, agent: Agent, *, now: datetime, conversation_id: UUID) -> Soul:  # noqa: ARG002  # the port's
        return Soul(self.personality, None, is_recall_used=False, load_ms=0)

    async def invalidate(self, user_id: UUID) -> None:
        """Does nothing: there is no copy."""


class NoImages:
    """The port Images: no message has one."""

    async def look(self, event: MessageEvent, *, more: Sequence[str] = (), is_shared: bool = False) -> ImagePrompt | None:  # noqa: ARG002  # the port's
        return None


def new_user() -> User:
    return User(uuid4(), UserState.ACTIVE, "free", "en", "friend-1", trains=False)


@dataclass(slots=True)
class RouterHarness:
    """Every service of the router in memory, for one user."""

    models: Models
    souls: Souls = field(default_factory=FixedSouls)
    tools: Tools = field(default_factory=NoTools)
    images: Images = field(default_factory=NoImages)
    user: User = field(default_factory=new_user)
    links: Links = field(default_factory=Links)
    offers: Offers = field(default_factory=MemoryOffers)
    keep: int = 100
    credits: MemoryCredits = field(default_factory=MemoryCredits)
    graphs: MemoryGraphs = field(default_factory=MemoryGraphs)
    inbox: MemoryInbox = field(default_factory=MemoryInbox)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    interactions: MemoryInteractions = field(default_factory=MemoryInteractions)
    outbox: MemoryOutbox = field(default_factory=MemoryOutbox)
    people: MemoryUsers = field(init=False)
    sessions: MemorySessions = field(init=False)
    answer_signals: MemoryAnswerSignals = field(default_factory=MemoryAnswerSignals)
    alerts: MemoryAlerts = field(default_factory=MemoryAlerts)
    meter: MemoryTurnMeter = field(default_factory=MemoryTurnMeter)
    learnt_from: list[UUID] = field(default_factory=list)
    conversation_id: UUID = field(default_factory=uuid4)

    def __post_init__(self) -> None:
        self.people = MemoryUsers(self.credits)
        self.inbox.people = self.people
        self.journal.inbox = self.outbox.inbox = self.inbox
        self.sessions = MemorySessions(self.graphs)

    def claim(self, text: str, **event: Any) -> Claim:
        """A claim on a turn with a message of the user."""
        return claim_for(self.user, self.conversation_id, text, **event)

    @property
    def services(self) -> Services:
        self.people.users[self.user.id] = self.user
        return Services(
            transactions=MemoryTransactions(),
            people=self.people,
            credits=self.credits,
            inbox=self.inbox,
            sessions=self.sessions,
            histories=MemoryHistories(self.graphs, self.keep),
            graphs=self.graphs,
            journal=self.journal,
            interactions=self.interactions,
            outbox=self.outbox,
            channels=NoChannels(),
            answer_signals=self.answer_signals,
            deliver=deliver_nothing,
            souls=self.souls,
            images=self.images,
            tools=self.tools,
            offers=self.offers,
            models=self.models,
            alerts=self.alerts,
            clock=WallClock(),
            agent_on=lambda _: Agent(name="hermes"),
            languages=FixedLanguages(),
            meter=self.meter,
            learns_from=lambda _, __: True,
            learn=self._learn,
            note_private=self._note_private,
            links=self.links,
        )

    async def _note_private(self, _: Transaction, __: InboxMessage) -> None:
        """Nothing is deferred here."""

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


class FixedLanguages:
    """The port Languages: a user's language never changes; a user without one is answered in English."""

    def of(self, user: User, _: str) -> str:
        return user.language or "en"

    def new_language(self, _: User, __: str) -> str | None:
        return None

    def note(self, _: User, __: str) -> None:
        return
