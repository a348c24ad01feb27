"""The outbox: promised once, handed out in order, one at a time, and never forgotten."""

from contextlib import AbstractAsyncContextManager
from uuid import UUID, uuid4

import pytest

from hermes.ports.inbox import Claim, Said
from hermes.ports.outbox import Answer, News, Parcel, ParcelState
from hermes.ports.replies import Bell
from hermes.router.courier import Courier
from hermes.stores.postgres.database import Database, on
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox import PostgresInteractions, PostgresOutbox
from hermes.stores.postgres.people import PostgresPeople
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.turn import Platform
from tests.contract.turns import new_claim


@pytest.fixture
def outbox(keyring: Keyring) -> PostgresOutbox:
    return PostgresOutbox(keyring, cut_off_s=60)


async def take(database: Database, outbox: PostgresOutbox, claim: Claim) -> Parcel | None:
    async with database.begin() as tx:
        return await outbox.take(tx, claim.conversation_id)


async def put(database: Database, outbox: PostgresOutbox, claim: Claim, *parts: str) -> None:
    async with database.begin() as tx:
        await outbox.put(tx, claim, parts)


async def settle(database: Database, outbox: PostgresOutbox, parcel: Parcel, state: ParcelState, retry_in_s: float | None = None) -> None:
    async with database.begin() as tx:
        await outbox.settle(tx, parcel, state, retry_in_s=retry_in_s)


async def test_a_parcel_comes_out_as_it_went_in(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "Ciao 🌅")
    parcel = await take(database, outbox, claim)
    assert parcel is not None
    assert parcel == Parcel(
        parcel.id, claim.turn_id, claim.conversation_id, 1, 0, "shop", Platform.REST, "c1", "Ciao 🌅", 1, is_ambiguous=False
    )


