"""Deliveries on real stores, over a real connection, to a server that takes, refuses, loses, and goes away."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from hermes.ports.channels import DeliveryReceipt, IdChanged, ReachabilityChanged, ReceiptRank, SendOutcome
from hermes.ports.inbox import Claim
from hermes.ports.outbox import ALL_DEAD_LETTERS, OutboxLengths
from hermes.router.outbox import render_text
from hermes.stores.postgres.job_queue import WorkerOptions, open_job_queue
from hermes.stores.seal import new_master_key
from hermes.turn import Platform
from tests.fakes.bot_api import BotApi, serving
from tests.flows.delivering import House, open_house

TELEGRAM = Platform.TELEGRAM


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with serving() as api:
        yield api


@pytest.fixture
def master_key() -> str:
    return new_master_key()


@pytest.fixture
async def house(database_url: str, master_key: str, api: BotApi) -> AsyncIterator[House]:
    async with open_house(database_url, master_key, api.url) as house:
        yield house


@pytest.fixture
async def receipted(database_url: str, master_key: str, api: BotApi) -> AsyncIterator[House]:
    """At a platform that tells what became of a message."""
    async with open_house(database_url, master_key, api.url, has_receipts=True) as house:
        yield house


async def states(house: House) -> list[tuple[str, str | None, int, int]]:
    return [tuple(row) for row in await house.rows("select state, outcome, failures, doubts from outbox order by id")]


# --- it arrives


async def test_an_answer_is_sent_in_its_parts_right_after_its_turn_and_the_journal_says_so(house: House, api: BotApi) -> None:
    claim = await house.answer("Sunset bars in Canggu:\n\n*Old Man's*")
    assert api.received == [("42", "Sunset bars in Canggu:"), ("42", "Old Man's")]
    assert await states(house) == [("sent", "sent", 0, 0)] * 2
    delivered = [facts for type_, facts in await house.events(claim) if type_ == "response_delivered"]
    about = {"platform": "telegram", "account": "bali", "tries": 1, "outcome": "sent", "doubts": 0, "is_late": False}
    assert delivered == [{**about, "part": 0}, {**about, "part": 1}]
    async with house.database.begin() as tx:
        answer = await house.outbox.answer(tx, claim.turn_id)
        standings = await house.outbox.tracking.statuses(tx, claim.turn_id)
    assert answer is not None
    assert answer.text == "Sunset bars in Canggu:\nOld Man's"
    assert [(each.state, each.rank) for each in standings] == [("sent", ReceiptRank.SENT)] * 2
    assert (house.sends(), await house.available(claim)) == ({"sent": 2.0}, 9)


async def test_order_is_kept_while_an_earlier_parcel_waits(house: House, api: BotApi) -> None:
    api.is_down = True
    await house.answer("one\n\ntwo")
    api.is_down = False
    await house.answer("three")
    assert api.received == [], "the first waits, and nobody overtakes it"
    await house.answer("elsewhere", chat="7")
    assert api.texts == ["elsewhere"]
    assert await house.sweep() == []
    await house.time_passes()
    await house.sweep()
    assert api.texts == ["elsewhere", "one", "two", "three"]


async def test_a_stated_time_is_kept_by_every_process(house: House, api: BotApi) -> None:
    api.refuse(429, "Too Many Requests: retry after 90", retry_after=90)
    await house.answer("one")
    [[waits]] = await house.rows("select extract(epoch from not_before - now())::float8 from outbox")
    assert 85 < waits <= 90
    assert await house.sweep() == []
    assert (api.asked, await states(house)) == (1, [("pending", "rate_limited", 1, 0)])


async def test_what_keeps_failing_is_tried_four_times_in_four_rounds_and_then_given_up_with_its_credit(house: House, api: BotApi) -> None:
    api.is_down = True
    claim, rounds = await house.hear(), []
    await house.end(claim, "one")
    await house.outbox_delivery.deliver(claim.conversation_id)
    for _ in range(4):
        rounds.append((api.asked, *(await states(house))[0][:3]))
        house.clock.ahead += timedelta(minutes=10)  # so that no breaker opens: failures lie further apart
        await house.time_passes()
        await house.sweep()
    assert rounds == [
        (4, "pending", "service_unavailable", 1),
        (8, "pending", "service_unavailable", 2),
        (12, "pending", "service_unavailable", 3),
        (16, "dead", "service_unavailable", 3),
    ]
    assert await house.available(claim) == 10
    failures = [facts for type_, facts in await house.events(claim) if type_ == "delivery_failed"]
    assert [(facts["state"], facts.get("retry_in_s"), facts.get("is_refunded")) for facts in failures] == [
        ("pending", 60, None),
        ("pending", 300, None),
        ("pending", 1_500, None),
        ("dead", None, True),
    ]


# --- nobody knows whether it arrived


async def test_an_answer_that_was_lost_puts_the_parcel_in_doubt_and_it_is_sent_once_more(house: House, api: BotApi) -> None:
    api.lose_answer()
    await house.answer("one")
    assert (api.texts, await states(house)) == (["one"], [("pending", "ambiguous", 0, 1)])
    await house.time_passes()
    await house.sweep()
    assert (api.texts, await states(house)) == (["one", "one"], [("sent", "sent", 0, 1)])
    assert house.sends() == {"ambiguous": 1.0, "sent": 1.0}


async def listed(house: House) -> list[tuple[int, SendOutcome | None, int]]:
    async with house.database.begin() as tx:
        return [(letter.part, letter.outcome, letter.doubts) for letter in await house.outbox.dead_letters.list(tx)]


async def in_doubt_twice(house: House, api: BotApi, answer: str = "one") -> Claim:
    """Both answers of the platform were lost, and the time in which a receipt could have come is over."""
    for _ in range(2):
        api.lose_answer()
    claim = await house.answer(answer)
    for _ in range(2):
        await house.time_passes()
        await house.sweep()
    return claim


async def test_without_receipts_a_second_doubt_ends_it_as_a_refunded_dead_letter_and_the_next_one_goes(house: House, api: BotApi) -> None:
    api.lose_answer()
    api.lose_answer()
    claim = await house.answer("one")
    await house.time_passes()
    await house.answer("two")
    assert api.texts == ["one", "one", "two"]
    assert await states(house) == [("dead", "ambiguous", 0, 2), ("sent", "sent", 0, 0)]
    assert await listed(house) == [(0, SendOutcome.AMBIGUOUS, 2)]
    assert await house.available(claim) == 9, "only the second one is paid"
    [*_, failure] = [facts for type_, facts in await house.events(claim) if type_ == "delivery_failed"]
    assert (failure["state"], failure["is_refunded"], failure["doubts"]) == ("dead", True, 2)


async def test_where_there_are_receipts_one_is_waited_for_and_nothing_overtakes_meanwhile(receipted: House, api: BotApi) -> None:
    house = receipted
    api.lose_answer()
    api.lose_answer()
    claim = await house.answer("one")
    await house.time_passes()
    await house.answer("two")
    assert (api.texts, await states(house)) == (["one", "one"], [("pending", "ambiguous", 0, 2), ("pending", None, 0, 0)])
    [[waits]] = await house.rows("select extract(epoch from not_before - now())::float8 from outbox where doubts = 2")
    assert 55 < waits <= 60
    assert (await house.sweep(), await house.available(claim)) == ([], 8)
    await house.time_passes()
    await house.sweep()
    assert (api.texts, await states(house)) == (["one", "one", "two"], [("dead", "ambiguous", 0, 2), ("sent", "sent", 0, 0)])
    assert (await listed(house), await house.available(claim)) == ([(0, SendOutcome.AMBIGUOUS, 2)], 9)


async def test_a_receipt_within_that_time_confirms_it_and_it_stays_paid(receipted: House, api: BotApi) -> None:
    house = receipted
    api.lose_answer()
    api.lose_answer()
    claim = await house.answer("one")
    await house.time_passes()
    await house.sweep()
    await house.receipts.apply(TELEGRAM, "bali", DeliveryReceipt(message_id="m1", rank=ReceiptRank.DELIVERED, channel_id="42"))
    await house.time_passes()
    await house.sweep()
    assert (await states(house), await listed(house), await house.available(claim)) == ([("sent", "sent", 0, 2)], [], 9)


@pytest.mark.parametrize("how", ["channel", "reference", "text"])
async def test_a_receipt_after_that_takes_it_off_the_list_as_delivered_and_it_stays_refunded(
    receipted: House, api: BotApi, how: str
) -> None:
    house = receipted
    claim = await in_doubt_twice(house, api)
    assert (await listed(house), await house.available(claim)) == ([(0, SendOutcome.AMBIGUOUS, 2)], 10)
    known = {
        "channel": {"channel_id": "42"},
        "reference": {"reference": f"{claim.turn_id}/0/"},
        "text": {"channel_id": "42", "text": "one"},
    }[how]
    for _ in range(2):
        await house.receipts.apply(TELEGRAM, "bali", DeliveryReceipt(message_id="m1", rank=ReceiptRank.READ, **known))
    async with house.database.begin() as tx:
        [standing] = await house.outbox.tracking.statuses(tx, claim.turn_id)
    assert (standing.state, standing.rank) == ("sent", ReceiptRank.READ)
    assert (await listed(house), await house.available(claim)) == ([], 10)
    [delivered] = [facts for type_, facts in await house.events(claim) if type_ == "response_delivered"]
    assert (delivered["part"], delivered["is_refunded"]) == (0, True)
    assert await house.rows("select * from early_receipts") == []


@pytest.mark.parametrize(
    "known",
    [
        {"channel_id": "7"},
        {"reference": "00000000-0000-0000-0000-000000000000/0/"},
        {"reference": "of another program"},
        {"channel_id": "42", "text": "a person of ours says hello"},
        {"channel_id": "42", "rank": ReceiptRank.FAILED},
    ],
)
async def test_no_other_receipt_takes_it_off_the_list(receipted: House, api: BotApi, known: dict[str, Any]) -> None:
    house = receipted
    await in_doubt_twice(house, api)
    await house.receipts.apply(TELEGRAM, "bali", DeliveryReceipt(**{"message_id": "m1", "rank": ReceiptRank.READ, **known}))
    assert await listed(house) == [(0, SendOutcome.AMBIGUOUS, 2)]


async def test_a_part_in_doubt_gives_the_whole_answer_back_once_and_the_other_parts_arrive(receipted: House, api: BotApi) -> None:
    house = receipted
    claim = await in_doubt_twice(house, api, "one\n\ntwo\n\nthree")
    assert api.texts == ["one", "one", "two", "three"]
    assert (await listed(house), await house.available(claim)) == ([(0, SendOutcome.AMBIGUOUS, 2)], 10)


async def test_one_in_doubt_can_be_sent_again_and_is_not_charged_again(receipted: House, api: BotApi) -> None:
    house = receipted
    claim = await in_doubt_twice(house, api)
    async with house.database.begin() as tx:
        await house.outbox.dead_letters.requeue(tx, ALL_DEAD_LETTERS)
    await house.outbox_delivery.deliver(claim.conversation_id)
    assert (api.texts, await listed(house), await house.available(claim)) == (["one", "one", "one"], [], 10)


async def test_what_an_earlier_version_left_in_doubt_is_listed_and_refunded_too(house: House) -> None:
    claim = await house.hear()
    await house.end(claim, "one")
    await house.rows("update outbox set state = 'ambiguous', outcome = 'ambiguous', doubts = 1 returning 1")
    await house.receipts.tidy()
    assert (await listed(house), await house.available(claim)) == ([(0, SendOutcome.AMBIGUOUS, 2)], 10)
    await house.receipts.tidy()
    assert await house.available(claim) == 10


async def test_a_receipt_that_comes_meanwhile_spares_the_second_copy(house: House, api: BotApi) -> None:
    api.lose_answer()
    claim = await house.answer("one")
    await house.receipts.apply(TELEGRAM, "bali", DeliveryReceipt(message_id="m1", rank=ReceiptRank.DELIVERED, channel_id="42"))
    await house.time_passes()
    await house.sweep()
    assert api.texts == ["one"]
    async with house.database.begin() as tx:
        [standing] = await house.outbox.tracking.statuses(tx, claim.turn_id)
    assert (standing.state, standing.rank, standing.doubts) == ("sent", ReceiptRank.DELIVERED, 1)


async def test_a_process_killed_between_send_and_note_leaves_a_doubt_and_is_repeated_once(
    house: House, api: BotApi, database_url: str, master_key: str
) -> None:
    claim = await house.hear()
    async with house.database.begin() as tx:
        await house.outbox.put(tx, claim, [{"text": "one"}])
    for _ in range(2):
        await house.time_passes()
        arguments = (database_url, master_key, str(claim.conversation_id), api.url)
        root = Path(__file__).parents[2]
        killed = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.flows.delivering", *arguments, cwd=root)
        assert await killed.wait() == -signal.SIGKILL
    assert (api.texts, await states(house)) == (["one", "one"], [("attempting", None, 0, 1)])
    await house.time_passes()
    await house.sweep()
    assert (api.texts, await states(house)) == (["one", "one"], [("dead", "ambiguous", 0, 2)])
    assert "delivery_failed" in [type_ for type_, _ in await house.events(claim)]


# --- it is given up


async def test_an_answer_that_dies_gives_its_credit_back_once_however_many_parts_it_has(house: House, api: BotApi) -> None:
    for _ in range(2):
        api.refuse(400, "Bad Request: message is too long")
    claim = await house.answer("one\n\ntwo\n\nthree")
    assert (api.texts, await house.available(claim)) == (["three"], 10)
    refunds = [facts.get("is_refunded") for type_, facts in await house.events(claim) if type_ == "delivery_failed"]
    assert refunds == [True, False]
    async with house.database.begin() as tx:
        assert [letter.part for letter in await house.outbox.dead_letters.list(tx)] == [1, 0]


async def test_news_that_die_give_nothing_back(house: House, api: BotApi) -> None:
    claim = await house.answer("It is set.")
    async with house.database.begin() as tx:
        said = await house.inbox.message_of(tx, claim.turn_id)
        assert said is not None
        await house.outbox.put_proactive(tx, said, "reminder/7KQ2", render_text(said.envelope, "call mum", house.channels))
    api.refuse(400, "Bad Request: no")
    await house.outbox_delivery.deliver(claim.conversation_id)
    async with house.database.begin() as tx:
        [letter] = await house.outbox.dead_letters.list(tx)
    assert (letter.news, await house.available(claim)) == ("reminder/7KQ2", 9)


async def test_what_is_sent_again_goes_last_and_is_marked_late(house: House, api: BotApi) -> None:
    api.refuse(400, "Bad Request: no")
    claim = await house.answer("one")
    api.is_down = True
    await house.answer("two")
    api.is_down = False
    async with house.database.begin() as tx:
        await house.outbox.dead_letters.requeue(tx, ALL_DEAD_LETTERS)
    await house.time_passes()
    await house.sweep()
    assert api.texts == ["two", "one"]
    late = [facts["is_late"] for type_, facts in await house.events(claim) if type_ == "response_delivered"]
    assert (late, await house.available(claim)) == ([True], 9), "refunded once, and not charged again"


async def test_more_than_may_wait_goes_to_the_dead_letters_and_calls_a_person(database_url: str, master_key: str, api: BotApi) -> None:
    async with open_house(database_url, master_key, api.url, cap=2) as house:
        api.is_down = True
        claims = []
        for chat in ("1", "2", "3"):
            claims.append(await house.answer("hello", chat=chat))
            house.clock.ahead += timedelta(minutes=10)
        async with house.database.begin() as tx:
            assert await house.outbox.lengths(tx) == OutboxLengths(failed_sends=2, dead_letters=1)
            [letter] = await house.outbox.dead_letters.list(tx)
        assert (letter.channel_id, letter.outcome) == ("3", SendOutcome.SERVICE_UNAVAILABLE)
        assert house.alerted == ["failed_sends_overflowed"]
        assert [await house.available(claim) for claim in claims] == [9, 9, 10]


async def test_somebody_who_blocked_us_is_not_called_until_they_write_again(house: House, api: BotApi) -> None:
    api.blocked.add("42")
    claim = await house.answer("one\n\ntwo")
    assert (api.asked, await states(house)) == (1, [("dead", "invalid_recipient", 0, 0)] * 2)
    api.blocked.clear()
    await house.answer("back again")
    assert (api.texts, await house.available(claim)) == (["back again"], 9)


async def test_a_group_that_moved_is_followed_and_stays_the_same_conversation(house: House, api: BotApi) -> None:
    api.moved["-42"] = "-10042"
    claim = await house.answer("one\n\ntwo", chat="-42")
    assert api.received == [("-10042", "one"), ("-10042", "two")]
    assert (await house.hear(chat="-10042")).conversation_id == claim.conversation_id
    assert api.asked == 3, "the second part went there at once"


# --- the breaker


@asynccontextmanager
async def two_houses(database_url: str, master_key: str, api: BotApi, redis_url: str) -> AsyncIterator[tuple[House, House]]:
    """Two processes on the same stores."""
    async with (
        Redis.from_url(redis_url) as redis,
        open_house(database_url, master_key, api.url, redis=redis) as here,
        open_house(database_url, master_key, api.url, redis=redis, clock=here.clock) as there,
    ):
        yield here, there


async def test_a_breaker_holds_for_all_processes_uses_up_no_try_and_one_probe_ends_it(
    database_url: str, master_key: str, api: BotApi, redis_url: str
) -> None:
    async with two_houses(database_url, master_key, api, redis_url) as (here, there):
        api.is_down = True
        for chat in ("1", "2", "3"):
            await here.answer("hello", chat=chat)
        assert (api.asked, here.alerted) == (10, ["breaker_opened"])
        claim = await there.answer("hello", chat="4")
        assert api.asked == 10, "nobody calls a platform that is down"
        assert [row[2] for row in await states(here)] == [1, 1, 0, 0]
        assert there.metrics.registry.get_sample_value("hermes_breaker_open", {"platform": "telegram", "account": "bali"}) == 1
        for _ in range(5):  # an hour of it
            here.clock.ahead += timedelta(minutes=2, seconds=1)
            await here.time_passes()
            await there.sweep()
        assert api.asked == 15, "one probe each time"
        async with here.database.begin() as tx:
            assert await here.outbox.lengths(tx) == OutboxLengths(failed_sends=4, dead_letters=0)
        api.is_down = False
        here.clock.ahead += timedelta(minutes=2, seconds=1)
        await here.time_passes()
        await here.sweep()
        assert (sorted(chat for chat, _ in api.received), await here.available(claim)) == (["1", "2", "3", "4"], 9)
        # Each probe that fails tells that it is still open; all of them are one alert (ops/alerts.py).
        assert here.alerted + there.alerted == ["breaker_opened"] * 6


async def test_without_redis_everything_is_sent(database_url: str, master_key: str, api: BotApi) -> None:
    async with (
        Redis.from_url("redis://127.0.0.1:1", socket_connect_timeout=0.2) as nowhere,
        open_house(database_url, master_key, api.url, redis=nowhere) as house,
    ):
        api.is_down = True
        for chat in range(4):
            await house.answer("hello", chat=str(chat))
        assert api.asked == 16, "nothing is counted, and nothing is held back"
        api.is_down = False
        await house.answer("hello", chat="9")
        assert api.received == [("9", "hello")]


# --- what is heard afterwards


async def test_a_message_that_the_platform_gives_up_later_is_refunded(house: House, api: BotApi) -> None:
    claim = await house.answer("one")
    failed = DeliveryReceipt(message_id="1", rank=ReceiptRank.FAILED, error=SendOutcome.INVALID_RECIPIENT, detail="131026")
    for _ in range(2):
        await house.receipts.apply(TELEGRAM, "bali", failed)
    assert (await house.available(claim), await states(house)) == (10, [("dead", "invalid_recipient", 0, 0)])
    assert house.sends() == {"sent": 1.0, "invalid_recipient": 1.0}
    async with house.database.begin() as tx:
        said = await house.inbox.message_of(tx, claim.turn_id)
        assert said is not None
        await house.outbox.put_proactive(tx, said, "reminder/A", [{"text": "call mum"}])
    await house.outbox_delivery.deliver(claim.conversation_id)
    assert api.texts == ["one"], "they are unreachable now"


async def test_tidying_applies_what_came_too_early_and_throws_old_letters_away(house: House, api: BotApi) -> None:
    failed = DeliveryReceipt(message_id="1", rank=ReceiptRank.FAILED, error=SendOutcome.REJECTED)
    await house.receipts.apply(TELEGRAM, "bali", failed)
    claim = await house.answer("one")
    assert await house.available(claim) == 9
    await house.receipts.tidy()
    assert await house.available(claim) == 10
    await house.rows("update outbox set died_at = now() - interval '8 days' returning id")
    await house.receipts.tidy()
    assert await states(house) == []


async def test_who_leaves_and_who_has_another_id_is_heard(house: House, api: BotApi) -> None:
    claim = await house.answer("one")
    await house.receipts.apply(TELEGRAM, "bali", ReachabilityChanged(sender_id="42", is_reachable=False))
    async with house.database.begin() as tx:
        await house.outbox.put(tx, replace(claim, turn_id=(await house.hear(chat="8")).turn_id), [{"text": "lost"}])
    await house.outbox_delivery.deliver(claim.conversation_id)
    assert api.texts == ["one"]
    await house.receipts.apply(TELEGRAM, "bali", IdChanged(old="42", new="43"))
    again = await house.answer("hello again", chat="43")
    assert (again.user_id, again.conversation_id) == (claim.user_id, claim.conversation_id)
    assert api.received[-1] == ("43", "hello again")


# --- with a worker


async def test_a_worker_brings_out_what_was_put_back_once_its_time_has_come(house: House, api: BotApi) -> None:
    api.is_down = True
    claim = await house.answer("one")
    await house.answer("two")
    api.is_down = False
    async with open_job_queue(house.database) as work:

        async def sweep() -> None:
            async with house.database.begin() as tx:
                for conversation_id in await house.outbox.stranded_conversations(tx, 10):
                    await work.defer_delivery(tx, conversation_id)

        hands = cast("Any", type("Hands", (), {}))
        hands.turn = hands.proactive = hands.memory = hands.delivery = house.outbox_delivery.deliver
        worker = asyncio.create_task(work.run(hands, WorkerOptions(concurrency=4, poll_s=0.1, sweep_s=0.1, drain_s=2.0), sweep))
        await asyncio.sleep(0.5)
        assert api.texts == []
        await house.time_passes()
        async with asyncio.timeout(20):
            while len(api.texts) < 2:  # noqa: ASYNC110  # nobody tells us
                await asyncio.sleep(0.05)
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
    assert api.texts == ["one", "two"]
    assert await house.available(claim) == 8
