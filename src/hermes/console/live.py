"""How Hermes is now, for the Live page, the strip on every page, and `/v1/ops/overview`. Read once for all who look at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from hermes.console.turn_list import open_json
from hermes.ports.alerts import AlertRecords, StoredAlert
from hermes.ports.credits import DaySpend, KillSwitchRecord, SpendToday
from hermes.ports.errors import StoreUnavailable
from hermes.ports.live import BackendFigures, BreakerReader, ChannelLine, LiveFigures, LiveReader
from hermes.ports.operators import Operator
from hermes.ports.outbox import ChannelName
from hermes.ports.processes import Processes, ProcessRecord, ProcessState
from hermes.ports.runtime import Transactions
from hermes.ports.turn_list import OpenTurn, TurnFilter, TurnList

WINDOW_S = 900.0
"""What counts as now."""
KEPT_S, KEPT_AFTER_NEWS_S = 2.0, 0.4
"""How long what was read is shown to others who ask; shorter if a turn began or ended since."""
MAX_OPEN_SHOWN, MAX_ALERTS_SHOWN = 20, 3
MAX_KEPT = 100
"""Different sets of accounts whose figures are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """How Hermes is now, as far as one set of accounts shows it."""

    at: datetime
    figures: LiveFigures
    open: Sequence[OpenTurn]
    backends: Sequence[BackendFigures]
    channels: Sequence[ChannelLine] | None
    """None: the breakers cannot be read now."""
    processes: Sequence[ProcessRecord]
    """Without those that stopped by themselves."""
    alerts: Sequence[StoredAlert]
    """The newest open ones; for an operator of all accounts only."""
    spend: DaySpend | None
    """Today's; None if it cannot be read, or for an operator of some accounts only."""
    kill_switch: KillSwitchRecord | None
    stalled_after_s: float

    @property
    def turns_a_minute(self) -> float:
        return self.figures.turns / (WINDOW_S / 60)

    def state(self, process: ProcessRecord) -> ProcessState:
        return process.state(self.stalled_after_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewSources:
    """Where the overview comes from."""

    transactions: Transactions
    live: LiveReader
    turns: TurnList
    processes: Processes
    alerts: AlertRecords
    breakers: BreakerReader
    channel_names: Callable[[], Sequence[ChannelName]]
    spent_today: Callable[[], Awaitable[SpendToday | None]]
    kill_switch: Callable[[], Awaitable[KillSwitchRecord | None]]
    stalled_after_s: float


@dataclass(slots=True)
class KeptOverview:
    """An overview that others may be shown too."""

    overview: Overview
    read_at: float


@dataclass(slots=True)
class Overviews:
    """Reads overviews, and keeps each for two seconds."""

    sources: OverviewSources
    _kept: dict[frozenset[str] | None, KeptOverview] = field(default_factory=dict)
    _news_at: float = 0.0
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def note_news(self) -> None:
        """A turn began or ended: what was read before is old sooner."""
        self._news_at = time.monotonic()

    async def read(self, operator: Operator) -> Overview:
        """Return how Hermes is now, as this operator may see it. Raises StoreUnavailable."""
        if (kept := self._fresh(operator)) is not None:
            return kept
        async with self._reading:
            if (kept := self._fresh(operator)) is not None:
                return kept
            began = time.monotonic()
            overview = await read_overview(self.sources, operator.accounts)
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[operator.accounts] = KeptOverview(overview, began)
            return overview

    def _fresh(self, operator: Operator) -> Overview | None:
        kept = self._kept.get(operator.accounts)
        if kept is None:
            return None
        limit_s = KEPT_AFTER_NEWS_S if self._news_at >= kept.read_at else KEPT_S
        return kept.overview if time.monotonic() - kept.read_at < limit_s else None


async def read_overview(sources: OverviewSources, accounts: frozenset[str] | None) -> Overview:
    sees_all = accounts is None
    wanted = TurnFilter(since=datetime.now(UTC), accounts=accounts)
    async with sources.transactions.begin() as tx:
        figures = await sources.live.figures(tx, within_s=WINDOW_S, accounts=accounts)
        open_turns = await sources.turns.open(tx, wanted, limit=MAX_OPEN_SHOWN)
        backends = await sources.live.backends(tx, within_s=WINDOW_S, accounts=accounts)
        processes = await sources.processes.all(tx)
        alerts = await sources.alerts.list(tx, is_open=True, limit=MAX_ALERTS_SHOWN) if sees_all else []
    names = [name for name in sources.channel_names() if accounts is None or name.account in accounts]
    return Overview(
        at=datetime.now(UTC),
        figures=figures,
        open=open_turns,
        backends=backends,
        channels=await sources.breakers.states(names),
        processes=[process for process in processes if process.state(sources.stalled_after_s) is not ProcessState.STOPPED],
        alerts=alerts,
        spend=await read_spend(sources) if sees_all else None,
        kill_switch=await sources.kill_switch(),
        stalled_after_s=sources.stalled_after_s,
    )


async def read_spend(sources: OverviewSources) -> DaySpend | None:
    """What was spent today; None while the counters cannot be read: the rest of the overview is worth showing without it."""
    try:
        today = await sources.spent_today()
    except StoreUnavailable:
        return None
    return None if today is None else today.platform


def overview_json(overview: Overview, operator: Operator) -> dict[str, object]:
    """Write an overview for programs."""
    figures, spend, switch = overview.figures, overview.spend, overview.kill_switch
    return {
        "at": overview.at.isoformat(),
        "window_s": WINDOW_S,
        "turns": figures.turns,
        "turns_a_minute": round(overview.turns_a_minute, 2),
        "failed": figures.failed,
        "p50_ms": figures.p50_ms,
        "p95_ms": figures.p95_ms,
        "waiting": figures.waiting,
        "running": figures.running,
        "oldest_waiting_s": round(figures.oldest_s, 3),
        "dead_letters": figures.dead_letters,
        "open_alerts": figures.open_alerts,
        "spend_today_micro_usd": None if spend is None else spend.micro_usd,
        "cap_micro_usd": None if spend is None else spend.cap_micro_usd,
        "kill_switch": None if switch is None else {"since": switch.engaged_at.isoformat(), "by": switch.by, "reason": switch.reason},
        "open_turns": [open_json(turn, operator) for turn in overview.open],
        "backends": [asdict(each) for each in overview.backends],
        "channels": None
        if overview.channels is None
        else [
            {"platform": str(line.name.platform), "account": line.name.account, "breaker": line.state, "failures": line.failures}
            for line in overview.channels
        ],
        "processes": [
            {
                "id": str(process.id),
                "role": str(process.role),
                "host": process.host,
                "pid": process.pid,
                "state": str(overview.state(process)),
                "beat_age_s": round(process.beat_age_s, 1),
                "running": process.running,
            }
            for process in overview.processes
        ],
        "alerts": [
            {
                "id": alert.id,
                "event": alert.event,
                "subject": alert.subject,
                "level": str(alert.level),
                "last_at": alert.last_at.isoformat(),
            }
            for alert in overview.alerts
        ],
    }
