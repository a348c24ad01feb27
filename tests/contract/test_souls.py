"""The ports Souls and SoulCache: the base out of the cache or out of the stores, dropped after every write, and never a reason to fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from hermes.ports.errors import StoreUnavailable
from hermes.ports.memories import Dream, DreamDepth, DreamKind, Fact, FactChange, FactOrigin, NewFact
from hermes.ports.runtime import Transaction
from hermes.ports.users import Agent, Tone, User
from hermes.soul.loader import SoulLoader, decode_base
from hermes.soul.prompt_layers import SoulBase, personality
from hermes.soul.recall import Recall
from hermes.soul.terms import terms
from hermes.stores.embeddings import HashedEmbeddings
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.memories import PostgresDreams, PostgresMemories, PostgresPastMessages
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.redis.caches import RedisSoulCache

NOW = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
AGENT = Agent(name="Bali", tone=Tone.CHILL)


class CountingMemories(PostgresMemories):
    """Counts how often the structural facts are read."""

    reads = 0

    async def structural(self, tx: Transaction, user_id: UUID, *, now: datetime) -> Sequence[Fact]:
        self.reads += 1
        return await super().structural(tx, user_id, now=now)


class Alarms:
    """The alerts that were given."""

    def __init__(self) -> None:
        self.given = list[tuple[str, dict[str, object]]]()

    def alert(self, event: str, **facts: object) -> None:
        self.given.append((event, facts))

    def end(self, event: str, **facts: object) -> None:
        """No test here asks."""


class House:
    """A soul loader on real stores."""

    def __init__(self, database: Database, keyring: Keyring, redis: Redis, user: User) -> None:
        self.database, self.redis, self.user = database, redis, user
        self.memories, self.dreams = CountingMemories(keyring), PostgresDreams(keyring)
        self.bases, self.alarms, self.pauses = RedisSoulCache(redis, database, keyring), Alarms(), list[float]()
        self.skipped = 0
        self.souls = self.loader(keyring, database)

    def loader(self, keyring: Keyring, transactions: Any) -> SoulLoader:
        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)

        return SoulLoader(
            transactions=transactions,
            memories=self.memories,
            dreams=self.dreams,
            past=PostgresPastMessages(keyring),
            bases=self.bases,
            recall=Recall(transactions, self.memories, HashedEmbeddings(), is_trivial=lambda text: text == "ok", count_skipped=self.skip),
            alerts=self.alarms,
            sanitize=lambda text: text,
            pause=pause,
        )

    def skip(self) -> None:
        self.skipped += 1

    async def know(self, text: str, key: str | None = None) -> None:
        new = NewFact(text=text, key=key, canonical=text, terms=tuple(terms(text)), origin=FactOrigin.RULE)
        async with self.database.begin() as tx:
            await self.memories.change(tx, self.user.id, [FactChange(fact=new)], now=NOW - timedelta(days=1))

    async def load(self, text: str = "a bar in Canggu", agent: Agent = AGENT) -> Any:
        return await self.souls.load(self.user, agent, text, now=NOW, conversation_id=uuid4())


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, socket_timeout=1.0) as client:
        yield client


@pytest.fixture
def house(database: Database, keyring: Keyring, redis: Redis, user: User) -> House:
    return House(database, keyring, redis, user)


def unreachable() -> Redis:
    """A Redis that nobody answers for."""
    return Redis(host="127.0.0.1", port=1, socket_timeout=0.05, socket_connect_timeout=0.05, retry=None)


async def test_a_soul_has_what_is_known_and_what_comes_to_mind(house: House) -> None:
    await house.know("vegan", "diet")
    await house.know("Asia/Makassar", "timezone")
    await house.know("My dog is called Rex")
    async with house.database.begin() as tx:
        dreams = [Dream(kind=DreamKind.INSIGHT, text="Goes out on Fridays.")]
        await house.dreams.add(tx, house.user.id, DreamDepth.DEEP, NOW.date(), dreams, now=NOW)
    soul = await house.load("what is my dog called?")
    assert soul.system == "\n".join((
        personality(AGENT),
        "",
        "What you know about the user:",
        "<user_data>",
        "timezone: Asia/Makassar",
        "diet: vegan",
        "</user_data>",
        "",
        "What their history suggests; treat it as likely, not as certain:",
        "<user_data>",
        "- Goes out on Fridays.",
        "</user_data>",
    ))  # fmt: skip
    assert soul.note.splitlines() == [
        "<context>",
        "It is Sunday, 2026-11-15 18:30, evening (Asia/Makassar).",
        "RELEVANT CONTEXT, recalled for this message:",
        "<user_data>",
        "- My dog is called Rex (noted 1 day ago)",
        "</user_data>",
        "</context>",
    ]
    assert soul.is_recall_used
    assert soul.load_ms >= 0
    again = await house.load("what is my dog called?")
    for each in (soul, again):  # the second has its base from the cache
        assert [layer.name for layer in each.layers] == ["personality", "facts", "insights", "note"]
        assert sum(layer.chars for layer in each.layers) == len(each.system) - 2 * len("\n\n") + len(each.note)
        async with house.database.begin() as tx:
            [fact] = await house.memories.read(tx, house.user.id, [recalled.id for recalled in each.recalled])
        assert (fact.text, 0 < each.recalled[0].score <= 1) == ("My dog is called Rex", True)


def test_a_base_that_the_version_before_cached_is_read_without_layers() -> None:
    old = b'{"text": "diet: vegan", "timezone": null, "past": [], "has_facts": true}'
    assert decode_base(old) == SoulBase("diet: vegan", None, ())


async def test_the_soul_of_a_room_has_layers_without_a_user(house: House) -> None:
    await house.know("vegan", "diet")
    soul = await house.souls.for_room(house.user, AGENT, now=NOW, conversation_id=uuid4())
    assert [(layer.name, layer.chars) for layer in soul.layers] == [("room", len(soul.system)), ("note", len(soul.note or ""))]
    assert soul.recalled == ()


async def test_the_base_is_read_once_and_kept_for_an_hour(house: House) -> None:
    await house.know("vegan", "diet")
    first, second = await house.load(), await house.load("something else")
    assert (first.system, house.memories.reads) == (second.system, 1)
    assert 3_590 < await house.redis.ttl(f"soul:{house.user.id}:base") <= 3_600


async def test_an_agent_that_changed_speaks_otherwise_at_once(house: House) -> None:
    await house.know("vegan", "diet")
    await house.load()
    other = await house.load(agent=Agent(name="Nusa", tone=Tone.HYPE))
    assert other.system.startswith("You are Nusa")
    assert ("diet: vegan" in other.system, house.memories.reads) == (True, 1)


async def test_what_was_written_is_seen_after_it_was_invalidated(house: House) -> None:
    await house.load()
    await house.know("vegan", "diet")
    assert "vegan" not in (await house.load()).system
    await house.souls.invalidate(house.user.id)
    assert "diet: vegan" in (await house.load()).system
    assert (house.pauses, house.alarms.given) == ([], [])


async def test_a_base_that_was_read_before_a_drop_does_not_come_back_after_it(house: House) -> None:
    cached = await house.bases.get(house.user.id)
    await house.bases.drop(house.user.id)
    await house.bases.put(house.user.id, b"old", cached.mark)
    assert (await house.bases.get(house.user.id)).value is None
    fresh = await house.bases.get(house.user.id)
    await house.bases.put(house.user.id, b"new", fresh.mark)
    assert (await house.bases.get(house.user.id)).value == b"new"


async def test_trivial_messages_are_not_searched_for_and_counted(house: House) -> None:
    await house.know("ok is a word")
    soul = await house.load("ok")
    assert (soul.is_recall_used, house.skipped, "RELEVANT" in soul.note) == (False, 1, False)


async def test_no_word_is_readable_in_redis_and_a_token_of_somebody_else_is_not_believed(house: House, keyring: Keyring) -> None:
    await house.know("pineapple", "dislikes")
    await house.load()
    key = f"soul:{house.user.id}:base"
    assert b"pineapple" not in await house.redis.get(key)
    async with house.database.begin() as tx:
        other = uuid4()
        await PostgresUsers(keyring).get(tx, house.user.id)
    await house.redis.copy(key, f"soul:{other}:base")
    assert (await house.bases.get(other)).value is None
    await house.redis.set(key, b"junk")
    assert "pineapple" in (await house.load()).system


async def test_after_three_tries_a_person_is_told_how_long_the_old_base_may_be_seen(house: House, keyring: Keyring) -> None:
    house.bases = RedisSoulCache(unreachable(), house.database, keyring)
    house.souls = house.loader(keyring, house.database)
    await house.souls.invalidate(house.user.id)
    assert house.pauses == [0.5, 1.0]
    assert house.alarms.given == [("soul_cache_not_invalidated", {"user_id": str(house.user.id), "exposure_s": 3_600})]


async def test_without_redis_the_base_comes_from_the_store_every_time(house: House, keyring: Keyring) -> None:
    await house.know("vegan", "diet")
    house.bases = RedisSoulCache(unreachable(), house.database, keyring)
    house.souls = house.loader(keyring, house.database)
    assert ["diet: vegan" in (await house.load()).system for _ in range(2)] == [True, True]
    assert house.memories.reads == 2


class Down:
    """Transactions of a store that is not there."""

    def begin(self) -> Any:
        raise StoreUnavailable

    once = begin


async def test_without_the_store_there_is_the_personality_the_time_and_no_recall(house: House, keyring: Keyring) -> None:
    house.bases = RedisSoulCache(unreachable(), Down(), keyring)
    house.souls = house.loader(keyring, Down())
    soul = await house.load()
    assert soul.system == personality(AGENT)
    assert soul.note is not None
    assert "2026-11-15 10:30" in soul.note
    assert not soul.is_recall_used


async def test_the_cached_base_stands_while_the_store_is_away(house: House, keyring: Keyring) -> None:
    await house.know("vegan", "diet")
    await house.load()
    house.souls = house.loader(keyring, Down())
    soul = await house.load()
    assert ("diet: vegan" in soul.system, soul.is_recall_used) == (True, False)


class Slow(PostgresMemories):
    async def structural(self, tx: Transaction, user_id: UUID, *, now: datetime) -> Sequence[Fact]:
        await asyncio.sleep(30)
        return ()


async def test_a_slow_store_is_not_waited_for(house: House, keyring: Keyring) -> None:
    slow: Any = Slow(keyring)
    house.memories = slow
    loader = house.loader(keyring, house.database)
    house.souls = SoulLoader(**{name: getattr(loader, name) for name in loader.__slots__} | {"timeout_s": 0.05})
    started = time.monotonic()
    assert (await house.load()).system == personality(AGENT)
    assert time.monotonic() - started < 5


async def test_somebody_who_was_deleted_has_no_soul_but_the_agents(house: House, keyring: Keyring) -> None:
    await house.know("vegan", "diet")
    await house.load()
    async with house.database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, house.user.id)
    soul = await house.load()
    assert (soul.system, soul.is_recall_used) == (personality(AGENT), False)
