"""What the web needs, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from hermes.app.channels import AccountChannels
from hermes.config import ApiSettings, CompletionsSettings, WebSettings
from hermes.gateway.client_chats import ChatCompletions
from hermes.ops.metrics import Metrics
from hermes.ports.answer_signals import AnswerSignals
from hermes.ports.api_keys import ApiKeys
from hermes.ports.inbox import Inbox
from hermes.ports.outbox import Outbox
from hermes.ports.transactions import Transactions
from hermes.router.inbound import InboundRouter
from hermes.router.intake import Intake
from hermes.soul.my_data import MyDataStores

Probe = Callable[[], Awaitable[object]]
"""Asks a part for a sign of life; raises when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebServices:
    """The services behind the routes."""

    transactions: Transactions
    intake: Intake
    inbox: Inbox
    outbox: Outbox
    replies: AnswerSignals
    api_keys: ApiKeys
    completions: ChatCompletions
    metrics: Metrics
    settings: WebSettings
    completions_settings: CompletionsSettings
    api_settings: ApiSettings
    probes: Mapping[str, Probe]
    """The parts that `/ready` asks, by name."""
    needed: frozenset[str] = frozenset({"postgres"})
    """The parts without which no message can be taken in. The others are there for speed, and Hermes is ready without them."""
    has_chat: bool = True
    """Whether the chat page is served."""
    my_data: MyDataStores | None = None
    """Where users see and take back what is kept of them; None: there are no such routes."""
    account_channels: AccountChannels | None = None
    """The accounts at platforms whose webhooks are taken in; None, or no `hearing`: there are no such routes."""
    inbound: InboundRouter | None = None
    """Where what a webhook holds is taken to."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by whoever runs the server when it is about to stop."""
