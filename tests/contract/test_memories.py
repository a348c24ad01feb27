"""The ports Memories, Dreams and PastMessages; and what is learnt, recalled and dreamt over them. On PostgreSQL, sealed."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from psycopg import Rollback
from psycopg.errors import UniqueViolation

from hermes.ports.errors import DataDamaged, UserErased
from hermes.ports.inbox import AcceptedMessage
from hermes.ports.memories import (
    Dream,
    DreamDepth,
    DreamKind,
    DreamReview,
    Embedding,
    EmbeddingsUnavailable,
    Fact,
    FactChange,
    FactOrigin,
    KnownFacts,
    NewFact,
    PastMessage,
)
from hermes.ports.runtime import Transaction
from hermes.ports.users import User, UserState
from hermes.soul.dream import Dreamer, period_of
from hermes.soul.extract import MemoryWriter, re_embed
from hermes.soul.extract_rules import read_statements
from hermes.soul.my_data import forget_fact, forget_memory, my_memory
from hermes.soul.recall import Recall, score_facts
from hermes.soul.statements.language_book import BOOKS
from hermes.soul.supersede import LearnedFact
from hermes.soul.terms import MAX_COMPARED_FACTS, terms
from hermes.stores.embeddings import HashedEmbeddings, local_embeddings
from hermes.stores.postgres import memory_index
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.memories import PostgresDreams, PostgresMemories, PostgresPastMessages
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.postgres.vectors import Vectors, open_vectors
from hermes.stores.seal import DataKeys, MasterKeys, new_master_key
from hermes.turn import Envelope, MessageEvent, Platform

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Base:
    """Souls that only note which bases were dropped."""

    def __init__(self) -> None:
        self.dropped = list[UUID]()

    async def invalidate(self, user_id: UUID) -> None:
        self.dropped.append(user_id)


class Mind:
    """One user's memory with all that works on it."""

    def __init__(self, database: Database, keyring: Keyring, user: User, embeddings: object = None) -> None:
        self.database, self.user, self.souls = database, user, Base()
        self.memories, self.dreams = PostgresMemories(keyring), PostgresDreams(keyring)
        self.embeddings = embeddings or HashedEmbeddings()
        self.asked = list[list[dict[str, str]]]()

    def writer(self, answer: str | Exception | None = None) -> MemoryWriter:
        async def complete(messages: list[dict[str, str]]) -> str:
            self.asked.append(messages)
            if isinstance(answer, Exception):
                raise answer
            return str(answer)

        return MemoryWriter(
            transactions=self.database,
            memories=self.memories,
            embeddings=self.embeddings,  # type: ignore[arg-type]
            souls=self.souls,  # type: ignore[arg-type]
            sanitize=lambda text: None if "jailbreak" in text.lower() else text[:200],
            is_trivial=lambda text: text.lower().strip("!. ") in {"ok", "thanks", "hi"},
            complete=None if answer is None else complete,
            fails_with=(ConnectionError,),
        )

    async def hear(self, text: str, *, now: datetime = NOW, shown: Sequence[str] = (), answer: str | Exception | None = None) -> list[str]:
        """Learn from a message; return the texts of what is new."""
        learnt = await self.writer(answer).extract_and_save(self.user.id, uuid4(), text, shown=shown, now=now)
        return [fact.text for fact in learnt]

    async def told(self, text: str, *, now: datetime = NOW, **more: object) -> list[str]:
        """Learn a free fact that a model read in a message."""
        answer = json.dumps({"facts": [{"key": None, "value": text, "quote": text, **more}]})
        return await self.hear(text, now=now, answer=answer)

    async def live(self, now: datetime = NOW) -> list[Fact]:
        async with self.database.begin() as tx:
            return list(await self.memories.live(tx, self.user.id, now=now))

    async def all(self) -> list[Fact]:
        async with self.database.begin() as tx:
            return list(await self.memories.all(tx, self.user.id))

    async def add(self, *facts: NewFact, now: datetime = NOW) -> list[Fact]:
        async with self.database.begin() as tx:
            return list(await self.memories.change(tx, self.user.id, [FactChange(fact=fact) for fact in facts], now=now))

    def recall(self) -> Recall:
        embeddings: Any = self.embeddings
        return Recall(self.database, self.memories, embeddings, is_trivial=lambda _: False, count_skipped=lambda: None)

    async def recalled(self, text: str, now: datetime = NOW) -> list[str]:
        return [fact.text for fact in (await self.recall().find(self.user.id, text, now=now)).facts]

    def dreamer(self, answer: str | None = None) -> Dreamer:
        async def complete(messages: list[dict[str, str]]) -> str:
            self.asked.append(messages)
            return str(answer)

        return Dreamer(
            transactions=self.database,
            memories=self.memories,
            dreams=self.dreams,
            souls=self.souls,  # type: ignore[arg-type]
            sanitize=lambda text: text,
            complete=None if answer is None else complete,
        )


@pytest.fixture
def mind(database: Database, keyring: Keyring, user: User) -> Mind:
    return Mind(database, keyring, user)


async def somebody(database: Database, keyring: Keyring, sender_id: str) -> User:
    async with database.begin() as tx:
        user, _ = await PostgresUsers(keyring).find_or_create(tx, "bali", Platform.TELEGRAM, sender_id, state=UserState.ACTIVE)
    return user


