"""What API keys use: the errors of a key that has reached a limit, and the port that counts requests.

Calls are counted with the user's budget, in one step (`ports.credits.Budgets`); requests are counted where they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from hermes.ports.credits import BudgetSpent, BudgetWindow
from hermes.ports.key_limits import KeyLimits
from hermes.ports.models import NoAnswer, NoCapacity

MAX_SHOWN_CHARS = 60
"""Of a name, in an error."""


class KeyLimit(StrEnum):
    """Which limit a key has reached."""

    DAY_USD = "dollars a day"
    MONTH_USD = "dollars a month"
    DAY_TOKENS = "tokens a day"
    MONTH_TOKENS = "tokens a month"
    MINUTE_REQUESTS = "requests a minute"
    MINUTE_TOKENS = "tokens a minute"
    AT_ONCE = "calls at once"

    @property
    def window(self) -> BudgetWindow | None:
        """The window of a quota; None for a rate."""
        windows = {
            KeyLimit.DAY_USD: BudgetWindow.DAY,
            KeyLimit.DAY_TOKENS: BudgetWindow.DAY,
            KeyLimit.MONTH_USD: BudgetWindow.MONTH,
            KeyLimit.MONTH_TOKENS: BudgetWindow.MONTH,
        }
        return windows.get(self)


class KeyQuotaSpent(BudgetSpent):
    """What is left of the key's day or month is less than this call may need."""

    def __init__(self, limit: KeyLimit, window: BudgetWindow, resets_at: datetime) -> None:
        super().__init__(window, resets_at)
        self.args = (f"the API key's {limit} are spent until {resets_at:%Y-%m-%d %H:%M} UTC",)
        self.limit = limit


class KeyRateReached(NoCapacity):
    """The key came too often within the last minute, or has too many calls under way. The same call may be made in `wait_s`."""

    def __init__(self, limit: KeyLimit, wait_s: float | None) -> None:
        """`wait_s` is None for a call that needs more than the limit allows at any time."""
        super().__init__(
            f"the API key has reached its {limit}" if wait_s is not None else f"this call needs more than the API key's {limit}"
        )
        self.limit, self.wait_s = limit, wait_s


class KeyForbids(NoAnswer):
    """The key may not use this model, or may not name this user."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


def check_user_name(limits: KeyLimits, name: str) -> None:
    """Raise KeyForbids for a name that the patterns of a key leave out."""
    if not limits.allows_user(name):
        raise KeyForbids("user", f"This API key may name the users {', '.join(limits.users or ())}; got {name[:MAX_SHOWN_CHARS]!r}.")


def person_forbidden(name: str) -> KeyForbids:
    """The error for the name of a person who also writes where people write: such a name stands in the patterns of a key, or is refused."""
    return KeyForbids("user", f"The user {name[:MAX_SHOWN_CHARS]!r} is a person of a messaging channel, whom this API key does not name.")


# --- counting


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUsage:
    """What a key has used, with what is reserved for its calls under way."""

    day_micro_usd: int = 0
    month_micro_usd: int = 0
    day_tokens: int = 0
    month_tokens: int = 0
    minute_requests: int = 0
    """Counted only while the key has a limit for them."""
    minute_tokens: int = 0
    calls_at_once: int = 0


class KeyUse(Protocol):
    """What keys use, shared by all processes. Fails closed: raises StoreUnavailable."""

    async def count_request(self, key_id: UUID, limits: KeyLimits) -> None:
        """Count a request. Raises KeyRateReached; a request that is refused does not count."""
        ...

    async def check_quota(self, key_id: UUID, limits: KeyLimits) -> None:
        """Raise KeyQuotaSpent if nothing is left of the key's day or month. Reserves nothing."""
        ...

    async def used(self, key_id: UUID) -> KeyUsage:
        """Return what a key has used."""
        ...
