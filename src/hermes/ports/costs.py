"""What was spent, as an operator asks for it: by one dimension, in a window of hours, beside the window before; and by day or hour.

All readers see the same money: over every dimension the rows add up to the sum over the calls of the window, to the micro-dollar."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction


class CostDimension(StrEnum):
    """What costs can be split by."""

    AGENT = "agent"
    MODEL = "model"
    PURPOSE = "purpose"
    CHANNEL = "channel"
    """The platform of the message: whatsapp, telegram, rest …"""
    TIER = "tier"
    USER = "user"
    KEY = "key"
    """The API key."""
    TOOL = "tool"
    """A concluding call, in equal shares over the tools that ran before it. All other calls are of no tool."""
    ACCOUNT = "account"
    DAY = "day"
    HOUR = "hour"


TIME_DIMENSIONS = frozenset({CostDimension.DAY, CostDimension.HOUR})
"""Their rows are in order of time; all others have the most money first."""


class CostUnit(StrEnum):
    """How wide a bar of the chart is."""

    HOUR = "hour"
    DAY = "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostWindow:
    """The calls that are summed: those recorded in the hours that begin from `since` to before `until` (UTC)."""

    since: datetime
    until: datetime
    before: datetime
    """The window before begins here and ends at `since`."""
    accounts: frozenset[str] | None = None
    """The accounts that the reader sees; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """Sums over calls that have one value of a dimension. A column that the dimension does not know is None."""

    value: str | None
    """Empty for calls without one, such as calls that no agent answered; None: all values together that have no row of their own."""
    values: int
    """How many values the row stands for."""
    micro_usd: int
    micro_usd_before: int
    """In the window before."""
    calls: int | None = None
    """Without the refused ones."""
    failed: int | None = None
    refused: int | None = None
    cache_hits: int | None = None
    fell_over: int | None = None
    """Answered, but not by the first model that was tried."""
    tokens: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cache_read: int | None = None
    latency_ms: int | None = None
    """The sum; divided by the calls it is the mean."""
    runs: int | None = None
    """Of a tool, in turns that have ended."""
    errors: int | None = None
    ms: int | None = None
    worst_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CostPart:
    """What was spent in one day or hour, for one of the values that were asked for; None: for all others."""

    at: datetime
    value: str | None
    micro_usd: int
    calls: int


@dataclass(frozen=True, slots=True)
class KeySpend:
    """What the calls of an API key cost."""

    api_key_id: UUID
    today: int
    """Micro-dollars since midnight (UTC)."""
    month: int
    """Micro-dollars of the last 30 days."""


class Costs(Protocol):
    """Reads costs. Those by user are summed from the calls, all others from the sums of the hours, which may be a minute behind."""

    async def by_value(self, tx: Transaction, dimension: CostDimension, window: CostWindow, *, limit: int) -> Sequence[CostRow]:
        """Return at most `limit` rows, and one more for all other values."""
        ...

    async def over_time(
        self, tx: Transaction, dimension: CostDimension, window: CostWindow, unit: CostUnit, values: Sequence[str]
    ) -> Sequence[CostPart]:
        """Return the days or hours in which something was spent, in order: one part for each of these values, and one for all others."""
        ...

    async def key_names(self, tx: Transaction, ids: Collection[UUID]) -> Mapping[UUID, str]:
        """Return the names of these API keys; none for a key that is gone."""
        ...

    async def of_keys(self, tx: Transaction, ids: Collection[UUID], *, today: datetime, month: datetime) -> Sequence[KeySpend]:
        """Return what these API keys spent from these moments on; none for a key without calls."""
        ...