def free(text: str, **more: object) -> NewFact:
    return NewFact(text=text, canonical=text, terms=tuple(terms(text)), origin=FactOrigin.SAID, **more)  # type: ignore[arg-type]


# --- facts


async def test_a_fact_is_kept_with_where_it_comes_from(mind: Mind) -> None:
    turn_id = uuid4()
    new = free("My dog is called Rex", source_turn=turn_id, confidence=0.8, expires_at=NOW + DAY)
    expected = Fact(
        id=new.id,
        text="My dog is called Rex",
        key=None,
        origin=FactOrigin.SAID,
        source_turn=turn_id,
        confidence=0.8,
        valid_from=NOW,
        expires_at=NOW + DAY,
    )
    assert await mind.add(new) == [expected]
    assert await mind.live() == await mind.all() == [expected]


async def test_no_word_is_readable_in_the_database(mind: Mind) -> None:
    await mind.add(free("pineapple juice"), NewFact(text="Ubud", key="home_area", origin=FactOrigin.RULE))
    async with mind.database.begin() as tx:
        rows = await (await connection_of(tx).execute("select user_memory::text, value, terms from user_memory")).fetchall()
    for word in ("pineapple", "pineapp", "juice", "Ubud"):
        assert not any(word in text or word.encode() in value or word.encode() in (terms or b"") for text, value, terms in rows)


async def test_a_value_that_was_moved_to_another_row_is_not_believed(mind: Mind) -> None:
    await mind.add(free("one fact"), free("another fact"))
    async with mind.database.begin() as tx:
        await connection_of(tx).execute("update user_memory set value = (select value from user_memory order by number limit 1)")
    with pytest.raises(DataDamaged):
        await mind.live()


async def test_a_key_holds_one_value_and_a_canonical_fact_is_there_once(mind: Mind) -> None:
    await mind.add(NewFact(text="vegan", key="diet", origin=FactOrigin.RULE), free("I have a dog"))
    assert await mind.add(free("I have a dog")) == []
    with pytest.raises(UniqueViolation):
        await mind.add(NewFact(text="halal", key="diet", origin=FactOrigin.RULE))
    assert [fact.text for fact in await mind.live()] == ["vegan", "I have a dog"]


async def test_what_is_expired_is_not_held_to_be_true_and_makes_room(mind: Mind) -> None:
    await mind.add(free("I am in Rome", expires_at=NOW + DAY))
    assert [fact.text for fact in await mind.live(NOW + DAY / 2)] == ["I am in Rome"]
    assert await mind.live(NOW + DAY) == await mind.recalled("Rome", NOW + DAY) == []
    assert len(await mind.add(free("I am in Rome"), now=NOW + 2 * DAY)) == 1
    assert [(fact.valid_from, fact.superseded_at) for fact in await mind.all()] == [(NOW, NOW + DAY), (NOW + 2 * DAY, None)]


async def test_two_who_learn_the_same_at_once_write_one_row(mind: Mind) -> None:
    await asyncio.gather(*(mind.hear("I'm vegan. Remember that my dog is called Rex") for _ in range(8)))
    assert [fact.text for fact in await mind.all()] == ["vegan", "my dog is called Rex"]


# --- learning


async def test_vegan_then_fish_leaves_only_the_latter_in_the_prompt_and_the_former_with_its_dates(mind: Mind) -> None:
    assert await mind.hear("I'm vegan") == ["vegan"]
    await mind.told("I have been vegan since 2019 and cook tempeh", now=NOW + DAY)
    assert await mind.hear("I eat fish now", now=NOW + 2 * DAY) == ["pescatarian"]
    assert [(fact.key, fact.text) for fact in await mind.live(NOW + 2 * DAY)] == [("diet", "pescatarian")]
    assert await mind.recalled("am I vegan?", NOW + 2 * DAY) == []
    [vegan, tempeh, fish] = await mind.all()
    assert (vegan.text, vegan.valid_from, vegan.superseded_at, vegan.superseded_by) == ("vegan", NOW, NOW + 2 * DAY, fish.id)
    assert (tempeh.superseded_at, tempeh.superseded_by) == (NOW + 2 * DAY, fish.id)
    assert mind.souls.dropped == [mind.user.id] * 3


WORDINGS = [
    ["I have a golden retriever called Rex", "My golden retriever is named Rex", "The user has a golden retriever called Rex"],
    ["My sister lives in Lisbon", "I have a sister who lives in Lisbon", "My sister's home is Lisbon"],
    ["I am afraid of flying", "I have a fear of flying", "Flying scares me"],
    ["I love hiking", "I enjoy hiking", "The user likes hiking"],
    ["I work as a nurse at the children's hospital", "I'm a nurse in the children's hospital", "My job: nurse at the children's hospital"],
]


async def test_five_facts_in_three_wordings_are_five_rows(database: Database, keyring: Keyring, user: User) -> None:
    mind = Mind(database, keyring, user, local_embeddings())
    order = [(fact, wording) for wording in range(3) for fact in range(5)]
    for fact, wording in order:
        await mind.told(WORDINGS[fact][wording])
    assert [fact.text for fact in await mind.all() if fact.key is None] == [wordings[0] for wordings in WORDINGS]


async def test_what_differs_in_a_word_a_number_or_a_no_is_another_fact(database: Database, keyring: Keyring, user: User) -> None:
    mind = Mind(database, keyring, user, local_embeddings())
    texts = [
        "I surf every Saturday",
        "I surf every Sunday",
        "My locker is 12",
        "My locker is 14",
        "My brother smokes",
        "My brother never smokes",
    ]
    for text in texts:
        await mind.told(text)
    assert [fact.text for fact in await mind.all()] == texts


