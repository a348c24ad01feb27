"""Ask a model on behalf of the memory: what a message says about its writer, what follows from all that is known.

The user whose memory it is pays. Each call has its row, with the source `memory`, and counts in the user's tokens and in the operator's
money as every other call does: a budget that leaves out some calls is no budget. But no user waits for these calls, so answers come first:
a model is asked only while half of a day's tokens are left, of the day and of the month. Below that, rules and counts work without a model,
and the tokens that are left are for answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from hermes.ports.backends import BackendError, ModelRequest
from hermes.ports.credits import Budgets, BudgetSpent, CallsPaused
from hermes.ports.errors import NotFound, StoreUnavailable, UserErased
from hermes.ports.models import Caller, CallPurpose, CallSource, Models, NoAnswer
from hermes.ports.runtime import Transactions
from hermes.ports.users import Agent, User, Users, UserState
from hermes.turn import Platform

TextCompleter = Callable[[list[dict[str, str]]], Awaitable[str]]
"""Asks a model and returns its text."""

MIN_DAY_SHARE_LEFT = 0.5
"""The share of a day's tokens that the memory leaves for answers."""


class NoCapableModel(NoAnswer):
    """The user's tier has no model that can read a message."""


class TokensKeptForAnswers(NoAnswer):
    """The tokens that the user has left are kept for answers."""


NO_ANSWER_ERRORS: tuple[type[Exception], ...] = (NoAnswer, BudgetSpent, CallsPaused, BackendError, TimeoutError)
"""The errors that mean that no model answered: for `fails_with` of MemoryWriter and Dreamer."""


class TokenAllowance(Protocol):
    """How many tokens a tier gives to a user."""

    @property
    def day_tokens(self) -> int: ...

    @property
    def month_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True)
class MemoryCause:
    """Why the memory asks a model: for the call's row."""

    purpose: CallPurpose
    platform: Platform | None = None
    api_key_id: UUID | None = None
    turn_id: UUID | None = None
    """The turn whose message is learned from: the call is part of its cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """Asks models on behalf of users."""

    models: Models
    budgets: Budgets
    transactions: Transactions
    people: Users
    agent_on: Callable[[str], Agent]
    """The agent that answers on an account. If it has a tier of its own, memory calls use that tier too."""
    tier: Callable[[str], TokenAllowance]
    """A tier by its name; raises NotFound."""
    can_read: Callable[[str], bool] = lambda _: True
    """Whether a tier, by its name, has models that can read a message."""
    chain: Sequence[str] = ()
    """The models to try; if empty, those of the user's tier."""
    max_tokens: int = 1_024

    def on_behalf_of(self, user_id: UUID, account: str, cause: MemoryCause, *, deadline_s: float = 25.0) -> TextCompleter:
        """Return a function that asks a model, paid by this user. It raises NO_ANSWER_ERRORS, and UserErased for a deleted user.

        The deadline is shorter than the caller's own timeout, so that the call ends by itself and its row says why."""

        async def complete(messages: list[dict[str, str]]) -> str:
            try:
                tier = await self._tier_of(user_id, account)
                if not self.chain and not self.can_read(tier):
                    raise NoCapableModel
                await self._keep_for_answers(user_id, tier)
                caller = Caller(
                    user_id=user_id,
                    account=account,
                    tier=tier,
                    source=CallSource.MEMORY,
                    purpose=cause.purpose,
                    platform=cause.platform,
                    api_key_id=cause.api_key_id,
                    turn_id=cause.turn_id,
                    agent=self.agent_on(account).name,
                    uses_adapter=False,  # an adapter that works for minutes, in a folder, is not for a line about a user
                    models=self.chain or None,
                    deadline_s=deadline_s,
                )
                request = ModelRequest(messages=messages, max_tokens=self.max_tokens, sampling={"temperature": 0}, user=str(user_id))
                answer = await self.models.complete(request, caller)
            except (StoreUnavailable, NotFound) as error:
                # Without the store the tokens that are left are unknown, so they count as spent. What the rules read is saved all the same.
                raise NoAnswer(f"the call could not be admitted: {error}") from error
            content = answer.completion.message.get("content")
            return content if isinstance(content, str) else ""

        return complete

    async def has_model(self, user_id: UUID, account: str) -> bool:
        """Whether the user's tier has a model that can read. It may still not answer. Raises UserErased and NotFound."""
        return bool(self.chain) or self.can_read(await self._tier_of(user_id, account))

    async def _tier_of(self, user_id: UUID, account: str) -> str:
        async with self.transactions.begin() as tx:
            user: User = await self.people.get(tx, user_id)
        if user.state is UserState.DELETED:
            raise UserErased
        return self.agent_on(account).tier or user.tier

    async def _keep_for_answers(self, user_id: UUID, tier: str) -> None:
        allowance, used = self.tier(tier), await self.budgets.used(user_id)
        left_of_day = allowance.day_tokens - used.day_tokens - used.day_held
        left_of_month = allowance.month_tokens - used.month_tokens - used.month_held
        if min(left_of_day, left_of_month) < MIN_DAY_SHARE_LEFT * allowance.day_tokens:
            raise TokensKeptForAnswers
