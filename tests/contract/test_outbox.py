"""The outbox: promised once, handed out in order, one at a time, and never forgotten. On both adapters."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from hermes.delivery.outbox_delivery import OutboxDelivery, SettlementWriter
from hermes.ops.metrics import LogAlerts, Metrics
from hermes.ports.channels import SendOutcome
from hermes.ports.inbox import Claim, Inbox, InboxMessage
from hermes.ports.outbox import DeliveryResult, Outbox, OutboxAnswer, OutboxLengths, OutboxMessage, OutboxState, ProactiveMessage
from hermes.ports.runtime import Transactions
from hermes.ports.users import NewUser, UserState
from hermes.router.outbox import first_state, render_text
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.journal import PostgresInteractions, PostgresJournal
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.testing.memory import MemoryInbox, MemoryOutbox
from hermes.turn import Platform
from tests.contract.turns import Turns, new_claim, on_postgres, stored_turns
from tests.flows.directory import Directory


@pytest.fixture
def outbox(inbox: Inbox, keyring: Keyring) -> Outbox:
    return MemoryOutbox(inbox=inbox) if isinstance(inbox, MemoryInbox) else PostgresOutbox(keyring, cut_off_s=60)


async def take(transactions: Transactions, outbox: Outbox, claim: Claim) -> OutboxMessage | None:
    async with transactions.begin() as tx:
        return await outbox.take(tx, claim.conversation_id)


async def put(transactions: Transactions, outbox: Outbox, claim: Claim, *parts: str) -> None:
    async with transactions.begin() as tx:
        await outbox.put(tx, claim, parts)


async def settle(
    transactions: Transactions, outbox: Outbox, parcel: OutboxMessage, state: OutboxState, retry_in_s: float = 0.0, **how: Any
) -> OutboxState | None:
    sending = DeliveryResult(state=state, retry_in_s=retry_in_s, **{"outcome": SendOutcome.SERVICE_UNAVAILABLE, **how})
    async with transactions.begin() as tx:
        return await outbox.settle(tx, parcel, sending)


async def test_a_parcel_comes_out_as_it_went_in(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, claim, "Ciao 🌅")
    parcel = await take(turns.transactions, outbox, claim)
    assert parcel is not None
    times = {"taken_at": parcel.taken_at, "last_inbound_at": parcel.last_inbound_at}
    assert parcel == OutboxMessage(
        parcel.id, claim.turn_id, claim.conversation_id, 1, 0, "shop", Platform.REST, "c1", "Ciao 🌅", 1, **times
    )
    assert parcel.taken_at is not None
    assert parcel.last_inbound_at is not None
    assert parcel.last_inbound_at < parcel.taken_at


async def test_a_parcel_belongs_to_the_trace_of_the_message_that_it_answers(turns: Turns, outbox: Outbox) -> None:
    trace = f"00-{7:032x}-{7:016x}-01"
    claim = await turns.claim(await turns.accept(traceparent=trace))
    await put(turns.transactions, outbox, claim, "Ciao")
    parcel = await take(turns.transactions, outbox, claim)
    assert parcel is not None
    assert parcel.traceparent == trace
    assert await settle(turns.transactions, outbox, parcel, OutboxState.PENDING) is OutboxState.PENDING
    again = await take(turns.transactions, outbox, claim)
    assert again is not None
    assert (again.tries, again.traceparent) == (2, trace)


async def test_parts_and_turns_leave_in_order_and_a_later_one_never_overtakes(turns: Turns, outbox: Outbox) -> None:
    first, second = await turns.new_claim(), await turns.new_claim()
    await put(turns.transactions, outbox, second, "c")
    await put(turns.transactions, outbox, first, "a", "b")
    seen = []
    while parcel := await take(turns.transactions, outbox, first):
        assert await take(turns.transactions, outbox, first) is None, "one is on its way"
        seen.append(parcel.body)
        await settle(turns.transactions, outbox, parcel, OutboxState.SENT)
    assert seen == ["a", "b", "c"]


async def test_a_parcel_that_must_wait_holds_back_those_behind_it(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, claim, "a", "b")
    parcel = await take(turns.transactions, outbox, claim)
    assert parcel is not None
    await settle(turns.transactions, outbox, parcel, OutboxState.PENDING, retry_in_s=60)
    assert await take(turns.transactions, outbox, claim) is None
    async with turns.transactions.begin() as tx:
        if isinstance(outbox, MemoryOutbox):
            outbox.not_before.clear()
        else:
            await connection_of(tx).execute("update outbox set not_before = now() - interval '1 s'")
    again = await take(turns.transactions, outbox, claim)
    assert again is not None
    assert (again.body, again.tries, again.is_ambiguous) == ("a", 2, False)


@pytest.mark.parametrize("end", [OutboxState.SENT, OutboxState.DEAD])
async def test_a_settled_parcel_lets_the_next_one_go(turns: Turns, outbox: Outbox, end: OutboxState) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, claim, "a", "b")
    parcel = await take(turns.transactions, outbox, claim)
    assert parcel is not None
    await settle(turns.transactions, outbox, parcel, end)
    following = await take(turns.transactions, outbox, claim)
    assert following is not None
    assert following.body == "b"


@on_postgres
async def test_a_try_that_was_cut_off_is_given_out_again_and_says_so(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a")
    await take(database, outbox, claim)
    async with database.begin() as tx:
        assert list(await outbox.stranded_conversations(tx, 30)) == []
        await connection_of(tx).execute("update outbox set touched_at = now() - interval '61 s'")
        assert list(await outbox.stranded_conversations(tx, 30)) == [claim.conversation_id]
    again = await take(database, outbox, claim)
    assert again is not None
    assert (again.tries, again.is_ambiguous) == (2, True)


@on_postgres
async def test_whoever_comes_late_with_a_result_changes_nothing(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a")
    paused = await take(database, outbox, claim)
    async with database.begin() as tx:
        await connection_of(tx).execute("update outbox set touched_at = now() - interval '61 s'")
    successor = await take(database, outbox, claim)
    assert paused is not None
    assert successor is not None
    await settle(database, outbox, paused, OutboxState.PENDING, retry_in_s=0)
    assert await take(database, outbox, claim) is None, "the successor is still sending it"
    await settle(database, outbox, successor, OutboxState.SENT)
    async with database.begin() as tx:
        assert await outbox.waiting(tx) == 0


async def test_promising_twice_promises_once(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, claim, "a")
    await put(turns.transactions, outbox, claim, "other")
    async with turns.transactions.begin() as tx:
        assert await outbox.waiting(tx) == 1
        assert await outbox.answer(tx, claim.turn_id) == OutboxAnswer(claim.turn_id, "a", {})


@on_postgres
async def test_the_answer_comes_with_its_provenance(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    async with database.begin() as tx:
        assert await outbox.answer(tx, claim.turn_id) is None
        session = await PostgresSessions(keyring).current(tx, claim.conversation_id, claim.user_id)
        await outbox.put(tx, claim, ["Ci", "ao"])
        for tokens in (3, 4):
            await PostgresInteractions().add(tx, claim, session.id, {"tokens_in": tokens})
        assert await outbox.answer(tx, claim.turn_id) == OutboxAnswer(claim.turn_id, "Ciao", {"tokens_in": 3})
        assert await outbox.answer(tx, uuid4()) is None


# --- news


async def said_in(turns: Turns, claim: Claim) -> InboxMessage:
    async with turns.transactions.begin() as tx:
        said = await turns.inbox.message_of(tx, claim.turn_id)
    assert said is not None
    return said


async def tell(transactions: Transactions, outbox: Outbox, said: InboxMessage, name: str, text: str, **state: OutboxState) -> None:
    async with transactions.begin() as tx:
        await outbox.put_proactive(tx, said, name, [text], **state)


async def test_news_are_no_part_of_the_answer_and_are_told_once(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    said = await said_in(turns, claim)
    await tell(turns.transactions, outbox, said, "reminder/7KQ2", "call mum")
    async with turns.transactions.begin() as tx:
        assert await outbox.answer(tx, claim.turn_id) is None
    await put(turns.transactions, outbox, claim, "It is set.")
    await tell(turns.transactions, outbox, said, "reminder/7KQ2", "call mum, I say")
    async with turns.transactions.begin() as tx:
        assert await outbox.answer(tx, claim.turn_id) == OutboxAnswer(claim.turn_id, "It is set.", {})
        assert await outbox.waiting(tx) == 2


async def test_news_leave_behind_all_that_was_promised_in_their_conversation(turns: Turns, outbox: Outbox) -> None:
    asked, later = await turns.new_claim(), await turns.new_claim()
    said = await said_in(turns, asked)
    await tell(turns.transactions, outbox, said, "reminder/A", "first news")
    await tell(turns.transactions, outbox, said, "price/B", "second news")
    await put(turns.transactions, outbox, later, "d", "e")
    await put(turns.transactions, outbox, asked, "a")
    after = await turns.new_claim()
    await put(turns.transactions, outbox, after, "f")
    seen = []
    while parcel := await take(turns.transactions, outbox, asked):
        seen.append((parcel.body, parcel.turn_id, parcel.news))
        await settle(turns.transactions, outbox, parcel, OutboxState.SENT)
    assert seen == [
        ("a", asked.turn_id, ""),
        ("d", later.turn_id, ""),
        ("e", later.turn_id, ""),
        ("first news", asked.turn_id, "reminder/A"),
        ("second news", asked.turn_id, "price/B"),
        ("f", after.turn_id, ""),
    ]


@on_postgres
async def test_news_go_into_the_history_once(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim, other = await new_claim(database, keyring), await new_claim(database, keyring, channel="c2")
    said = await said_in(stored_turns(database, keyring), claim)
    for name, text in (("reminder/A", "one"), ("reminder/B", "two")):
        await tell(database, outbox, said, name, text)
    await tell(database, outbox, await said_in(stored_turns(database, keyring), other), "reminder/C", "three")

    async def cut_off() -> None:
        async with database.begin() as tx:
            assert len(await outbox.take_proactive(tx, claim.conversation_id)) == 2
            raise LookupError

    with pytest.raises(LookupError):
        await cut_off()
    async with database.begin() as tx:
        first, second = await outbox.take_proactive(tx, claim.conversation_id)
        assert (first, second) == (
            ProactiveMessage(first.id, claim.turn_id, claim.user_id, "reminder/A", "one", first.at),
            ProactiveMessage(second.id, claim.turn_id, claim.user_id, "reminder/B", "two", second.at),
        )
        assert first.id < second.id
        assert await outbox.take_proactive(tx, claim.conversation_id) == []


async def test_those_who_fetch_their_answers_fetch_their_news(turns: Turns, outbox: Outbox) -> None:
    claim, other = await turns.new_claim(), await turns.new_claim(channel="c2")
    said = await said_in(turns, claim)
    for text in ("one", "two", "three"):
        await tell(turns.transactions, outbox, said, f"reminder/{text}", text, state=OutboxState.SENT)
    await tell(turns.transactions, outbox, await said_in(turns, other), "reminder/x", "not theirs", state=OutboxState.SENT)
    await put(turns.transactions, outbox, claim, "an answer")
    async with turns.transactions.begin() as tx:
        news = await outbox.proactive_messages(tx, "shop", Platform.REST, "c1")
        assert [each.text for each in news] == ["one", "two", "three"]
        assert [each.text for each in await outbox.proactive_messages(tx, "shop", Platform.REST, "c1", after=news[0].id, limit=1)] == [
            "two"
        ]
        assert await outbox.proactive_messages(tx, "shop", Platform.REST, "c1", after=news[-1].id) == []
        assert await outbox.proactive_messages(tx, "shop", Platform.WEB, "c1") == []
        await turns.people.forget(tx, claim.user_id)
    async with turns.transactions.begin() as tx:
        assert await outbox.proactive_messages(tx, "shop", Platform.REST, "c1") == []
        assert await outbox.take_proactive(tx, claim.conversation_id) == []


@on_postgres
async def test_no_word_of_news_is_readable(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await tell(database, outbox, await said_in(stored_turns(database, keyring), claim), "reminder/A", "Canggu")
    async with database.begin() as tx:
        rows = str(await (await connection_of(tx).execute("select outbox::text from outbox")).fetchall())
    assert b"Canggu".hex() not in rows


# --- how it went


async def parcel_of(transactions: Transactions, outbox: Outbox, claim: Claim) -> OutboxMessage:
    parcel = await take(transactions, outbox, claim)
    assert parcel is not None
    return parcel


async def test_a_platforms_message_comes_out_as_it_went_in_and_its_words_can_be_read(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    parts = [{"text": "Ciao 🌅", "entities": [{"type": "bold", "offset": 0}]}, {"text": "Canggu"}]
    async with turns.transactions.begin() as tx:
        await outbox.put(tx, claim, parts)
    for part in parts:
        parcel = await parcel_of(turns.transactions, outbox, claim)
        assert parcel.body == part
        await settle(turns.transactions, outbox, parcel, OutboxState.SENT)
    async with turns.transactions.begin() as tx:
        assert await outbox.answer(tx, claim.turn_id) == OutboxAnswer(claim.turn_id, "Ciao 🌅\nCanggu", {})


async def test_a_text_that_looks_like_a_message_is_a_text(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, claim, '{"text": "x"}')
    assert (await parcel_of(turns.transactions, outbox, claim)).body == '{"text": "x"}'
    async with turns.transactions.begin() as tx:
        assert await outbox.answer(tx, claim.turn_id) == OutboxAnswer(claim.turn_id, '{"text": "x"}', {})


async def test_promising_again_in_more_parts_adds_none(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, claim, "a")
    await put(turns.transactions, outbox, claim, "b", "c")
    async with turns.transactions.begin() as tx:
        assert await outbox.answer(tx, claim.turn_id) == OutboxAnswer(claim.turn_id, "a", {})


async def test_news_may_have_several_parts_and_are_read_as_one(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    said = await said_in(turns, claim)
    async with turns.transactions.begin() as tx:
        await outbox.put_proactive(tx, said, "reminder/A", [{"text": "call"}, {"text": "mum"}])
        await outbox.put_proactive(tx, said, "reminder/B", ["feed the cat"])
    async with turns.transactions.begin() as tx:
        fetched = await outbox.proactive_messages(tx, "shop", Platform.REST, "c1", limit=1)
        taken = await outbox.take_proactive(tx, claim.conversation_id)
    assert [(each.name, each.text) for each in taken] == [("reminder/A", "call\nmum"), ("reminder/B", "feed the cat")]
    assert fetched == taken[:1]


async def test_failures_and_doubts_are_counted_and_waiting_is_neither(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, claim, "a")
    counted = []
    for how in ({}, {"is_failure": True}, {"is_doubtful": True}, {"is_failure": True}):
        parcel = await parcel_of(turns.transactions, outbox, claim)
        assert await settle(turns.transactions, outbox, parcel, OutboxState.PENDING, **how) is OutboxState.PENDING
        counted.append((parcel.tries, parcel.failures, parcel.doubts))
    assert counted == [(1, 0, 0), (2, 0, 0), (3, 1, 0), (4, 1, 1)]
    last = await parcel_of(turns.transactions, outbox, claim)
    assert (last.failures, last.doubts, last.is_ambiguous) == (2, 1, True)


async def test_a_parcel_knows_its_thread(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, replace(claim, envelope=replace(claim.envelope, thread="9")), "a")
    assert (await parcel_of(turns.transactions, outbox, claim)).thread == "9"


async def test_whoever_comes_late_is_told_so(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, claim, "a")
    parcel = await parcel_of(turns.transactions, outbox, claim)
    assert await settle(turns.transactions, outbox, parcel, OutboxState.SENT) is OutboxState.SENT
    for state in OutboxState.SENT, OutboxState.PENDING, OutboxState.DEAD:
        assert await settle(turns.transactions, outbox, parcel, state) is None


async def test_of_more_than_may_wait_the_next_one_goes_to_the_dead_letters(database: Database, keyring: Keyring) -> None:
    outbox, ends = PostgresOutbox(keyring, cap=2), []
    for channel in ("c1", "c2", "c3"):
        claim = await new_claim(database, keyring, channel=channel)
        await put(database, outbox, claim, channel)
        ends.append(await settle(database, outbox, await parcel_of(database, outbox, claim), OutboxState.PENDING, 60, reason="down"))
    assert ends == [OutboxState.PENDING, OutboxState.PENDING, OutboxState.DEAD]
    async with database.begin() as tx:
        [letter] = await outbox.dead_letters.list(tx)
        assert (letter.channel_id, letter.outcome, letter.reason) == (
            "c3",
            SendOutcome.SERVICE_UNAVAILABLE,
            "2 other messages wait to be tried again; down",
        )
        assert await outbox.lengths(tx) == OutboxLengths(failed_sends=2, dead_letters=1)
        await connection_of(tx).execute("update outbox set account_id = 'elsewhere' where channel_id = 'c1'")
    claim = await new_claim(database, keyring, channel="c4")
    await put(database, outbox, claim, "c4")
    assert await settle(database, outbox, await parcel_of(database, outbox, claim), OutboxState.PENDING) is OutboxState.PENDING


async def test_what_was_never_tried_does_not_count_among_those_that_failed(database: Database, keyring: Keyring) -> None:
    outbox, claim = PostgresOutbox(keyring, cap=1), await new_claim(database, keyring)
    await put(database, outbox, claim, "a", "b", "c")
    parcel = await parcel_of(database, outbox, claim)
    assert await settle(database, outbox, parcel, OutboxState.PENDING) is OutboxState.PENDING
    async with database.begin() as tx:
        assert await outbox.lengths(tx) == OutboxLengths(failed_sends=1, dead_letters=0)


async def test_of_many_that_are_put_back_at_once_exactly_as_many_wait_as_may(database: Database, keyring: Keyring) -> None:
    outbox, parcels = PostgresOutbox(keyring, cap=5), []
    for number in range(12):
        claim = await new_claim(database, keyring, channel=f"c{number}")
        await put(database, outbox, claim, "x")
        parcels.append(await parcel_of(database, outbox, claim))
    ends = await asyncio.gather(*(settle(database, outbox, parcel, OutboxState.PENDING, 60) for parcel in parcels))
    assert sorted(map(str, ends)) == ["dead"] * 7 + ["pending"] * 5


async def test_whoever_left_is_unreachable_until_they_write_again(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, claim, "a", "b", "c")
    first = await parcel_of(turns.transactions, outbox, claim)
    await settle(turns.transactions, outbox, first, OutboxState.DEAD, outcome=SendOutcome.INVALID_RECIPIENT)
    second = await parcel_of(turns.transactions, outbox, claim)
    assert (first.is_reachable, second.is_reachable) == (True, False)
    await settle(turns.transactions, outbox, second, OutboxState.DEAD, outcome=SendOutcome.INVALID_RECIPIENT)
    await turns.accept("I am back")
    assert (await parcel_of(turns.transactions, outbox, claim)).is_reachable


async def test_whoever_writes_while_they_are_found_to_have_left_is_reachable(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    await put(turns.transactions, outbox, claim, "a", "b")
    parcel = await parcel_of(turns.transactions, outbox, claim)
    await turns.accept("I am back")
    await settle(turns.transactions, outbox, parcel, OutboxState.DEAD, outcome=SendOutcome.INVALID_RECIPIENT)
    assert (await parcel_of(turns.transactions, outbox, claim)).is_reachable


async def test_what_nobody_can_read_any_more_holds_nobody_back(turns: Turns, outbox: Outbox) -> None:
    claim, carols = await turns.new_claim(), await turns.new_claim()
    async with turns.transactions.begin() as tx:
        carol = await turns.people.create(tx, NewUser(state=UserState.ACTIVE))
        await outbox.put(tx, claim, ["a", "b"])
        await outbox.put(tx, replace(carols, user_id=carol.id), ["c"])
        await turns.people.forget(tx, claim.user_id)
    assert (await parcel_of(turns.transactions, outbox, claim)).body == "c"
    async with turns.transactions.begin() as tx:
        assert await outbox.lengths(tx) == OutboxLengths(failed_sends=0, dead_letters=2)
        if isinstance(outbox, PostgresOutbox):
            assert [letter.reason for letter in await outbox.dead_letters.list(tx)] == ["its user was deleted"] * 2


@on_postgres
async def test_what_is_damaged_holds_nobody_back(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a", "b")
    async with database.begin() as tx:
        await connection_of(tx).execute("update outbox set body = set_byte(body, 20, 255 - get_byte(body, 20)) where part = 0")
    assert (await parcel_of(database, outbox, claim)).body == "b"


@on_postgres
async def test_a_conversation_is_stranded_by_its_oldest_parcel_alone(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    waits, due = await new_claim(database, keyring), await new_claim(database, keyring, channel="c2")
    for claim in (waits, due):
        await put(database, outbox, claim, "a", "b")
    await settle(database, outbox, await parcel_of(database, outbox, waits), OutboxState.PENDING, 60)
    async with database.begin() as tx:
        await connection_of(tx).execute("update outbox set touched_at = now() - interval '31 s'")
        assert list(await outbox.stranded_conversations(tx, 30)) == [due.conversation_id]
        await connection_of(tx).execute(
            "update outbox set not_before = now() - interval '1 min' where conversation_id = %s", [waits.conversation_id]
        )
        assert list(await outbox.stranded_conversations(tx, 30)) == [waits.conversation_id, due.conversation_id]
        assert list(await outbox.stranded_conversations(tx, 30, limit=1)) == [waits.conversation_id]


@on_postgres
async def test_giving_up_and_the_end_of_a_turn_do_not_wait_for_each_other(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    """Both change the credits of one user and the outbox of one conversation. Both take the conversation first."""
    bank, first, second = PostgresCredits(), await new_claim(database, keyring), await new_claim(database, keyring)
    async with database.begin() as tx:
        await bank.grant(tx, first.user_id, 10, "signup")
        for claim in (first, second):
            await bank.reserve(tx, claim.user_id, claim.turn_id)
        await bank.post(tx, first.turn_id)
    await put(database, outbox, first, "a")
    parcel = await parcel_of(database, outbox, first)

    async def give_up() -> None:
        async with database.begin() as tx:
            await outbox.settle(tx, parcel, DeliveryResult(state=OutboxState.DEAD, outcome=SendOutcome.REJECTED))
            await bank.refund(tx, first.turn_id)

    async with database.begin() as tx:
        await PostgresInbox(keyring).hold(tx, second)
        await bank.post(tx, second.turn_id)
        giving_up = asyncio.create_task(give_up())
        await asyncio.sleep(0.2)
        await outbox.put(tx, second, ["b"])
        assert await outbox.take(tx, second.conversation_id) is None, "the first is still being sent"
    await giving_up
    assert (await parcel_of(database, outbox, second)).body == "b"


# --- the courier


class Post:
    """A platform that takes what it is given, and answers as it was told to."""

    def __init__(self, *answers: OutboxState) -> None:
        self.answers = list(answers)
        self.got: list[str] = []

    async def send(self, parcel: OutboxMessage) -> DeliveryResult:
        assert isinstance(parcel.body, str)
        self.got.append(parcel.body)
        state = self.answers.pop(0) if self.answers else OutboxState.SENT
        return DeliveryResult(state=state, retry_in_s=60, is_failure=state is OutboxState.PENDING)


@pytest.fixture
def courier(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> Callable[[Post], OutboxDelivery]:
    settlement = SettlementWriter(PostgresCredits(), PostgresJournal(keyring), LogAlerts(Metrics()))
    return lambda post: OutboxDelivery(database, outbox, post.send, settlement)


async def test_where_people_fetch_their_answers_the_promise_is_the_delivery(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    async with turns.transactions.begin() as tx:
        await outbox.put(tx, claim, render_text(claim.envelope, "a", Directory([])), first_state(claim.envelope))
        assert await outbox.waiting(tx) == 0
        assert await outbox.answer(tx, claim.turn_id) == OutboxAnswer(claim.turn_id, "a", {})


@on_postgres
async def test_what_a_turn_promised_is_sent_after_what_was_promised_before(
    database: Database, keyring: Keyring, outbox: PostgresOutbox, courier: Callable[[Post], OutboxDelivery]
) -> None:
    first, second, post = await new_claim(database, keyring), await new_claim(database, keyring), Post()
    await put(database, outbox, first, "a")
    await put(database, outbox, second, "b", "c")
    await courier(post).deliver(second.conversation_id)
    assert post.got == ["a", "b", "c"]
    async with database.begin() as tx:
        assert await outbox.waiting(tx) == 0


async def test_a_message_that_was_sent_is_noted_once_and_the_next_one_is_taken(turns: Turns, outbox: Outbox) -> None:
    claim = await turns.new_claim()
    sent = DeliveryResult(state=OutboxState.SENT, outcome=SendOutcome.SENT, message_id="m1")
    async with turns.transactions.begin() as tx:
        await outbox.put(tx, claim, ["a", "b"])
        first = await outbox.take(tx, claim.conversation_id)
        assert first is not None
        second = await outbox.settle_sent(tx, first, sent, {"part": 0})
        assert second is not None
        assert second.body == "b"
        late = await outbox.settle_sent(tx, first, sent, {"part": 0})
        assert (late, await outbox.waiting(tx)) == (None, 1)


@on_postgres
async def test_the_courier_stops_at_what_must_wait_and_the_journal_says_so(
    database: Database, keyring: Keyring, outbox: PostgresOutbox, courier: Callable[[Post], OutboxDelivery]
) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a", "b")
    post = Post(OutboxState.SENT, OutboxState.PENDING)
    for _ in range(2):
        await courier(post).deliver(claim.conversation_id)
    assert post.got == ["a", "b"], "b waits for its time"
    async with database.begin() as tx:
        noted = [(event.type, event.facts["part"]) for event in await PostgresJournal(keyring).read(tx, claim.turn_id)]
    assert noted == [("response_delivered", 0), ("delivery_failed", 1)]


@on_postgres
async def test_no_word_of_an_answer_is_readable(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "Canggu")
    async with database.begin() as tx:
        rows = str(await (await connection_of(tx).execute("select outbox::text from outbox")).fetchall())
    assert b"Canggu".hex() not in rows