class Counting(PostgresMemories):
    """Counts the facts that are opened."""

    opened, everything = 0, 0

    async def read(self, tx: Transaction, user_id: UUID, fact_ids: Sequence[UUID]) -> Sequence[Fact]:
        self.opened += len(fact_ids)
        return await super().read(tx, user_id, fact_ids)

    async def live(self, tx: Transaction, user_id: UUID, *, now: datetime) -> Sequence[Fact]:
        self.everything += 1
        return await super().live(tx, user_id, now=now)


async def test_of_a_thousand_facts_only_those_are_opened_that_may_say_what_is_learnt(
    database: Database, keyring: Keyring, user: User
) -> None:
    mind = Mind(database, keyring, user)
    mind.memories = memories = Counting(keyring)
    texts = [f"likes the restaurant number {n} near the {n % 97} street with a friend named F{n}" for n in range(1_000)]
    vectors = await mind.embeddings.embed(texts)  # type: ignore[attr-defined]
    await mind.add(*(free(text, embedding=vector) for text, vector in zip(texts, vectors, strict=True)))
    await mind.add(NewFact(text="vegan", key="diet", origin=FactOrigin.RULE), free("I have been vegan since I was ten"))
    learnt = [
        "wants to see the temple of Besakih some day soon",
        "wants to see the temple of Besakih some day very soon",
        "has been to the old harbour of Rotterdam",
    ]
    wanted = [LearnedFact(text=text, origin=FactOrigin.SAID) for text in learnt]
    fish = LearnedFact(text="pescatarian", key="diet", origin=FactOrigin.SAID)
    added = await mind.writer().save(user.id, [*wanted, fish, LearnedFact(text=texts[7].upper(), origin=FactOrigin.SAID)], now=NOW + DAY)
    assert [fact.text for fact in added] == [learnt[0], learnt[2], "pescatarian"]
    # For each text no more than a hundred near ones and a hundred with its words, and no fact that names no diet.
    assert memories.opened <= 2 * MAX_COMPARED_FACTS + 20
    assert memories.everything == 0
    gone = [fact.text for fact in await mind.all() if fact.superseded_at is not None]
    assert gone == ["vegan", "I have been vegan since I was ten"]


async def test_trivial_messages_and_questions_write_nothing_and_ask_nobody(mind: Mind) -> None:
    for text in ("ok", "thanks!", "hi", " ", ""):
        assert await mind.hear(text, answer='{"facts": []}') == []
    assert await mind.hear("Is there a vegan place in Canggu?") == []
    assert (await mind.all(), mind.asked, mind.souls.dropped) == ([], [], [])


async def test_a_model_is_believed_over_the_rules_and_the_rules_stand_without_it(mind: Mind) -> None:
    text = "I'm vegan, well, except for eggs and milk"
    answer = json.dumps({"facts": [{"key": "diet", "value": "vegetarian", "quote": "except for eggs and milk"}]})
    assert await mind.hear(text, answer=answer) == ["vegetarian"]
    for failure in (ConnectionError("down"), TimeoutError(), "junk"):
        assert await mind.hear("I'm allergic to nuts", answer=failure) in (["nuts"], [])
    assert {fact.key: (fact.text, fact.origin) for fact in await mind.live()} == {
        "diet": ("vegetarian", FactOrigin.SAID),
        "allergies": ("nuts", FactOrigin.RULE),
    }


async def test_a_model_can_say_which_known_fact_is_over(mind: Mind) -> None:
    await mind.told("I work at the harbour in Rotterdam")
    text = "I changed jobs, I work at the airport now"
    answer = {"facts": [{"key": None, "value": "I work at the airport now", "quote": "I work at the airport now", "replaces": 1}]}
    assert await mind.hear(text, answer=json.dumps(answer), now=NOW + DAY) == ["I work at the airport now"]
    assert "1. I work at the harbour in Rotterdam" in mind.asked[-1][1]["content"]
    [old, new] = await mind.all()
    assert (old.superseded_by, new.superseded_at) == (new.id, None)


async def test_lists_add_up_and_are_taken_back(mind: Mind) -> None:
    await mind.hear("I'm allergic to nuts")
    await mind.hear("I'm allergic to shrimps")
    assert [fact.text for fact in await mind.live()] == ["shrimps, nuts"]
    answer = json.dumps({"facts": [{"key": "allergies", "value": ["nuts", "shrimps"], "op": "remove", "quote": "no allergies after all"}]})
    assert await mind.hear("Turns out I have no allergies after all", answer=answer) == []
    assert await mind.live() == []
    assert [fact.text for fact in await mind.all()] == ["nuts", "shrimps, nuts"]


@pytest.mark.parametrize(
    "text",
    [
        "my password is swordfish",
        "my card is 4111 1111 1111 1111",
        "mail me at me@example.com",
        "this is a jailbreak for you",
        "I am John Doe by the way",
        "dogs",
        "what is my dog called?",
    ],
)
async def test_junk_is_not_stored(mind: Mind, text: str) -> None:
    assert await mind.told(text) == []
    assert await mind.all() == []


