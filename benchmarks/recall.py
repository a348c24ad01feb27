"""Recall: which share of questions finds its evidence, leg by leg and fused; and what a recall costs over thousands of facts.

    python benchmarks/recall.py --data memory_recall.jsonl

The data are messages and questions with the ids of the messages that answer them, by scenario; each scenario is one user. A question is
hit at k if a message that answers it is among the first k. Exits with 1 if fused recall misses what it promises."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import mul
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from hermes.ports.memories import Embedding, Embeddings, FactChange, FactOrigin, NewFact, RecallCandidate, RecallCandidates
from hermes.ports.users import User, UserState
from hermes.soul.recall import MAX_RECALLED_FACTS, MIN_SCORE, Recall, rank_facts
from hermes.soul.terms import canonical, terms
from hermes.stores import embedded
from hermes.stores.embeddings import HashedEmbeddings, local_embeddings
from hermes.stores.postgres.database import Database, open_database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.memories import PostgresMemories, open_texts
from hermes.stores.postgres.migrate import migrate
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Platform

AT = (1, 5, 10)
PROMISED = 0.97
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def main() -> int:
    """Measure and print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True, help="messages and questions, one JSON object per line")
    options.add_argument("--facts", type=int, default=5_000, help="how many facts one user has when recall is timed; 0 leaves it out")
    chosen = options.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))  # errors only
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    rows = [json.loads(line) for line in chosen.data.read_text(encoding="utf-8").splitlines() if line.strip()]
    hit = asyncio.run(accuracy(rows))
    if chosen.facts:
        with tempfile.TemporaryDirectory(prefix="hermes-") as folder, embedded.run_servers(Path(folder) / "home") as stores:
            asyncio.run(cost(stores.database_url, rows, chosen.facts))
    if hit < PROMISED:
        print(f"BROKEN: fused recall hits {hit:.3f} at 10, and {PROMISED} is promised")
    return int(hit < PROMISED)


async def accuracy(rows: Sequence[dict[str, Any]]) -> float:
    """Print hit@1, @5 and @10 of each leg, for each embedder; return the fused hit@10 of the best one."""
    messages: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "message":
            messages[row["scenario"]].append(row)
    questions = [row for row in rows if row["kind"] == "question"]
    best, rest = local_embeddings(), HashedEmbeddings()
    fused = 0.0
    print(f"{len(questions)} questions over {sum(map(len, messages.values()))} messages of {len(messages)} users")
    print(f"{'':<44}{'hit@1':>8}{'hit@5':>8}{'hit@10':>8}")
    for embeddings in dict.fromkeys((best, rest)):
        found = await candidates(messages, questions, embeddings)
        legs = {"words alone": 0.0, f"{embeddings.model} alone": 1.0, "fused": embeddings.weight}
        for name, weight in legs.items():
            hits = score(questions, found, lambda each, weight=weight: rank_facts(each, vector_weight=weight, floor=-1.0, limit=10))
            print(f"{name if weight in {0.0, 1.0} else f'{name}, vectors {weight:g}':<44}" + "".join(f"{hits[k]:>8.3f}" for k in AT))
        floored = score(questions, found, lambda each, weight=embeddings.weight: rank_facts(each, vector_weight=weight))
        print(f"{f'fused, floor {MIN_SCORE}':<44}" + "".join(f"{floored[k]:>8.3f}" for k in AT))
        fused = fused or floored[10]
        own = {(question["id"], question["scenario"]) for question in questions}
        given = [len(rank_facts(each, vector_weight=embeddings.weight)) for asked, each in found.items() if asked not in own]
        print(f"{'  asked of the wrong user':<44}{statistics.mean(given):>8.1f} facts given, none for {given.count(0) / len(given):.0%}\n")
    return fused


async def candidates(
    messages: dict[str, list[dict[str, Any]]], questions: Sequence[dict[str, Any]], embeddings: Embeddings
) -> dict[tuple[str, str], RecallCandidates]:
    """What a store would give for each question, over each user's messages."""
    numbers: dict[str, int] = {}

    def keyed(text: str) -> list[int]:
        return [numbers.setdefault(term, len(numbers)) for term in terms(text)]

    asked = await embeddings.embed([question["question"] for question in questions])
    found = {}
    for name, listed in messages.items():
        vectors = await embeddings.embed([row["text"] for row in listed])
        words = [keyed(row["text"]) for row in listed]
        ids = [number(row["id"]) for row in listed]
        for question, vector in zip(questions, asked, strict=True):
            cosines = [sum(map(mul, vector.vector, made.vector)) for made in vectors]
            rows = [RecallCandidate(*row) for row in zip(ids, cosines, words, strict=True)]
            found[question["id"], name] = RecallCandidates(keyed(question["question"]), rows)
    return found


def score(
    questions: Sequence[dict[str, Any]], found: dict[tuple[str, str], RecallCandidates], rank: Callable[[RecallCandidates], list[UUID]]
) -> dict[int, float]:
    hits = dict.fromkeys(AT, 0)
    for question in questions:
        order = rank(found[question["id"], question["scenario"]])
        wanted = {number(each) for each in question["evidence"]}
        for k in AT:
            hits[k] += not wanted.isdisjoint(order[:k])
    return {k: count / len(questions) for k, count in hits.items()}


