"""What became of what was sent: ranks that only grow, receipts that come too early, people who leave and channels that move."""

import asyncio
from uuid import uuid4

import pytest

from hermes.ports.channels import DeliveryReceipt, ReceiptRank, SendOutcome
from hermes.ports.inbox import Claim
from hermes.ports.outbox import AnswerSource, DeadLetter, DeadLetterQuery, DeliveryResult, DeliveryStatus, OutboxMessage, OutboxState
from hermes.ports.users import UserChannel
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.journal import PostgresInteractions
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.postgres.users import PostgresUsers
from hermes.turn import Platform
from tests.contract.turns import new_claim, new_turn


@pytest.fixture
def outbox(keyring: Keyring) -> PostgresOutbox:
    return PostgresOutbox(keyring, cut_off_s=60)


async def promised(database: Database, keyring: Keyring, outbox: PostgresOutbox, *parts: str) -> tuple[Claim, OutboxMessage]:
    """An answer whose first part is being sent."""
    claim = await new_claim(database, keyring)
    async with database.begin() as tx:
        await outbox.put(tx, claim, parts or ["hello"])
        parcel = await outbox.take(tx, claim.conversation_id)
    assert parcel is not None
    return claim, parcel


async def is_sent(database: Database, outbox: PostgresOutbox, parcel: OutboxMessage, message_id: str | None = "wamid.1") -> None:
    async with database.begin() as tx:
        await outbox.settle(tx, parcel, DeliveryResult(state=OutboxState.SENT, outcome=SendOutcome.SENT, message_id=message_id))


async def hear(
    database: Database, outbox: PostgresOutbox, rank: ReceiptRank, message_id: str = "wamid.1", **more: object
) -> DeadLetter | None:
    receipt = DeliveryReceipt(message_id=message_id, rank=rank, **more)
    async with database.begin() as tx:
        return await outbox.tracking.receive(tx, "shop", Platform.REST, receipt)


async def standing(database: Database, outbox: PostgresOutbox, claim: Claim) -> list[tuple[str, ReceiptRank | None]]:
    async with database.begin() as tx:
        return [(each.state, each.rank) for each in await outbox.tracking.statuses(tx, claim.turn_id)]