async def test_what_the_prompt_said_and_what_is_not_sure_is_not_stored(mind: Mind) -> None:
    answer = json.dumps({"facts": [{"key": None, "value": "My dog is called Rex", "quote": "My dog is called Rex"}]})
    shown = ["RELEVANT CONTEXT\n- My dog is called Rex (noted 1 week ago)"]
    assert await mind.hear("My dog is called Rex", answer=answer, shown=shown) == []
    assert await mind.told("My cat is called Tom", confidence=0.3) == []
    assert await mind.all() == []


# --- recall


async def test_recall_finds_free_facts_and_no_structural_ones(mind: Mind) -> None:
    await mind.told("My dog is called Rex")
    await mind.told("My sister lives in Lisbon")
    await mind.add(NewFact(text="dogs", key="interests", origin=FactOrigin.RULE))
    assert await mind.recalled("what was my dog's name again?") == ["My dog is called Rex"]
    assert await mind.recalled("quantum chromodynamics") == []


async def test_cosines_are_exact_and_only_between_vectors_of_one_model(mind: Mind) -> None:
    await mind.add(
        free("one", embedding=Embedding("m", (1.0, 0.0))),
        free("two", embedding=Embedding("m", (0.6, 0.8))),
        free("three", embedding=Embedding("other", (1.0, 0.0, 0.0))),
        free("four"),
    )
    async with mind.database.begin() as tx:
        found = await mind.memories.candidates(tx, mind.user.id, Embedding("m", (0.0, 1.0)), ["two"], now=NOW)
        without = await mind.memories.candidates(tx, mind.user.id, None, [], now=NOW)
        read = await mind.memories.read(tx, mind.user.id, [row.id for row in found.rows])
    assert [(fact.text, row.cosine) for fact, row in zip(read, found.rows, strict=True)] == [
        ("two", pytest.approx(0.8)),
        ("one", pytest.approx(0.0)),
        ("four", None),
        ("three", None),
    ]
    assert list(found.rows[0].terms) == list(found.asked)
    assert [row.cosine for row in without.rows] == [None] * 4


@pytest.mark.parametrize("seals", [False, True])
async def test_the_best_of_the_facts_near_a_question_are_the_best_of_all(mind: Mind, keyring: Keyring, *, seals: bool) -> None:
    mind.memories = PostgresMemories(keyring, seals_vectors=seals)
    chance, things = random.Random(22), ("surf", "dog", "Lisbon", "wedding", "guitar", "sister", "boat")

    def vector() -> Embedding:
        turned = chance.uniform(0, 6.28)
        return Embedding("m", (math.cos(turned), math.sin(turned)))

    await mind.add(*(free(f"{' '.join(chance.choices(things, k=2))} {number}", embedding=vector()) for number in range(120)))
    await mind.add(free("their boat has no vector"), free("nor has this", embedding=Embedding("other", (1.0, 0.0))))
    for question in (["boat"], ["surf", "dog"], ["nothing"], []):
        for asked in (vector(), None):
            async with mind.database.begin() as tx:
                every = await mind.memories.candidates(tx, mind.user.id, asked, question, now=NOW)
                near = await mind.memories.near(tx, mind.user.id, asked, question, now=NOW, limit=10)
            best, of_all = (score_facts(each, vector_weight=0.4, floor=1e-9) for each in (near, every))
            assert [(fact.id, pytest.approx(fact.score)) for fact in of_all] == [(fact.id, fact.score) for fact in best]
            assert near.known == KnownFacts(len(every.rows), sum(len(row.terms) for row in every.rows))
            if asked is None or not seals:
                assert len(near.rows) < 80 < len(every.rows), "what shares no word and lies far away is not read"


async def vectors_read(mind: Mind, memories: PostgresMemories, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], int]:
    """Recall once; return the texts that were found, the best first, and how many vectors were opened for it."""
    opened: list[int] = []

    def counting(keys: DataKeys, user_id: UUID, rows: Sequence[tuple[UUID, bytes]]) -> Vectors:
        opened.append(len(rows))
        return open_vectors(keys, user_id, rows)

    monkeypatch.setattr(memory_index, "open_vectors", counting)
    async with mind.database.once() as tx:
        found = await memories.near(tx, mind.user.id, Embedding("m", (1.0, 0.0)), ["one"], now=NOW, limit=2)
        facts = await memories.read(tx, mind.user.id, [row.id for row in found.rows])
    return [fact.text for fact in facts], sum(opened)


