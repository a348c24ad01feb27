"""How Hermes is now: figures of the last minutes, the models and channels it depends on, and news of turns as they begin and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from hermes.ports.outbox import ChannelName
from hermes.ports.runtime import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFigures:
    """Figures of all turns of the last minutes."""

    turns: int
    """That ended within the window."""
    failed: int
    """With the messages that could not be opened, and so have no turn."""
    p50_ms: int | None
    """From a message's arrival, or its revival, to the record of its answer, of the newest turns in the window. None: no turn ended."""
    p95_ms: int | None
    waiting: int
    """Messages that no worker is at: none has begun, the attempt failed, or its process has gone."""
    running: int
    oldest_s: float
    """The age of the oldest waiting message; 0 if none waits."""
    dead_letters: int
    open_alerts: int


@dataclass(frozen=True, slots=True)
class BackendFigures:
    """What the attempts of the newest calls say about a backend."""

    backend: str
    attempts: int
    failed: int
    mean_ms: int | None
    """Of attempts that answered."""
    last_error: str | None


@dataclass(frozen=True, slots=True)
class ChannelLine:
    """A channel account and its breaker."""

    name: ChannelName
    state: str
    """`closed`, `half_open` or `open`."""
    failures: int
    retries_in_s: float | None
    """While it is open."""


class LiveReader(Protocol):
    """Reads figures of now. Every query is bounded. Fails with StoreUnavailable."""

    async def figures(self, tx: Transaction, *, within_s: float, accounts: frozenset[str] | None) -> LiveFigures:
        """Return the figures of the last `within_s`, of these accounts; None: of all."""
        ...

    async def backends(self, tx: Transaction, *, within_s: float, accounts: frozenset[str] | None) -> Sequence[BackendFigures]:
        """Return what the newest calls say about the backends, by name."""
        ...


class BreakerReader(Protocol):
    """Reads the breakers of channel accounts."""

    async def states(self, channel_names: Sequence[ChannelName]) -> Sequence[ChannelLine] | None:
        """Return the breaker of each account, in one round trip; None if the store cannot be reached."""
        ...


class TurnNews(Protocol):
    """News of turns between processes, so that an operator who watches sees them at once. Only ids; news may get lost, because a reader
    finds everything in the store anyway. While no operator watches, nothing is sent. No method raises."""

    def telling(self, turn_id: UUID) -> AbstractContextManager[None]:
        """Tell at the end of the block that the turn ended: one message a turn at most. Waits for nothing: a turn is not slower for it."""
        ...

    def publishing(self) -> AbstractAsyncContextManager[None]:
        """Send what is told in this process, while the block lasts. Without it, nothing is sent."""
        ...

    def watching(self, on_news: Callable[[Sequence[UUID]], None]) -> AbstractAsyncContextManager[None]:
        """Ask all processes for news while the block lasts, and call `on_news` with the turns of each."""
        ...
