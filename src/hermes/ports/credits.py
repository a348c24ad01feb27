"""What a turn may cost: a user's credits, a user's budgets in tokens, and the money that all users spend together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from hermes.ports.errors import OutOfCredit, PortError
from hermes.ports.key_limits import KeyClaim
from hermes.ports.runtime import Transaction

# --- credits: append-only entries, and a balance that is checked against them
#
# The life of a turn's credit (`attempt` counts its reserves):
#
#     reserve ──▶ post ──▶ refund      paid: at most once in the turn's life, given back at most once, never reserved again
#        ▲ │
#        └─┴───▶ void                  given back: a later attempt may reserve again


@dataclass(frozen=True, slots=True)
class Balance:
    """What a user can spend, and what is reserved for turns under way."""

    available: int
    reserved: int


class ReserveOutcome(StrEnum):
    """How the wish to reserve credits for a turn ended."""

    RESERVED = "reserved"
    """The turn's reserve is open now."""
    PAID = "paid"
    """The turn was paid already, and nothing is charged."""
    ENDED = "ended"
    """The turn has ended, and nothing is charged."""
    OUT_OF_CREDIT = "out of credit"
    OF_ANOTHER_USER = "of another user"


def is_reserved(outcome: ReserveOutcome, user_id: UUID, turn_id: UUID) -> bool:
    """Whether the turn's reserve is open. Raises OutOfCredit, and ValueError for a turn of another user."""
    if outcome is ReserveOutcome.OUT_OF_CREDIT:
        raise OutOfCredit
    if outcome is ReserveOutcome.OF_ANOTHER_USER:
        raise ValueError(f"the turn {turn_id} belongs to another user than {user_id}")
    return outcome is ReserveOutcome.RESERVED


class Credits(Protocol):
    """The credits of users. Fails closed: with the store unreachable nothing is reserved. Every call may be repeated; it counts once.

    A call that changes credits locks the user's balance until its transaction ends, so turns of one user queue there: keep such a
    transaction short, and call no model in it. A caller that changes the credits of two users in one transaction does so in the order of
    their ids; otherwise two such transactions can wait for each other."""

    async def grant(self, tx: Transaction, user_id: UUID, amount: int, event: str) -> bool:
        """Give credits, once per event (`signup:…`, `purchase:…`); False if that event gave them before, whatever the amount.

        Raises NotFound for an unknown user, ValueError for an amount below one or an event that gave credits to another user."""
        ...

    async def reserve(self, tx: Transaction, user_id: UUID, turn_id: UUID, amount: int = 1) -> bool:
        """Reserve credits for a turn. True: its reserve is open now. False: the turn was paid already, or has ended, and nothing is
        charged.

        A turn whose reserve is open keeps it, with the amount it has. Two turns never get the same credit. Raises OutOfCredit, and
        ValueError for an amount below one or a turn of another user; then nothing is written."""
        ...

    async def post(self, tx: Transaction, turn_id: UUID) -> bool:
        """Turn the reserve into a charge; False if the turn was posted before.

        Raises NotFound without an open reserve: there never was one, it was voided, or it expired. A caller that has an answer to charge
        for then reserves again, in the same transaction, and posts that."""
        ...

    async def void(self, tx: Transaction, turn_id: UUID) -> bool:
        """Give the open reserve back; False if none is open, so also for a turn that was posted."""
        ...

    async def refund(self, tx: Transaction, turn_id: UUID) -> bool:
        """Give a charge back, once; False if there is none or it was given back before. The turn stays paid: it is not charged again."""
        ...

    async def expire(self, tx: Transaction, older_than_s: float) -> int:
        """Void the reserves that are at least this old, because no turn will end them any more; return how many.

        Never waits: a user whose balance is locked is left for the next call. Call it in a transaction of its own."""
        ...

    async def balance(self, tx: Transaction, user_id: UUID) -> Balance:
        """Return the balance; zero for a user who never had credits."""
        ...

    async def audit(self, tx: Transaction) -> list[str]:
        """Compare every balance with its entries, and every turn with the life above; return the faults, one line each. Empty is good."""
        ...


# --- budgets: tokens of a user per day and month
#
# Whole numbers only: tokens and micro-dollars (1 USD = 1,000,000). Days and months are those of UTC. The life of a hold:
#
#     reserve ──▶ settle        the reservation becomes what was really used, also 0, also after the lease ran out; counts once
#        │
#        ├──────▶ release       given back: nothing was used
#        └──────▶ (lease over)  given back by itself: the process that reserved it is gone


class BudgetWindow(StrEnum):
    """The period of a user's limit."""

    DAY = "day"
    MONTH = "month"


