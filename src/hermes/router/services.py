"""What the ten steps need, by name. Every one of them is a port, so every one of them can be another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import tzinfo

from hermes.ports.agents import Agent
from hermes.ports.alerts import Alerts
from hermes.ports.clock import Clock
from hermes.ports.credits import Credits
from hermes.ports.graphs import Graphs
from hermes.ports.histories import Histories
from hermes.ports.images import Images
from hermes.ports.inbox import Inbox
from hermes.ports.interactions import Interactions
from hermes.ports.journal import Journal
from hermes.ports.models import Models
from hermes.ports.people import People, User
from hermes.ports.sessions import Sessions
from hermes.ports.souls import Souls
from hermes.ports.tools import Tools
from hermes.ports.transactions import Transactions
from hermes.router.courier import Courier
from hermes.router.warmth import Warmth


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
    people: People
    credits: Credits
    inbox: Inbox
    sessions: Sessions
    histories: Histories
    graphs: Graphs
    journal: Journal
    interactions: Interactions
    courier: Courier
    souls: Souls
    images: Images
    tools: Tools
    models: Models
    alerts: Alerts
    clock: Clock
    agent_on: Callable[[str], Agent]
    """Who answers on an account."""
    language_of: Callable[[User, str], str]
    """The language to answer a user's text in."""
    zone_of: Callable[[User], tzinfo]
    observe: Callable[[str, float], None] = field(default=lambda _step, _seconds: None)
    """Told how many seconds each step took."""
    warmth: Warmth = field(default_factory=Warmth)
    links: Links = Links()
