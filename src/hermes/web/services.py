"""The services that the web needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from hermes.app.channels import AccountChannels
from hermes.config import ApiSettings, CompletionsSettings, WebSettings
from hermes.gateway.completions import ChatCompletions
from hermes.ops.metrics import Metrics
from hermes.ports.inbox import AnswerSignals, Inbox
from hermes.ports.outbox import Outbox
from hermes.ports.runtime import Transactions
from hermes.ports.users import ApiKeys
from hermes.router.inbound import InboundRouter
from hermes.router.intake import Intake
from hermes.soul.my_data import MyDataStores

Probe = Callable[[], Awaitable[object]]
"""Checks that a part answers; raises if it does not."""


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
    """The parts without which Hermes can accept no message. The others only make it faster."""
    has_chat: bool = True
    """Whether the chat page is served."""
    my_data: MyDataStores | None = None
    """The stores from which users see and erase their data; None: there are no such routes."""
    account_channels: AccountChannels | None = None
    """The channel accounts whose webhooks Hermes accepts; None, or no `inbound`: there are no such routes."""
    inbound: InboundRouter | None = None
    """Handles the events of webhooks."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the server when it is about to stop."""