async def test_vectors_are_opened_once_and_again_after_every_change_of_any_process(
    mind: Mind, keyring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, other = PostgresMemories(keyring), mind
    await other.add(free("one", embedding=Embedding("m", (1.0, 0.0))), free("two", embedding=Embedding("m", (0.8, 0.6))))
    assert await vectors_read(mind, held, monkeypatch) == (["one", "two"], 2)
    assert await vectors_read(mind, held, monkeypatch) == (["one", "two"], 0)
    await other.add(free("three", embedding=Embedding("m", (0.9, math.sqrt(0.19)))))
    assert await vectors_read(mind, held, monkeypatch) == (["one", "three"], 3)
    [one] = [fact for fact in await mind.live() if fact.text == "one"]
    async with mind.database.begin() as tx:
        await other.memories.embed(tx, mind.user.id, one.id, Embedding("m", (0.0, 1.0)))
    assert await vectors_read(mind, held, monkeypatch) == (["three", "two", "one"], 3), "found by its words, and no longer near"
    async with mind.database.begin() as tx:
        await other.memories.delete(tx, mind.user.id, one.id)
    assert await vectors_read(mind, held, monkeypatch) == (["three", "two"], 2)
    async with mind.database.begin() as tx:
        await other.memories.erase(tx, mind.user.id)
        assert (await held.near(tx, mind.user.id, Embedding("m", (1.0, 0.0)), (), now=NOW, limit=2)).rows == []
        raise Rollback
    assert await vectors_read(mind, held, monkeypatch) == (["three", "two"], 2), "what was rolled back is not held"


async def test_another_process_finds_nothing_of_an_erased_user_whose_vectors_it_holds(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    masters = MasterKeys.parse([new_master_key()])
    keyring, other = Keyring(masters), Keyring(masters, keep_s=3_600)
    mind, held = Mind(database, keyring, await somebody(database, keyring, "43")), PostgresMemories(other)
    await mind.add(free("one", embedding=Embedding("m", (1.0, 0.0))))
    assert await vectors_read(mind, held, monkeypatch) == (["one"], 1)
    async with database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, mind.user.id)
    assert other.known(mind.user.id) is not None, "the other process still has the keys"
    async with database.once() as tx:
        found = await held.near(tx, mind.user.id, Embedding("m", (1.0, 0.0)), ["one"], now=NOW, limit=2)
    assert found.rows == []


async def test_a_fact_that_expires_is_found_no_more_though_its_vector_is_held(mind: Mind) -> None:
    await mind.add(
        replace(free("one", embedding=Embedding("m", (1.0, 0.0))), expires_at=NOW + DAY), free("two", embedding=Embedding("m", (0.8, 0.6)))
    )
    for now, count in ((NOW, 2), (NOW + DAY, 1)):
        async with mind.database.once() as tx:
            found = await mind.memories.near(tx, mind.user.id, Embedding("m", (1.0, 0.0)), ["one"], now=now, limit=10)
        assert (len(found.rows), found.known and found.known.facts) == (count, count)


async def test_plain_vectors_of_any_length_are_compared_by_their_cosine(mind: Mind, keyring: Keyring) -> None:
    mind.memories = PostgresMemories(keyring, seals_vectors=False)
    await mind.add(free("far", embedding=Embedding("m", (0.0, 3.0))), free("near", embedding=Embedding("m", (4.0, 3.0))))
    async with mind.database.once() as tx:
        found = await mind.memories.near(tx, mind.user.id, Embedding("m", (1.0, 0.0)), (), now=NOW, limit=10)
    assert [row.cosine for row in found.rows] == [pytest.approx(0.8), pytest.approx(0.0)]


async def test_held_vectors_are_bounded_in_memory_and_dropped_when_nobody_asks() -> None:
    def index(count: int) -> memory_index.MemoryIndex:
        none = np.empty(0)
        vectors = np.zeros((count, 100), np.float32)
        return memory_index.MemoryIndex(uuid4(), "m", [], none, none.astype(np.intp), vectors, none.astype(np.int64), none.astype(np.intp))

    held, users = memory_index.HeldIndexes(max_bytes=1_000, held_s=0.05), [uuid4() for _ in range(4)]
    for user_id in users[:2]:
        held.keep(user_id, index(1))
    held.keep(users[0], index(1))
    held.keep(users[2], index(1))
    held.keep(users[3], index(3))
    assert [held.get(user_id, "m") is not None for user_id in users] == [True, False, True, False], (
        "the one used last stays, a large one never"
    )
    assert held.get(users[0], "another model") is None
    assert held.get(users[0], None) is not None
    held.drop(users[0])
    assert held.get(users[0], "m") is None
    await asyncio.sleep(0.3)
    assert held.get(users[2], "m") is None


WORDS = ["dog", "cat", "sister", "lisbon", "rome", "surf", "ramen", "tea", "nurse", "blue", "vespa", "japan", "piano", "garden", "chess"]


@pytest.mark.parametrize("queries", [300, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_two_users_with_equal_facts_never_see_each_others_rows(
    database: Database, keyring: Keyring, user: User, queries: int
) -> None:
    chance = random.Random(7)
    texts = [f"my {one} likes {other}" for one in WORDS for other in chance.sample(WORDS, 2)]
    minds = [Mind(database, keyring, each) for each in (user, await somebody(database, keyring, "43"))]
    owned: list[set[UUID]] = []
    for mind in minds:
        vectors = await mind.embeddings.embed(texts)  # type: ignore[attr-defined]
        added = await mind.add(*(free(text, embedding=vector) for text, vector in zip(texts, vectors, strict=True)))
        owned.append({fact.id for fact in added})
    assert [len(ids) for ids in owned] == [len(set(texts))] * 2
    crossed = hits = 0
    for _ in range(queries):
        which = chance.randrange(2)
        facts = (await minds[which].recall().find(minds[which].user.id, " ".join(chance.sample(WORDS, 3)), now=NOW)).facts
        hits += len(facts)
        crossed += sum(fact.id not in owned[which] for fact in facts)
    assert crossed == 0
    assert hits > queries
    async with database.begin() as tx:
        assert await minds[0].memories.read(tx, user.id, sorted(owned[1])) == []
        assert not await minds[0].memories.delete(tx, user.id, next(iter(owned[1])))


async def test_equal_words_of_two_users_are_stored_differently(database: Database, keyring: Keyring, user: User) -> None:
    for each in (user, await somebody(database, keyring, "43")):
        await Mind(database, keyring, each).add(free("my dog"))
    async with database.begin() as tx:
        rows = await (await connection_of(tx).execute("select terms, digest from user_memory")).fetchall()
    assert len({terms for terms, _ in rows}) == len({digest for _, digest in rows}) == 2


async def test_a_change_of_model_embeds_every_free_fact_anew(mind: Mind, keyring: Keyring) -> None:
    gone = Mind(mind.database, keyring, await somebody(mind.database, keyring, "43"))
    for each in (mind, gone):
        await each.add(*(free(f"fact number {n}", embedding=Embedding("old", (1.0,))) for n in range(5)), free("fresh"))
    await mind.add(NewFact(text="vegan", key="diet", origin=FactOrigin.RULE))
    async with mind.database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, gone.user.id)
    assert await re_embed(mind.database, mind.memories, HashedEmbeddings(), batch=2) == 6
    assert await re_embed(mind.database, mind.memories, HashedEmbeddings(), batch=2) == 0
    async with mind.database.begin() as tx:
        query = "select sealed_model, embedding is null, count(*) from user_memory where user_id = %s group by 1, 2 order by 3"
        rows = await (await connection_of(tx).execute(query, [mind.user.id])).fetchall()
    assert rows == [(None, True, 1), ("hashed-letters-512", True, 6)]


async def test_a_vector_is_sealed_or_plain_as_the_operator_chose_and_recall_finds_the_same(mind: Mind, keyring: Keyring) -> None:
    texts = ("a sunset bar in Canggu", "my dog is called Rex", "I like long walks")
    made = await HashedEmbeddings().embed(texts)
    await mind.add(*(free(text, embedding=each) for text, each in zip(texts, made, strict=True)))
    [asked] = await HashedEmbeddings().embed(["a bar at sunset"])
    found = []
    for seals, expected in ((True, (3, 0)), (False, (0, 3)), (True, (3, 0))):
        memories = PostgresMemories(keyring, seals_vectors=seals)
        assert await re_embed(mind.database, memories, NoVectors()) == 0, "what is stored is not computed again"
        async with mind.database.begin() as tx:
            counted = await connection_of(tx).execute("select count(sealed_vector), count(embedding) from user_memory")
            assert await counted.fetchone() == expected
            rows = (await memories.candidates(tx, mind.user.id, asked, (), now=NOW)).rows
        found.append({row.id: round(row.cosine or 0.0, 5) for row in rows})
    assert found[0] == found[1] == found[2]
    assert len(set(found[0].values())) == 3


async def test_a_sealed_vector_of_another_fact_is_refused(mind: Mind) -> None:
    made = await HashedEmbeddings().embed(("one", "two"))
    await mind.add(*(free(text, embedding=each) for text, each in zip(("one", "two"), made, strict=True)))
    async with mind.database.begin() as tx:
        await connection_of(tx).execute("update user_memory set sealed_vector = (select min(sealed_vector) from user_memory)")
        with pytest.raises(DataDamaged):
            await mind.memories.candidates(tx, mind.user.id, made[0], (), now=NOW)


class NoVectors(HashedEmbeddings):
    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        raise EmbeddingsUnavailable


async def test_without_vectors_facts_are_kept_found_by_their_words_and_embedded_later(mind: Mind) -> None:
    mind.embeddings = NoVectors()
    assert await mind.told("My dog is called Rex") == ["My dog is called Rex"]
    assert await mind.recalled("the dog") == ["My dog is called Rex"]
    assert await re_embed(mind.database, mind.memories, HashedEmbeddings()) == 1


# --- my data


async def test_everything_is_shown_one_fact_is_taken_back_and_then_all(mind: Mind) -> None:
    await mind.hear("I'm vegan")
    await mind.hear("I eat fish now", now=NOW + DAY)
    await mind.dreamer(NOTHING).dream(mind.user.id, DreamDepth.DEEP, now=NOW)
    parts = {"transactions": mind.database, "memories": mind.memories}
    shown = await my_memory(mind.user.id, dreams=mind.dreams, **parts)  # type: ignore[arg-type]
    assert ([fact.text for fact in shown.facts], len(shown.dreams)) == (["vegan", "pescatarian"], 3)
    vegan, fish = shown.facts
    assert await forget_fact(mind.user.id, fish.id, souls=mind.souls, **parts)  # type: ignore[arg-type]
    assert not await forget_fact(mind.user.id, fish.id, souls=mind.souls, **parts)  # type: ignore[arg-type]
    assert [(fact.id, fact.superseded_by) for fact in await mind.all()] == [(vegan.id, None)]
    assert await mind.live() == []
    mind.souls.dropped.clear()
    assert await forget_memory(mind.user.id, souls=mind.souls, **parts) == 1  # type: ignore[arg-type]
    shown = await my_memory(mind.user.id, dreams=mind.dreams, **parts)  # type: ignore[arg-type]
    assert (shown.facts, shown.dreams, mind.souls.dropped) == ([], [], [mind.user.id])


async def test_the_memory_of_somebody_who_was_deleted_cannot_be_read(mind: Mind, keyring: Keyring) -> None:
    await mind.hear("I'm vegan")
    async with mind.database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, mind.user.id)
    asks: list[Callable[[], object]] = [mind.live, mind.all, lambda: mind.add(free("x y")), lambda: mind.hear("I'm halal")]
    for ask in asks:
        with pytest.raises(UserErased):
            await ask()  # type: ignore[misc]
    assert await mind.recalled("vegan") == []


# --- dreams


NOTHING = '{"insights": []}'
"""A model's answer: nothing follows."""

KNOWN = ("I surf on Saturdays", "I surf on Sundays too", "I have a dog", "My sister lives in Rome")


@pytest.mark.parametrize("depth", DreamDepth)
@pytest.mark.parametrize("answer", [None, "no JSON"], ids=["no model", "no answer"])
async def test_without_the_answer_of_a_model_no_dream_is_written_and_the_user_stays_due(
    mind: Mind, depth: DreamDepth, answer: str | None
) -> None:
    for text in KNOWN:
        await mind.told(text)
    assert await mind.dreamer(answer).dream(mind.user.id, depth, now=NOW) is None
    async with mind.database.begin() as tx:
        assert await mind.dreams.all(tx, mind.user.id) == []
        assert await mind.dreams.due(tx, depth, period_of(depth, NOW)) == [mind.user.id]
        assert await mind.dreams.due(tx, depth, period_of(depth, NOW), after=mind.user.id) == []


async def test_what_a_dream_would_say_is_shown_and_not_stored(mind: Mind) -> None:
    for text in KNOWN:
        await mind.told(text)
    insights = [{"text": "They surf all weekend.", "evidence": [1, 2]}]
    lines = await mind.dreamer(json.dumps({"insights": insights})).imagine(mind.user.id, DreamDepth.LIGHT, now=NOW)
    assert lines is not None
    assert [(line.text, line.depth) for line in lines] == [("They surf all weekend.", DreamDepth.LIGHT)]
    async with mind.database.begin() as tx:
        assert await mind.dreams.all(tx, mind.user.id) == []


async def test_a_period_is_dreamt_once_and_its_lines_are_read_back(mind: Mind) -> None:
    for text in ("I love ramen", "Ramen with my sister is the best", "My sister lives in Rome"):
        await mind.told(text)
    before = await mind.all()
    dreams = await mind.dreamer(NOTHING).dream(mind.user.id, DreamDepth.DEEP, now=NOW)
    assert dreams is not None
    assert await mind.dreamer(NOTHING).dream(mind.user.id, DreamDepth.DEEP, now=NOW) == []
    async with mind.database.begin() as tx:
        newest = await mind.dreams.newest(tx, mind.user.id, DreamDepth.DEEP)
        everything = await mind.dreams.all(tx, mind.user.id)
    assert [(dream.kind, dream.period) for dream in newest] == [(dream.kind, date(2026, 11, 9)) for dream in dreams]
    assert newest == everything
    assert [dream.kind for dream in newest].count(DreamKind.GAP) == 3
    assert await mind.all() == before


async def test_a_model_dreams_too_and_what_it_makes_up_is_rejected_and_kept(mind: Mind) -> None:
    for text in ("I surf on Saturdays", "My board is blue", "I have a dog", "My sister lives in Rome"):
        await mind.told(text)
    insights = [
        {"text": "Surf and a blue board: the sea is theirs.", "evidence": [1, 2]},
        {"text": "They own a bakery.", "evidence": [3, 4]},
    ]
    await mind.dreamer(json.dumps({"insights": insights})).dream(mind.user.id, DreamDepth.DEEP, now=NOW)
    async with mind.database.begin() as tx:
        lines = await mind.dreams.all(tx, mind.user.id)
        newest = await mind.dreams.newest(tx, mind.user.id, DreamDepth.DEEP)
        assert await mind.dreams.review(tx, mind.user.id, lines[0].id, DreamReview.REJECTED, reason="not so")
        assert not await mind.dreams.review(tx, uuid4(), lines[0].id, DreamReview.ACCEPTED)
        after = await mind.dreams.newest(tx, mind.user.id, DreamDepth.DEEP)
    assert [(line.text, line.review) for line in lines[:2]] == [
        ("Surf and a blue board: the sea is theirs.", DreamReview.ACCEPTED),
        ("They own a bakery.", DreamReview.REJECTED),
    ]
    assert len(newest) - 1 == len(after) == 3


async def test_a_deep_dream_reads_what_the_light_ones_of_the_week_concluded(mind: Mind) -> None:
    for text in KNOWN:
        await mind.told(text, now=NOW - 10 * DAY)
    surf, again, dog, _ = await mind.live()

    def line(text: str, *evidence: Fact, review: DreamReview = DreamReview.ACCEPTED) -> Dream:
        return Dream(kind=DreamKind.INSIGHT, text=text, evidence=tuple(fact.id for fact in evidence), review=review, depth=DreamDepth.LIGHT)

    nights = {
        NOW - 14 * DAY: [line("They are new to surfing.", surf, again)],
        NOW - 3 * DAY: [line("They surf all weekend.", surf, again), line("They hate dogs.", again, dog, review=DreamReview.REJECTED)],
        NOW - 2 * DAY: [line("Their dog surfs.", surf, dog)],
    }
    async with mind.database.begin() as tx:
        for at, lines in nights.items():
            assert await mind.dreams.add(tx, mind.user.id, DreamDepth.LIGHT, at.date(), lines, now=at)
        assert await mind.memories.delete(tx, mind.user.id, dog.id)
    await mind.told("My board is blue", now=NOW - DAY)
    mind.asked.clear()
    answer = json.dumps({"insights": [{"text": "Every weekend they surf on a blue board.", "evidence": [1, 2, 4]}]})
    for depth in (DreamDepth.LIGHT, DreamDepth.DEEP):
        await mind.dreamer(answer).dream(mind.user.id, depth, now=NOW)
    [[_, asked]] = mind.asked  # one new fact is too few for a light dream
    assert [each for each in asked["content"].splitlines() if "Concluded" in each] == ["Concluded from 1, 2: They surf all weekend."]
    async with mind.database.begin() as tx:
        newest = await mind.dreams.newest(tx, mind.user.id, DreamDepth.DEEP)
    assert newest[0].text == "Every weekend they surf on a blue board."


async def dream_for_due(mind: Mind, depth: DreamDepth, *, now: datetime, limit: int = 100) -> int:
    """Dream for some users who are due; for how many."""
    async with mind.database.begin() as tx:
        due = await mind.dreams.due(tx, depth, period_of(depth, now), limit=limit)
    for user_id in due:
        await mind.dreamer(NOTHING).dream(user_id, depth, now=now)
    return len(due)


async def test_who_is_due_is_dreamt_for_and_nobody_else(mind: Mind, keyring: Keyring) -> None:
    other = Mind(mind.database, keyring, await somebody(mind.database, keyring, "43"))
    assert await dream_for_due(mind, DreamDepth.LIGHT, now=NOW) == 0
    await mind.told("I have a dog")
    await other.told("I have a cat")
    for depth in DreamDepth:
        assert await dream_for_due(mind, depth, now=NOW, limit=1) == 1
        assert await dream_for_due(mind, depth, now=NOW, limit=9) == 1
        assert await dream_for_due(mind, depth, now=NOW) == 0
    # Nothing new was learnt, so there is nothing for a light dream; a deep one goes over what is old.
    assert await dream_for_due(mind, DreamDepth.LIGHT, now=NOW + 7 * DAY) == 0
    assert await dream_for_due(mind, DreamDepth.DEEP, now=NOW + 7 * DAY) == 2


async def test_an_empty_dream_is_a_dream(mind: Mind) -> None:
    async with mind.database.begin() as tx:
        assert await mind.dreams.add(tx, mind.user.id, DreamDepth.LIGHT, NOW.date(), [], now=NOW)
        assert not await mind.dreams.add(
            tx, mind.user.id, DreamDepth.LIGHT, NOW.date(), [Dream(kind=DreamKind.GAP, text="x", key="diet")], now=NOW
        )
        assert await mind.dreams.newest(tx, mind.user.id, DreamDepth.LIGHT) == []


# --- past messages


async def say(database: Database, keyring: Keyring, user: User, channel_id: str, text: str) -> AcceptedMessage:
    """A message that was answered in the current session of a conversation."""
    turn_id = uuid4()
    event = MessageEvent(platform=Platform.TELEGRAM, sender_id="42", text=text)
    async with database.begin() as tx:
        receipt = await PostgresInbox(keyring).accept(
            tx, Envelope(event=event, account="bali", channel_id=channel_id, event_key=str(turn_id)), turn_id
        )
        session = await PostgresSessions(keyring).current(tx, receipt.conversation_id, user.id)
        await connection_of(tx).execute(
            """insert into interactions (turn_id, account_id, user_id, session_id, platform, meta)
               values (%s, 'bali', %s, %s, 'telegram', '{}')""",
            [turn_id, user.id, session.id],
        )
    return receipt


async def test_the_last_five_messages_of_sessions_that_are_over_are_given_oldest_first(
    database: Database, keyring: Keyring, user: User
) -> None:
    past = PostgresPastMessages(keyring)
    for n in range(4):
        await say(database, keyring, user, "42", f"old {n}")
    for n in range(3):
        await say(database, keyring, user, "43", f"other {n}" if n else " ")
    async with database.begin() as tx:
        assert await past.last(tx, user.id) == []
        await connection_of(tx).execute("update sessions set last_at = last_at - interval '13 hours'")
    await say(database, keyring, user, "42", "now")
    async with database.begin() as tx:
        found = await past.last(tx, user.id)
        assert await past.last(tx, user.id, limit=1) == found[-1:]
    assert [message.text for message in found] == ["old 2", "old 3", "other 1", "other 2"]
    assert all(isinstance(message, PastMessage) and message.at.tzinfo for message in found)


async def test_messages_of_others_in_the_same_conversation_are_theirs(database: Database, keyring: Keyring, user: User) -> None:
    other = await somebody(database, keyring, "43")
    await say(database, keyring, user, "group", "mine")
    await say(database, keyring, other, "group", "theirs")
    async with database.begin() as tx:
        await connection_of(tx).execute("update sessions set last_at = last_at - interval '13 hours'")
        assert [message.text for message in await PostgresPastMessages(keyring).last(tx, user.id)] == ["mine"]


def test_a_turn_asks_the_rules_whether_its_message_may_teach_something(mind: Mind, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = mind.writer()
    read_statements("I'm vegan.")  # loads the books of the languages in Latin script
    assert [writer.may_learn(text, is_shown_to_model=False) for text in ("let us talk about it", "I'm vegan", "thanks", " ")] == [
        *(False, True, False, False)
    ]
    assert writer.may_learn("let us talk about it", is_shown_to_model=True)
    assert writer.may_learn("let us talk about it. " * 20, is_shown_to_model=False), "a long one is left to the job"
    monkeypatch.delitem(BOOKS, "en")
    assert writer.may_learn("let us talk about it", is_shown_to_model=False), "so is one whose book is not loaded yet"
