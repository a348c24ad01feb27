"""A rule-based machine drives random programs of credit calls against a plain model, with transactions that commit or roll back."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hermes.ports.credits import Balance
from hermes.ports.errors import NotFound, OutOfCredit, PortError
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.credits import PostgresCredits

# Few of each, so that empty balances, repeats and the wrong user for a turn happen all the time.
NAMESPACE = UUID(int=0)
USERS = [uuid5(NAMESPACE, f"user {number}") for number in range(3)]
TURNS = [uuid5(NAMESPACE, f"turn {number}") for number in range(8)]
EVENTS = [f"purchase:{number}" for number in range(8)]

users, turns, events = st.sampled_from(USERS), st.sampled_from(TURNS), st.sampled_from(EVENTS)
amounts = st.integers(1, 3)
aims = st.sampled_from([True, True, False])
times = st.sampled_from([1, 1, 1, 2, 3])

Outcome = bool | int | type[Exception]
"""What a call gave back, or the kind of error that it raised."""


class Entry(NamedTuple):
    """A line of the ledger, without its id and time."""

    user_id: UUID
    event: str
    kind: str
    amount: int
    turn_id: UUID | None
    attempt: int | None


@dataclass
class Turn:
    """What a turn costs whom, and where in its life it stands."""

    user_id: UUID
    state: str
    amount: int
    attempt: int

    def entry(self, turn_id: UUID, kind: str) -> Entry:
        return Entry(self.user_id, f"{turn_id}/{self.attempt}", kind, self.amount, turn_id, self.attempt)


@dataclass
class Model:
    """What credits must do, without any cleverness. Balances are counted by hand here, never summed from the ledger."""

    available: dict[UUID, int] = field(default_factory=lambda: dict.fromkeys(USERS, 0))
    reserved: dict[UUID, int] = field(default_factory=lambda: dict.fromkeys(USERS, 0))
    given: dict[str, UUID] = field(default_factory=dict)
    turns: dict[UUID, Turn] = field(default_factory=dict)
    ledger: list[Entry] = field(default_factory=list)

    def grant(self, user_id: UUID, amount: int, event: str) -> Outcome:
        if event in self.given:
            return False if self.given[event] == user_id else ValueError
        self.given[event] = user_id
        self.available[user_id] += amount
        self.ledger.append(Entry(user_id, event, "grant", amount, None, None))
        return True

    def reserve(self, user_id: UUID, turn_id: UUID, amount: int) -> Outcome:
        turn = self.turns.get(turn_id)
        if turn is not None and turn.user_id != user_id:
            return ValueError
        if turn is not None and turn.state != "voided":
            return turn.state == "open"
        if self.available[user_id] < amount:
            return OutOfCredit
        self.available[user_id] -= amount
        self.reserved[user_id] += amount
        self.turns[turn_id] = Turn(user_id, "open", amount, 1 + (turn.attempt if turn else 0))
        self.ledger.append(self.turns[turn_id].entry(turn_id, "reserve"))
        return True

    def post(self, turn_id: UUID) -> Outcome:
        turn = self.turns.get(turn_id)
        if turn is None or turn.state == "voided":
            return NotFound
        if turn.state != "open":
            return False
        turn.state = "posted"
        self.reserved[turn.user_id] -= turn.amount
        self.ledger.append(turn.entry(turn_id, "post"))
        return True

    def void(self, turn_id: UUID) -> Outcome:
        turn = self.turns.get(turn_id)
        if turn is None or turn.state != "open":
            return False
        turn.state = "voided"
        self.reserved[turn.user_id] -= turn.amount
        self.available[turn.user_id] += turn.amount
        self.ledger.append(turn.entry(turn_id, "void"))
        return True

    def refund(self, turn_id: UUID) -> Outcome:
        turn = self.turns.get(turn_id)
        if turn is None or turn.state != "posted":
            return False
        turn.state = "refunded"
        self.available[turn.user_id] += turn.amount
        self.ledger.append(turn.entry(turn_id, "refund"))
        return True

    def expire(self, older_than_s: float) -> Outcome:
        reserved = [entry.turn_id for entry in self.ledger if entry.kind == "reserve" and entry.turn_id]
        # No program here runs for an hour: either every reserve is old enough, or none is. Oldest first, by its newest reserve.
        last = {turn_id: place for place, turn_id in enumerate(reserved)} if older_than_s == 0 else {}
        return sum(self.void(turn_id) is True for turn_id in sorted(last, key=last.__getitem__))


class Bench:
    """One connection and one loop for every program of the machine, which is what makes twenty thousand steps fast."""

    def __init__(self, database_url: str) -> None:
        self.steps = 0
        self._runner = asyncio.Runner()
        self.connection = self.run(psycopg.AsyncConnection.connect(database_url, autocommit=True))
        for user_id in USERS:
            self.execute("insert into users (id, state, referral_code) values (%s, 'active', %s)", user_id, user_id.hex)
        self.execute("set synchronous_commit = off")  # what a power cut leaves behind is not asked here

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(coroutine)

    def execute(self, query: str, *values: Any) -> None:
        self.run(self.connection.execute(query.encode(), values or None))

    def wipe(self) -> None:
        """Begin with an empty ledger, so that a check reads only what its own program wrote. Triggers rest in this role, and only then."""
        self.execute(
            "set session_replication_role = replica; truncate credit_entries, credit_balances; set session_replication_role = origin"
        )

    def close(self) -> None:
        self.run(self.connection.close())
        self._runner.close()


class CreditMachine(RuleBasedStateMachine):
    """Every step is a call, often repeated at once; some stand in a transaction of several calls that is then kept or thrown away."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench, self.credits = bench, PostgresCredits()
        self.model = Model()
        self.before: Model | None = None  # what a rollback returns to, while a transaction is open
        self.block: AbstractAsyncContextManager[Any] | None = None
        bench.wipe()

    @initialize(gifts=st.tuples(*[st.integers(1, 12)] * len(USERS)))
    def find_or_create(self, gifts: tuple[int, ...]) -> None:
        """Everybody starts with something. Without it most programs are one long refusal."""
        for user_id, amount in zip(USERS, gifts, strict=True):
            self.grant(user_id, amount, f"signup:{user_id}", times=1)

    @rule(user_id=users, amount=amounts, event=events, times=times)
    def grant(self, user_id: UUID, amount: int, event: str, times: int) -> None:
        self.check(times, lambda tx: self.credits.grant(tx, user_id, amount, event), lambda: self.model.grant(user_id, amount, event))

    @rule(user_id=users, turn_id=turns, amount=amounts, aimed=aims, times=times)
    def reserve(self, user_id: UUID, turn_id: UUID, amount: int, aimed: bool, times: int) -> None:
        if aimed and turn_id in self.model.turns:
            user_id = self.model.turns[turn_id].user_id
        self.check(
            times, lambda tx: self.credits.reserve(tx, user_id, turn_id, amount), lambda: self.model.reserve(user_id, turn_id, amount)
        )

    @rule(turn_id=turns, aimed=aims, times=times)
    def post(self, turn_id: UUID, aimed: bool, times: int) -> None:
        turn_id = self.nearest("open", turn_id) if aimed else turn_id
        self.check(times, lambda tx: self.credits.post(tx, turn_id), lambda: self.model.post(turn_id))

    @rule(turn_id=turns, aimed=aims, times=times)
    def void(self, turn_id: UUID, aimed: bool, times: int) -> None:
        turn_id = self.nearest("open", turn_id) if aimed else turn_id
        self.check(times, lambda tx: self.credits.void(tx, turn_id), lambda: self.model.void(turn_id))

    @rule(turn_id=turns, aimed=aims, times=times)
    def refund(self, turn_id: UUID, aimed: bool, times: int) -> None:
        turn_id = self.nearest("posted", turn_id) if aimed else turn_id
        self.check(times, lambda tx: self.credits.refund(tx, turn_id), lambda: self.model.refund(turn_id))

    @rule(older_than_s=st.sampled_from([0.0, 3600.0, 3600.0]), times=times)
    def expire(self, older_than_s: float, times: int) -> None:
        self.check(times, lambda tx: self.credits.expire(tx, older_than_s), lambda: self.model.expire(older_than_s))

    @precondition(lambda self: self.block is None)
    @rule()
    def begin(self) -> None:
        self.bench.steps += 1
        self.before, self.block = copy.deepcopy(self.model), self.bench.connection.transaction()
        self.bench.run(self.block.__aenter__())

    @precondition(lambda self: self.block is not None)
    @rule(kept=st.booleans())
    def end(self, kept: bool) -> None:
        self.bench.steps += 1
        self.finish(kept)

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        balances, ledger, faults = self.bench.run(self.read())
        assert balances == {user: Balance(self.model.available[user], self.model.reserved[user]) for user in USERS}
        assert all(balance.available >= 0 and balance.reserved >= 0 for balance in balances.values())
        assert ledger == self.model.ledger  # the model only appends, so the ledger only grew, and nothing in it changed
        assert faults == []

    def teardown(self) -> None:
        self.finish(kept=True)

    def nearest(self, state: str, turn_id: UUID) -> UUID:
        """The next turn in this state, counted from the given one; that one when none is. Calls that do nothing are drawn often enough."""
        start = TURNS.index(turn_id)
        fitting = (turn for turn in TURNS[start:] + TURNS[:start] if turn in self.model.turns and self.model.turns[turn].state == state)
        return next(fitting, turn_id)

    def check(self, times: int, call: Callable[[Transaction], Awaitable[Outcome]], expected: Callable[[], Outcome]) -> None:
        self.bench.steps += 1
        for _ in range(times):
            assert self.bench.run(self.outcome(call)) == expected()

    async def outcome(self, call: Callable[[Transaction], Awaitable[Outcome]]) -> Outcome:
        connection = self.bench.connection
        if self.block is not None:
            return await caught(call, connection)  # a refusal leaves the transaction usable
        async with connection.transaction():
            return await caught(call, connection)

    async def read(self) -> tuple[dict[UUID, Balance], list[Entry], list[str]]:
        connection = self.bench.connection
        balances = await (await connection.execute("select user_id, available, reserved from credit_balances")).fetchall()
        ledger = await connection.execute("select user_id, event, kind, amount, turn_id, attempt from credit_entries order by id")
        return (
            {user: Balance(0, 0) for user in USERS} | {user: Balance(*numbers) for user, *numbers in balances},
            [Entry(*row) for row in await ledger.fetchall()],
            await self.credits.audit(connection),
        )

    def finish(self, kept: bool) -> None:
        if self.block is None or self.before is None:
            return
        block, self.block = self.block, None
        if kept:
            self.bench.run(block.__aexit__(None, None, None))
        else:
            thrown = psycopg.Rollback()
            self.bench.run(block.__aexit__(psycopg.Rollback, thrown, None))
            self.model = self.before
        self.before = None


async def caught(call: Callable[[Transaction], Awaitable[Outcome]], connection: Transaction) -> Outcome:
    try:
        return await call(connection)
    except (PortError, ValueError) as error:
        return type(error)
