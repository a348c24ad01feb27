"""The chart of costs: where its bars stand, how they are called, and which turns they link to. Draws nothing itself.

A bar is SVG in units of its own: ten wide for each day or hour, a hundred high. The page stretches it; words stay outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from hermes.console.amounts import show_usd
from hermes.console.costs import MAX_SERIES, CostReport
from hermes.ports.costs import TIME_DIMENSIONS, CostDimension, CostUnit
from hermes.ports.turn_list import ANY_PURPOSE

BAR_WIDTH, GAP, HEIGHT = 10.0, 1.5, 100.0
MIN_SHOWN = 0.6
"""A part that costs anything is at least this high."""
MAX_CAP_RATIO = 3.0
"""A cap that is further above the highest bar is said in words: the line would make all bars flat."""
WARN_SHARE = 0.8
MAX_LINKED_BARS = 31
ROUND_STEPS = (10, 12, 16, 20, 24, 30, 40, 50, 60, 80, 100)
TURN_FILTERS = {dimension: dimension.value for dimension in CostDimension} | {CostDimension.CHANNEL: "platform"}
"""The filter of the list of turns for each dimension."""
STEP = {CostUnit.DAY: timedelta(days=1), CostUnit.HOUR: timedelta(hours=1)}


@dataclass(frozen=True, slots=True)
class ChartPart:
    """A rectangle: what one value cost in one day or hour."""

    y: float
    height: float
    place: int
    """Of its value among the series; decides its colour."""
    title: str
    href: str
    """Of its turns; empty for those without a value and those of all other values: no filter finds them."""


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A day or an hour."""

    x: float
    at: datetime
    label: str
    micro_usd: int
    href: str
    parts: Sequence[ChartPart]
    amounts: Sequence[int]
    """What each value of the series cost, for the table."""


@dataclass(frozen=True, slots=True)
class CostChart:
    """All bars, and the lines of the cap."""

    bars: Sequence[ChartBar]
    width: float
    top: int
    """Micro-dollars at the upper edge."""
    cap_y: float | None
    warn_y: float | None

    @property
    def has_part_links(self) -> bool:
        """Whether each part has a link of its own. In a long chart each day has one: thousands of links make a heavy page."""
        return len(self.bars) <= MAX_LINKED_BARS


def draw_chart(report: CostReport, cap_micro_usd: int | None) -> CostChart:
    """Return the chart of a report. `cap_micro_usd`: what may be spent in a day, drawn as a line where bars are days."""
    highest = max((bar.micro_usd for bar in report.bars), default=0)
    is_drawn = cap_micro_usd is not None and report.unit is CostUnit.DAY and 0 < cap_micro_usd <= highest * MAX_CAP_RATIO
    cap = cap_micro_usd if is_drawn and cap_micro_usd is not None else None
    top = round_up(max(highest, cap or 0))
    bars = []
    for place, bar in enumerate(report.bars):
        until = bar.at + STEP[report.unit]
        label = f"{bar.at:%a %-d %b}" if report.unit is CostUnit.DAY else f"{bar.at:%-d %b %H:%M}"
        parts, base, amounts = [], HEIGHT, [0] * len(report.series)
        for part in bar.parts:
            index = report.series.index(part.value)
            amounts[index] += part.micro_usd
            height = max(part.micro_usd / top * HEIGHT, MIN_SHOWN)
            base -= height
            name = part.value[:8] if report.by is CostDimension.USER and part.value else report.name_value(part.value)
            title = f"{label} · {name} · {show_usd(part.micro_usd)}"
            href = turns_href(report.by, part.value, bar.at, until) if part.value or report.by in TIME_DIMENSIONS else ""
            parts.append(ChartPart(round(base, 2), round(height, 2), index, title, href))
        href = turns_href(CostDimension.DAY, "", bar.at, until)
        bars.append(ChartBar(place * BAR_WIDTH + GAP / 2, bar.at, label, bar.micro_usd, href, parts, amounts))
    return CostChart(
        bars,
        len(bars) * BAR_WIDTH,
        top,
        None if cap is None else round(HEIGHT - cap / top * HEIGHT, 2),
        None if cap is None else round(HEIGHT - cap * WARN_SHARE / top * HEIGHT, 2),
    )


def color_place(report: CostReport, value: str | None) -> int:
    """Return which colour a value has: one of its own if it is among the first, else the last, grey one. Time has a single colour."""
    if report.by in TIME_DIMENSIONS:
        return 0
    return MAX_SERIES if value is None or value not in report.series else report.series.index(value)


def time_href(value: str) -> str:
    """Return the address of the turns of a row that is a day or an hour: `2026-11-16` or `2026-11-16T15:00Z`."""
    since = datetime.fromisoformat(value)
    return turns_href(CostDimension.DAY, "", since, since + STEP[CostUnit.DAY if len(value) == len("2026-11-16") else CostUnit.HOUR])


def turns_href(by: CostDimension, value: str | None, since: datetime, until: datetime) -> str:
    """Return the address of the turns behind a sum, with all calls that make no turn and cost something too."""
    wanted = {TURN_FILTERS[by]: value} if value and by not in {CostDimension.DAY, CostDimension.HOUR} else {}
    if by not in {CostDimension.PURPOSE, CostDimension.TOOL}:
        wanted["purpose"] = ANY_PURPOSE
    window = {"since": f"{since:%Y-%m-%dT%H:%MZ}", "until": f"{until:%Y-%m-%dT%H:%MZ}"}
    return f"/console/turns?{urlencode({**wanted, **window}, safe=':')}"


def round_up(micro_usd: int) -> int:
    """Return the next amount that is easy to read, with its half: 1, 1.2, 1.6, 2 … with zeros; at least a hundredth of a cent."""
    power = 10
    while power * 100 < micro_usd:
        power *= 10
    return next(power * step for step in ROUND_STEPS if power * step >= micro_usd)


def show_change(now: int, before: int) -> str:
    """The change to the window before: `+12 %`."""
    if before == 0:
        return "new" if now else ""
    change = round((now - before) / before * 100)
    return "same" if change == 0 else f"{change:+,} %".replace("-", "−")  # noqa: RUF001  # a minus sign, not a hyphen


def show_exact_usd(micro_usd: int) -> str:
    """Dollars with all six digits, so that the amounts of a column stand under each other: `$1.281920`."""
    return f"${micro_usd // 1_000_000:,}.{micro_usd % 1_000_000:06}"
