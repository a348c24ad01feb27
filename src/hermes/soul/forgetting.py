"""Forget what a user asks to be forgotten: one value, a key, what was said about something, or everything.

    ("allergies", "peanuts")   that value, in every row that ever held it, and the free facts, dreams and messages that name it
    ("home_area", "")          the key, whatever it holds or held, and the free facts that say it
    (None, "my sister")        the free facts that speak of it, and the values that are named so
    (None, "")                 everything

What is forgotten is erased, not superseded. The user's sessions end with it, because it stands in their notes and messages; the next one
begins with an empty list, and tells nothing across sessions that was said before. A mark without words is left behind, so that a job that
comes late does not learn it again. Repeating it changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import structlog

from hermes.ports.embeddings import Embedding, Embeddings, EmbeddingsUnavailable
from hermes.ports.memories import Dream, Dreams, Fact, FactChange, ForgetMark, Memories, NewFact
from hermes.ports.souls import PastMessages, Souls
from hermes.ports.tools import ErasedFacts
from hermes.ports.transactions import Transaction, Transactions
from hermes.soul.erasure import ConversationEraser
from hermes.soul.extract_rules import read_statements, same_item
from hermes.soul.fact_keys import KEYS, LIST_KEYS, Op, merge_values, split_items
from hermes.soul.recall_terms import DENSE_WORD, fold, terms, words
from hermes.soul.similarity import MIN_SAME_COSINE, differ

log = structlog.get_logger()

MIN_ABOUT_SHARE = 2 / 3
"""Share of the words asked for that a free fact must have to be about them."""
FOOD_KEYS = frozenset({"diet", "allergies", "dietary_restrictions"})
"""Keys under which one thing may have been noted: "no peanuts" is a restriction and an allergy."""
NAME_KEYS = frozenset({
    *FOOD_KEYS,
    *("dislikes", "interests", "occasions", "favorite_areas", "favorite_venue", "favorite_category", "home_area"),
})  # fmt: skip
"""Keys whose values are names. Free facts that name one are about it; one that has a 2 or a Friday is not about the party's size or day."""

KEY_TERMS = {key: frozenset(terms(key.replace("_", " "))) for key in KEYS}
EMBED_TIMEOUT_S = 1.0
MAX_READ_FACTS = 500
"""Free facts, the newest, in which statements are read: each takes most of a millisecond. In the others values are looked for by name."""


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """What is to be forgotten: see the module."""

    key: str | None
    text: str

    @property
    def is_everything(self) -> bool:
        return self.key is None and not self.text


NOTHING_ERASED = ErasedFacts((), was_said=False)


