"""Recall: words and vectors weighed, a floor, ten at most; and what happens when something is missing."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.ports.errors import StoreUnavailable
from hermes.ports.memories import Embedding, EmbeddingsUnavailable, Fact, FactOrigin, RecallCandidate, RecallCandidates, RecalledFact
from hermes.ports.runtime import Transaction
from hermes.soul.recall import MAX_INLINE_ROWS, NOTHING_RECALLED, Recall, rank_facts, score_facts, word_scores
from hermes.soul.terms import FIRST_CHARS, LAST_CHARS, excerpt, terms

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def found(question: str, *facts: tuple[str, float | None]) -> RecallCandidates:
    """Candidates as a store gives them; a number stands for a word."""
    numbers: dict[str, int] = {}
    keyed = lambda text: [numbers.setdefault(term, len(numbers)) for term in terms(text)]  # noqa: E731
    return RecallCandidates(keyed(question), [RecallCandidate(UUID(int=n), cosine, keyed(text)) for n, (text, cosine) in enumerate(facts)])


def test_words_have_one_form_in_every_language() -> None:
    assert terms("My dogs' names, and my dog's name") == ["dog", "nam", "dog", "nam"]
    assert terms("Ich esse gern Nüsse") == terms("ich ESSE gern nüsse") == ["ess", "gern", "nuss"]
    assert terms("Я люблю путешествия") == ["люблю", "путешес"]
    assert terms("путешествовать") == ["путешес"]
    assert terms("寿司が好き") == ["寿司", "司が", "が好", "好き"]
    assert terms("मुझे मसालेदार खाना") == ["मुझे", "मसालेदा", "खाना"]
    assert terms("I am at the of") == []
    assert terms("room 7") == ["room", "7"]


@given(st.text())
def test_every_text_has_words_that_can_be_stored(text: str) -> None:
    assert all(term and not term.isspace() and len(term) <= 7 for term in terms(text))
    assert terms(text) == terms(text)


def test_a_rare_word_counts_more_than_one_that_all_facts_have() -> None:
    asked = found("does the dog like Lisbon?", ("the dog sleeps", None), ("my dog eats", None), ("the dog barks in Lisbon", None))
    assert rank_facts(asked, vector_weight=0.0)[0] == UUID(int=2)


def test_a_fact_that_says_all_of_the_question_scores_near_one_and_an_unrelated_one_nothing() -> None:
    scored = word_scores(found("surf lessons", ("surf lessons surf lessons surf lessons", None), ("I like tea", None)))
    assert 0.7 < scored[0] <= 1.0
    assert scored[1] == 0.0


def test_each_leg_finds_what_the_other_misses() -> None:
    asked = found("where did I grow up?", ("To grow is to learn", 0.3), ("My childhood was in Porto", 0.7), ("I like tea", 0.05))
    assert rank_facts(asked, vector_weight=0.4) == [UUID(int=1), UUID(int=0)]
    assert rank_facts(asked, vector_weight=0.0) == [UUID(int=0)]


def test_below_the_floor_nothing_comes_to_mind() -> None:
    asked = found("what is the weather", ("I have a dog", 0.1), ("My sister lives in Rome", -0.2))
    assert rank_facts(asked, vector_weight=0.4) == []
    assert rank_facts(asked, vector_weight=0.4, floor=0.01) == [UUID(int=0)]


def test_ten_at_most_and_of_equals_the_first() -> None:
    asked = found("dog", *[("dog", 0.5)] * 20)
    assert rank_facts(asked, vector_weight=0.4) == [UUID(int=n) for n in range(10)]


def test_a_fact_without_a_vector_gains_nothing_by_that() -> None:
    asked = found("my dog", ("a dog", None), ("a dog", 0.1))
    assert rank_facts(asked, vector_weight=0.4)[0] == UUID(int=1)


def test_no_facts_and_no_words_are_no_error() -> None:
    assert rank_facts(found("anything"), vector_weight=0.4) == []
    assert rank_facts(found("", ("a dog", None)), vector_weight=0.4) == []


class Nowhere:
    """Transactions of no store."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        yield object()

    once = begin


