"""Alerts as rows that all processes share, and the destinations at which the operator reads them.

A process reports what happened; the store keeps one open row for each event and subject. One of all processes claims a row for a
destination and sends it. Knows neither Slack nor SQL, and not which events there are: ops/alert_events.py lists those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from hermes.ports.runtime import Transaction

AlertFact = str | int | float | bool | None
"""A fact of an alert is a name or a number: no message text, no secret."""


class AlertLevel(StrEnum):
    """How urgent an alert is: look at it today, or now."""

    WARNING = "warning"
    CRITICAL = "critical"


class AlertStage(StrEnum):
    """What a message says about an alert."""

    RAISED = "raised"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertReport:
    """What one process reports about an event and subject."""

    event: str
    subject: str = ""
    level: AlertLevel = AlertLevel.WARNING
    facts: Mapping[str, AlertFact] = field(default_factory=dict)
    times: int = 1
    """How often it happened; 0: only that it is over."""
    is_over: bool = False
    """The condition ended after the last time."""
    sent_to: frozenset[str] = frozenset()
    """Destinations that this process told itself, because the store could not be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAlert:
    """One row: an event and a subject, from the first time until it ended."""

    id: int
    event: str
    subject: str
    level: AlertLevel
    facts: Mapping[str, AlertFact]
    times: int
    first_at: datetime
    last_at: datetime
    ended_at: datetime | None = None
    ended_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRoute:
    """Which alerts a destination gets, and how fast."""

    destination: str
    levels: frozenset[AlertLevel] = frozenset(AlertLevel)
    events: frozenset[str] | None = None
    """None: all events."""
    per_minute: int = 10
    """Messages a minute at most, from all processes together. Further alerts are summed up in one message."""
    tells_end: bool = False
    """Whether the destination is also told that an alert ended."""

    def takes(self, event: str, level: AlertLevel) -> bool:
        """Whether the destination gets this alert."""
        return level in self.levels and (self.events is None or event in self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSend:
    """The right to tell one destination about one alert, until the lease runs out."""

    alert: StoredAlert
    destination: str
    stage: AlertStage
    tries: int
    """Which claim this is; an older one settles nothing."""
    messages: int
    """How many messages about this alert and stage arrived there before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSends:
    """What a process sends to one destination now: each of `sends` by itself, and one message that sums up `rest`."""

    sends: Sequence[AlertSend] = ()
    rest: Sequence[AlertSend] = ()
    failures: int = 0
    """How many messages to this destination have failed since the last one that arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTold:
    """What one destination was told of one alert."""

    alert_id: int
    destination: str
    stage: AlertStage
    tries: int
    messages: int
    """How many messages arrived."""
    sent_at: datetime | None
    """When the last one arrived; None: one is due, or failed."""
    failed: str | None
    """Why the last try failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMute:
    """An event that is not sent for a while; with the subject "", for every subject."""

    event: str
    subject: str
    until: datetime
    by: str


class AlertRecords(Protocol):
    """The rows of alerts. Uses the store's clock. Fails closed: raises StoreUnavailable."""

    async def record(self, tx: Transaction, reports: Sequence[AlertReport]) -> None:
        """Write what a process reports: one open row for each event and subject, in which a repeat raises `times` and replaces the facts.
        `reports` names no event and subject twice."""
        ...

    async def plan(self, tx: Transaction, route: AlertRoute, *, window_s: float) -> None:
        """Note what a destination is to be told: alerts of the last window that are not muted; an open alert again, if it was repeated more
        than a window after the last message; and if the route says so, the end of alerts that it was told about. Unless it says so,
        an alert that ended by itself and comes again is told only a window after the last message about its event and subject."""
        ...

    async def claim(self, tx: Transaction, route: AlertRoute, *, lease_s: float) -> ClaimedSends:
        """Claim what is due for a destination: critical alerts first, the oldest first. Nothing while another process claims, while the
        minute is used up, or during the pause after a failure. What is not settled within `lease_s` can be claimed again. An alert of which
        a day has heard nothing is not sent any more."""
        ...

    async def settle(self, tx: Transaction, sends: Sequence[AlertSend], *, failed: str | None = None, retry_in_s: float = 0.0) -> int:
        """Note that claimed sends to one destination arrived; or why they failed, and when the destination is tried again. Return how many
        still belonged to this claim: the others were claimed again meanwhile, and do not change."""
        ...

    async def end_quiet(self, tx: Transaction, *, window_s: float) -> int:
        """End the open alerts that were not repeated for a window; return how many."""
        ...

    async def clean(self, tx: Transaction, *, keep_s: float) -> int:
        """Delete alerts that ended longer ago than this, and mutes that are over; return how many alerts."""
        ...

    async def end(self, tx: Transaction, alert_id: int, by: str) -> StoredAlert | None:
        """End an alert; return it, or None if there is no such alert. One that has ended stays as it is."""
        ...

    async def list(
        self,
        tx: Transaction,
        *,
        is_open: bool = False,
        since: datetime | None = None,
        before: tuple[datetime, int] | None = None,
        limit: int = 1000,
    ) -> list[StoredAlert]:
        """The alerts, the newest first: only open ones, or those that happened since a time, or all. `before` is the last time and the id
        of the last alert of the page before."""
        ...

    async def told(self, tx: Transaction, alert_ids: Sequence[int]) -> Sequence[AlertTold]:
        """What the destinations were told of these alerts, by alert and destination."""
        ...

    async def mute(self, tx: Transaction, event: str, subject: str, *, for_s: float, by: str) -> AlertMute:
        """Send nothing about an event and subject for so long; an earlier mute of the same is replaced."""
        ...

    async def unmute(self, tx: Transaction, event: str, subject: str) -> bool:
        """End a mute; False if there was none."""
        ...

    async def mutes(self, tx: Transaction) -> Sequence[AlertMute]:
        """The mutes that are not over."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMessage:
    """One message to a destination, in plain text and as data."""

    id: str
    """The same for every try, so that a receiver can ignore a repetition."""
    kind: str
    """`raised`, `ended`, `summary` or `test`."""
    level: AlertLevel
    text: str
    at: datetime
    data: Mapping[str, object]


class AlertNotSent(Exception):
    """A destination did not take a message. The message says why, without address and secrets."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class AlertDestination(Protocol):
    """Where the operator reads alerts."""

    name: str

    async def send(self, message: AlertMessage, *, timeout_s: float) -> None:
        """Send a message once; raise AlertNotSent, and nothing else, if it did not arrive or if that is in doubt."""
        ...


# --- what is looked at each minute


@dataclass(frozen=True, slots=True)
class AgentHourSpend:
    """What an agent cost in the last whole hour, and in the median hour of the seven days before in which it cost anything."""

    agent: str
    hour: datetime
    micro_usd: int
    median_micro_usd: int


class WellPlace(NamedTuple):
    """A role on a host of which every process gives beats."""

    role: str
    host: str
    newest_start_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFigures:
    """The figures of all processes together, at one moment."""

    waiting: int = 0
    """Messages that no worker has begun."""
    oldest_s: float = 0.0
    """How long the oldest of them has waited."""
    new_dead_letters: int = 0
    """Within the last hour."""
    dead_letters: int = 0
    turns: int = 0
    """Turns that ended lately."""
    failed: int = 0
    """Of these, the turns in which no model answered, or whose message was given up."""
    kill_switch: Mapping[str, str] = field(default_factory=dict)
    """Who engaged the kill switch (`by`) and why (`reason`); empty while it is off."""
    failing_chores: Mapping[str, str] = field(default_factory=dict)
    """Chores whose last try failed, with the error."""
    well_places: Sequence[WellPlace] = ()
    spends: Sequence[AgentHourSpend] = ()


class WatchReader(Protocol):
    """Reads the figures that are watched."""

    async def read(self, tx: Transaction, *, failed_within_s: float) -> WatchFigures:
        """Return the figures of now; turns of the last `failed_within_s`. Raises StoreUnavailable."""
        ...
