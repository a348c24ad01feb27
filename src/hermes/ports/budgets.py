"""What may be spent: tokens of a user per day and month, and the money of the whole platform per day.

Whole numbers only: tokens and micro-dollars (1 USD = 1,000,000). Days and months are those of UTC. The life of a hold:

    reserve ──▶ settle        the reservation becomes what was really used, also 0, also after the lease ran out; counts once
       │
       ├──────▶ release       given back: nothing was used
       └──────▶ (lease over)  given back by itself: whoever reserved it is gone
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from hermes.ports.errors import PortError
from hermes.ports.transactions import Transaction


class BudgetWindow(StrEnum):
    """What a user's limit is for."""

    DAY = "day"
    MONTH = "month"


class PauseReason(StrEnum):
    """Why nobody may call a model."""

    CAP = "cap"
    KILL_SWITCH = "kill switch"


class BudgetSpent(PortError):
    """What is left of the budget is less than this call may need."""

    def __init__(self, window: BudgetWindow, resets_at: datetime) -> None:
        super().__init__(f"the {window}'s budget is spent until {resets_at:%Y-%m-%d %H:%M} UTC")
        self.window, self.resets_at = window, resets_at


class CallsPaused(PortError):
    """No model is called for anybody at the moment."""

    def __init__(self, reason: PauseReason, until: datetime | None) -> None:
        super().__init__(f"paused by the {reason} until {f'{until:%Y-%m-%d %H:%M} UTC' if until else 'a person releases it'}")
        self.reason, self.until = reason, until


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetHold:
    """Tokens set aside for one call."""

    id: UUID
    """The call's row in `calls` gets this id: so a counter that is rebuilt from there knows what it has counted."""
    user_id: UUID
    day: date
    """The day that pays, however late the call ends. The call's row says the same."""
    tokens: int
    day_limit: int
    month_limit: int
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUsage:
    """What a user has used, and what is reserved for calls under way."""

    day_tokens: int
    day_held: int
    day_micro_usd: int
    month_tokens: int
    month_held: int


class Budgets(Protocol):
    """The tokens of users. Two calls never get the same tokens, however many ask at once.

    At 80 % and at 100 % of a window's limit, used and not only reserved, a person is told: `budget_threshold`, once per window."""

    async def reserve(self, user_id: UUID, *, day_limit: int, month_limit: int, tokens: int, lease_s: float) -> BudgetHold:
        """Set aside what a call may need at most, in both windows or in none. Raises BudgetSpent; the month, where both are spent.

        Fails closed: StoreUnavailable when a second of trying does not tell what is left; then nothing stays reserved. After `lease_s` the
        tokens are free again, whatever happened."""
        ...

    async def settle(self, hold: BudgetHold, *, tokens: int, micro_usd: int) -> None:
        """Replace the reservation by what was used. The first one counts. Call it after the commit of the call's row in `calls`.

        Never raises for a store that is away: the charge is kept in this process and sent later; `calls` has it in any case."""
        ...

    async def release(self, hold: BudgetHold) -> None:
        """Give back what is still reserved; nothing was used. Never raises: what cannot be given back now runs out by itself."""
        ...

    async def used(self, user_id: UUID) -> BudgetUsage:
        """Return where a user stands today. Raises StoreUnavailable."""
        ...


class GlobalSpend(Protocol):
    """The money of the platform. The cap fails open: it is worth less than an answer. The kill switch does not."""

    async def admit(self, cap_micro_usd: int | None) -> None:
        """Return if a model may be called; raise Paused at the cap, until the next day, or while the kill switch is latched.

        Nothing is reserved, so calls under way may end above the cap. Before the latch was read once, StoreUnavailable is raised."""
        ...

    async def add(self, micro_usd: int, *, day: date | None = None, call_id: UUID | None = None) -> None:
        """Count money that was spent, today or on the day of a hold. Never raises for a store that is away; the amount is added later.

        `call_id` names the row in `calls`, committed before: a counter rebuilt from there has it already, and does not get it again."""
        ...

    async def kill_switch(self, reason: str, by: str) -> None:
        """Stop all calls, now and in every process, until a person releases it; repeated, the first reason stands.

        Raises StoreUnavailable when it could not be made to last: then it holds here, goes on trying, and may be repeated."""
        ...

    async def release(self, by: str) -> None:
        """Allow calls again. Raises StoreUnavailable where a part of it could not be done; may be repeated."""
        ...

    async def kill_switch_record(self) -> KillSwitchRecord | None:
        """Return the kill switch's latch if it is engaged."""
        ...


@dataclass(frozen=True, slots=True)
class KillSwitchRecord:
    """Who stopped all calls, when, and why."""

    engaged_at: datetime
    by: str
    reason: str


class KillSwitchRecords(Protocol):
    """The kill switch where it lasts. At most one latch is engaged."""

    async def engaged(self, tx: Transaction) -> KillSwitchRecord | None:
        """Return the latch that is engaged, if any."""
        ...

    async def engage(self, tx: Transaction, by: str, reason: str) -> KillSwitchRecord:
        """Engage the latch, and return the one that stands: an earlier one stays as it is."""
        ...

    async def release(self, tx: Transaction, by: str) -> bool:
        """Release the latch; False when none was engaged."""
        ...