class Facts:
    """One fact, which is always found; or a store that is down."""

    def __init__(self, *, is_down: bool = False, others: int = 0) -> None:
        self.is_down, self.others = is_down, others
        self.asked, self.terms = list[Embedding | None](), list[Sequence[str]]()
        self.fact = Fact(
            id=uuid4(), text="I have a dog", key=None, origin=FactOrigin.SAID, source_turn=None, confidence=1.0, valid_from=NOW
        )  # fmt: skip

    async def near(
        self, tx: Transaction, user_id: UUID, embedding: Embedding | None, terms: Sequence[str], *, now: datetime, limit: int
    ) -> RecallCandidates:
        if self.is_down:
            raise StoreUnavailable
        self.asked.append(embedding)
        self.terms.append(terms)
        return RecallCandidates(
            [1], [RecallCandidate(self.fact.id, None, [1]), *(RecallCandidate(uuid4(), None, [2]) for _ in range(self.others))]
        )

    async def read(self, tx: Transaction, user_id: UUID, fact_ids: Sequence[UUID]) -> Sequence[Fact]:
        return [self.fact] if list(fact_ids) == [self.fact.id] else []


class Letters:
    """Vectors of one kind; or none."""

    model, dimension, weight = "letters", 2, 0.4

    def __init__(self, *, is_down: bool = False) -> None:
        self.is_down, self.texts = is_down, list[str]()

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        self.texts += texts
        if self.is_down:
            raise EmbeddingsUnavailable
        return [Embedding(self.model, (1.0, 0.0)) for _ in texts]


def recall(facts: Facts, letters: Letters, skipped: list[int]) -> Recall:
    return Recall(Nowhere(), facts, letters, is_trivial=lambda text: text == "ok", count_skipped=lambda: skipped.append(1))  # type: ignore[arg-type]


async def test_trivial_messages_are_not_searched_for_and_counted() -> None:
    facts, skipped = Facts(), list[int]()
    assert await recall(facts, Letters(), skipped).find(uuid4(), "ok", now=NOW) == NOTHING_RECALLED
    assert (skipped, facts.asked) == ([1], [])


async def test_without_vectors_the_words_decide() -> None:
    facts, skipped = Facts(), list[int]()
    result = await recall(facts, Letters(is_down=True), skipped).find(uuid4(), "my dog", now=NOW)
    assert (result.facts, result.is_used, facts.asked, skipped) == ([facts.fact], True, [None], [])


@pytest.mark.parametrize("is_down", [True, False])
async def test_without_a_store_nothing_comes_to_mind_and_nothing_is_raised(is_down: bool) -> None:
    facts = Facts(is_down=is_down)
    result = await recall(facts, Letters(), []).find(uuid4(), "my dog", now=NOW)
    assert result == NOTHING_RECALLED if is_down else result.facts == [facts.fact]


async def test_of_a_long_message_the_beginning_and_the_end_are_searched_for() -> None:
    facts, letters = Facts(), Letters()
    await recall(facts, letters, []).find(uuid4(), f"my dog {'x ' * 50_000} where is Rex?", now=NOW)
    [text] = letters.texts
    assert (len(text), text[:6], text[-13:]) == (FIRST_CHARS + LAST_CHARS + 1, "my dog", "where is Rex?")
    assert facts.terms[0][:1] + facts.terms[0][-1:] == ["dog", "rex"]
    assert len(facts.terms[0]) <= len(text)
    assert excerpt("x" * (FIRST_CHARS + LAST_CHARS)) == "x" * (FIRST_CHARS + LAST_CHARS)


async def test_thousands_of_facts_are_weighed_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[str]()

    def noted(found: RecallCandidates, *, vector_weight: float) -> list[RecalledFact]:
        threads.append(threading.current_thread().name)
        return score_facts(found, vector_weight=vector_weight)

    monkeypatch.setattr("hermes.soul.recall.score_facts", noted)
    for others in (0, MAX_INLINE_ROWS):
        facts = Facts(others=others)
        assert (await recall(facts, Letters(), []).find(uuid4(), "my dog", now=NOW)).facts == [facts.fact]
    assert [name == threading.main_thread().name for name in threads] == [True, False]