async def test_parts_and_turns_leave_in_order_and_a_later_one_never_overtakes(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    first, second = await new_claim(database, keyring), await new_claim(database, keyring)
    await put(database, outbox, second, "c")
    await put(database, outbox, first, "a", "b")
    seen = []
    while parcel := await take(database, outbox, first):
        assert await take(database, outbox, first) is None, "one is on its way"
        seen.append(parcel.body)
        await settle(database, outbox, parcel, ParcelState.SENT)
    assert seen == ["a", "b", "c"]


async def test_a_parcel_that_must_wait_holds_back_those_behind_it(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a", "b")
    parcel = await take(database, outbox, claim)
    assert parcel is not None
    await settle(database, outbox, parcel, ParcelState.PENDING, retry_in_s=60)
    assert await take(database, outbox, claim) is None
    async with database.begin() as tx:
        await on(tx).execute("update outbox set not_before = now() - interval '1 s'")
    again = await take(database, outbox, claim)
    assert again is not None
    assert (again.body, again.tries, again.is_ambiguous) == ("a", 2, False)


@pytest.mark.parametrize("end", [ParcelState.SENT, ParcelState.AMBIGUOUS, ParcelState.DEAD])
async def test_a_settled_parcel_lets_the_next_one_go(
    database: Database, keyring: Keyring, outbox: PostgresOutbox, end: ParcelState
) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a", "b")
    parcel = await take(database, outbox, claim)
    assert parcel is not None
    await settle(database, outbox, parcel, end)
    following = await take(database, outbox, claim)
    assert following is not None
    assert following.body == "b"


async def test_a_try_that_was_cut_off_is_given_out_again_and_says_so(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a")
    await take(database, outbox, claim)
    async with database.begin() as tx:
        assert list(await outbox.stranded(tx, 30)) == []
        await on(tx).execute("update outbox set touched_at = now() - interval '61 s'")
        assert list(await outbox.stranded(tx, 30)) == [claim.conversation_id]
    again = await take(database, outbox, claim)
    assert again is not None
    assert (again.tries, again.is_ambiguous) == (2, True)


async def test_whoever_comes_late_with_a_result_changes_nothing(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a")
    paused = await take(database, outbox, claim)
    async with database.begin() as tx:
        await on(tx).execute("update outbox set touched_at = now() - interval '61 s'")
    successor = await take(database, outbox, claim)
    assert paused is not None
    assert successor is not None
    await settle(database, outbox, paused, ParcelState.PENDING, retry_in_s=0)
    assert await take(database, outbox, claim) is None, "the successor is still sending it"
    await settle(database, outbox, successor, ParcelState.SENT)
    async with database.begin() as tx:
        assert await outbox.waiting(tx) == 0


async def test_promising_twice_promises_once(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a")
    await put(database, outbox, claim, "other")
    async with database.begin() as tx:
        assert await outbox.waiting(tx) == 1
        assert await outbox.answer(tx, claim.turn_id) == Answer(claim.turn_id, "a", {})


async def test_the_answer_comes_with_its_provenance(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    async with database.begin() as tx:
        assert await outbox.answer(tx, claim.turn_id) is None
        session = await PostgresSessions(keyring).current(tx, claim.conversation_id, claim.user_id)
        await outbox.put(tx, claim, ["Ci", "ao"])
        for tokens in (3, 4):
            await PostgresInteractions().add(tx, claim, session.id, {"tokens_in": tokens})
        assert await outbox.answer(tx, claim.turn_id) == Answer(claim.turn_id, "Ciao", {"tokens_in": 3})
        assert await outbox.answer(tx, uuid4()) is None


# --- news


async def said_in(database: Database, keyring: Keyring, claim: Claim) -> Said:
    async with database.begin() as tx:
        said = await PostgresInbox(keyring).said(tx, claim.turn_id)
    assert said is not None
    return said


async def tell(database: Database, outbox: PostgresOutbox, said: Said, name: str, text: str, **state: ParcelState) -> None:
    async with database.begin() as tx:
        await outbox.put_news(tx, said, name, text, **state)


async def test_news_are_no_part_of_the_answer_and_are_told_once(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    said = await said_in(database, keyring, claim)
    await tell(database, outbox, said, "reminder/7KQ2", "call mum")
    async with database.begin() as tx:
        assert await outbox.answer(tx, claim.turn_id) is None
    await put(database, outbox, claim, "It is set.")
    await tell(database, outbox, said, "reminder/7KQ2", "call mum, I say")
    async with database.begin() as tx:
        assert await outbox.answer(tx, claim.turn_id) == Answer(claim.turn_id, "It is set.", {})
        assert await outbox.waiting(tx) == 2


async def test_news_leave_behind_all_that_was_promised_in_their_conversation(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    asked, later = await new_claim(database, keyring), await new_claim(database, keyring)
    said = await said_in(database, keyring, asked)
    await tell(database, outbox, said, "reminder/A", "first news")
    await tell(database, outbox, said, "price/B", "second news")
    await put(database, outbox, later, "d", "e")
    await put(database, outbox, asked, "a")
    after = await new_claim(database, keyring)
    await put(database, outbox, after, "f")
    seen = []
    while parcel := await take(database, outbox, asked):
        seen.append((parcel.body, parcel.turn_id, parcel.news))
        await settle(database, outbox, parcel, ParcelState.SENT)
    assert seen == [
        ("a", asked.turn_id, ""),
        ("d", later.turn_id, ""),
        ("e", later.turn_id, ""),
        ("first news", asked.turn_id, "reminder/A"),
        ("second news", asked.turn_id, "price/B"),
        ("f", after.turn_id, ""),
    ]


async def test_news_go_into_the_history_once(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim, other = await new_claim(database, keyring), await new_claim(database, keyring, channel="c2")
    said = await said_in(database, keyring, claim)
    for name, text in (("reminder/A", "one"), ("reminder/B", "two")):
        await tell(database, outbox, said, name, text)
    await tell(database, outbox, await said_in(database, keyring, other), "reminder/C", "three")

    async def cut_off() -> None:
        async with database.begin() as tx:
            assert len(await outbox.take_news(tx, claim.conversation_id)) == 2
            raise LookupError

    with pytest.raises(LookupError):
        await cut_off()
    async with database.begin() as tx:
        first, second = await outbox.take_news(tx, claim.conversation_id)
        assert (first, second) == (
            News(first.id, claim.turn_id, claim.user_id, "reminder/A", "one", first.at),
            News(second.id, claim.turn_id, claim.user_id, "reminder/B", "two", second.at),
        )
        assert first.id < second.id
        assert await outbox.take_news(tx, claim.conversation_id) == []


async def test_those_who_fetch_their_answers_fetch_their_news(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim, other = await new_claim(database, keyring), await new_claim(database, keyring, channel="c2")
    said = await said_in(database, keyring, claim)
    for text in ("one", "two", "three"):
        await tell(database, outbox, said, f"reminder/{text}", text, state=ParcelState.SENT)
    await tell(database, outbox, await said_in(database, keyring, other), "reminder/x", "not theirs", state=ParcelState.SENT)
    await put(database, outbox, claim, "an answer")
    async with database.begin() as tx:
        news = await outbox.news(tx, "shop", Platform.REST, "c1")
        assert [each.text for each in news] == ["one", "two", "three"]
        assert [each.text for each in await outbox.news(tx, "shop", Platform.REST, "c1", after=news[0].id, limit=1)] == ["two"]
        assert await outbox.news(tx, "shop", Platform.REST, "c1", after=news[-1].id) == []
        assert await outbox.news(tx, "shop", Platform.WEB, "c1") == []
        await PostgresPeople(keyring).forget(tx, claim.user_id)
    async with database.begin() as tx:
        assert await outbox.news(tx, "shop", Platform.REST, "c1") == []
        assert await outbox.take_news(tx, claim.conversation_id) == []


async def test_no_word_of_news_is_readable(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await tell(database, outbox, await said_in(database, keyring, claim), "reminder/A", "Canggu")
    async with database.begin() as tx:
        rows = str(await (await on(tx).execute("select outbox::text from outbox")).fetchall())
    assert b"Canggu".hex() not in rows


# --- the courier


class Post:
    """A platform that takes what it is given, and answers as it was told to."""

    def __init__(self, *answers: ParcelState) -> None:
        self.answers = list(answers)
        self.got: list[str] = []

    async def send(self, parcel: Parcel) -> ParcelState:
        self.got.append(parcel.body)
        return self.answers.pop(0) if self.answers else ParcelState.SENT


class Bells:
    """Notes whom it rang for."""

    def __init__(self) -> None:
        self.rung: list[UUID] = []

    async def announce(self, turn_id: UUID) -> None:
        self.rung.append(turn_id)

    def listen(self, turn_id: UUID) -> AbstractAsyncContextManager[Bell]:
        raise NotImplementedError


def courier(database: Database, outbox: PostgresOutbox, post: Post) -> Courier:
    return Courier(database, outbox, Bells(), {Platform.REST: post})


async def test_where_people_fetch_their_answers_the_promise_is_the_delivery(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    claim, bells = await new_claim(database, keyring), Bells()
    shelf = Courier(database, outbox, bells, senders={})
    async with database.begin() as tx:
        assert await shelf.promise(tx, claim, ["a"]) is None
    await shelf.hand_over(claim, None)
    assert bells.rung == [claim.turn_id]
    async with database.begin() as tx:
        assert await outbox.waiting(tx) == 0
        assert await outbox.answer(tx, claim.turn_id) == Answer(claim.turn_id, "a", {})


async def test_what_a_turn_promised_is_sent_after_what_was_promised_before(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    first, second, post = await new_claim(database, keyring), await new_claim(database, keyring), Post()
    await put(database, outbox, first, "a")
    async with database.begin() as tx:
        parcel = await courier(database, outbox, post).promise(tx, second, ["b", "c"])
    await courier(database, outbox, post).hand_over(second, parcel)
    assert post.got == ["a", "b", "c"]


async def test_the_courier_empties_the_outbox_in_order(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a", "b", "c")
    post = Post()
    await courier(database, outbox, post).deliver(claim.conversation_id)
    assert post.got == ["a", "b", "c"]
    async with database.begin() as tx:
        assert await outbox.waiting(tx) == 0


async def test_the_courier_stops_at_what_must_wait(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "a", "b")
    post = Post(ParcelState.SENT, ParcelState.PENDING)
    for _ in range(2):
        await courier(database, outbox, post).deliver(claim.conversation_id)
    assert post.got == ["a", "b"], "b waits for its time"


async def test_no_word_of_an_answer_is_readable(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await put(database, outbox, claim, "Canggu")
    async with database.begin() as tx:
        rows = str(await (await on(tx).execute("select outbox::text from outbox")).fetchall())
    assert b"Canggu".hex() not in rows
