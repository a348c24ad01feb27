"""Whole turns in one process, with stores that fail on cue: what counts against a message, and what does not."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.app.adapters import Adapters
from hermes.app.console_operations import queue_actions_from
from hermes.app.root import Hermes, open_hermes
from hermes.cli.actor import command_actor
from hermes.config import load
from hermes.ports.errors import StoreUnavailable
from hermes.ports.users import UserState
from hermes.router.replies import ReplyKind, reply
from hermes.router.turns import MessageUnreadable
from hermes.stores.postgres.database import connection_of
from hermes.turn import Envelope, MessageEvent, Platform
from tests.flows.echo import Echo

APOLOGY = reply(ReplyKind.APOLOGY, "en")


@pytest.fixture
def environ(database_url: str, redis_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "HERMES_HOME": str(tmp_path),
        "HERMES_DATABASE_URL": database_url,
        "HERMES_REDIS_URL": redis_url,
        "HERMES_INBOX_MAX_ATTEMPTS": "2",
        "HERMES_CREDITS_SIGNUP_GRANT": "5",
    }


@asynccontextmanager
async def opened(environ: dict[str, str], adjust: Callable[[Adapters], Adapters] = lambda parts: parts) -> AsyncIterator[Hermes]:
    async with open_hermes(load(environ), adjust=lambda parts: adjust(replace(parts, models=Echo()))) as hermes:
        yield hermes


async def say(hermes: Hermes, text: str, *, user: str = "alice", channel: str = "c") -> UUID:
    event = MessageEvent(platform=Platform.REST, sender_id=user, text=text)
    envelope = Envelope(event=event, account="shop", channel_id=channel, event_key=str(uuid4()))
    return (await hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)).turn_id


async def answer(hermes: Hermes, turn_id: UUID) -> str | None:
    async with hermes.database.begin() as tx:
        found = await hermes.adapters.outbox.answer(tx, turn_id)
    return None if found is None else found.text


async def state(hermes: Hermes, turn_id: UUID) -> tuple[Any, ...]:
    async with hermes.database.begin() as tx:
        [row] = await (
            await connection_of(tx).execute("select state, attempts, reason from inbox where turn_id = %s", [turn_id])
        ).fetchall()
    return row


async def available(hermes: Hermes, turn_id: UUID) -> int:
    async with hermes.database.begin() as tx:
        [(user_id,)] = await (await connection_of(tx).execute("select user_id from inbox where turn_id = %s", [turn_id])).fetchall()
        return (await hermes.adapters.credits.balance(tx, user_id)).available


class Flapping:
    """A graph store that is away for the first so many appends."""

    def __init__(self, graphs: Any, failures: int) -> None:
        self._graphs, self._failures = graphs, failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graphs, name)

    async def append(self, *arguments: Any) -> Any:
        if self._failures:
            self._failures -= 1
            raise StoreUnavailable
        return await self._graphs.append(*arguments)


async def test_a_store_that_was_away_does_not_count_against_the_message(environ: dict[str, str]) -> None:
    calls: list[str] = []

    async def counted(text: str) -> None:
        calls.append(text)

    async with opened(environ, lambda parts: replace(parts, graphs=Flapping(parts.graphs, 6), models=Echo(counted))) as hermes:
        turn_id = await say(hermes, "hello")
        for _ in range(6):
            with pytest.raises(StoreUnavailable):
                await hermes.turn(turn_id)
        await hermes.turn(turn_id)
        assert (await answer(hermes, turn_id), len(calls), await available(hermes, turn_id)) == ("hello", 1, 4)


class Broken(Flapping):
    """A graph store that is wrong, and not away."""

    async def append(self, *arguments: Any) -> Any:
        if self._failures:
            self._failures -= 1
            raise LookupError
        return await self._graphs.append(*arguments)


async def test_an_answer_that_can_never_be_recorded_does_not_hold_its_conversation_for_ever(environ: dict[str, str]) -> None:
    async with opened(environ, lambda parts: replace(parts, graphs=Broken(parts.graphs, 8))) as hermes:
        turn_id = await say(hermes, "hello")
        for _ in range(8):
            with pytest.raises(LookupError):
                await hermes.turn(turn_id)
        await hermes.turn(turn_id)
        assert (await answer(hermes, turn_id), await available(hermes, turn_id)) == (APOLOGY, 5)


async def test_an_answer_that_was_paid_for_is_given_although_its_recording_failed_more_often_than_a_message_may(
    environ: dict[str, str],
) -> None:
    async with opened(environ, lambda parts: replace(parts, graphs=Broken(parts.graphs, 4))) as hermes:
        turn_id = await say(hermes, "hello")
        for _ in range(4):
            with pytest.raises(LookupError):
                await hermes.turn(turn_id)
        await hermes.turn(turn_id)
        assert (await answer(hermes, turn_id), await available(hermes, turn_id)) == ("hello", 4)


async def test_a_message_without_an_answer_ends_in_an_apology_and_costs_nothing(environ: dict[str, str]) -> None:
    async def mute(_: str) -> None:
        raise LookupError

    async with opened(environ, lambda parts: replace(parts, models=Echo(mute))) as hermes:
        turn_id = await say(hermes, "hello")
        for _ in range(2):
            with pytest.raises(LookupError):
                await hermes.turn(turn_id)
        await hermes.turn(turn_id)
        assert (await answer(hermes, turn_id), await available(hermes, turn_id)) == (APOLOGY, 5)
        assert (await state(hermes, turn_id))[:2] == ("dead", 3)


async def test_a_message_that_was_too_old_is_answered_once_it_is_revived(environ: dict[str, str]) -> None:
    async with opened(environ) as hermes:
        event = MessageEvent(platform=Platform.REST, sender_id="alice", text="hello")
        sent_at = datetime.now(UTC) - timedelta(days=3)
        envelope = Envelope(event=event, account="shop", channel_id="c", event_key="old", sent_at=sent_at)
        turn_id = (await hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)).turn_id
        await hermes.turn(turn_id)
        assert (await answer(hermes, turn_id), (await state(hermes, turn_id))[0]) == (APOLOGY, "dead")
        async with hermes.database.begin() as tx:
            await connection_of(tx).execute("update inbox set received_at = now() - interval '3 days'")
        await queue_actions_from(hermes).revive(command_actor(), turn_id)
        await hermes.turn(turn_id)
        assert (await answer(hermes, turn_id), await available(hermes, turn_id)) == ("hello", 4)


async def test_a_damaged_message_is_set_aside_and_the_next_one_answered(environ: dict[str, str]) -> None:
    async with opened(environ) as hermes:
        damaged, sound = await say(hermes, "one"), await say(hermes, "two")
        async with hermes.database.begin() as tx:
            query = "update inbox set envelope = set_byte(envelope, 20, 255 - get_byte(envelope, 20)) where turn_id = %s"
            await connection_of(tx).execute(query, [damaged])
        for _ in range(2):
            with pytest.raises(MessageUnreadable):
                await hermes.turn(damaged)
        await hermes.turn(damaged)
        assert (await state(hermes, damaged))[:2] == ("dead", 3)
        await hermes.turn(sound)
        assert await answer(hermes, sound) == "two"


async def test_somebody_without_credit_is_told_so_and_gets_an_answer_again_when_there_is_some(environ: dict[str, str]) -> None:
    async with opened({**environ, "HERMES_CREDITS_SIGNUP_GRANT": "1"}) as hermes:
        turns = [await say(hermes, text) for text in ("one", "two")]
        for turn_id in turns:
            await hermes.turn(turn_id)
        async with hermes.database.begin() as tx:
            [(user_id,)] = await (await connection_of(tx).execute("select user_id from inbox where turn_id = %s", [turns[0]])).fetchall()
            code = (await hermes.adapters.people.get(tx, user_id)).referral_code
        upgrade = reply(ReplyKind.UPGRADE, "en", link=None, referral_code=code, reward=20)
        assert [await answer(hermes, turn_id) for turn_id in turns] == ["one", upgrade]
        assert await available(hermes, turns[0]) == 0
        async with hermes.database.begin() as tx:
            await hermes.adapters.credits.grant(tx, user_id, 1, "gift:1")
        again = await say(hermes, "three")
        await hermes.turn(again)
        assert (await answer(hermes, again), await available(hermes, again)) == ("three", 0)


async def test_a_living_sender_is_answered_where_the_opener_of_the_conversation_was_deleted(environ: dict[str, str]) -> None:
    async with opened(environ) as hermes:
        opened_by = await say(hermes, "mine", user="alice", channel="group")
        await hermes.turn(opened_by)
        waiting = await say(hermes, "still there?", user="carol", channel="group")
        async with hermes.database.begin() as tx:
            [(alice,)] = await (await connection_of(tx).execute("select user_id from inbox where turn_id = %s", [opened_by])).fetchall()
            await hermes.adapters.people.forget(tx, alice)
        await hermes.turn(waiting)
        assert await answer(hermes, waiting) == "still there?"


async def test_a_paid_answer_is_recorded_where_it_was_asked_although_another_session_has_begun_since(environ: dict[str, str]) -> None:
    async with opened(environ, lambda parts: replace(parts, graphs=Broken(parts.graphs, 1))) as hermes:
        turn_id = await say(hermes, "hello")
        with pytest.raises(LookupError):
            await hermes.turn(turn_id)
        async with hermes.database.begin() as tx:
            await connection_of(tx).execute("update sessions set last_at = last_at - interval '1 day'")
        await hermes.turn(turn_id)
        assert (await answer(hermes, turn_id), await available(hermes, turn_id)) == ("hello", 4)
        async with hermes.database.begin() as tx:
            lengths = await (await connection_of(tx).execute("select length from sessions order by started_at")).fetchall()
        assert lengths == [(2,), (0,)]


async def test_who_writes_in_a_group_is_answered_although_its_opener_is_deleted_while_the_model_thinks(environ: dict[str, str]) -> None:
    async def forget_the_opener(text: str) -> None:
        if text == "still there?":
            async with hermes.database.begin() as tx:
                [(alice,)] = await (await connection_of(tx).execute("select user_id from inbox where turn_id = %s", [opened_by])).fetchall()
                await hermes.adapters.people.forget(tx, alice)

    async with opened(environ, lambda parts: replace(parts, models=Echo(forget_the_opener))) as hermes:
        opened_by = await say(hermes, "mine", user="alice", channel="group")
        await hermes.turn(opened_by)
        waiting = await say(hermes, "still there?", user="carol", channel="group")
        await hermes.turn(waiting)
        assert (await answer(hermes, waiting), await available(hermes, waiting)) == ("still there?", 4)
        assert (await state(hermes, waiting))[:2] == ("done", 1)


async def test_a_conversation_whose_graph_is_damaged_goes_on_in_a_new_session(environ: dict[str, str]) -> None:
    async with opened(environ) as hermes:
        first = await say(hermes, "one")
        await hermes.turn(first)
        async with hermes.database.begin() as tx:
            await connection_of(tx).execute("update graph_messages set body = set_byte(body, 20, 255 - get_byte(body, 20))")
        await hermes.redis.flushall()
        second = await say(hermes, "two")
        await hermes.turn(second)
        assert (await answer(hermes, second), await available(hermes, second)) == ("two", 3)
        async with hermes.database.begin() as tx:
            lengths = await (await connection_of(tx).execute("select length from sessions order by started_at")).fetchall()
        assert lengths == [(2,), (2,)]