@dataclass(frozen=True, slots=True)
class MatchedFact:
    """A fact that is meant, with what is left of it: of a list the other items, otherwise nothing."""

    fact: Fact
    gone: tuple[str, ...]
    left: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEraser:
    """Erases what users ask to be forgotten. Raises StoreUnavailable and Forgotten; then nothing of it is done."""

    transactions: Transactions
    memories: Memories
    dreams: Dreams
    embeddings: Embeddings
    souls: Souls
    past: PastMessages
    eraser: ConversationEraser

    async def forget(
        self, user_id: UUID, wishes: Sequence[ForgetRequest], *, turn_id: UUID | None, now: datetime, is_afterwards: bool = False
    ) -> ErasedFacts:
        """Forget all of the wishes at once; return what was known of it. `is_afterwards`: what was forgotten in the same turn is done."""
        vectors = await self._embedded([wish.text for wish in wishes if wish.key is None and wish.text])
        async with self.transactions.begin() as tx:
            await self.memories.lock(tx, user_id)
            if is_afterwards:
                wishes = await self._undone(tx, user_id, wishes, turn_id)
            if not wishes:
                return NOTHING_ERASED
            known = await self.memories.all(tx, user_id)
            if any(wish.is_everything for wish in wishes):
                hits = [MatchedFact(fact, (fact.text,), None) for fact in known]
                await self.memories.erase(tx, user_id)
                was_said = True
            else:
                nears = [await self._near(tx, user_id, vectors.get(wish.text), now) if wish.key is None else {} for wish in wishes]
                hits = await asyncio.to_thread(match_requests, wishes, nears, known)
                await self._erase(tx, user_id, wishes, hits, now=now)
                was_said = await self._is_said(tx, user_id, wishes, hits, besides=turn_id)
            live = [hit for hit in hits if is_live(hit.fact, now)]
            await self.memories.mark_forgotten(tx, user_id, turn_id, list(marks_of(wishes, live)))
            ended = await self.eraser.sessions.end(tx, user_id) if hits or was_said else ()
        if hits or was_said:
            log.info("memory_forgotten", user_id=str(user_id), facts=len(hits), sessions=len(ended))
            await self.souls.invalidate(user_id)
            await self.eraser.histories.drop(ended)
        return ErasedFacts(list(dict.fromkeys(map(describe_match, live))), was_said)

    async def _undone(self, tx: Transaction, user_id: UUID, wishes: Sequence[ForgetRequest], turn_id: UUID | None) -> list[ForgetRequest]:
        marks = await self.memories.forgotten_after(tx, user_id, turn_id) if turn_id is not None else ()
        done = {(mark.key, frozenset(mark.terms)) for mark in marks if mark.is_same_turn}
        return [wish for wish in wishes if (wish.key, frozenset(await self.memories.digests(tx, user_id, terms(wish.text)))) not in done]

    async def _erase(
        self, tx: Transaction, user_id: UUID, wishes: Sequence[ForgetRequest], hits: Sequence[MatchedFact], *, now: datetime
    ) -> None:
        told = [dream.id for dream in await self.dreams.all(tx, user_id) if is_dream_about(dream, wishes, hits)]
        await self.dreams.delete(tx, user_id, told)
        for hit in hits:
            await self.memories.delete(tx, user_id, hit.fact.id)
        kept = [FactChange(fact=remaining_fact(hit.fact, hit.left)) for hit in hits if hit.left and is_live(hit.fact, now)]
        if kept:
            await self.memories.change(tx, user_id, kept, now=now)

    async def _near(self, tx: Transaction, user_id: UUID, embedding: Embedding | None, now: datetime) -> dict[UUID, float]:
        if embedding is None:
            return {}
        found = await self.memories.candidates(tx, user_id, embedding, (), now=now)
        return {row.id: row.cosine for row in found.rows if row.cosine is not None and row.cosine >= MIN_SAME_COSINE}

    async def _is_said(
        self, tx: Transaction, user_id: UUID, wishes: Sequence[ForgetRequest], hits: Iterable[MatchedFact], *, besides: UUID | None
    ) -> bool:
        """Whether the user wrote of it where a model may still read it."""
        if hits:
            return True
        messages = await self.past.recent(tx, user_id, besides=besides)
        return any(is_about_request(message.text, wish) for message in messages for wish in wishes)

    async def _embedded(self, texts: Sequence[str]) -> dict[str, Embedding]:
        try:
            async with asyncio.timeout(EMBED_TIMEOUT_S):
                return dict(zip(texts, await self.embeddings.embed(texts), strict=True)) if texts else {}
        except (EmbeddingsUnavailable, TimeoutError):
            return {}


# --- what is meant


def match_requests(wishes: Sequence[ForgetRequest], nears: Sequence[Mapping[UUID, float]], known: Sequence[Fact]) -> list[MatchedFact]:
    """What the wishes mean, one after the other: of a list each takes its items."""
    hits: dict[UUID, MatchedFact] = {}
    for wish, near in zip(wishes, nears, strict=True):
        left = [replace(fact, text=hits[fact.id].left or "") if fact.id in hits else fact for fact in known]
        for hit in match_request(wish, [fact for fact in left if fact.text], near):
            before = hits.get(hit.fact.id)
            hits[hit.fact.id] = MatchedFact(hit.fact, (*(before.gone if before else ()), *hit.gone), hit.left)
    return list(hits.values())


def match_request(wish: ForgetRequest, known: Sequence[Fact], near: Mapping[UUID, float]) -> list[MatchedFact]:
    """The facts that a wish means, those that are superseded too."""
    rows = [fact for fact in known if fact.key is not None]
    keyed = [hit for fact in rows if (hit := match_by_words(wish.text, fact) if wish.key is None else match_by_key(wish, fact)) is not None]
    gone = [item for hit in keyed if hit.fact.key in NAME_KEYS for item in hit.gone]
    values = dict.fromkeys([*gone, *(split_items(wish.text) if wish.key in NAME_KEYS else ())])
    free = [fact for fact in known if fact.key is None]
    stated = {fact.id for fact in free[-MAX_READ_FACTS:] if wish.key is not None and states_value(fact.text, wish)}
    meant = [
        fact
        for fact in free
        if fact.id in stated
        or any(has_value(fact.text, value) for value in values)
        or (
            wish.key is None
            and (is_about(fact.text, wish.text) or (near.get(fact.id, 0.0) >= MIN_SAME_COSINE and not differ(fact.text, wish.text)))
        )
    ]
    return [*keyed, *(MatchedFact(fact, (fact.text,), None) for fact in meant)]


def match_by_key(wish: ForgetRequest, fact: Fact) -> MatchedFact | None:
    is_family = bool(wish.text) and {fact.key, wish.key} <= FOOD_KEYS
    if fact.key is None or not (fact.key == wish.key or is_family):
        return None
    left = merge_values(fact.key, fact.text, wish.text, Op.FORGET, same_item)
    if left == fact.text:
        return None
    kept = split_items(left or "")
    return MatchedFact(fact, tuple(item for item in parts_of(fact) if item not in kept), left)


