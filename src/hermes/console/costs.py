"""Costs as operators see them: one report for the page, the command and the API, with the day's budgets beside it.

Days are UTC days, as budgets are. `30d` is the last thirty of them with today, so that the first bar is a whole day."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from hermes.console.amounts import quote_formula
from hermes.console.moments import AGO_PATTERN, EXPECTED_TIME, parse_moment
from hermes.ports.costs import TIME_DIMENSIONS, CostDimension, CostPart, CostRow, Costs, CostUnit, CostWindow
from hermes.ports.errors import PortError, StoreUnavailable
from hermes.ports.runtime import Transactions

if TYPE_CHECKING:
    from hermes.ports.credits import DaySpend, SpendToday
    from hermes.ports.operators import Actor

MAX_SERIES = 6
"""Values that have a colour of their own in the chart; all others share one."""
MAX_ROWS = 50
"""Rows on a page. The last one has everything else, so that the rows always add up."""
MAX_EXPORTED_ROWS = 10_000
MAX_HOURLY_BARS = 72
MAX_DAYS = 400
USER_CACHE_S = 60.0
"""Costs by user are summed from the calls themselves, so they are kept for a minute."""
MAX_CACHED = 64
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
NAMELESS = {
    CostDimension.AGENT: "no agent",
    CostDimension.CHANNEL: "no message",
    CostDimension.KEY: "no key",
    CostDimension.TOOL: "no tool",
    CostDimension.USER: "no user",
}
"""What spend without a value is called."""
ALIASES = {"platform": CostDimension.CHANNEL}
"""Former names of dimensions."""


class CostQueryInvalid(PortError):
    """The dimension or the time cannot be read; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class CostBar:
    """One day or hour of the chart."""

    at: datetime
    parts: Sequence[CostPart]
    """In the order of the report's series; without those that are zero."""

    @property
    def micro_usd(self) -> int:
        return sum(part.micro_usd for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """What was spent in a window, by one dimension."""

    by: CostDimension
    window: CostWindow
    unit: CostUnit
    rows: Sequence[CostRow]
    series: Sequence[str | None]
    """The values with a colour of their own, the most money first; None for all others."""
    bars: Sequence[CostBar]
    """Every day or hour of the window, also those without a call."""
    names: Mapping[str, str]
    """What values are called: the names of API keys by their ids."""

    micro_usd_before: int
    """In the window before."""

    @property
    def micro_usd(self) -> int:
        return sum(row.micro_usd for row in self.rows)

    def name_value(self, value: str | None) -> str:
        """Return what a value is called."""
        if value is None:
            return "all others"
        return self.names.get(value, value) or NAMELESS.get(self.by, "none")


@dataclass(frozen=True, slots=True)
class DailyBudget:
    """What may be spent in a UTC day, and what was spent today."""

    kind: str
    """platform, fleet or agent."""
    name: str
    spend: DaySpend

    @property
    def percent(self) -> int | None:
        """How much of it is spent; None without a cap."""
        cap = self.spend.cap_micro_usd
        return None if cap is None else 100 if cap == 0 else self.spend.micro_usd * 100 // cap


class ConsoleCosts:
    """Reads costs for operators. Narrowed to the accounts that the operator sees."""

    def __init__(
        self,
        transactions: Transactions,
        costs: Costs,
        *,
        now: Callable[[], datetime],
        spent_today: Callable[[], Awaitable[SpendToday | None]] | None = None,
    ) -> None:
        """`spent_today` reads the day's counters; None: budgets are not shown."""
        self._transactions, self._costs, self._now, self._spent_today = transactions, costs, now, spent_today
        self._cached: dict[tuple[CostDimension, CostWindow, int], tuple[float, CostReport]] = {}

    async def read(self, actor: Actor, by: str, since: str, *, limit: int = MAX_ROWS) -> CostReport:
        """Return the costs since a time, `30d` for instance. Raises CostQueryInvalid."""
        dimension, window = parse_dimension(by), parse_window(since, self._now())
        window = replace(window, accounts=actor.operator.accounts)
        key = (dimension, window, limit)
        kept = self._cached.get(key)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        report = await self._read(dimension, window, limit)
        if dimension is CostDimension.USER:
            self._keep(key, report)
        return report

    async def budgets(self, actor: Actor) -> Sequence[DailyBudget]:
        """Return the budgets of today: of the platform, of all agents together, and of each agent that has a cap or spent something.

        None for an operator of single accounts: budgets are of all accounts together. None while the counters cannot be read."""
        if self._spent_today is None or actor.operator.accounts is not None:
            return ()
        try:
            today = await self._spent_today()
        except StoreUnavailable:
            return ()
        if today is None:
            return ()
        agents = [DailyBudget("agent", name, spend) for name, spend in sorted(today.agents.items())]
        fleet = [DailyBudget("fleet", "all agents", today.fleet)] if today.fleet.cap_micro_usd is not None else []
        return [DailyBudget("platform", "everything", today.platform), *fleet, *agents]

    async def _read(self, dimension: CostDimension, window: CostWindow, limit: int) -> CostReport:
        unit = CostUnit.HOUR if window.until - window.since <= MAX_HOURLY_BARS * HOUR else CostUnit.DAY
        async with self._transactions.begin() as tx:
            rows = await self._costs.by_value(tx, dimension, window, limit=limit)
            top = [] if dimension in TIME_DIMENSIONS else [row.value for row in rows if row.value is not None and row.micro_usd > 0]
            top = top[:MAX_SERIES]
            parts = await self._costs.over_time(tx, dimension, window, unit, top)
            ids = [UUID(row.value) for row in rows if row.value] if dimension is CostDimension.KEY else []
            names = await self._costs.key_names(tx, ids) if ids else {}
            # The rows of days and hours are of this window alone; the window before has other ones.
            both = await self._costs.by_value(tx, CostDimension.ACCOUNT, window, limit=1) if dimension in TIME_DIMENSIONS else rows
        series: list[str | None] = [*top]
        if any(part.value is None and part.micro_usd for part in parts):
            series.append(None)
        return CostReport(
            by=dimension,
            window=window,
            unit=unit,
            rows=rows,
            series=series,
            bars=fill_bars(window, unit, parts, series),
            names={str(key_id): name for key_id, name in names.items()},
            micro_usd_before=sum(row.micro_usd_before for row in both),
        )

    def _keep(self, key: tuple[CostDimension, CostWindow, int], report: CostReport) -> None:
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
        self._cached[key] = (time.monotonic() + USER_CACHE_S, report)


def parse_dimension(text: str) -> CostDimension:
    """Read the name of a dimension. Raises CostQueryInvalid."""
    found = ALIASES.get(text)
    try:
        return found or CostDimension(text)
    except ValueError:
        raise CostQueryInvalid(f"costs are not split by {text[:40]!r}; expected {', '.join(CostDimension)}") from None


def parse_window(text: str, now: datetime) -> CostWindow:
    """Read since when: `7d` (UTC days, with today), `24h` (whole hours, with this one), or a moment. The window before is as long.

    Raises CostQueryInvalid."""
    until = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
    try:
        if ago := AGO_PATTERN.fullmatch(text.strip()):
            since = count_back(int(ago[1]), ago[2], now.astimezone(UTC), until)
        else:
            since = parse_moment(text, now)
        since = min(since.replace(minute=0, second=0, microsecond=0), until - HOUR)
        return CostWindow(since=since, until=until, before=since - min(until - since, since - FIRST_MOMENT))
    except (ValueError, OverflowError):
        raise CostQueryInvalid(f"since {text[:50]!r} is not a time; {EXPECTED_TIME}") from None


def count_back(number: int, unit: str, now: datetime, until: datetime) -> datetime:
    if unit == "m":
        return now - timedelta(minutes=number)
    if unit == "h":
        return until - number * HOUR
    return now.replace(hour=0) - (number * (7 if unit == "w" else 1) - 1) * DAY


def fill_bars(window: CostWindow, unit: CostUnit, parts: Sequence[CostPart], series: Sequence[str | None]) -> list[CostBar]:
    """Return a bar for each day or hour of the window, the newest last; of a very long window, the newest MAX_DAYS."""
    order = {value: place for place, value in enumerate(series)}
    found: dict[datetime, list[CostPart]] = {}
    for part in parts:
        if part.micro_usd:
            found.setdefault(part.at, []).append(part)
    step = HOUR if unit is CostUnit.HOUR else DAY
    last = window.until - HOUR
    last = last if unit is CostUnit.HOUR else last.replace(hour=0)
    first = window.since if unit is CostUnit.HOUR else window.since.replace(hour=0)
    count = min((last - first) // step + 1, MAX_DAYS)
    moments = [last - place * step for place in reversed(range(count))]
    return [CostBar(at, sorted(found.get(at, ()), key=lambda part: order.get(part.value, MAX_SERIES))) for at in moments]


# --- as CSV and JSON


def row_columns(rows: Sequence[CostRow]) -> list[str]:
    """Return the columns that these rows have."""
    names = [field.name for field in fields(CostRow) if field.name not in {"value", "values"}]
    return [name for name in names if any(getattr(row, name) is not None for row in rows)]


def row_as_json(row: CostRow, by: CostDimension) -> dict[str, str | int | None]:
    """Return a row without the columns that its dimension does not know."""
    known = {name: value for name, value in asdict(row).items() if value is not None and name != "value"}
    return {by.value: row.value, **known}


def write_csv(report: CostReport) -> str:
    """Return the rows as CSV. The row without a value is called `(others)`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = row_columns(report.rows)
    writer.writerow((report.by, *(["name"] if report.by is CostDimension.KEY else []), *columns))
    for row in report.rows:
        value = "(others)" if row.value is None else row.value
        names = [quote_formula(report.names.get(value, ""))] if report.by is CostDimension.KEY else []
        writer.writerow((quote_formula(value), *names, *(getattr(row, name) for name in columns)))
    return text.getvalue()