async def test_how_far_each_part_came_is_shown(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim, parcel = await promised(database, keyring, outbox, "one", "two")
    await is_sent(database, outbox, parcel)
    await hear(database, outbox, ReceiptRank.DELIVERED)
    async with database.begin() as tx:
        first, second = await outbox.tracking.statuses(tx, claim.turn_id)
        assert await outbox.tracking.statuses(tx, uuid4()) == []
    nothing = {"news": "", "reason": "", "doubts": 0, "is_late": False}
    times = {"ranked_at": first.ranked_at, "promised_at": first.promised_at}
    assert first == DeliveryStatus(part=0, state="sent", rank=ReceiptRank.DELIVERED, outcome=SendOutcome.SENT, tries=1, **nothing, **times)
    times = {"ranked_at": None, "promised_at": second.promised_at}
    assert second == DeliveryStatus(part=1, state="pending", rank=None, outcome=None, tries=0, **nothing, **times)


@pytest.mark.parametrize("order", [(2, 3), (3, 2), (3, 3, 1), (1, 2, 3), (2, 1, 3, 2)])
async def test_receipts_come_in_any_order_and_only_a_higher_rank_counts(
    database: Database, keyring: Keyring, outbox: PostgresOutbox, order: tuple[int, ...]
) -> None:
    claim, parcel = await promised(database, keyring, outbox)
    await is_sent(database, outbox, parcel)
    for rank in order:
        assert await hear(database, outbox, ReceiptRank(rank)) is None
    assert await standing(database, outbox, claim) == [("sent", ReceiptRank.READ)]


async def test_a_receipt_that_comes_before_its_message_is_noted_waits_for_it(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    claim, parcel = await promised(database, keyring, outbox)
    await hear(database, outbox, ReceiptRank.READ)
    await hear(database, outbox, ReceiptRank.DELIVERED)
    await is_sent(database, outbox, parcel)
    assert await standing(database, outbox, claim) == [("sent", ReceiptRank.READ)]
    async with database.begin() as tx:
        assert await (await connection_of(tx).execute("select count(*) from early_receipts")).fetchone() == (0,)


async def test_receipts_of_another_account_or_platform_are_nobodys(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim, parcel = await promised(database, keyring, outbox)
    await is_sent(database, outbox, parcel)
    receipt = DeliveryReceipt(message_id="wamid.1", rank=ReceiptRank.READ)
    async with database.begin() as tx:
        await outbox.tracking.receive(tx, "elsewhere", Platform.REST, receipt)
        await outbox.tracking.receive(tx, "shop", Platform.WEB, receipt)
    assert await standing(database, outbox, claim) == [("sent", ReceiptRank.SENT)]


async def test_a_message_that_the_platform_gives_up_becomes_a_dead_letter_once(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    claim, parcel = await promised(database, keyring, outbox)
    await is_sent(database, outbox, parcel)
    letter = await hear(database, outbox, ReceiptRank.FAILED, error=SendOutcome.WINDOW_CLOSED, detail="131047")
    assert letter is not None
    assert (letter.id, letter.outcome, letter.reason) == (parcel.id, SendOutcome.WINDOW_CLOSED, "131047")
    assert await hear(database, outbox, ReceiptRank.FAILED) is None
    assert await standing(database, outbox, claim) == [("dead", ReceiptRank.FAILED)]
    async with database.begin() as tx:
        assert await outbox.dead_letters.list(tx) == [letter]


async def test_one_that_was_delivered_is_not_given_up(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim, parcel = await promised(database, keyring, outbox)
    await is_sent(database, outbox, parcel)
    await hear(database, outbox, ReceiptRank.DELIVERED)
    assert await hear(database, outbox, ReceiptRank.FAILED) is None
    assert await standing(database, outbox, claim) == [("sent", ReceiptRank.FAILED)]


async def test_a_failure_that_came_too_early_is_found_later(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim, parcel = await promised(database, keyring, outbox)
    failed = DeliveryReceipt(message_id="wamid.1", rank=ReceiptRank.FAILED, error=SendOutcome.REJECTED, detail="131051", channel_id="c1")
    async with database.begin() as tx:
        assert await outbox.tracking.receive(tx, "shop", Platform.REST, failed) is None
        assert await outbox.tracking.take_early_receipt(tx) is None, "its message is not known yet"
    await is_sent(database, outbox, parcel)
    async with database.begin() as tx:
        assert await outbox.tracking.take_early_receipt(tx) == ("shop", Platform.REST, failed)
        letter = await outbox.tracking.receive(tx, "shop", Platform.REST, failed)
        assert await outbox.tracking.take_early_receipt(tx) is None
    assert letter is not None
    assert await standing(database, outbox, claim) == [("dead", ReceiptRank.FAILED)]


async def test_receipts_that_nobody_asks_for_are_thrown_away_after_a_day(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    await promised(database, keyring, outbox)
    for number in range(2):
        await hear(database, outbox, ReceiptRank.READ, f"wamid.{number}")
    async with database.begin() as tx:
        await connection_of(tx).execute("update early_receipts set received_at = now() - interval '25 h' where message_id = 'wamid.0'")
        await outbox.tracking.take_early_receipt(tx)
        assert await (await connection_of(tx).execute("select message_id from early_receipts")).fetchall() == [("wamid.1",)]


# --- what was in doubt


async def in_doubt(database: Database, outbox: PostgresOutbox, parcel: OutboxMessage) -> OutboxMessage:
    """The answer to a call was lost; its parcel is taken again."""
    sending = DeliveryResult(state=OutboxState.PENDING, outcome=SendOutcome.AMBIGUOUS, is_doubtful=True)
    async with database.begin() as tx:
        await outbox.settle(tx, parcel, sending)
    async with database.begin() as tx:
        again = await outbox.take(tx, parcel.conversation_id)
    assert again is not None
    return again


async def test_a_receipt_for_an_unknown_message_confirms_what_was_in_doubt(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    claim, parcel = await promised(database, keyring, outbox)
    await hear(database, outbox, ReceiptRank.DELIVERED, "wamid.9", channel_id="c1")
    again = await in_doubt(database, outbox, parcel)
    assert (again.doubts, again.confirmed_by) == (1, "wamid.9")
    await is_sent(database, outbox, again, again.confirmed_by)
    assert await standing(database, outbox, claim) == [("sent", ReceiptRank.DELIVERED)]


@pytest.mark.parametrize("more", [{"channel_id": "c2"}, {}, {"channel_id": "c1", "rank": ReceiptRank.FAILED}])
async def test_no_other_receipt_confirms_it(database: Database, keyring: Keyring, outbox: PostgresOutbox, more: dict[str, object]) -> None:
    _, parcel = await promised(database, keyring, outbox)
    await hear(database, outbox, **{"rank": ReceiptRank.DELIVERED, "message_id": "wamid.9", **more})
    assert (await in_doubt(database, outbox, parcel)).confirmed_by is None


async def test_a_receipt_from_before_the_try_does_not_confirm_it(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await hear(database, outbox, ReceiptRank.DELIVERED, "wamid.0", channel_id="c1")
    async with database.begin() as tx:
        await outbox.put(tx, claim, ["hello"])
    await asyncio.sleep(0.01)
    async with database.begin() as tx:
        parcel = await outbox.take(tx, claim.conversation_id)
    assert parcel is not None
    assert (await in_doubt(database, outbox, parcel)).confirmed_by is None


async def test_a_try_that_was_cut_off_is_confirmed_too(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim, _ = await promised(database, keyring, outbox)
    await hear(database, outbox, ReceiptRank.DELIVERED, "wamid.9", channel_id="c1")
    async with database.begin() as tx:
        await connection_of(tx).execute("update outbox set touched_at = now() - interval '61 s'")
        again = await outbox.take(tx, claim.conversation_id)
    assert again is not None
    assert (again.doubts, again.confirmed_by) == (1, "wamid.9")


async def test_what_may_be_an_earlier_message_in_doubt_confirms_nothing(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    _, first = await promised(database, keyring, outbox)
    await is_sent(database, outbox, await in_doubt(database, outbox, first), "wamid.2")
    _, second = await promised(database, keyring, outbox)
    await hear(database, outbox, ReceiptRank.SENT, "wamid.1", channel_id="c1")  # a copy of the first one that did arrive
    again = await in_doubt(database, outbox, second)
    assert again.confirmed_by is None
    await hear(database, outbox, ReceiptRank.SENT, "wamid.3", channel_id="c1")
    assert (await in_doubt(database, outbox, again)).confirmed_by == "wamid.3", "of two messages one must be this one"


@pytest.mark.parametrize(("text", "confirmed_by"), [("hello  there\n", "wamid.9"), ("a person of ours says hello", None)])
async def test_an_echo_confirms_only_what_says_the_same(
    database: Database, keyring: Keyring, outbox: PostgresOutbox, text: str, confirmed_by: str | None
) -> None:
    _, parcel = await promised(database, keyring, outbox, "hello there", "and more")
    await hear(database, outbox, ReceiptRank.SENT, "wamid.9", channel_id="c1", text=text)
    await hear(database, outbox, ReceiptRank.READ, "wamid.9")
    assert (await in_doubt(database, outbox, parcel)).confirmed_by == confirmed_by


@pytest.mark.parametrize("reference", ["019a8a6e-5b1c-7000-8000-000000000000/0/", "order 4711"])
async def test_a_receipt_that_names_what_is_not_there_confirms_nothing(
    database: Database, keyring: Keyring, outbox: PostgresOutbox, reference: str
) -> None:
    """It is about a dead letter that a person dropped, or about what another program on the same number sent."""
    _, parcel = await promised(database, keyring, outbox)
    await hear(database, outbox, ReceiptRank.DELIVERED, "wamid.9", channel_id="c1", reference=reference)
    assert (await in_doubt(database, outbox, parcel)).confirmed_by is None


async def test_a_receipt_for_a_message_that_is_known_by_now_confirms_no_other(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    _, first = await promised(database, keyring, outbox)
    await is_sent(database, outbox, first, "wamid.1")
    _, second = await promised(database, keyring, outbox)
    async with database.begin() as tx:  # as if it had come in the very moment in which the first one was settled
        await connection_of(tx).execute(
            "insert into early_receipts (account_id, platform, message_id, channel_id, rank) values ('shop', 'rest', 'wamid.1', 'c1', 1)"
        )
    assert (await in_doubt(database, outbox, second)).confirmed_by is None


async def given_up_in_doubt(database: Database, outbox: PostgresOutbox, parcel: OutboxMessage) -> None:
    again = await in_doubt(database, outbox, parcel)
    sending = DeliveryResult(state=OutboxState.DEAD, outcome=SendOutcome.AMBIGUOUS, reason="no receipt", is_doubtful=True)
    async with database.begin() as tx:
        assert await outbox.settle(tx, again, sending) is OutboxState.DEAD


async def arrived(database: Database, outbox: PostgresOutbox, message_id: str) -> int | None:
    async with database.begin() as tx:
        letter = await outbox.tracking.take_arrived(tx, "shop", Platform.REST, message_id)
    return None if letter is None else letter.id


async def test_a_receipt_takes_what_was_given_up_in_doubt_off_the_list_once(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    claim, parcel = await promised(database, keyring, outbox)
    await given_up_in_doubt(database, outbox, parcel)
    assert await arrived(database, outbox, "wamid.9") is None, "nothing was heard yet"
    await hear(database, outbox, ReceiptRank.DELIVERED, "wamid.9", channel_id="c1")
    assert [await arrived(database, outbox, "wamid.9") for _ in range(2)] == [parcel.id, None]
    assert await standing(database, outbox, claim) == [("sent", ReceiptRank.DELIVERED)]
    await hear(database, outbox, ReceiptRank.READ, "wamid.9")
    assert await standing(database, outbox, claim) == [("sent", ReceiptRank.READ)]
    async with database.begin() as tx:
        assert await outbox.dead_letters.list(tx) == []


async def test_of_two_that_were_given_up_in_doubt_the_one_that_is_named_has_arrived(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    _, first = await promised(database, keyring, outbox)
    await given_up_in_doubt(database, outbox, first)
    _, second = await promised(database, keyring, outbox)
    await given_up_in_doubt(database, outbox, second)
    await hear(database, outbox, ReceiptRank.READ, "wamid.7", channel_id="c1")
    assert await arrived(database, outbox, "wamid.7") is None, "it may be a copy of either"
    await hear(database, outbox, ReceiptRank.READ, "wamid.9", channel_id="c1", reference=second.reference)
    assert await arrived(database, outbox, "wamid.9") == second.id


@pytest.mark.parametrize("fate", ["requeued", "dropped"])
async def test_a_late_receipt_of_a_letter_that_was_requeued_or_dropped_confirms_no_other_answer(
    database: Database, keyring: Keyring, outbox: PostgresOutbox, fate: str
) -> None:
    _, first = await promised(database, keyring, outbox)
    await given_up_in_doubt(database, outbox, first)
    async with database.begin() as tx:
        if fate == "requeued":
            await outbox.dead_letters.requeue(tx, DeadLetterQuery(ids=[first.id]))
            again = await outbox.take(tx, first.conversation_id)
            assert again is not None
            await outbox.settle(tx, again, DeliveryResult(state=OutboxState.SENT, outcome=SendOutcome.SENT, message_id="wamid.5"))
        else:
            await outbox.dead_letters.drop(tx, DeadLetterQuery(ids=[first.id]))
    _, second = await promised(database, keyring, outbox)
    for message_id in ("wamid.1", "wamid.2"):  # the first one's two tries, which did arrive
        await hear(database, outbox, ReceiptRank.DELIVERED, message_id, channel_id="c1")
    again = await in_doubt(database, outbox, second)
    assert again.confirmed_by is None
    await hear(database, outbox, ReceiptRank.DELIVERED, "wamid.3", channel_id="c1")
    assert (await in_doubt(database, outbox, again)).confirmed_by == "wamid.3", "of three messages one must be this one"


async def test_an_echo_of_what_is_being_sent_now_does_not_take_the_same_words_off_the_list(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    _, first = await promised(database, keyring, outbox, "Hello!")
    await given_up_in_doubt(database, outbox, first)
    _, second = await promised(database, keyring, outbox, "Hello!")
    await hear(database, outbox, ReceiptRank.SENT, "wamid.9", channel_id="c1", text="Hello!")
    assert await arrived(database, outbox, "wamid.9") is None
    await is_sent(database, outbox, second, "wamid.9")
    await hear(database, outbox, ReceiptRank.SENT, "wamid.8", channel_id="c1", text="Hello!")
    assert await arrived(database, outbox, "wamid.8") == first.id


async def test_an_echo_that_comes_behind_the_read_mark_confirms_too(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    _, parcel = await promised(database, keyring, outbox, "hello there")
    await hear(database, outbox, ReceiptRank.READ, "wamid.9")
    await hear(database, outbox, ReceiptRank.SENT, "wamid.9", channel_id="c1", text="hello there")
    again = await in_doubt(database, outbox, parcel)
    assert again.confirmed_by == "wamid.9"
    await is_sent(database, outbox, again, "wamid.9")


# --- who is where


async def test_somebody_who_left_and_came_back(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    async with database.begin() as tx:
        await outbox.put(tx, claim, ["a", "b", "c"])
    seen = []
    for is_reachable in (False, True, False):
        async with database.begin() as tx:
            await outbox.tracking.set_reachable(tx, "shop", Platform.REST, "c1", is_reachable=is_reachable)
            await outbox.tracking.set_reachable(tx, "shop", Platform.REST, "nobody", is_reachable=is_reachable)
        async with database.begin() as tx:
            parcel = await outbox.take(tx, claim.conversation_id)
            assert parcel is not None
            seen.append(parcel.is_reachable)
            await outbox.settle(tx, parcel, DeliveryResult(state=OutboxState.PENDING))
    assert seen == [False, True, False]
    await new_turn(database, keyring, "here I am")
    async with database.begin() as tx:
        parcel = await outbox.take(tx, claim.conversation_id)
    assert parcel is not None
    assert parcel.is_reachable


async def test_somebody_who_wrote_after_they_are_said_to_have_left_is_there(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    claim, parcel = await promised(database, keyring, outbox, "a", "b")
    await new_turn(database, keyring, "here I am")
    async with database.begin() as tx:
        await outbox.tracking.set_reachable(tx, "shop", Platform.REST, "c1", is_reachable=False, since=parcel.taken_at)
        await outbox.settle(tx, parcel, DeliveryResult(state=OutboxState.SENT))
    async with database.begin() as tx:
        following = await outbox.take(tx, claim.conversation_id)
    assert following is not None
    assert following.is_reachable


async def test_whoever_has_another_id_stays_who_they_are(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim, parcel = await promised(database, keyring, outbox, "a", "b")
    for _ in range(2):
        async with database.begin() as tx:
            await outbox.tracking.move(tx, "shop", Platform.REST, "c1", "c9")
    async with database.begin() as tx:
        await outbox.settle(tx, parcel, DeliveryResult(state=OutboxState.SENT))
        following = await outbox.take(tx, claim.conversation_id)
        user = await PostgresUsers(keyring).find(tx, UserChannel("shop", Platform.REST, "c9"))
        assert await PostgresUsers(keyring).find(tx, UserChannel("shop", Platform.REST, "c1")) is None
    assert following is not None
    assert user is not None
    assert (following.channel_id, user.id) == ("c9", claim.user_id)
    again = await new_claim(database, keyring, channel="c9")
    assert (again.conversation_id, again.user_id) == (claim.conversation_id, claim.user_id)


async def test_where_the_new_id_is_known_both_stay_and_what_waits_goes_there(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    known = await new_claim(database, keyring, channel="c9")
    claim, parcel = await promised(database, keyring, outbox, "a", "b")
    async with database.begin() as tx:
        await outbox.tracking.move(tx, "shop", Platform.REST, "c1", "c9")
        await outbox.settle(tx, parcel, DeliveryResult(state=OutboxState.SENT))
        following = await outbox.take(tx, claim.conversation_id)
        user = await PostgresUsers(keyring).find(tx, UserChannel("shop", Platform.REST, "c9"))
    assert following is not None
    assert user is not None
    assert (following.channel_id, user.id) == ("c9", known.user_id)


# --- which turn a message is of


async def logged(database: Database, keyring: Keyring, claim: Claim, calls: list[str]) -> AnswerSource:
    """The log of a turn that these calls answered."""
    async with database.begin() as tx:
        session = await PostgresSessions(keyring).current(tx, claim.conversation_id, claim.user_id)
        await PostgresInteractions().add(tx, claim, session.id, {"outcome": "answered", **({"calls": calls} if calls else {})})
    return AnswerSource(turn_id=claim.turn_id, session_id=session.id, calls=tuple(calls))


@pytest.mark.parametrize("calls", [["c1", "c2"], []])
async def test_the_turn_behind_a_message_is_found_by_any_of_its_parts(
    database: Database, keyring: Keyring, outbox: PostgresOutbox, calls: list[str]
) -> None:
    claim, parcel = await promised(database, keyring, outbox, "one", "two")
    spoken = await logged(database, keyring, claim, calls)
    await is_sent(database, outbox, parcel, "wamid.1")
    async with database.begin() as tx:
        second = await outbox.take(tx, claim.conversation_id)
    assert second is not None
    await is_sent(database, outbox, second, "wamid.2")
    async with database.begin() as tx:
        find = outbox.tracking.answer_source
        for message_id in ("wamid.1", "wamid.2"):
            assert await find(tx, "shop", Platform.REST, message_id) == spoken
            assert await find(tx, "shop", Platform.REST, message_id, channel_id="c1") == spoken
        assert await find(tx, "shop", Platform.REST, "wamid.1", channel_id="c2") is None, "there it is another message"
        assert await find(tx, "shop", Platform.REST, "wamid.9") is None
        assert await find(tx, "elsewhere", Platform.REST, "wamid.1") is None
        assert await find(tx, "shop", Platform.WEB, "wamid.1") is None


async def test_news_are_no_answer(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim, parcel = await promised(database, keyring, outbox)
    await logged(database, keyring, claim, ["c1"])
    await is_sent(database, outbox, parcel, "wamid.1")
    async with database.begin() as tx:
        said = await PostgresInbox(keyring).message_of(tx, claim.turn_id)
        assert said is not None
        await outbox.put_proactive(tx, said, "reminder/7KQ2", ["now"])
        news = await outbox.take(tx, claim.conversation_id)
    assert news is not None
    await is_sent(database, outbox, news, "wamid.2")
    async with database.begin() as tx:
        assert await outbox.tracking.answer_source(tx, "shop", Platform.REST, "wamid.2") is None