class BudgetSpent(PortError):
    """The rest of the budget is less than this call may need."""

    def __init__(self, window: BudgetWindow, resets_at: datetime) -> None:
        super().__init__(f"the {window}'s budget is spent until {resets_at:%Y-%m-%d %H:%M} UTC")
        self.window, self.resets_at = window, resets_at


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetHold:
    """Tokens reserved for one call."""

    id: UUID
    """The call's row in `calls` gets this id, so that a counter rebuilt from the rows knows which calls it has counted."""
    user_id: UUID
    day: date
    """The day that pays, however late the call ends. The call's row says the same."""
    tokens: int
    day_limit: int
    month_limit: int
    reserved_at: datetime
    expires_at: datetime
    key: KeyClaim | None = None
    """What is reserved of the API key that makes the call; None: no key makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUsage:
    """The tokens that a user has used, and those reserved for calls under way."""

    day_tokens: int
    day_held: int
    day_micro_usd: int
    month_tokens: int
    month_held: int


class Budgets(Protocol):
    """The token budgets of users. Two calls never get the same tokens, however many reserve at once.

    When a user has used (not only reserved) 80 % and 100 % of a window's limit, the operator gets the alert `budget_threshold`, once per
    window."""

    async def reserve(
        self, user_id: UUID, *, day_limit: int, month_limit: int, tokens: int, lease_s: float, key: KeyClaim | None = None
    ) -> BudgetHold:
        """Reserve what a call may need at most, in both windows or in none. Raises BudgetSpent; it names the month if both are spent.

        With `key` also of the API key that makes the call, in the same step: of its money, its tokens and its calls at once, or nothing of
        anything. Raises KeyQuotaSpent and KeyRateReached.

        Fails closed: raises StoreUnavailable if the store does not answer within a second of trying; then nothing stays reserved. After
        `lease_s` the tokens are free again, whatever happened."""
        ...

    async def settle(self, hold: BudgetHold, *, tokens: int, micro_usd: int) -> None:
        """Replace the reservation by what was used. The first call counts. Call it after the commit of the call's row in `calls`.

        Does not raise while the store is down: this process keeps the charge and sends it later; `calls` has it in any case."""
        ...

    async def release(self, hold: BudgetHold) -> None:
        """Give back what is still reserved; nothing was used. Never raises: a reservation that cannot be given back now ends with its
        lease."""
        ...

    async def used(self, user_id: UUID) -> BudgetUsage:
        """Return what a user has used and reserved, today and this month. Raises StoreUnavailable."""
        ...


# --- the money of all users together, per day, and the kill switch


class PauseReason(StrEnum):
    """Why no model may be called."""

    CAP = "cap"
    KILL_SWITCH = "kill switch"
    AGENT_CAP = "agent's cap"
    FLEET_CAP = "fleet's cap"


class CallsPaused(PortError):
    """No model is called at the moment: for any user, or for the agent that would answer."""

    def __init__(self, reason: PauseReason, until: datetime | None) -> None:
        super().__init__(f"paused by the {reason} until {f'{until:%Y-%m-%d %H:%M} UTC' if until else 'the operator releases it'}")
        self.reason, self.until = reason, until


@dataclass(frozen=True, slots=True)
class KillSwitchRecord:
    """Who stopped all calls, when, and why."""

    engaged_at: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KillSwitchUse:
    """One time that all calls were stopped, and how it ended: both None while it lasts."""

    engaged_at: datetime
    by: str
    reason: str
    released_at: datetime | None
    released_by: str | None


class KillSwitchHistory(Protocol):
    """What was recorded of the kill switch. Only for people: calls ask GlobalSpend."""

    async def list(self, tx: Transaction, *, limit: int) -> Sequence[KillSwitchUse]:
        """Return its uses, the newest first."""
        ...


class GlobalSpend(Protocol):
    """The money that all users spend together. The daily cap fails open: an answer is worth more than the cap. The kill switch does not
    fail open."""

    async def admit(self, cap_micro_usd: int | None) -> None:
        """Return if a model may be called; raise CallsPaused at the cap, until the next day, or while the kill switch is engaged.

        Reserves nothing, so calls under way may end above the cap. Raises StoreUnavailable until the kill switch was read once."""
        ...

    async def add(self, micro_usd: int, *, day: date | None = None, call_id: UUID | None = None) -> None:
        """Count money that was spent, today or on the day of a hold. Does not raise while the store is down; the amount is added later.

        `call_id` names the row in `calls`, committed before: a counter rebuilt from the rows has counted it and does not count it again."""
        ...

    async def spent_today(self) -> int:
        """Return the micro-dollars of today. Raises StoreUnavailable."""
        ...

    async def kill_switch(self, reason: str, by: str) -> None:
        """Stop all calls, now and in every process, until the operator releases the switch. If repeated, the first reason stands.

        Raises StoreUnavailable if it could not be stored: then it holds in this process, which goes on trying; it may be repeated."""
        ...

    async def release(self, by: str) -> None:
        """Allow calls again. Raises StoreUnavailable if a part of it could not be done; may be repeated."""
        ...

    async def kill_switch_record(self) -> KillSwitchRecord | None:
        """Return the record of the kill switch if it is engaged."""
        ...


# --- the money of agents, per day: calls that are made for an agent count for it, and for the fleet, which is all agents together


class AgentSpend(Protocol):
    """The money that each agent spends. Its caps hold in all processes together, and fail open as the platform's cap does.

    When an agent or the fleet has spent 80 % and 100 % of its cap, the operator gets the alert `budget_threshold`, once per day and cap."""

    async def admit(self, agent: str, *, cap_micro_usd: int | None, fleet_cap_micro_usd: int | None) -> None:
        """Return if a model may be called for the agent; raise CallsPaused at its cap, or at the fleet's, until the next day (UTC).

        Reserves nothing, so calls under way may end above the cap."""
        ...

    async def add(self, agent: str, micro_usd: int, *, day: date, call_id: UUID) -> None:
        """Count money that a call cost, on the day that pays it. Does not raise while the store is down; the amount is added later.

        `call_id` names the row in `calls`, committed before: counters rebuilt from the rows have counted it and do not count it again."""
        ...

    async def spent_today(self) -> Mapping[str, int]:
        """Return the micro-dollars of today by agent; agents that spent nothing may be missing. Raises StoreUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class DaySpend:
    """What was spent on a day, and the cap; both in micro-dollars. Without a limit, the cap is None."""

    micro_usd: int
    cap_micro_usd: int | None


@dataclass(frozen=True, slots=True)
class SpendToday:
    """What was spent today (UTC): by the whole platform, by all agents together, and by each agent."""

    platform: DaySpend
    fleet: DaySpend
    agents: Mapping[str, DaySpend]
