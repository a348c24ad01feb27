"""Asking a model for the memory's sake: in the user's name, on the user's account, and never at the cost of an answer."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from hermes.ports.backends import ModelRequest, Unreachable
from hermes.ports.credits import BudgetSpent, BudgetUsage, BudgetWindow, CallsPaused, PauseReason
from hermes.ports.errors import NotFound, StoreUnavailable, UserErased
from hermes.ports.models import Caller, CallPurpose, CallSource, ChainFailed, NoAnswer
from hermes.ports.users import Agent, User, UserState
from hermes.soul.memory_model import NO_ANSWER_ERRORS, MemoryCause, MemoryModel, NoCapableModel, TokensKeptForAnswers
from hermes.testing import ScriptedModel
from hermes.testing.memory import MemoryTransactions, MemoryUsers
from hermes.turn import Platform

QUESTION = [{"role": "user", "content": "I'm vegan"}]
CAUSE = MemoryCause(CallPurpose.REMEMBER, Platform.REST, UUID(int=8), UUID(int=7))
MORNING = datetime(2026, 11, 16, tzinfo=UTC)


@dataclass(frozen=True)
class Tier:
    day_tokens: int = 50_000
    month_tokens: int = 1_500_000


@dataclass
class House:
    """Models that say one thing or fail, a user, and what they have used of their budget."""

    model: ScriptedModel = field(default_factory=lambda: ScriptedModel(lambda _: '{"facts": []}'))
    used: Any = field(default_factory=lambda: BudgetUsage(day_tokens=0, day_held=0, day_micro_usd=0, month_tokens=0, month_held=0))
    agent: Agent = field(default_factory=lambda: Agent(name="hermes"))
    user: User = field(default_factory=lambda: User(uuid4(), UserState.ACTIVE, "free", "en", "code", trains=False))

    def memory_model(self, **changed: Any) -> MemoryModel:
        people = MemoryUsers(users={self.user.id: self.user})

        async def used(_: UUID) -> BudgetUsage:
            if isinstance(self.used, Exception):
                raise self.used
            return cast("BudgetUsage", self.used)

        def tier(name: str) -> Tier:
            if name == "gone":
                raise NotFound(f"there is no tier {name}")
            return Tier()

        budgets = cast("Any", type("Budgets", (), {"used": staticmethod(used)}))
        parts: dict[str, Any] = {"people": people, "agent_on": lambda _: self.agent, "tier": tier, **changed}
        return MemoryModel(models=self.model, budgets=budgets, transactions=MemoryTransactions(), **parts)

    async def ask(self, **changed: Any) -> str:
        return await self.memory_model(**changed).on_behalf_of(self.user.id, "bali", CAUSE)(QUESTION)


async def test_a_call_is_the_users_own_and_says_what_it_was_for() -> None:
    house = House()
    assert await house.ask() == '{"facts": []}'
    [ask], [caller] = house.model.requests, house.model.callers
    assert caller == Caller(
        user_id=house.user.id,
        account="bali",
        tier="free",
        source=CallSource.MEMORY,
        purpose=CallPurpose.REMEMBER,
        platform=Platform.REST,
        api_key_id=UUID(int=8),
        turn_id=UUID(int=7),
        agent=house.agent.name,
        uses_adapter=False,
        models=None,
        deadline_s=25.0,
    )
    assert ask == ModelRequest(messages=QUESTION, max_tokens=1_024, sampling={"temperature": 0}, user=str(house.user.id))


async def test_an_agents_own_tier_and_a_chain_of_the_settings_are_used() -> None:
    house = House(agent=Agent(name="vera", tier="pro"))
    await house.ask(chain=("claude-haiku",))
    [caller] = house.model.callers
    assert (caller.tier, caller.models) == ("pro", ("claude-haiku",))


@pytest.mark.parametrize(
    ("used", "is_asked"),
    [
        ({"day_tokens": 25_000}, True),
        ({"day_tokens": 25_001}, False),
        ({"day_tokens": 20_000, "day_held": 5_001}, False),
        ({"month_tokens": 1_475_000}, True),
        ({"month_tokens": 1_470_000, "month_held": 5_001}, False),
    ],
)
async def test_half_of_a_days_tokens_is_left_for_answers(used: dict[str, int], is_asked: bool) -> None:
    house = House()
    house.used = replace(house.used, **used)
    if is_asked:
        await house.ask()
    else:
        with pytest.raises(TokensKeptForAnswers):
            await house.ask()
    assert len(house.model.requests) == is_asked


@pytest.mark.parametrize(
    "error",
    [
        ChainFailed((), None),
        BudgetSpent(BudgetWindow.DAY, MORNING),
        CallsPaused(PauseReason.KILL_SWITCH, None),
        Unreachable("away", backend="b", model="m"),
        StoreUnavailable(),
    ],
)
async def test_whatever_keeps_a_model_from_answering_is_no_answer(error: Exception) -> None:
    with pytest.raises(NO_ANSWER_ERRORS):
        await House(ScriptedModel([error])).ask()


async def test_a_budget_that_nobody_can_read_counts_as_spent() -> None:
    house = House(used=StoreUnavailable())
    with pytest.raises(NoAnswer, match="could not be admitted"):
        await house.ask()
    assert house.model.requests == []


async def test_a_tier_that_is_gone_is_no_answer() -> None:
    house = House()
    house.user = replace(house.user, tier="gone")
    with pytest.raises(NoAnswer, match="there is no tier gone"):
        await house.ask()


async def test_nobody_is_asked_on_behalf_of_somebody_who_was_deleted() -> None:
    house = House()
    house.user = replace(house.user, state=UserState.DELETED)
    with pytest.raises(UserErased):
        await house.ask()
    assert house.model.requests == []


async def test_a_model_that_says_nothing_said_an_empty_text() -> None:
    assert await House(ScriptedModel([{"content": None}])).ask() == ""


async def test_a_tier_without_a_model_that_reads_is_not_asked_in_vain() -> None:
    house = House()
    with pytest.raises(NoCapableModel):
        await house.ask(can_read=lambda tier: tier != "free")
    assert house.model.requests == []
    await house.ask(can_read=lambda tier: tier != "free", chain=("claude-haiku",))
    assert len(house.model.requests) == 1
