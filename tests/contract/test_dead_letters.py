"""Dead letters: kept for a week, shown, sent again behind all others, or dropped; never a word of them readable in the database."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hermes.ports.channels import SendOutcome
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.inbox import Claim
from hermes.ports.outbox import (
    ALL_DEAD_LETTERS,
    DeadLetter,
    DeadLetterQuery,
    DeliveryResult,
    MessageBody,
    OutboxLengths,
    OutboxMessage,
    OutboxState,
)
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.users import PostgresUsers
from hermes.turn import Platform
from tests.contract.turns import new_claim


@pytest.fixture
def outbox(keyring: Keyring) -> PostgresOutbox:
    return PostgresOutbox(keyring, keep_dead_s=7 * 86_400)


async def bury(
    database: Database,
    outbox: PostgresOutbox,
    claim: Claim,
    *parts: MessageBody,
    outcome: SendOutcome = SendOutcome.REJECTED,
    reason: str = "too long",
) -> list[OutboxMessage]:
    """Promise an answer, and give all of it up."""
    found = []
    async with database.begin() as tx:
        await outbox.put(tx, claim, parts)
        while parcel := await outbox.take(tx, claim.conversation_id):
            await outbox.settle(tx, parcel, DeliveryResult(state=OutboxState.DEAD, outcome=outcome, reason=reason))
            found.append(parcel)
    return found


async def listed(
    database: Database, outbox: PostgresOutbox, wanted: DeadLetterQuery = ALL_DEAD_LETTERS, **options: int
) -> Sequence[DeadLetter]:
    async with database.begin() as tx:
        return await outbox.dead_letters.list(tx, wanted, **options)


async def requeue(database: Database, outbox: PostgresOutbox, wanted: DeadLetterQuery = ALL_DEAD_LETTERS) -> Sequence[DeadLetter]:
    async with database.begin() as tx:
        return await outbox.dead_letters.requeue(tx, wanted)


async def everything_sent(database: Database, outbox: PostgresOutbox, claim: Claim) -> list[tuple[Any, bool]]:
    sent = []
    async with database.begin() as tx:
        while parcel := await outbox.take(tx, claim.conversation_id):
            sent.append((parcel.body, parcel.is_late))
            await outbox.settle(tx, parcel, DeliveryResult(state=OutboxState.SENT, outcome=SendOutcome.SENT))
    return sent


async def test_a_dead_letter_says_all_but_its_words(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    [parcel] = await bury(database, outbox, claim, {"text": "Canggu"})
    [letter] = await listed(database, outbox)
    assert letter == DeadLetter(
        id=parcel.id,
        turn_id=claim.turn_id,
        conversation_id=claim.conversation_id,
        account="shop",
        platform=Platform.REST,
        channel_id="c1",
        part=0,
        news="",
        outcome=SendOutcome.REJECTED,
        reason="too long",
        tries=1,
        doubts=0,
        is_late=False,
        promised_at=letter.promised_at,
        died_at=letter.died_at,
    )
    async with database.begin() as tx:
        assert await outbox.dead_letters.text(tx, letter.id) == "Canggu"
        assert await outbox.lengths(tx) == OutboxLengths(failed_sends=0, dead_letters=1)
        with pytest.raises(NotFound, match="there is no dead letter 999"):
            await outbox.dead_letters.text(tx, 999)


async def test_those_that_are_wanted_are_found_the_newest_first(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    first, second = await new_claim(database, keyring), await new_claim(database, keyring, channel="c2")
    [one] = await bury(database, outbox, first, "one", outcome=SendOutcome.UNAUTHORIZED)
    [two] = await bury(database, outbox, second, "two")
    everything = [two.id, one.id]
    found = {
        name: [letter.id for letter in await listed(database, outbox, wanted)]
        for name, wanted in {
            "all": ALL_DEAD_LETTERS,
            "unauthorized": DeadLetterQuery(outcome=SendOutcome.UNAUTHORIZED),
            "rest": DeadLetterQuery(platform=Platform.REST),
            "telegram": DeadLetterQuery(platform=Platform.TELEGRAM),
            "shop": DeadLetterQuery(account="shop"),
            "elsewhere": DeadLetterQuery(account="elsewhere"),
            "by id": DeadLetterQuery(ids=[one.id, 999]),
            "both": DeadLetterQuery(ids=[two.id], outcome=SendOutcome.UNAUTHORIZED),
        }.items()
    }
    assert found == {
        "all": everything,
        "unauthorized": [one.id],
        "rest": everything,
        "telegram": [],
        "shop": everything,
        "elsewhere": [],
        "by id": [one.id],
        "both": [],
    }
    assert [letter.id for letter in await listed(database, outbox, limit=1)] == [two.id]


async def test_what_is_sent_again_goes_last_in_its_own_order_marked_as_late_with_all_its_tries(
    database: Database, keyring: Keyring, outbox: PostgresOutbox
) -> None:
    asked, later = await new_claim(database, keyring), await new_claim(database, keyring)
    async with database.begin() as tx:
        said = await PostgresInbox(keyring).message_of(tx, asked.turn_id)
        assert said is not None
        await outbox.put(tx, asked, ["a", "b"])
        for _ in range(3):
            parcel = await outbox.take(tx, asked.conversation_id)
            assert parcel is not None
            await outbox.settle(
                tx, parcel, DeliveryResult(state=OutboxState.PENDING, outcome=SendOutcome.AMBIGUOUS, is_failure=True, is_doubtful=True)
            )
        for _ in range(2):
            parcel = await outbox.take(tx, asked.conversation_id)
            assert parcel is not None
            await outbox.settle(tx, parcel, DeliveryResult(state=OutboxState.DEAD, outcome=SendOutcome.REJECTED, reason="why"))
        await outbox.put_proactive(tx, said, "reminder/A", ["news"])
    requeued = await requeue(database, outbox)
    assert [(letter.part, letter.is_late, letter.doubts) for letter in requeued] == [(0, False, 3), (1, False, 0)]
    async with database.begin() as tx:
        await outbox.put(tx, later, ["c"])  # the answer to a message that was there before
        assert await outbox.lengths(tx) == OutboxLengths(failed_sends=0, dead_letters=0)
    after = await new_claim(database, keyring)
    async with database.begin() as tx:
        await outbox.put(tx, after, ["d"])
    async with database.begin() as tx:
        first = await outbox.take(tx, asked.conversation_id)
        assert first is not None
        await outbox.settle(tx, first, DeliveryResult(state=OutboxState.SENT))
    assert first.body == "c"
    assert await everything_sent(database, outbox, asked) == [("news", False), ("a", True), ("b", True), ("d", False)]
    assert await requeue(database, outbox) == []


async def test_its_tries_and_doubts_begin_again(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    async with database.begin() as tx:
        await outbox.put(tx, claim, ["a"])
        for state in (OutboxState.PENDING, OutboxState.PENDING, OutboxState.DEAD):
            parcel = await outbox.take(tx, claim.conversation_id)
            assert parcel is not None
            await outbox.settle(tx, parcel, DeliveryResult(state=state, outcome=SendOutcome.AMBIGUOUS, is_failure=True, is_doubtful=True))
    await requeue(database, outbox)
    async with database.begin() as tx:
        again = await outbox.take(tx, claim.conversation_id)
    assert again is not None
    assert (again.failures, again.doubts, again.tries, again.is_late) == (0, 0, 4, True)


async def test_one_that_dies_twice_remembers_that_it_is_late(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await bury(database, outbox, claim, "a")
    await requeue(database, outbox)
    await bury(database, outbox, claim)
    [letter] = await listed(database, outbox)
    assert (letter.is_late, letter.tries) == (True, 2)


async def test_what_is_dropped_is_gone(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    one, two = await bury(database, outbox, claim, "one", "two")
    async with database.begin() as tx:
        await outbox.put(tx, await another(database, keyring), ["alive"])
        assert [letter.id for letter in await outbox.dead_letters.drop(tx, DeadLetterQuery(ids=[one.id]))] == [one.id]
        assert [letter.id for letter in await outbox.dead_letters.drop(tx, ALL_DEAD_LETTERS)] == [two.id]
        assert await outbox.waiting(tx) == 1, "only dead ones"


async def another(database: Database, keyring: Keyring) -> Claim:
    return await new_claim(database, keyring, channel="c2")


async def test_after_a_week_they_are_gone(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    old, young = await bury(database, outbox, claim, "old", "young")
    async with database.begin() as tx:
        await connection_of(tx).execute("update outbox set died_at = now() - interval '7 days 1 s' where id = %s", [old.id])
        await connection_of(tx).execute("update outbox set died_at = now() - interval '6 days 23 h' where id = %s", [young.id])
        assert await outbox.dead_letters.purge(tx) == 1
    assert [letter.id for letter in await listed(database, outbox)] == [young.id]


async def test_nobody_reads_the_letters_of_somebody_who_was_deleted(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    [parcel] = await bury(database, outbox, claim, "secret")
    async with database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, claim.user_id)
    async with database.begin() as tx:
        with pytest.raises(UserErased):
            await outbox.dead_letters.text(tx, parcel.id)
    [letter] = await requeue(database, outbox)
    assert letter.id == parcel.id
    async with database.begin() as tx:
        assert await outbox.take(tx, claim.conversation_id) is None
    [letter] = await listed(database, outbox)
    assert letter.reason == "its user was deleted"


async def test_it_goes_to_where_its_channel_is_now(database: Database, keyring: Keyring, outbox: PostgresOutbox) -> None:
    claim = await new_claim(database, keyring)
    await bury(database, outbox, claim, "a")
    async with database.begin() as tx:
        await outbox.tracking.move(tx, "shop", Platform.REST, "c1", "c1-new")
    await requeue(database, outbox)
    async with database.begin() as tx:
        parcel = await outbox.take(tx, claim.conversation_id)
    assert parcel is not None
    assert parcel.channel_id == "c1-new"
    assert replace(parcel, channel_id="c1").body == "a"
