"""Credits: every call counts once, no credit is spent twice, and the ledger says so. On both adapters."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from hermes.ports.credits import Balance, Credits
from hermes.ports.errors import NotFound, OutOfCredit, PortError
from hermes.ports.runtime import Transaction, Transactions
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Database, connection_of, open_database
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.testing.memory import MemoryCredits, MemoryTransactions
from tests.contract.credit_machine import Bench, CreditMachine
from tests.contract.turns import new_claim, on_postgres

TURN, OTHER_TURN = UUID(int=1), UUID(int=2)


@pytest.fixture
def bank(adapter: str) -> Credits:
    return MemoryCredits() if adapter == "memory" else PostgresCredits()


@pytest.fixture
async def ann(transactions: Transactions) -> UUID:
    return await newcomer(transactions) if isinstance(transactions, Database) else uuid4()


@pytest.fixture
async def ben(transactions: Transactions) -> UUID:
    return await newcomer(transactions) if isinstance(transactions, Database) else uuid4()


@pytest.fixture
async def crowd(database_url: str) -> AsyncIterator[Database]:
    """A pool in which eight tasks have a connection each, from the start."""
    async with open_database(database_url, pool_min=8, pool_max=8) as database:
        yield database


async def newcomer(database: Database) -> UUID:
    async with database.begin() as tx:
        made = await connection_of(tx).execute(
            "insert into users (state, referral_code) values ('active', %s) returning id", [secrets.token_hex(8)]
        )
        return (await made.fetchall())[0][0]


async def ledger(tx: Transaction) -> list[tuple[str, str, int]]:
    """Every entry, oldest first: its kind, its event, its amount."""
    return await (await connection_of(tx).execute("select kind, event, amount from credit_entries order by id")).fetchall()


async def check_ledger(tx: Transaction, expected: list[tuple[str, str, int]]) -> None:
    """Compare the entries, where there are any: credits in memory are balances alone."""
    if not isinstance(tx, MemoryTransactions):
        assert await ledger(tx) == expected


async def at_once(database: Database, calls: list[Callable[[Transaction], Awaitable[Any]]]) -> list[Any]:
    """Make every call in a transaction of its own, all of them open before the first one is made; return what came of each."""
    ready = asyncio.Barrier(len(calls))

    async def one(call: Callable[[Transaction], Awaitable[Any]]) -> Any:
        try:
            async with database.begin() as tx:
                await ready.wait()
                return await call(tx)
        except PortError as error:
            return type(error)

    return await asyncio.gather(*(one(call) for call in calls))


# --- grants


async def test_an_event_gives_its_credits_once(transactions, bank, ann):
    async with transactions.begin() as tx:
        assert await bank.grant(tx, ann, 100, "signup:ann") is True
        assert await bank.grant(tx, ann, 100, "signup:ann") is False
        assert await bank.grant(tx, ann, 500, "signup:ann") is False
        assert await bank.grant(tx, ann, 20, "purchase:1") is True
        assert await bank.balance(tx, ann) == Balance(available=120, reserved=0)
        await check_ledger(tx, [("grant", "signup:ann", 100), ("grant", "purchase:1", 20)])


async def test_an_event_that_gave_to_one_user_gives_to_no_other(transactions, bank, ann, ben):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 100, "purchase:1")
        with pytest.raises(ValueError, match="the event purchase:1 gave credits to another user"):
            await bank.grant(tx, ben, 100, "purchase:1")
        assert await bank.balance(tx, ben) == Balance(available=0, reserved=0)


@on_postgres
async def test_somebody_unknown_has_nothing_and_gets_nothing(transactions, bank):
    nobody = uuid4()
    async with transactions.begin() as tx:
        with pytest.raises(NotFound, match=f"there is no user {nobody}"):
            await bank.grant(tx, nobody, 1, "signup:nobody")
        with pytest.raises(OutOfCredit):
            await bank.reserve(tx, nobody, TURN)
        assert await bank.balance(tx, nobody) == Balance(available=0, reserved=0)
        await check_ledger(tx, [])


@pytest.mark.parametrize("amount", [0, -1])
async def test_credits_are_counted_from_one_up(transactions, bank, ann, amount):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 5, "signup:ann")
        with pytest.raises(ValueError, match=f"an amount of credits is at least one, got {amount}"):
            await bank.grant(tx, ann, amount, "gift")
        with pytest.raises(ValueError, match=f"an amount of credits is at least one, got {amount}"):
            await bank.reserve(tx, ann, TURN, amount)
        await check_ledger(tx, [("grant", "signup:ann", 5)])


# --- the life of a turn


async def test_a_turn_reserves_posts_and_is_refunded_each_once(transactions, bank, ann):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 3, "signup:ann")
        assert [await bank.reserve(tx, ann, TURN, 2) for _ in range(2)] == [True, True]
        assert await bank.balance(tx, ann) == Balance(available=1, reserved=2)
        assert [await bank.post(tx, TURN) for _ in range(2)] == [True, False]
        assert await bank.balance(tx, ann) == Balance(available=1, reserved=0)
        assert [await bank.refund(tx, TURN) for _ in range(2)] == [True, False]
        assert await bank.balance(tx, ann) == Balance(available=3, reserved=0)
        await check_ledger(
            tx,
            [
                ("grant", "signup:ann", 3),
                ("reserve", f"{TURN}/1", 2),
                ("post", f"{TURN}/1", 2),
                ("refund", f"{TURN}/1", 2),
            ],
        )


async def test_a_voided_turn_may_reserve_again_at_its_next_attempt(transactions, bank, ann):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 1, "signup:ann")
        assert await bank.reserve(tx, ann, TURN) is True
        assert [await bank.void(tx, TURN) for _ in range(2)] == [True, False]
        assert await bank.balance(tx, ann) == Balance(available=1, reserved=0)
        assert await bank.reserve(tx, ann, TURN) is True
        assert await bank.post(tx, TURN) is True
        assert await bank.balance(tx, ann) == Balance(available=0, reserved=0)
        await check_ledger(
            tx,
            [
                ("grant", "signup:ann", 1),
                ("reserve", f"{TURN}/1", 1),
                ("void", f"{TURN}/1", 1),
                ("reserve", f"{TURN}/2", 1),
                ("post", f"{TURN}/2", 1),
            ],
        )


@pytest.mark.parametrize("is_refunded", [False, True])
async def test_a_turn_that_was_paid_is_never_charged_again(transactions, bank, ann, is_refunded):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 10, "signup:ann")
        await bank.reserve(tx, ann, TURN)
        await bank.post(tx, TURN)
        if is_refunded:
            await bank.refund(tx, TURN)
        before = await bank.balance(tx, ann)
        assert await bank.reserve(tx, ann, TURN) is False
        assert await bank.post(tx, TURN) is False
        assert await bank.void(tx, TURN) is False
        assert await bank.balance(tx, ann) == before == Balance(available=10 if is_refunded else 9, reserved=0)
        ended = [("post", f"{TURN}/1", 1), ("refund", f"{TURN}/1", 1)][: 1 + is_refunded]
        await check_ledger(tx, [("grant", "signup:ann", 10), ("reserve", f"{TURN}/1", 1), *ended])


async def test_a_turn_that_was_paid_is_not_asked_for_credit_that_is_gone(transactions, bank, ann):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 1, "signup:ann")
        await bank.reserve(tx, ann, TURN)
        await bank.post(tx, TURN)
        assert await bank.reserve(tx, ann, TURN) is False


async def test_an_open_reserve_keeps_its_amount(transactions, bank, ann):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 2, "signup:ann")
        assert await bank.reserve(tx, ann, TURN, 2) is True
        assert await bank.reserve(tx, ann, TURN, 7) is True
        assert await bank.balance(tx, ann) == Balance(available=0, reserved=2)


async def test_without_enough_credit_nothing_is_written(transactions, bank, ann):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 2, "signup:ann")
        with pytest.raises(OutOfCredit):
            await bank.reserve(tx, ann, TURN, 3)
        await bank.reserve(tx, ann, TURN, 2)
        with pytest.raises(OutOfCredit):
            await bank.reserve(tx, ann, OTHER_TURN)
        assert await bank.balance(tx, ann) == Balance(available=0, reserved=2)
        await check_ledger(tx, [("grant", "signup:ann", 2), ("reserve", f"{TURN}/1", 2)])


async def test_a_turn_without_a_reserve_cannot_be_posted(transactions, bank, ann):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 1, "signup:ann")
        with pytest.raises(NotFound, match=f"the turn {TURN} has no open reserve"):
            await bank.post(tx, TURN)
        assert await bank.void(tx, TURN) is False
        assert await bank.refund(tx, TURN) is False
        await bank.reserve(tx, ann, TURN)
        assert await bank.refund(tx, TURN) is False
        await bank.void(tx, TURN)
        with pytest.raises(NotFound):
            await bank.post(tx, TURN)
        assert await bank.balance(tx, ann) == Balance(available=1, reserved=0)


async def test_a_turn_belongs_to_the_user_who_reserved_for_it(transactions, bank, ann, ben):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 1, "signup:ann")
        await bank.grant(tx, ben, 1, "signup:ben")
        await bank.reserve(tx, ann, TURN)
        for step in (bank.void, bank.post, bank.refund):
            await bank.reserve(tx, ann, TURN)
            await step(tx, TURN)
            with pytest.raises(ValueError, match=f"the turn {TURN} belongs to another user than {ben}"):
                await bank.reserve(tx, ben, TURN)
        assert await bank.balance(tx, ben) == Balance(available=1, reserved=0)


@on_postgres
async def test_what_is_rolled_back_never_happened(transactions, bank, ann):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 1, "signup:ann")

    async def fail_halfway() -> None:
        async with transactions.begin() as tx:
            await bank.reserve(tx, ann, TURN)
            await bank.post(tx, TURN)
            raise LookupError

    with pytest.raises(LookupError):
        await fail_halfway()
    async with transactions.begin() as tx:
        assert await bank.balance(tx, ann) == Balance(available=1, reserved=0)
        await check_ledger(tx, [("grant", "signup:ann", 1)])


# --- expiry


async def reserved_long_ago(tx: Transaction, user_id: UUID, turn_id: UUID, hours: int) -> None:
    """A reserve as it would have been written hours ago."""
    await connection_of(tx).execute(
        """insert into credit_entries (user_id, event, kind, amount, turn_id, attempt, created_at)
           values (%s, %s, 'reserve', 1, %s, 1, now() - make_interval(hours => %s))""",
        [user_id, f"{turn_id}/1", turn_id, hours],
    )
    await connection_of(tx).execute(
        "update credit_balances set available = available - 1, reserved = reserved + 1 where user_id = %s", [user_id]
    )


@on_postgres
async def test_old_reserves_expire_oldest_first_and_young_ones_stay(transactions, bank, ann, ben):
    oldest, old, young = UUID(int=7), UUID(int=8), UUID(int=9)
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 3, "signup:ann")
        await bank.grant(tx, ben, 3, "signup:ben")
        await reserved_long_ago(tx, ben, oldest, hours=3)
        await reserved_long_ago(tx, ann, old, hours=2)
        await bank.reserve(tx, ann, young)
    async with transactions.begin() as tx:
        assert await bank.expire(tx, older_than_s=4 * 3600) == 0
        assert await bank.expire(tx, older_than_s=3600) == 2
        assert await bank.expire(tx, older_than_s=3600) == 0
        assert (await ledger(tx))[-2:] == [("void", f"{oldest}/1", 1), ("void", f"{old}/1", 1)]
        assert await bank.balance(tx, ann) == Balance(available=2, reserved=1)
        assert await bank.balance(tx, ben) == Balance(available=3, reserved=0)
        assert await bank.audit(tx) == []


async def test_an_answer_that_comes_after_its_reserve_expired_reserves_again_and_posts(transactions, bank, ann):
    async with transactions.begin() as tx:
        await bank.grant(tx, ann, 1, "signup:ann")
        await bank.reserve(tx, ann, TURN)
    async with transactions.begin() as tx:
        assert await bank.expire(tx, older_than_s=0) == 1
    async with transactions.begin() as tx:
        with pytest.raises(NotFound):
            await bank.post(tx, TURN)
        assert await bank.reserve(tx, ann, TURN) is True
        assert await bank.post(tx, TURN) is True
    async with transactions.begin() as tx:
        assert await bank.balance(tx, ann) == Balance(available=0, reserved=0)


@on_postgres
async def test_expiry_does_not_wait_for_a_balance_in_use(transactions, bank, ann, ben):
    async with transactions.begin() as tx:
        for user_id, turn_id in ((ann, TURN), (ben, OTHER_TURN)):
            await bank.grant(tx, user_id, 1, f"signup:{user_id}")
            await bank.reserve(tx, user_id, turn_id)
    async with transactions.begin() as turn_end:
        await bank.post(turn_end, TURN)
        async with transactions.begin() as sweep:
            assert await bank.expire(sweep, older_than_s=0) == 1
    async with transactions.begin() as tx:
        assert await bank.balance(tx, ann) == Balance(available=0, reserved=0)
        assert await bank.balance(tx, ben) == Balance(available=1, reserved=0)


# --- the ledger guards itself


@on_postgres
@pytest.mark.parametrize("rewrite", ["update credit_entries set amount = 1000", "delete from credit_entries", "truncate credit_entries"])
async def test_the_database_refuses_to_rewrite_the_ledger(database, bank, ann, rewrite):
    async with database.begin() as tx:
        await bank.grant(tx, ann, 1, "signup:ann")
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
        async with database.begin() as tx:
            await connection_of(tx).execute(rewrite.encode())
    async with database.begin() as tx:
        await check_ledger(tx, [("grant", "signup:ann", 1)])


@on_postgres
@pytest.mark.parametrize(("first", "second"), [("post", "void"), ("void", "post")])
async def test_the_database_refuses_to_end_a_reserve_twice_even_for_wrong_code(database, bank, ann, first, second):
    async with database.begin() as tx:
        await bank.grant(tx, ann, 1, "signup:ann")
        await bank.reserve(tx, ann, TURN)
        await write(tx, ann, TURN, first, attempt=1)
        with pytest.raises(psycopg.errors.UniqueViolation, match="credit_reserve_ends_once"):
            await write(tx, ann, TURN, second, attempt=1)


@on_postgres
@pytest.mark.parametrize("kind", ["post", "refund"])
async def test_the_database_refuses_to_pay_or_refund_two_attempts_of_a_turn(database, ann, kind):
    async with database.begin() as tx:
        await write(tx, ann, TURN, kind, attempt=1)
        with pytest.raises(psycopg.errors.UniqueViolation, match="credit_turn_is_paid_once"):
            await write(tx, ann, TURN, kind, attempt=2)


async def write(tx: Transaction, user_id: UUID, turn_id: UUID, kind: str, attempt: int) -> None:
    """Add an entry behind the back of the store, as wrong code would. When the database refuses it, the transaction goes on."""
    async with connection_of(tx).transaction():
        await connection_of(tx).execute(
            "insert into credit_entries (user_id, event, kind, amount, turn_id, attempt) values (%s, %s, %s, 1, %s, %s)",
            [user_id, f"{turn_id}/{attempt}", kind, turn_id, attempt],
        )


@on_postgres
async def test_the_audit_names_every_balance_and_turn_that_cannot_be(database, bank, ann, ben):
    nobody_reserved, twice_open = UUID(int=7), UUID(int=8)
    async with database.begin() as tx:
        await bank.grant(tx, ann, 5, "signup:ann")
        await bank.grant(tx, ben, 5, "signup:ben")
        await bank.reserve(tx, ann, TURN)
        await bank.post(tx, TURN)
        assert await bank.audit(tx) == []
        await connection_of(tx).execute("update credit_balances set available = 400, reserved = 2 where user_id = %s", [ann])
        await write(tx, ann, TURN, "reserve", attempt=2)
        await write(tx, ben, twice_open, "reserve", attempt=1)
        await write(tx, ann, twice_open, "reserve", attempt=2)
        await write(tx, ben, nobody_reserved, "void", attempt=1)
        assert await bank.audit(tx) == [
            f"turn {TURN}: it was reserved again after it was posted",
            f"turn {nobody_reserved}: void of 1 without the entry that must come before it",
            f"turn {twice_open}: 2 reserves are open",
            f"turn {twice_open}: it belongs to 2 users",
            f"user {ann}: the balance says 400 available and 2 reserved, the ledger says 2 and 2",
        ]


# --- many at once


@on_postgres
async def test_of_eight_turns_on_one_credit_exactly_one_gets_it_a_thousand_times(crowd, bank):
    user_id = await newcomer(crowd)
    for repeat in range(1000):
        async with crowd.begin() as tx:
            await bank.grant(tx, user_id, 1, f"gift:{repeat}")
        turns = [uuid4() for _ in range(8)]
        outcomes = await at_once(crowd, [lambda tx, turn=turn: bank.reserve(tx, user_id, turn) for turn in turns])
        assert Counter(outcomes) == {True: 1, OutOfCredit: 7}
    async with crowd.begin() as tx:
        assert await bank.balance(tx, user_id) == Balance(available=0, reserved=1000)
        assert await bank.audit(tx) == []


@on_postgres
async def test_eight_reserves_of_one_turn_at_once_take_one_credit(crowd, bank):
    user_id = await newcomer(crowd)
    async with crowd.begin() as tx:
        await bank.grant(tx, user_id, 1000, "signup")
    for repeat in range(1, 101):
        turn = uuid4()
        assert await at_once(crowd, [lambda tx, turn=turn: bank.reserve(tx, user_id, turn)] * 8) == [True] * 8
        async with crowd.begin() as tx:
            assert await bank.balance(tx, user_id) == Balance(available=1000 - repeat, reserved=repeat)
    async with crowd.begin() as tx:
        assert await bank.audit(tx) == []


@on_postgres
async def test_of_posts_and_voids_of_one_turn_at_once_exactly_one_takes_effect(crowd, bank):
    user_id = await newcomer(crowd)
    posted = 0
    async with crowd.begin() as tx:
        await bank.grant(tx, user_id, 100, "signup")
    for _ in range(100):
        turn = uuid4()
        async with crowd.begin() as tx:
            await bank.reserve(tx, user_id, turn)
        post, void = (lambda tx, turn=turn: bank.post(tx, turn)), (lambda tx, turn=turn: bank.void(tx, turn))
        outcomes = await at_once(crowd, [post, void] * 4)
        posts, voids = outcomes[::2], outcomes[1::2]
        is_posted = True in posts
        assert Counter(posts) == ({True: 1, False: 3} if is_posted else {NotFound: 4})
        assert Counter(voids) == ({False: 4} if is_posted else {True: 1, False: 3})
        posted += is_posted
        async with crowd.begin() as tx:
            assert await bank.balance(tx, user_id) == Balance(available=100 - posted, reserved=0)
    async with crowd.begin() as tx:
        assert await bank.audit(tx) == []


@on_postgres
async def test_one_event_granted_by_eight_at_once_gives_once(crowd, bank):
    for _ in range(50):
        user_id = await newcomer(crowd)
        outcomes = await at_once(crowd, [lambda tx, user=user_id: bank.grant(tx, user, 5, f"signup:{user}")] * 8)
        assert Counter(outcomes) == {True: 1, False: 7}
        async with crowd.begin() as tx:
            assert await bank.balance(tx, user_id) == Balance(available=5, reserved=0)


@on_postgres
async def test_two_users_who_reserve_one_turn_at_once_are_told_apart(crowd, bank):
    ann, ben = await newcomer(crowd), await newcomer(crowd)
    async with crowd.begin() as tx:
        await bank.grant(tx, ann, 100, "signup:ann")
        await bank.grant(tx, ben, 100, "signup:ben")

    async def reserve(tx: Transaction, user_id: UUID, turn: UUID) -> bool | type[Exception]:
        try:
            return await bank.reserve(tx, user_id, turn)
        except ValueError as error:
            return type(error)

    for _ in range(50):
        turn = uuid4()
        outcomes = await at_once(crowd, [lambda tx, user=user, turn=turn: reserve(tx, user, turn) for user in (ann, ben)])
        assert Counter(outcomes) == {True: 1, ValueError: 1}
    async with crowd.begin() as tx:
        balances = [await bank.balance(tx, user_id) for user_id in (ann, ben)]
        assert sum(balance.reserved for balance in balances) == 50
        assert await bank.audit(tx) == []


@on_postgres
async def test_turns_sweeps_and_grants_of_a_few_users_at_once_never_block_each_other_for_good(crowd, bank):
    """Whatever order they come in: no deadlock (that would be StoreUnavailable here), and the books are right in the end."""
    users = [await newcomer(crowd) for _ in range(2)]

    async def turn(tx: Transaction, user_id: UUID, number: int) -> None:
        turn_id, event = uuid4(), f"gift:{user_id}/{number // 4}"
        if number % 2:
            await bank.grant(tx, user_id, 1, event)
        try:
            await bank.reserve(tx, user_id, turn_id)
        except OutOfCredit:
            return
        await (bank.void if number % 3 else bank.post)(tx, turn_id)
        await bank.grant(tx, user_id, 1, event)

    for number in range(100):
        turns = [lambda tx, user=users[place % 2], n=number + place: turn(tx, user, n) for place in range(7)]
        outcomes = await at_once(crowd, [*turns, lambda tx: bank.expire(tx, 0)])
        assert outcomes == [None] * 7 + [0]
    async with crowd.begin() as tx:
        assert await bank.audit(tx) == []


# --- any order at all


@pytest.mark.parametrize("runs", [150, pytest.param(500, marks=pytest.mark.slow)])
def test_random_steps_agree_with_a_plain_model(database_url, runs):
    bench = Bench(database_url)
    try:
        run_state_machine_as_test(
            lambda: CreditMachine(bench),
            settings=settings(
                max_examples=runs,
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            ),
        )
    finally:
        bench.close()
    assert bench.steps >= 40 * runs


@on_postgres
async def test_a_turn_that_has_ended_reserves_nothing(bank: Credits, database: Database, keyring: Keyring) -> None:
    claim = await new_claim(database, keyring)
    async with database.begin() as tx:
        await bank.grant(tx, claim.user_id, 5, "signup")
        await bank.reserve(tx, claim.user_id, claim.turn_id)
        await bank.void(tx, claim.turn_id)
        await PostgresInbox(keyring).finish(tx, claim)
    async with database.begin() as tx:  # somebody who claimed it before, and slept
        assert not await bank.reserve(tx, claim.user_id, claim.turn_id)
        assert await bank.balance(tx, claim.user_id) == Balance(available=5, reserved=0)
        assert await bank.audit(tx) == []