def match_by_words(asked: str, fact: Fact) -> MatchedFact | None:
    """A value that some words name. Words that name a key are about that key alone: "my peanut allergy" is no dislike of peanuts."""
    wanted = set(terms(asked))
    about = KEY_TERMS.get(fact.key or "", frozenset())
    named = [key for key, found in KEY_TERMS.items() if found <= wanted]
    if not wanted or (named and fact.key not in named):
        return None
    gone = tuple(item for item in parts_of(fact) if wanted <= about or is_named(item, wanted - about))
    kept = [item for item in parts_of(fact) if item not in gone]
    return MatchedFact(fact, gone, ", ".join(kept) or None) if gone else None


def is_named(item: str, wanted: set[str]) -> bool:
    """Whether words are the name of an item, or nearly nothing else."""
    own = set(terms(item))
    return bool(own and wanted) and (wanted <= own or (own <= wanted and len(wanted - own) <= 1))


def is_about(text: str, asked: str) -> bool:
    """Whether a text has all of some words, or most of them and no other in the place of one: a dog called Rex is no cat called Rex."""
    wanted = set(terms(asked))
    shared = wanted & set(terms(text))
    return bool(wanted) and (shared == wanted or (len(shared) >= MIN_ABOUT_SHARE * len(wanted) and not differ(text, asked)))


def states_value(text: str, wish: ForgetRequest) -> bool:
    """Whether a text says that the key has this value; without one, whatever it has."""
    told = [found.value for found in read_statements(text) if found.key == wish.key]
    return any(not wish.text or same_item(value, meant) for value in told for meant in split_items(wish.text) or [""])


def has_value(text: str, value: str) -> bool:
    """Whether a text has a value in it, in whatever form of its words."""
    if DENSE_WORD.search(value):
        return fold(value) in fold(text)
    own = words(text)
    named = words(value)
    return bool(named) and all(any(same_item(word, each) for each in own) for word in named)


def is_about_request(text: str, wish: ForgetRequest) -> bool:
    if wish.key is None:
        return is_about(text, wish.text)
    return states_value(text, wish) or (wish.key in NAME_KEYS and any(has_value(text, value) for value in split_items(wish.text)))


def is_dream_about(dream: Dream, wishes: Sequence[ForgetRequest], hits: Iterable[MatchedFact]) -> bool:
    """Whether a line of a dream tells what is forgotten. Those that follow from a fact go with it."""
    values = [item for hit in hits for item in hit.gone if hit.fact.key in NAME_KEYS]
    return any(is_about_request(dream.text, wish) for wish in wishes) or any(has_value(dream.text, value) for value in values)


def is_live(fact: Fact, now: datetime) -> bool:
    return fact.superseded_at is None and (fact.expires_at is None or fact.expires_at > now)


def parts_of(fact: Fact) -> list[str]:
    return split_items(fact.text) if fact.key in LIST_KEYS else [fact.text]


def remaining_fact(fact: Fact, left: str) -> NewFact:
    """What is left of a list, as it was known."""
    return NewFact(
        text=left,
        key=fact.key,
        origin=fact.origin,
        source_turn=fact.source_turn,
        confidence=fact.confidence,
        expires_at=fact.expires_at,
    )


def describe_match(hit: MatchedFact) -> str:
    return f"{hit.fact.key.replace('_', ' ')}: {', '.join(hit.gone)}" if hit.fact.key else hit.fact.text


# --- what is not to be learnt again


def marks_of(wishes: Sequence[ForgetRequest], hits: Iterable[MatchedFact]) -> Iterable[tuple[str | None, Sequence[str]]]:
    """The wishes, and what they met: the key and the words of each."""
    asked = [
        (wish.key, item) for wish in wishes for item in (split_items(wish.text) if wish.key in LIST_KEYS and wish.text else [wish.text])
    ]
    met = [(hit.fact.key, item) for hit in hits for item in hit.gone]
    # A mark without words means all of a key; words of which none counts mean nothing.
    yield from ((key, found) for key, text in [*asked, *met] if (found := terms(text)) or not text)


def is_marked(key: str | None, own: frozenset[int], mark: ForgetMark) -> bool:
    """Whether something was forgotten since it was said. `own` are the digests of its words.

    In the very message that asks to forget a key or everything, something new may stand; only what was known then is not learnt from it."""
    meant = frozenset(mark.terms)
    if not meant:
        return not mark.is_same_turn and mark.key in (None, key)
    if key is None:
        return len(meant & own) >= (MIN_ABOUT_SHARE if mark.key is None else 1) * len(meant)
    is_family = mark.key in (None, key) or {mark.key, key} <= FOOD_KEYS
    return is_family and bool(own) and (own <= meant or meant <= own)


def find_key(what: str) -> str | None:
    """The structural key that some words are the name of: `home area`, `Allergies`."""
    key = "_".join(fold(what).replace("-", " ").replace("_", " ").split())
    return key if key in KEYS else None