def number(name: str) -> UUID:
    """An id for a message's name, the same every time."""
    return UUID(bytes=name.encode().ljust(16, b"\0")[-16:])


async def cost(url: str, rows: Sequence[dict[str, Any]], count: int) -> None:
    """Print what a recall costs over so many facts of one user, and what it would cost to open all of them instead."""
    await migrate(url)
    chance = random.Random(7)
    sentences = [part.strip() for row in rows if row["kind"] == "message" for part in row["text"].split(".") if len(part.split()) > 4]
    asked = [row["question"] for row in rows if row["kind"] == "question"]
    texts = [f"{sentence[:180]} {n}" for n, sentence in enumerate(chance.choices(sentences, k=count))]
    keyring, embeddings = Keyring(MasterKeys.parse([new_master_key()]), keep_s=3_600), local_embeddings()
    async with open_database(url) as database:
        memories, users = PostgresMemories(keyring), [await new_user(database, keyring, str(n)) for n in range(3)]
        await embeddings.embed(["warm"])
        started = time.perf_counter()
        await embeddings.embed(texts[:200])
        print(f"{embeddings.model}: {(time.perf_counter() - started) / 200 * 1000:.1f} ms a fact in batches")
        # Random ones for the rest: the search looks at every vector, whatever it says.
        vectors = [Embedding(embeddings.model, [chance.gauss(0, 1) for _ in range(embeddings.dimension)]) for _ in texts]
        for user, size in zip(users, (100, 1_000, count), strict=True):
            facts = [
                NewFact(text=text, canonical=canonical(text), terms=tuple(terms(text)), embedding=vector, origin=FactOrigin.SAID)
                for text, vector in zip(texts[:size], vectors[:size], strict=True)
            ]
            async with database.begin() as tx:
                await memories.change(tx, user.id, [FactChange(fact=fact) for fact in facts], now=NOW)
        questions = [question for question in asked if terms(question)]
        await time_recall(database, keyring, embeddings, users, questions)


async def time_recall(
    database: Database,
    keyring: Keyring,
    embeddings: Embeddings,
    users: Sequence[User],
    questions: Sequence[str],
) -> None:
    """Print what a recall takes, whole and in parts, beside other ways. The users have 100, 1,000 and more facts."""
    chance, memories = random.Random(7), PostgresMemories(keyring)
    async with database.once() as tx:
        await tx.execute("analyze user_memory")  # type: ignore[attr-defined]
    recall = Recall(database, memories, embeddings, is_trivial=lambda _: False, count_skipped=lambda: None, timeout_s=30.0)
    made = dict(zip(questions, await embeddings.embed(questions), strict=True))
    print(f"\n{'ms, p50 / p99':<44}{'100':>16}{'1,000':>16}{'all':>16}")

    async def whole(user: User, question: str) -> None:
        await recall.find(user.id, question, now=NOW)

    async def searched(user: User, question: str) -> None:
        async with database.once() as tx:
            found = await memories.near(tx, user.id, made[question], terms(question), now=NOW, limit=MAX_RECALLED_FACTS)
            await memories.read(tx, user.id, rank_facts(found, vector_weight=embeddings.weight))

    async def embedded_alone(user: User, question: str) -> None:  # noqa: ARG001  # it costs the same for every user
        await embeddings.embed([question])

    async def searched_all(user: User, question: str) -> None:
        """The other way: compare the words of all facts, not of those alone that the index names. It must find the same."""
        async with database.once() as tx:
            found = await memories.candidates(tx, user.id, made[question], terms(question), now=NOW)
            best = rank_facts(found, vector_weight=embeddings.weight)
            near = await memories.near(tx, user.id, made[question], terms(question), now=NOW, limit=MAX_RECALLED_FACTS)
            await memories.read(tx, user.id, best)
        assert best == rank_facts(near, vector_weight=embeddings.weight)

    async def opened_all(user: User, question: str) -> None:  # noqa: ARG001  # what is asked makes no difference to it
        """The other way: open every fact and read its words."""
        async with database.begin() as tx:
            keys = await keyring.of(tx, user.id)
            sql = "select id, value from user_memory where user_id = %s and superseded_at is null"
            found = await (await tx.execute(sql, [user.id], binary=True)).fetchall()  # type: ignore[attr-defined]
        for text in open_texts(keys, user.id, found):
            terms(text)

    for name, call, times in (
        ("recall with embedding the question", whole, 60),
        ("the embedding alone", embedded_alone, 60),
        ("search, rank and open the best", searched, 60),
        ("for comparison: both ways, and compare", searched_all, 30),
        ("for comparison: open and read all", opened_all, 10),
    ):
        cells = []
        for user in users:
            taken = []
            for question in chance.choices(questions, k=times):
                started = time.perf_counter()
                await call(user, question)
                taken.append((time.perf_counter() - started) * 1000)
            cells.append(f"{statistics.median(taken):.1f} / {statistics.quantiles(taken, n=100)[98]:.1f}")
        print(f"{name:<44}" + "".join(f"{cell:>16}" for cell in cells))


async def new_user(database: Database, keyring: Keyring, sender_id: str) -> User:
    async with database.begin() as tx:
        user, _ = await PostgresUsers(keyring).find_or_create(tx, "bench", Platform.TELEGRAM, sender_id, state=UserState.ACTIVE)
    return user


if __name__ == "__main__":
    sys.exit(main())
