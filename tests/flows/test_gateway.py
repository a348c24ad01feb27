"""The gateway on real stores and real HTTP: every call is let in once, paid once, and recorded, however it ends."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from redis.asyncio import Redis

from hermes.gateway.fleet import Adapter
from hermes.gateway.prices import Prices
from hermes.gateway.slots import Slots
from hermes.gateway.unwell_models import ModelWatch
from hermes.ports.backends import CutShort, ModelRequest, TextDelta
from hermes.ports.credits import BudgetSpent, CallsPaused
from hermes.ports.models import Answer, AnswerStarted, CallOutcome, ChainFailed, ModelAddress, ModelCondition, NoCapacity, UnknownPrice
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.redis.model_breakers import RedisModelBreakers
from hermes.testing.memory import MemoryModelBreakers
from tests.fakes.vendors import Cut
from tests.flows.gateway_house import HELLO, NOON, House, Noon, open_house


@pytest.fixture
async def house(database: Database, redis_url: str) -> AsyncIterator[House]:
    async with open_house(database, redis_url) as made:
        yield made


async def streamed(house: House, ask: ModelRequest = HELLO) -> tuple[str, Answer]:
    text = ""
    async with aclosing(house.gateway.stream(ask, house.caller())) as pieces:
        async for piece in pieces:
            if isinstance(piece, Answer):
                return text, piece
            assert isinstance(piece, AnswerStarted | TextDelta)
            text += piece.text if isinstance(piece, TextDelta) else ""
    raise AssertionError


async def test_an_answer_is_paid_recorded_and_taken_from_the_budget(house: House) -> None:
    house.vendors.anthropic.say("hi there")
    answer = await house.gateway.complete(HELLO, house.caller())
    usage = answer.completion.usage
    assert (answer.completion.message["content"], answer.backend, answer.model) == ("hi there", "anthropic", "claude-sonnet-4-6")
    assert answer.micro_usd == usage.tokens_in * 3 + usage.tokens_out * 15
    assert await house.rows() == [
        ("answered", "anthropic", "claude-sonnet-4-6", usage.tokens_in, usage.tokens_out, answer.micro_usd, False)
    ]
    assert await house.day() == (usage.tokens_in + usage.tokens_out, 0, answer.micro_usd)


async def test_streamed_and_whole_cost_the_same(house: House) -> None:
    for _ in range(2):
        house.vendors.anthropic.say("one two three")
    whole = await house.gateway.complete(HELLO, house.caller())
    text, answer = await streamed(house)
    assert (text, answer.completion.usage, answer.micro_usd) == ("one two three", whole.completion.usage, whole.micro_usd)
    first, second = await house.rows()
    assert first == second


async def test_a_dead_model_fails_over_and_costs_nothing(house: House) -> None:
    house.vendors.anthropic.fail(529)
    house.vendors.anthropic.say("hi")
    answer = await house.gateway.complete(HELLO, house.caller())
    assert [(attempt.name, attempt.outcome, attempt.status) for attempt in answer.attempts] == [
        ("claude-sonnet", "Overloaded", 529),
        ("claude-haiku", "answered", None),
    ]
    assert answer.model == "claude-haiku-4-5-20251001"


async def test_calls_tokens_and_cost_are_counted(house: House) -> None:
    house.vendors.anthropic.fail(529)
    house.vendors.anthropic.say("hi")
    answer = await house.gateway.complete(HELLO, house.caller())
    page = (await house.metrics.exposition())[0].decode()
    for line in (
        'hermes_llm_calls_total{backend="anthropic",tier="venue-growth"} 1.0',
        f'hermes_llm_tokens_total{{backend="anthropic",direction="in"}} {float(answer.completion.usage.tokens_in)}',
        f'hermes_llm_cost_usd_total{{backend="anthropic",tier="venue-growth"}} {answer.micro_usd / 1_000_000}',
        'hermes_llm_attempts_total{backend="anthropic",outcome="Overloaded"} 1.0',
        'hermes_llm_attempts_total{backend="anthropic",outcome="answered"} 1.0',
        "hermes_llm_slots_used 0.0",
    ):
        assert line in page


async def test_a_call_that_nobody_answers_is_recorded_and_costs_nothing(house: House) -> None:
    house.vendors.anthropic.fail(403)
    house.vendors.anthropic.fail(500)
    with pytest.raises(ChainFailed, match=r"claude-sonnet: Unauthorized, claude-haiku: Overloaded"):
        await house.gateway.complete(HELLO, house.caller())
    assert await house.rows() == [("failed", None, "claude-sonnet-4-6", 0, 0, 0, False)]
    assert await house.day() == (0, 0, 0)
    assert house.bell.rung == ["backend_refused_us"]


async def test_half_an_answer_is_an_error_that_is_paid_for(house: House) -> None:
    house.vendors.anthropic.say("one two three", cut=Cut.RESET)
    with pytest.raises(CutShort) as cut:
        await streamed(house)
    assert cut.value.partial["content"]
    [(outcome, *_, micro_usd, _)] = await house.rows()
    assert outcome == CallOutcome.CUT_SHORT
    assert (await house.day())[2] == micro_usd > 0


async def test_whoever_leaves_a_stream_pays_for_what_was_said(house: House) -> None:
    house.vendors.anthropic.say("one two three four five", drip_s=0.05)
    async with aclosing(house.gateway.stream(HELLO, house.caller())) as pieces:
        assert isinstance(await anext(pieces), AnswerStarted)
        assert isinstance(await anext(pieces), TextDelta)
    [(outcome, _, _, tokens_in, tokens_out, micro_usd, is_estimated)] = await house.rows()
    assert (outcome, is_estimated) == (CallOutcome.CANCELLED, True)
    assert min(int(str(tokens_in)), int(str(tokens_out)), int(str(micro_usd))) > 0
    assert (await house.day())[1] == 0
    assert house.gateway.slots.used == 0


async def test_the_money_is_counted_before_the_gateway_has_settled_although_the_budget_raises(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[int] = []

    async def settle(*_: object, **__: object) -> None:
        raise ValueError("an amount cannot be negative")

    async def add(micro_usd: int, **_: object) -> None:
        for _ in range(20):
            await asyncio.sleep(0)  # a slow store
        added.append(micro_usd)

    monkeypatch.setattr(house.budgets, "settle", settle)
    monkeypatch.setattr(house.spend, "add", add)
    answer = await house.gateway.complete(HELLO, house.caller())
    await house.gateway.wait_settled()
    assert added == [answer.micro_usd]


async def test_nobody_is_let_in_beyond_their_budget(house: House) -> None:
    ask = ModelRequest(messages=HELLO.messages, max_tokens=2_048)
    for _ in range(64):
        house.vendors.anthropic.say("hi", drip_s=0.2)

    async def call() -> bool:
        try:
            await house.budgets.reserve(house.user.id, day_limit=50_000, month_limit=1_500_000, tokens=5_000, lease_s=60)
        except BudgetSpent:
            return False
        return True

    assert sum(await asyncio.gather(*(call() for _ in range(64)))) == 10
    with pytest.raises(BudgetSpent):
        await house.gateway.complete(ask, house.caller("free"))
    assert await house.ask("select outcome, error, micro_usd from calls") == [("refused", "BudgetSpent: day", 0)]


async def test_the_kill_switch_stops_everybody_at_once(house: House) -> None:
    await house.spend.kill_switch("runaway", by="ops")
    with pytest.raises(CallsPaused):
        await house.gateway.complete(HELLO, house.caller())
    await house.spend.release(by="ops")
    assert await house.ask("select outcome, error, micro_usd from calls") == [("refused", "CallsPaused: kill switch", 0)]
    assert await house.day() == (0, 0, 0)


async def test_a_model_without_a_price_is_not_asked(house: House) -> None:
    gateway = replace(house.gateway, prices=Prices(()))
    with pytest.raises(UnknownPrice):
        await gateway.complete(HELLO, house.caller())
    assert house.vendors.anthropic.requests == []
    assert await house.day() == (0, 0, 0)


async def test_over_capacity_somebody_waits_and_then_is_told_so_and_pays_nothing(house: House) -> None:
    for _ in range(2):
        house.vendors.anthropic.hang()
    calls = [asyncio.create_task(house.gateway.complete(HELLO, house.caller("pro"))) for _ in range(2)]
    await house.vendors.anthropic.asked(2)
    with pytest.raises(NoCapacity):
        await house.gateway.complete(HELLO, house.caller("pro"))
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert house.gateway.slots.used == 0
    assert (await house.day())[1] == 0
    assert sorted(str(row[0]) for row in await house.rows()) == ["cancelled"] * 2 + ["refused"]


async def test_a_reservation_lasts_as_long_as_its_call_may_wait_and_be_answered(house: House) -> None:
    gateway = replace(house.gateway, slots=Slots(4, wait_s=600), deadline_s=45)
    ticket = await gateway._admit(HELLO, house.caller())
    lasts_s = (ticket.hold.expires_at - gateway.clock.now()).total_seconds()
    await house.budgets.release(ticket.hold)
    assert lasts_s > 645


async def test_a_call_that_is_given_up_pays_the_prompt_of_the_model_that_was_asked_last(house: House) -> None:
    house.vendors.anthropic.fail(529)
    house.vendors.anthropic.hang()
    call = asyncio.create_task(house.gateway.complete(HELLO, house.caller()))
    await house.vendors.anthropic.asked(2)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    [(outcome, _, model, tokens_in, tokens_out, micro_usd, _)] = await house.rows()
    assert (outcome, model, tokens_out, micro_usd) == ("cancelled", "claude-haiku-4-5-20251001", 0, tokens_in)
    assert int(str(tokens_in)) > 0
    async with house.database.begin() as tx:
        [[attempts]] = await (await connection_of(tx).execute("select attempts from calls")).fetchall()
    assert [attempt["outcome"] for attempt in attempts] == ["Overloaded"]


async def test_the_same_question_is_answered_out_of_the_cache_for_nothing(house: House) -> None:
    house.vendors.anthropic.say("hi")
    first = await house.gateway.complete(HELLO, house.caller(may_use_cache=True))
    again = await house.gateway.complete(HELLO, house.caller(may_use_cache=True))
    assert (again.completion.message["content"], again.copy_of, again.micro_usd) == ("hi", first.call_id, 0)
    assert len(house.vendors.anthropic.requests) == 1
    assert await house.day() == (first.completion.usage.tokens_in + first.completion.usage.tokens_out, 0, first.micro_usd)
    async with house.database.begin() as tx:
        assert await (await connection_of(tx).execute("select cache_hit from calls order by created_at")).fetchall() == [(False,), (True,)]


async def test_an_answer_from_one_folder_is_not_given_for_another(house: House) -> None:
    adapters = {name: Adapter("claude-sonnet", cwd) for name, cwd in (("ada", "/srv/a"), ("ben", "/srv/b"))}
    gateway = replace(house.gateway, adapter_of=adapters.get)
    for text in ("from a", "from b"):
        house.vendors.anthropic.say(text)
    answers = [await gateway.complete(HELLO, house.caller(may_use_cache=True, agent=agent)) for agent in ("ada", "ben", "ada")]
    assert [answer.completion.message["content"] for answer in answers] == ["from a", "from b", "from a"]
    assert [answer.copy_of for answer in answers] == [None, None, answers[0].call_id]
    await gateway.wait_settled()


async def test_whoever_wants_a_sample_gets_one(house: House) -> None:
    for text in ("one", "two"):
        house.vendors.anthropic.say(text)
    await house.gateway.complete(HELLO, house.caller(may_use_cache=True))
    answer = await house.gateway.complete(HELLO, house.caller(may_use_cache=False))
    assert (answer.completion.message["content"], answer.copy_of) == ("two", None)


@pytest.mark.parametrize("finish", ["max_tokens", "refusal"])
async def test_half_an_answer_or_a_refusal_is_not_given_again(house: House, finish: str) -> None:
    house.vendors.anthropic.say("half", finish=finish)
    house.vendors.anthropic.say("whole")
    await house.gateway.complete(HELLO, house.caller(may_use_cache=True))
    assert (await house.gateway.complete(HELLO, house.caller(may_use_cache=True))).completion.message["content"] == "whole"


async def test_an_answer_of_the_second_model_is_not_given_as_the_first_ones(house: House) -> None:
    house.vendors.anthropic.fail(529)
    for text in ("haiku's", "sonnet's"):
        house.vendors.anthropic.say(text)
    await house.gateway.complete(HELLO, house.caller(may_use_cache=True))
    answer = await house.gateway.complete(HELLO, house.caller(may_use_cache=True))
    assert (answer.completion.message["content"], answer.model) == ("sonnet's", "claude-sonnet-4-6")


# --- sick models


def script(house: House, what: str) -> None:
    sonnet = house.vendors.anthropic
    match what:
        case "429":
            sonnet.fail(429, headers={"retry-after": "7"})
        case "empty":
            sonnet.empty()
        case "page":
            sonnet.html()
        case "reset":
            sonnet.reset()
        case _:
            sonnet.fail(int(what))


@pytest.mark.parametrize(("what", "tries"), [("403", 1), ("429", 1), ("reset", 1), ("500", 3), ("529", 3), ("empty", 3), ("page", 3)])
async def test_a_sick_primary_is_asked_once_or_thrice_in_fifty_calls(house: House, what: str, tries: int) -> None:
    for _ in range(tries):
        script(house, what)
        house.vendors.anthropic.say("hi")
    answers = [await house.gateway.complete(HELLO, house.caller()) for _ in range(50)]
    assert {answer.model for answer in answers} == {"claude-haiku-4-5-20251001"}
    asked = [seen.body["model"] for seen in house.vendors.anthropic.requests]
    assert (asked.count("claude-sonnet-4-6"), len(asked)) == (tries, 50 + tries)
    assert set(house.bell.rung) == {"backend_refused_us" if what == "403" else "model_unwell"}


async def test_a_hanging_primary_costs_the_first_call_its_first_token_limit_and_later_ones_nothing(house: House) -> None:
    house.vendors.anthropic.hang()
    first, second = [await house.gateway.complete(HELLO, house.caller()) for _ in range(2)]
    assert 1_000 <= first.latency_ms < 2_000
    assert (second.latency_ms < 500, len(house.vendors.anthropic.requests)) == (True, 3)
    page = (await house.metrics.exposition())[0].decode()
    assert 'hermes_llm_attempts_total{backend="anthropic",outcome="skipped"} 1.0' in page


class Later(Noon):
    """A clock that the test advances."""

    passed_s = 0.0

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.passed_s)


async def test_no_later_caller_waits_for_a_model_that_hangs_and_a_small_call_finds_out_whether_it_is_back(
    house: House, redis_url: str
) -> None:
    clock, vendor = Later(), house.vendors.anthropic
    house.vendors.ollama.models[:] = ["llama3.2:latest"]
    async with Redis.from_url(redis_url) as redis:
        gateway = replace(house.gateway, watch=ModelWatch(RedisModelBreakers(redis, clock), house.bell))

        async def ask() -> tuple[bool, str]:
            """Whether the answer came at once, and from which backend."""
            answer = await gateway.complete(HELLO, house.caller("starter"))
            await gateway.wait_settled()
            return answer.latency_ms < 500, answer.backend

        vendor.hang()
        assert await ask() == (False, "ollama")
        clock.passed_s = 31.0  # its breaker lets one call through, which hangs again
        vendor.hang()
        assert (await ask(), len(vendor.requests)) == ((True, "ollama"), 2)
        clock.passed_s = 62.0
        assert (await ask(), len(vendor.requests)) == ((True, "ollama"), 2), "twice as long"
        clock.passed_s = 93.0
        assert (await ask(), len(vendor.requests)) == ((True, "ollama"), 3)
        assert await ask() == (True, "anthropic")
    calls = await house.ask("select purpose, outcome, api_key_id from calls order by created_at")
    assert [call for call in calls if call[0] == "canary"] == [("canary", "failed", None), ("canary", "answered", None)]
    probe = vendor.requests[2].body
    assert (probe["max_tokens"], len(probe["messages"])) == (16, 1)


async def test_a_call_that_is_given_up_while_the_breakers_are_read_holds_no_budget(house: House) -> None:
    class Stuck(MemoryModelBreakers):
        async def find_unwell(self, models: Sequence[ModelAddress]) -> Mapping[ModelAddress, ModelCondition]:
            await asyncio.Event().wait()
            raise AssertionError

    gateway = replace(house.gateway, watch=ModelWatch(Stuck(), house.bell))
    call = asyncio.create_task(gateway.complete(HELLO, house.caller()))
    async with asyncio.timeout(5):
        while (await house.budgets.used(house.user.id)).day_held == 0:  # noqa: ASYNC110  # a counter in Redis rings no bell
            await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(5):
        while (await house.budgets.used(house.user.id)).day_held:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert house.vendors.anthropic.requests == []


async def test_another_process_does_not_ask_a_sick_model_either(house: House, database: Database, redis_url: str) -> None:
    house.vendors.anthropic.fail(403)
    await house.gateway.complete(HELLO, house.caller())
    async with open_house(database, redis_url) as there:
        answer = await there.gateway.complete(HELLO, there.caller())
    assert [(attempt.name, attempt.outcome) for attempt in answer.attempts] == [
        ("claude-sonnet", "skipped: breaker open"),
        ("claude-haiku", "answered"),
    ]
