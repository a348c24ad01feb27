"""What was spent in each hour, by agent, platform, tier, purpose, model and API key; and what tools did.

The sums are made from the rows of calls and turns, and can be made again at any time: the same rows give the same sums. They stay behind
the rows by a minute at most while a process does the chores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from hermes.ports.runtime import Transaction


class SumSource(StrEnum):
    """The rows that are summed."""

    CALLS = "calls"
    TOOLS = "tool_costs"
    """Summed under `tools` by the version before, without costs: its mark must not count, whichever process sums first in an upgrade."""


class SpendDimension(StrEnum):
    """What spend can be split by."""

    ACCOUNT = "account"
    AGENT = "agent"
    PLATFORM = "platform"
    TIER = "tier"
    PURPOSE = "purpose"
    MODEL = "model"
    KEY = "key"
    DAY = "day"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class SumWindow:
    """Which hours have to be summed again."""

    since: datetime
    """The beginning of the first one."""
    open_since: datetime
    """Every transaction that began before had ended when the window was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendTotals:
    """Sums over calls that have one value of a dimension. An hour is the hour in which a call was recorded, in UTC."""

    value: str
    """Empty for calls without one, such as calls that no agent answered."""
    calls: int
    """Without the refused ones."""
    failed: int
    refused: int
    cache_hits: int
    fell_over: int
    """Answered, but not by the first model that was tried."""
    tokens_in: int
    tokens_out: int
    cache_read: int
    micro_usd: int
    latency_ms: int
    """The sum; divided by the calls it is the mean."""


@dataclass(frozen=True, slots=True)
class ToolTotals:
    """Sums over the runs of a tool, in turns that have ended."""

    tool: str
    runs: int
    errors: int
    ms: int
    worst_ms: int


class SpendSums(Protocol):
    """Sums by the hour. Each equals the sum over its rows exactly, whatever the order in which rows were committed."""

    async def window(self, tx: Transaction, source: SumSource) -> SumWindow | None:
        """Return the hours that may have rows that no sum has; None if there are no rows at all.

        The window begins two hours ago, or earlier if a transaction was open for longer when the sums were made last: a row belongs to the
        hour in which its transaction began, and can be committed long after that hour was summed. Before the first sums it begins with the
        first row."""
        ...

    async def next_hour(self, tx: Transaction, source: SumSource, since: datetime) -> datetime | None:
        """Return the first hour from `since` on that has rows; None after the last one."""
        ...

    async def sum_hour(self, tx: Transaction, source: SumSource, hour: datetime, *, summed_to: datetime) -> None:
        """Make the sums of an hour again, and note that the sums before `summed_to` are final. Call it in a transaction of its own.

        Two processes take turns, so that older sums never replace newer ones."""
        ...

    async def spend_by(self, tx: Transaction, dimension: SpendDimension, *, since: datetime, until: datetime) -> Sequence[SpendTotals]:
        """Return the sums of the hours that begin from `since` to before `until`: days and hours in order, else the most money first."""
        ...

    async def tools_by(self, tx: Transaction, *, since: datetime, until: datetime) -> Sequence[ToolTotals]:
        """Return what each tool did in the hours that begin from `since` to before `until`, the most used first."""
        ...
