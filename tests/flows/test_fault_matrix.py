"""Each of the ten steps, and each way to fail: the user gets an answer, the balance is right, one row tells of it, the graph is sound.

Killing the process is in tests/faults. Here a step breaks, hangs, or finds its store away; once, or every time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.app.root import Hermes, open_hermes
from hermes.config import load
from hermes.ports.errors import StoreUnavailable
from hermes.ports.users import UserState
from hermes.router import pipeline
from hermes.router.replies import ReplyKind, reply
from hermes.router.turns import ANSWERED_ATTEMPTS_FACTOR
from hermes.stores.embeddings import HashedEmbeddings
from hermes.stores.postgres.database import connection_of
from hermes.turn import Envelope, MessageEvent, Platform
from tests.flows.echo import Echo, without_note

STEPS = (
    "resolve_user",
    "take_credit",
    "load_soul",
    "load_history",
    "route_image",
    "build_messages",
    "gate_tools",
    "call_model",
    "run_tools",
    "record",
)
GRANT, MAX_ATTEMPTS = 5, 2
APOLOGY, LATER = (reply(kind, "en") for kind in (ReplyKind.APOLOGY, ReplyKind.RETRY_LATER))


class Surprise(Exception):
    """What nobody thought of."""


@dataclass
class Fault:
    """A step that fails the first so many times, before or after it did its work."""

    step: Callable[..., Any]
    way: str
    times: int
    is_after: bool
    struck: int = 0

    def installed(self) -> Callable[..., Any]:
        return self._waiting if iscoroutinefunction(self.step) else self._at_once

    async def _waiting(self, *arguments: Any) -> Any:
        result = await self.step(*arguments) if self.is_after or self.struck >= self.times else None
        if self.struck < self.times:
            self.struck += 1
            if self.way == "hangs":
                await asyncio.sleep(3_600)
            raise StoreUnavailable("away") if self.way == "store away" else Surprise
        return result

    def _at_once(self, *arguments: Any) -> Any:
        if self.struck < self.times:
            self.struck += 1
            # What does not wait cannot hang or find a store away; it can be as wrong as anything else.
            raise {"hangs": TimeoutError, "store away": StoreUnavailable}.get(self.way, Surprise)
        return self.step(*arguments)


@dataclass(frozen=True)
class End:
    """What is left of a turn."""

    said: str | None
    available: int
    outcomes: list[str]
    listed: list[tuple[str, str]]


def answered(drives: int) -> tuple[End, int]:
    return End("a table for two", GRANT - 1, ["answered"], [("user", "a table for two"), ("assistant", "a table for two")]), drives


def apologised(drives: int) -> tuple[End, int]:
    return End(APOLOGY, GRANT, ["apologised"], []), drives


FELL_BACK = End(LATER, GRANT, ["retry_later"], []), 1


def expected(step: str, way: str, times: int, is_after: bool) -> tuple[End, int]:
    """How it ends, and how often the turn was driven."""
    if way == "store away":
        return answered(times + 1)  # it does not count against the message, however often
    if way == "hangs" and step != "record":
        return FELL_BACK  # the user does not wait for a second try
    is_paid = step in {"run_tools", "record"} or (step, is_after) == ("call_model", True)
    patience = MAX_ATTEMPTS * (ANSWERED_ATTEMPTS_FACTOR if is_paid else 1)
    return answered(times + 1) if times <= patience else apologised(patience + 1)


CASES = [
    (step, way, times, is_after)
    for step in STEPS
    for way, often in (("breaks", (1, 99)), ("hangs", (1,)), ("store away", (7,)))
    for times in often
    for is_after in (False, True)
    if not (step == "record" and (is_after or (way == "hangs" and times > 1)))  # after it, the turn has ended
]


@pytest.fixture
async def hermes(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Hermes]:
    environ = {
        "HERMES_HOME": str(tmp_path),
        "HERMES_DATABASE_URL": database_url,
        "HERMES_REDIS_URL": redis_url,
        "HERMES_INBOX_MAX_ATTEMPTS": str(MAX_ATTEMPTS),
        "HERMES_CREDITS_SIGNUP_GRANT": str(GRANT),
    }
    async with open_hermes(load(environ), adjust=lambda parts: replace(parts, models=Echo(), embeddings=HashedEmbeddings())) as opened:
        services = replace(opened.turns.services, step_s=0.25, model_s=0.25, tools_s=0.25)
        yield replace(opened, turns=replace(opened.turns, services=services))


async def test_every_step_in_every_way_ends_in_an_answer_a_right_balance_one_row_and_a_sound_graph(
    hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for case in CASES:
        step, way, times, is_after = case
        with monkeypatch.context() as patch:
            fault = Fault(getattr(pipeline, step), way, times, is_after)
            patch.setattr(pipeline, step, fault.installed())
            found[case] = await driven(hermes, f"{step}-{way}-{times}-{is_after}")
            assert fault.struck, case
    assert {case: ended for case, ended in found.items() if ended != expected(*case)} == {}


async def driven(hermes: Hermes, channel: str) -> tuple[End, int]:
    """Send a message, drive its turn as a worker would, and look at what is left."""
    event = MessageEvent(platform=Platform.REST, sender_id=channel, text="a table for two")
    envelope = Envelope(event=event, account="shop", channel_id=channel, event_key=str(uuid4()))
    turn_id = (await hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)).turn_id
    for drives in range(1, 20):
        try:
            await hermes.turn(turn_id)
        except (Surprise, StoreUnavailable, TimeoutError):
            continue
        return await left(hermes, turn_id), drives
    raise AssertionError("it never ends")


async def left(hermes: Hermes, turn_id: UUID) -> End:
    async with hermes.database.begin() as tx:
        answer = await hermes.adapters.outbox.answer(tx, turn_id)
        [(user_id, conversation)] = await rows(tx, "select user_id, conversation_id from inbox where turn_id = %s", turn_id)
        balance = await hermes.adapters.credits.balance(tx, user_id)
        outcomes = [row[0] for row in await rows(tx, "select meta ->> 'outcome' from interactions where turn_id = %s", turn_id)]
        listed: list[tuple[str, str]] = []
        for (session,) in await rows(tx, "select id from sessions where conversation_id = %s", conversation):
            graph = await hermes.adapters.graphs.load(tx, session)
            assert graph.verify()
            listed += [(message["role"], without_note(message["content"])) for message in graph]
        assert await hermes.adapters.credits.audit(tx) == []
    assert balance.reserved == 0
    return End(answer.text if answer else None, balance.available, outcomes, listed)


async def rows(tx: Any, query: str, value: UUID) -> list[Any]:
    return list(await (await connection_of(tx).execute(query.encode(), [value])).fetchall())
