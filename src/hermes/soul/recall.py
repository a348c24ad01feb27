"""Find the facts that a message is about: by exact cosine and shared words, weighed, with a minimum score.

The two measures fail differently. Words find names, numbers and rare things, and facts hold many of these; vectors find the same idea in
other words. Words alone find far more than vectors alone. So a vector counts only with the weight that was measured for its model."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog

from hermes.ports.errors import PortError
from hermes.ports.memories import Embedding, Embeddings, EmbeddingsUnavailable, Fact, KnownFacts, Memories, RecallCandidates, RecalledFact
from hermes.ports.runtime import Transactions
from hermes.ports.traces import NO_TRACER, Tracer
from hermes.soul.terms import excerpt, terms

log = structlog.get_logger()

RETRIEVAL_SOURCE = "user_memory"
"""The store as traces name it."""
MAX_RECALLED_FACTS = 10
MIN_SCORE = 0.12
"""A fact with a lower score is not about the message. Measured by `benchmarks/recall.py` with MiniLM: no right fact scores lower. A
question that another user's memory cannot answer finds three facts there instead of ten, and in three of ten cases none."""
SATURATION, LENGTH_PENALTY = 0.9, 0.4
"""k1 and b of BM25. Facts are short, so their length says little."""
MAX_INLINE_ROWS = 400
"""Up to this many rows, scoring takes less time than starting a thread."""
MIN_FACT_COUNT = 100
"""A memory with fewer facts counts as having this many: with two facts, a word in one of them is not a common word."""


@dataclass(frozen=True, slots=True)
class RecalledFacts:
    """The facts that recall found. `is_used` is False if it did not search, or if the search failed."""

    facts: Sequence[Fact]
    is_used: bool
    ranked: Sequence[RecalledFact] = ()
    """The same facts by id, with their scores."""


NOTHING_RECALLED = RecalledFacts((), is_used=False)


class Recall:
    """Searches one user's free facts (facts without a key). Fails open, so that the turn continues: without a store it finds nothing,
    without vectors the words decide."""

    def __init__(
        self,
        transactions: Transactions,
        memories: Memories,
        embeddings: Embeddings,
        *,
        is_trivial: Callable[[str], bool],
        count_skipped: Callable[[], None],
        timeout_s: float = 1.0,
        embed_timeout_s: float = 0.5,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """`count_skipped` is called for every trivial message; recall does not search for those."""
        self._transactions, self._memories, self._embeddings = transactions, memories, embeddings
        self._is_trivial, self._count_skipped = is_trivial, count_skipped
        self._timeout_s, self._embed_timeout_s, self._tracer = timeout_s, embed_timeout_s, tracer

    async def find(self, user_id: UUID, text: str, *, now: datetime, has_facts: bool = True) -> RecalledFacts:
        """Return at most ten facts, the best first. Never raises. `has_facts=False` says that the user has no free facts."""
        if self._is_trivial(text):
            self._count_skipped()
            return NOTHING_RECALLED
        if not has_facts:
            return NOTHING_RECALLED
        text = excerpt(text)
        with self._tracer.retrieval(RETRIEVAL_SOURCE, text) as span:
            recalled = await self._search(user_id, text, now)
            span.note(facts=len(recalled.facts), is_used=recalled.is_used)
        return recalled

    async def _search(self, user_id: UUID, text: str, now: datetime) -> RecalledFacts:
        embedding = await self._embed(text)
        try:
            async with asyncio.timeout(self._timeout_s), self._transactions.once() as tx:
                found = await self._memories.near(tx, user_id, embedding, terms(text), now=now, limit=MAX_RECALLED_FACTS)
                weight = self._embeddings.weight if embedding else 0.0
                if len(found.rows) <= MAX_INLINE_ROWS:
                    best = score_facts(found, vector_weight=weight)
                else:
                    best = await asyncio.to_thread(score_facts, found, vector_weight=weight)
                facts = await self._memories.read(tx, user_id, [fact.id for fact in best]) if best else ()
                return RecalledFacts(facts, is_used=True, ranked=best)
        except (PortError, TimeoutError) as error:
            log.warning("recall_failed", user_id=str(user_id), error=type(error).__name__)
            return NOTHING_RECALLED

    async def _embed(self, text: str) -> Embedding | None:
        try:
            async with asyncio.timeout(self._embed_timeout_s):
                [embedding] = await self._embeddings.embed([text])
        except (EmbeddingsUnavailable, TimeoutError) as error:
            log.warning("recall_without_vectors", model=self._embeddings.model, error=type(error).__name__)
            return None
        return embedding


def rank_facts(found: RecallCandidates, *, vector_weight: float, floor: float = MIN_SCORE, limit: int = MAX_RECALLED_FACTS) -> list[UUID]:
    """Return the ids of the best facts that reach the floor, the best first; of equal ones, in the order of the store."""
    return [fact.id for fact in score_facts(found, vector_weight=vector_weight, floor=floor, limit=limit)]


def score_facts(
    found: RecallCandidates, *, vector_weight: float, floor: float = MIN_SCORE, limit: int = MAX_RECALLED_FACTS
) -> list[RecalledFact]:
    """As `rank_facts`, with the scores."""
    scored = zip(scores(found, vector_weight=vector_weight), found.rows, strict=True)
    above = [RecalledFact(row.id, score) for score, row in scored if score >= floor]
    above.sort(key=lambda fact: -fact.score)
    return above[:limit]


def scores(found: RecallCandidates, *, vector_weight: float) -> list[float]:
    """A score from 0 to 1 for each row. A row without a vector gets the score of its words at their weight, and no more."""
    by_words = word_scores(found)
    return [
        vector_weight * max(0.0, row.cosine or 0.0) + (1 - vector_weight) * by_word
        for row, by_word in zip(found.rows, by_words, strict=True)
    ]


def word_scores(found: RecallCandidates) -> list[float]:
    """BM25 over all facts, divided by the highest possible score of this question. So the floor means the same for every question."""
    asked = set(found.asked)
    if not found.rows or not asked:
        return [0.0] * len(found.rows)
    # Most rows share no word with the question, and finding that out is cheap.
    sharing = {place: Counter(row.terms) for place, row in enumerate(found.rows) if not asked.isdisjoint(row.terms)}
    known = Counter(term for counted in sharing.values() for term in asked & counted.keys())
    known_facts = found.known or KnownFacts(len(found.rows), sum(len(row.terms) for row in found.rows))
    count = max(known_facts.facts, MIN_FACT_COUNT)
    # A word that no fact has counts as rare as one that a single fact has; rarer, in a short memory no fact would reach the floor.
    rarity = {term: math.log(1 + (count - max(1, known[term]) + 0.5) / (max(1, known[term]) + 0.5)) for term in asked}
    mean_length = known_facts.terms / known_facts.facts
    highest = sum(rarity.values()) * (SATURATION + 1)
    scored = [0.0] * len(found.rows)
    for place, counted in sharing.items():
        damping = SATURATION * (1 - LENGTH_PENALTY + LENGTH_PENALTY * len(found.rows[place].terms) / mean_length)
        shared = asked & counted.keys()
        scored[place] = sum(rarity[term] * counted[term] * (SATURATION + 1) / (counted[term] + damping) for term in shared) / highest
    return scored
