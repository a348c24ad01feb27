"""The port Histories: what was said last, at hand; and never wrong, whatever happens to Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
import structlog
from redis.asyncio import Redis

from hermes import MessageGraph
from hermes.ports.errors import UserErased
from hermes.ports.runtime import Transaction
from hermes.ports.session import Session
from hermes.ports.sessions import GraphEntry, RecentHistory
from hermes.ports.users import User
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.redis.caches import RedisHistories, first_kept_index
from tests.contract.people import new_session

SCOPE = "telegram:channel:bali/42"
KEEP = 4


class CountingGraphs(PostgresGraphs):
    """Counts how often a whole graph is read."""

    loads = 0

    async def load(self, tx: Transaction, session_id: UUID) -> MessageGraph:
        self.loads += 1
        return await super().load(tx, session_id)


class Talk:
    """One session, its graph and its hot history."""

    def __init__(self, database: Database, keyring: Keyring, redis: Redis, session: Session, scope: str = SCOPE) -> None:
        self.database, self.keyring, self.redis, self.session, self.conversation_key = database, keyring, redis, session, scope
        self.graphs = CountingGraphs(keyring)
        self.hot = RedisHistories(redis, database, self.graphs, keyring, ttl_s=3_600, keep_messages=KEEP)
        self.key = f"hermes:history:{session.id}"

    async def say(self, *texts: str, hot: bool = True, **more: Any) -> None:
        """Store messages as a turn does: the graph first, in one transaction; then the hot copy."""
        before = await self.read()
        messages = [{"role": "user", "content": text, **more} for text in texts]
        async with self.database.begin() as tx:
            head = (await self.graphs.append(tx, self.session.id, before.head, [GraphEntry(message) for message in messages])).head
        if hot:
            await self.append(before, messages, head)
        async with self.database.begin() as tx:
            self.session = await PostgresSessions(self.keyring).get(tx, self.session.id)

    async def append(self, before: RecentHistory, messages: Sequence[Mapping[str, Any]], head: str) -> None:
        await self.hot.append(self.conversation_key, self.session, before, messages, head=head)

    async def read(self) -> RecentHistory:
        return await self.hot.read(self.conversation_key, self.session)

    async def texts(self) -> list[str]:
        return [message["content"] for message in (await self.read()).messages]


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, socket_timeout=1.0) as client:
        yield client


@pytest.fixture
async def talk(database: Database, keyring: Keyring, user: User, redis: Redis) -> Talk:
    return Talk(database, keyring, redis, await new_session(database, keyring, user, "42"))


async def test_an_empty_session_has_no_history_and_nobody_is_asked(talk: Talk) -> None:
    assert await talk.read() == RecentHistory((), talk.session.head)
    assert (talk.graphs.loads, await talk.redis.keys("*")) == (0, [])


async def test_what_was_said_is_read_without_the_graph_store(talk: Talk) -> None:
    await talk.say("one", "two")
    await talk.say("three")
    messages = tuple({"role": "user", "content": text} for text in ("one", "two", "three"))
    assert await talk.read() == RecentHistory(messages, talk.session.head)
    assert talk.graphs.loads == 0


async def test_a_miss_is_rebuilt_once(talk: Talk) -> None:
    await talk.say("one", "two", hot=False)
    assert [await talk.texts(), await talk.texts()] == [["one", "two"]] * 2
    assert talk.graphs.loads == 1


async def test_an_emptied_redis_is_filled_again(talk: Talk) -> None:
    await talk.say("one")
    await talk.redis.flushall()
    assert await talk.texts() == ["one"]
    assert talk.graphs.loads == 1
    await talk.say("two")
    assert await talk.texts() == ["one", "two"]
    assert talk.graphs.loads == 1


async def test_side_data_stays_in_the_graph_store(talk: Talk) -> None:
    await talk.say("one", metadata={"chat": [{"role": "user", "content": "inner"}]})
    hot = await talk.read()
    await talk.redis.flushall()
    assert hot == await talk.read() == RecentHistory(({"role": "user", "content": "one"},), talk.session.head)


async def test_nested_values_are_the_same_hot_or_rebuilt_and_plain(talk: Talk) -> None:
    await talk.say("one", tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}])
    hot = await talk.read()
    await talk.redis.flushall()
    rebuilt = await talk.read()
    assert hot == rebuilt
    for history in (hot, rebuilt):
        history.messages[0]["tool_calls"].append("plain")


async def test_a_copy_that_is_behind_is_not_believed(talk: Talk) -> None:
    await talk.say("one")
    await talk.say("two", hot=False)
    assert await talk.texts() == ["one", "two"]
    assert talk.graphs.loads == 1


async def test_appending_to_a_copy_that_moved_on_drops_it(talk: Talk) -> None:
    await talk.say("one")
    before = await talk.read()
    await talk.say("two")
    await talk.append(before, [{"role": "user", "content": "three"}], "f" * 64)
    assert await talk.redis.exists(talk.key) == 0
    assert await talk.texts() == ["one", "two"]


async def test_appending_to_no_copy_makes_none(talk: Talk) -> None:
    await talk.say("one")
    before = await talk.read()
    await talk.redis.flushall()
    await talk.append(before, [{"role": "user", "content": "two"}], "f" * 64)
    assert await talk.redis.exists(talk.key) == 0


async def test_two_appends_at_once_leave_a_right_copy_or_none(talk: Talk) -> None:
    await talk.say("one")
    before = await talk.read()
    await asyncio.gather(*(talk.append(before, [{"role": "user", "content": f"{at}"}], f"{at}" * 64) for at in range(8)))
    assert await talk.redis.llen(talk.key) in (0, 2)
    assert await talk.texts() == ["one"]


async def test_sessions_and_scopes_do_not_see_each_other(
    talk: Talk, database: Database, keyring: Keyring, user: User, redis: Redis
) -> None:
    other = Talk(database, keyring, redis, await new_session(database, keyring, user, "43"), "telegram:channel:bali/43")
    await talk.say("mine")
    await other.say("theirs")
    assert (await talk.texts(), await other.texts()) == (["mine"], ["theirs"])
    assert (talk.graphs.loads, other.graphs.loads) == (0, 0)


@pytest.mark.parametrize("scope", [SCOPE, "telegram:channel:bali/43"])
async def test_tokens_of_another_session_are_not_believed(talk: Talk, keyring: Keyring, user: User, redis: Redis, scope: str) -> None:
    other = Talk(talk.database, keyring, redis, await new_session(talk.database, keyring, user, "43"), scope)
    await talk.say("mine")
    await other.say("theirs")
    await redis.copy(other.key, talk.key, replace=True)
    assert await talk.texts() == ["mine"]
    assert (talk.graphs.loads, other.graphs.loads) == (1, 0)


@pytest.mark.parametrize("damage", ["junk", "cut", "middle", "swapped", "type", "older"])
async def test_a_damaged_copy_is_rebuilt(talk: Talk, damage: str) -> None:
    await talk.say("one", "two", "three")
    tokens = await talk.redis.lrange(talk.key, 0, -1)
    if damage == "type":
        await talk.redis.set(talk.key, "a string")
    else:
        await talk.redis.delete(talk.key)
        damaged = {
            "junk": [b"junk", *tokens[1:]],
            "cut": tokens[1:],
            "middle": [tokens[0], tokens[2]],
            "swapped": [tokens[1], tokens[0], tokens[2]],
            "older": tokens[:2],
        }
        await talk.redis.rpush(talk.key, *damaged[damage])
    assert [await talk.texts(), await talk.texts()] == [["one", "two", "three"]] * 2
    assert talk.graphs.loads == 1


async def test_no_word_is_readable_in_redis_or_in_the_log(talk: Talk) -> None:
    with structlog.testing.capture_logs() as lines:
        await talk.say("pineapple")
        await talk.redis.set(talk.key, "a string")
        await talk.append(await talk.read(), [{"role": "user", "content": object()}], talk.session.head)
        await talk.say("mango")
    stored = b"".join(await talk.redis.lrange(talk.key, 0, -1))
    assert len(lines) == 2
    for word in ("pineapple", "mango", "user", "content"):
        assert word.encode() not in stored
        assert word not in repr(lines)


async def test_the_copy_lives_for_a_while_after_the_last_use(talk: Talk) -> None:
    await talk.say("one")
    for use in (talk.texts, lambda: talk.say("two")):
        await talk.redis.expire(talk.key, 5)
        await use()
        assert 3_590 < await talk.redis.ttl(talk.key) <= 3_600
    await talk.redis.flushall()
    await talk.read()
    assert 3_590 < await talk.redis.ttl(talk.key) <= 3_600


async def test_only_the_end_is_kept_and_it_shrinks_in_large_steps(talk: Talk) -> None:
    said = [f"message {number}" for number in range(21)]
    for number, text in enumerate(said):
        await talk.say(text)
        expected = said[first_kept_index(number + 1, KEEP) : number + 1]
        assert await talk.texts() == expected
        assert await talk.redis.llen(talk.key) == len(expected) < 2 * KEEP
    assert talk.graphs.loads == 0
    await talk.redis.flushall()
    assert await talk.texts() == said[16:]


def test_the_kept_end_has_from_n_to_2n_messages() -> None:
    assert [first_kept_index(length, 4) for length in range(17)] == [0] * 8 + [4] * 4 + [8] * 4 + [12]
    assert all(20 <= length - first_kept_index(length, 20) < 40 for length in range(20, 500))


async def test_a_longer_end_is_asked_for_after_a_change_of_settings(talk: Talk) -> None:
    said = [f"message {number}" for number in range(10)]
    for text in said:
        await talk.say(text)
    talk.hot = RedisHistories(talk.redis, talk.database, talk.graphs, talk.keyring, keep_messages=100)
    await talk.append(await talk.read(), [], talk.session.head)
    assert await talk.texts() == said


@pytest.mark.parametrize("how", ["closed port", "no answer"])
async def test_without_redis_everything_comes_from_the_graph_store(talk: Talk, how: str) -> None:
    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if how == "closed port":
        server.close()
        await server.wait_closed()
    async with Redis(host="127.0.0.1", port=port, socket_timeout=0.05, socket_connect_timeout=0.05, retry=None) as client:
        talk.hot = RedisHistories(client, talk.database, talk.graphs, talk.keyring, keep_messages=KEEP)
        await talk.say("one", "two")
        await talk.say("three")
        assert await talk.texts() == ["one", "two", "three"]
    assert talk.graphs.loads == 2
    server.close()


async def test_a_copy_that_was_dropped_is_gone_and_nobody_elses_is(talk: Talk, keyring: Keyring, user: User, redis: Redis) -> None:
    other = Talk(talk.database, keyring, redis, await new_session(talk.database, keyring, user, "43"))
    await talk.say("mine")
    await other.say("theirs")
    await talk.hot.drop([])
    await talk.hot.drop([talk.session.id])
    assert await redis.keys("*") == [other.key.encode()]
    assert await talk.texts() == ["mine"]
    assert (talk.graphs.loads, other.graphs.loads) == (1, 0)


async def test_without_redis_a_copy_is_dropped_by_nobody_and_nobody_fails(talk: Talk) -> None:
    async with Redis(host="127.0.0.1", port=1, socket_connect_timeout=0.05, retry=None) as client:
        talk.hot = RedisHistories(client, talk.database, talk.graphs, talk.keyring)
        with structlog.testing.capture_logs() as lines:
            await talk.hot.drop([talk.session.id])
    assert lines == [{"event": "hot_history_not_dropped", "log_level": "warning", "sessions": 1, "error": "ConnectionError"}]


async def test_a_session_that_moved_on_is_read_where_it_is(talk: Talk) -> None:
    await talk.say("one")
    stale = talk.session
    await talk.say("two", hot=False)
    newest, talk.session = talk.session, stale
    await talk.redis.flushall()
    assert await talk.read() == RecentHistory(tuple({"role": "user", "content": text} for text in ("one", "two")), newest.head)


async def test_the_history_of_a_forgotten_user_cannot_be_read(talk: Talk, user: User) -> None:
    await talk.say("one")
    before = await talk.read()
    async with talk.database.begin() as tx:
        await PostgresUsers(talk.keyring).forget(tx, user.id)
    with pytest.raises(UserErased):
        await talk.read()
    await talk.append(before, [{"role": "user", "content": "two"}], "f" * 64)


async def test_after_a_change_of_keys_the_old_tokens_are_still_read(talk: Talk, user: User) -> None:
    await talk.say("one")
    before = await talk.redis.lrange(talk.key, 0, -1)
    async with talk.database.begin() as tx:
        await talk.keyring.make(tx, user.id)
    await talk.say("two")
    assert await talk.texts() == ["one", "two"]
    assert (await talk.redis.lrange(talk.key, 0, -1))[:1] == before
    assert talk.graphs.loads == 0
