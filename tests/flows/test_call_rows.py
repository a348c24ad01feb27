"""What the row of a call says: its purpose, how long it took and waited, and why it has no answer. Refused calls have rows too."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from hermes.gateway.prices import Prices
from hermes.gateway.refused_calls import RefusedCalls
from hermes.gateway.slots import Slots
from hermes.ports.credits import CallsPaused, DaySpend, SpendToday
from hermes.ports.errors import NotFound
from hermes.ports.models import CallOutcome, CallPurpose, CallSource, ChainFailed, ModelCall, NoCapacity, UnknownPrice
from hermes.stores.postgres.database import Database
from hermes.turn import Platform
from tests.flows.gateway_house import HELLO, NOON, House, open_house


@pytest.fixture
async def house(database: Database, redis_url: str) -> AsyncIterator[House]:
    async with open_house(database, redis_url) as made:
        yield made


async def test_a_row_says_what_its_call_was_for(house: House) -> None:
    key, turn = uuid4(), uuid4()
    for purpose in (CallPurpose.ANSWER, CallPurpose.CONCLUDE):
        house.vendors.anthropic.say("hi")
        await house.gateway.complete(
            HELLO, house.caller(purpose=purpose, platform=Platform.TELEGRAM, api_key_id=key, agent="bali", turn_id=turn)
        )
    rows = await house.ask("select source, purpose, platform, api_key_id, agent, turn_id, error, waited_ms from calls order by purpose")
    assert rows == [("router", purpose, "telegram", key, "bali", turn, None, 0) for purpose in ("answer", "conclude")]


async def test_a_failed_call_has_its_time_and_its_reason(house: House) -> None:
    house.vendors.anthropic.say("one two three", drip_s=0.05)
    house.vendors.anthropic.fail(400)
    await house.gateway.complete(HELLO, house.caller())
    with pytest.raises(ChainFailed):
        await house.gateway.complete(HELLO, house.caller())
    house.vendors.anthropic.hang()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):  # the caller gives up
            await house.gateway.complete(HELLO, house.caller())
    answered, failed, cancelled = await house.ask("select outcome, error, latency_ms from calls order by created_at")
    assert (answered[:2], failed[:2]) == (("answered", None), ("failed", "ChainFailed: BadRequest"))
    assert failed[2] > 0
    assert (cancelled[0], cancelled[1]) == ("cancelled", "CancelledError")
    assert cancelled[2] >= 30


async def test_the_wait_for_a_slot_is_recorded_beside_the_time_of_the_answer(house: House) -> None:
    slots = Slots(1, wait_s=20)
    gateway = replace(house.gateway, slots=slots)
    house.vendors.anthropic.say("hi")
    began = time.monotonic()
    async with slots.hold("another user", "anthropic"):
        calling = asyncio.create_task(gateway.complete(HELLO, house.caller("pro")))
        while not slots.waiting:  # noqa: ASYNC110  # a queue rings no bell
            await asyncio.sleep(0)
        waiting_since = time.monotonic()
        await asyncio.sleep(0.05)  # the time that the call is to wait
        waited_ms = (time.monotonic() - waiting_since) * 1e3
    answer = await calling
    elapsed_ms = (time.monotonic() - began) * 1e3
    [(waited, latency)] = await house.ask("select waited_ms, latency_ms from calls")
    assert latency == answer.latency_ms
    assert waited_ms - 1 < waited
    assert waited + latency < elapsed_ms + 1


async def test_every_refused_call_has_a_row_with_its_reason_and_without_money(house: House) -> None:
    unpriced = replace(house.gateway, prices=Prices(()))
    with pytest.raises(UnknownPrice):
        await unpriced.complete(HELLO, house.caller())
    without_models = replace(house.gateway, backends={})
    with pytest.raises(ChainFailed):
        await without_models.complete(HELLO, house.caller())
    with pytest.raises(NotFound):
        await house.gateway.complete(HELLO, house.caller("gone"))
    no_slots = replace(house.gateway, slots=Slots(0, wait_s=0.01))
    with pytest.raises(NoCapacity):
        await no_slots.complete(HELLO, house.caller(turn_id=UUID(int=7)))
    await house.spend.add(1_000_000)
    with pytest.raises(CallsPaused):
        await house.gateway.complete(HELLO, house.caller())
    for gateway in (unpriced, without_models, no_slots):
        await gateway.wait_settled()
    rows = await house.ask("select error, tier, turn_id, outcome, tokens, micro_usd, times, user_id from calls order by error")
    assert rows == [
        (error, tier, turn_id, "refused", 0, 0, 1, house.user.id)
        for error, tier, turn_id in (
            ("CallsPaused: cap", "venue-growth", None),
            ("ChainFailed: no model", "venue-growth", None),
            ("NoCapacity", "venue-growth", UUID(int=7)),
            ("NotFound", "gone", None),
            ("UnknownPrice", "venue-growth", None),
        )
    ]
    assert await house.day() == (0, 0, 0)


async def test_a_flood_of_refused_calls_is_a_few_rows_that_count_all_of_them(house: House) -> None:
    await house.spend.kill_switch("runaway", by="ops")

    async def call(agent: str) -> None:
        with pytest.raises(CallsPaused):
            await house.gateway.complete(HELLO, house.caller(agent=agent))

    await asyncio.gather(*(call(agent) for agent in ("bali", "hermes") for _ in range(500)))
    rows = await house.ask("select agent, user_id, times from calls where times > 1")
    assert {(agent, user_id) for agent, user_id, _ in rows} == {("bali", None), ("hermes", None)}
    [(count, times)] = await house.ask("select count(*), sum(times) from calls where outcome = 'refused'")
    assert times == 1_000
    assert count < 100
    await house.spend.release(by="ops")
    assert await house.day() == (0, 0, 0)


async def test_refused_calls_wait_for_no_store_and_are_left_out_while_it_is_away(house: House) -> None:
    refused = RefusedCalls(burst=1)
    made = ModelCall(
        id=uuid4(),
        day=NOON.date(),
        account_id="shop",
        source=CallSource.ROUTER,
        tier="free",
        model="",
        outcome=CallOutcome.REFUSED,
        latency_ms=0,
        error="NoCapacity",
    )
    assert [refused.add(replace(made, id=uuid4())) for _ in range(3)] == [True, False, False]
    await house.database.pool.close()
    refused.write_now()
    await refused.write(house.gateway.calls, house.database)
    assert refused.add(made)  # the next one begins anew


async def test_a_gateway_that_is_closed_does_not_wait_for_the_end_of_a_minute(house: House) -> None:
    await house.spend.kill_switch("runaway", by="ops")

    async def flood() -> None:
        for _ in range(200):
            with pytest.raises(CallsPaused):
                await house.gateway.complete(HELLO, house.caller())

    flooding = asyncio.create_task(flood())
    async with asyncio.timeout(30):
        while not flooding.done():
            await house.gateway.wait_settled()
            await asyncio.sleep(0)
    [(times,)] = await house.ask("select sum(times) from calls")
    assert times == 200


async def test_an_agent_at_its_cap_is_refused_and_others_are_not(house: House) -> None:
    house.caps["bali"] = 1
    for _ in range(2):
        house.vendors.anthropic.say("hi")
    spent = (await house.gateway.complete(HELLO, house.caller(agent="bali"))).micro_usd
    await house.gateway.wait_settled()
    with pytest.raises(CallsPaused, match=r"paused by the agent's cap until 2026-11-16 00:00 UTC"):
        await house.gateway.complete(HELLO, house.caller(agent="bali"))
    other = (await house.gateway.complete(HELLO, house.caller(agent="hermes"))).micro_usd
    await house.gateway.wait_settled()
    assert house.bell.rung == ["budget_threshold"] * 2
    assert [(facts["window"], facts["agent"], facts["percent"]) for facts in house.bell.facts] == [
        ("agent", "bali", 80),
        ("agent", "bali", 100),
    ]
    assert await house.gateway.spent_today() == SpendToday(
        platform=DaySpend(spent + other, 1_000_000),
        fleet=DaySpend(spent + other, None),
        agents={"bali": DaySpend(spent, 1), "hermes": DaySpend(other, None)},
    )
    assert await house.ask("select agent, error from calls where outcome = 'refused'") == [("bali", "CallsPaused: agent's cap")]


async def test_at_the_fleets_cap_no_agent_answers_and_programs_go_on(house: House) -> None:
    assert house.gateway.agent_caps is not None
    gateway = replace(house.gateway, agent_caps=replace(house.gateway.agent_caps, fleet_micro_usd=1))
    for _ in range(2):
        house.vendors.anthropic.say("hi")
    await gateway.complete(HELLO, house.caller(agent="bali"))
    await gateway.wait_settled()
    with pytest.raises(CallsPaused, match="paused by the fleet's cap"):
        await gateway.complete(HELLO, house.caller(agent="hermes"))
    await gateway.complete(HELLO, house.caller())
    await gateway.wait_settled()
