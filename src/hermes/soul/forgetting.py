"""Forget what a user asks to forget: one value, a key, everything about a subject, or everything.

    ("allergies", "peanuts")   that value, in every row that ever held it, and the free facts, dreams and messages that name it
    ("home_area", "")          the key, with all values that it holds or held, and the free facts that state them
    (None, "my sister")        the free facts about these words, and the values that they name
    (None, "")                 everything

Forgotten facts are erased, not superseded. The user's sessions end too, because their notes and messages hold the facts; the next session
begins with an empty list, and is shown nothing from earlier ones. A mark without readable words stays, so that a job that runs late does
not learn the fact again. Repeating it changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from uuid import UUID

import structlog

from hermes.ports.memories import (
    Dream,
    Dreams,
    Embedding,
    Embeddings,
    EmbeddingsUnavailable,
    Fact,
    FactChange,
    ForgetMark,
    Memories,
    NewFact,
    PastMessages,
    Souls,
)
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.tools import ErasedFacts
from hermes.soul.extract_rules import read_statements
from hermes.soul.fact_keys import KEYS, LIST_KEYS, NAME_KEYS, Op, are_related, merge_values, split_items
from hermes.soul.my_data import ConversationEraser
from hermes.soul.statements.same_item import same_item
from hermes.soul.terms import DENSE_WORD, MIN_SAME_COSINE, differ, fold, terms, words

log = structlog.get_logger()

MIN_ABOUT_SHARE = 2 / 3
"""Share of the request's words that a free fact must have to be about them."""
EMBED_TIMEOUT_S = 1.0
MAX_READ_FACTS = 500
"""The newest free facts, in which statements are read: each takes most of a millisecond. Older ones are only searched for the value."""


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """What to forget; the module's docstring explains the four forms."""

    key: str | None
    text: str

    @property
    def is_everything(self) -> bool:
        return self.key is None and not self.text


NOTHING_ERASED = ErasedFacts((), was_said=False)


@dataclass(frozen=True, slots=True)
class MatchedFact:
    """A fact that a request is about: what goes, and what is left of it, which is nothing unless it is a list."""

    fact: Fact
    gone: tuple[str, ...]
    left: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEraser:
    """Erases what users ask to forget. Raises StoreUnavailable and UserErased; then nothing was erased."""

    transactions: Transactions
    memories: Memories
    dreams: Dreams
    embeddings: Embeddings
    souls: Souls
    past: PastMessages
    eraser: ConversationEraser

    async def forget(
        self, user_id: UUID, requests: Sequence[ForgetRequest], *, turn_id: UUID | None, now: datetime, is_afterwards: bool = False
    ) -> ErasedFacts:
        """Forget all requests in one transaction; return what was known. `is_afterwards`: skip those that a tool did in the same turn."""
        vectors = await self._embed([request.text for request in requests if request.key is None and request.text])
        async with self.transactions.begin() as tx:
            await self.memories.lock(tx, user_id)
            if is_afterwards:
                requests = await self._without_done(tx, user_id, requests, turn_id)
            if not requests:
                return NOTHING_ERASED
            known = await self.memories.all(tx, user_id)
            if any(request.is_everything for request in requests):
                matches = [MatchedFact(fact, (fact.text,), None) for fact in known]
                await self.memories.erase(tx, user_id)
                was_said = True
            else:
                nears = [
                    await self._near(tx, user_id, vectors.get(request.text), now) if request.key is None else {} for request in requests
                ]
                matches = await asyncio.to_thread(match_requests, requests, nears, known)
                await self._erase(tx, user_id, requests, matches, now=now)
                was_said = await self._was_written(tx, user_id, requests, matches, besides=turn_id)
            live = [matched for matched in matches if is_live(matched.fact, now)]
            await self.memories.mark_forgotten(tx, user_id, turn_id, list(marks_of(requests, live)))
            ended = await self.eraser.sessions.end(tx, user_id) if matches or was_said else ()
        if matches or was_said:
            log.info("memory_forgotten", user_id=str(user_id), facts=len(matches), sessions=len(ended))
            await self.souls.invalidate(user_id)
            await self.eraser.drop_copies(ended)
        return ErasedFacts(list(dict.fromkeys(map(describe_match, live))), was_said)

    async def _without_done(
        self, tx: Transaction, user_id: UUID, requests: Sequence[ForgetRequest], turn_id: UUID | None
    ) -> list[ForgetRequest]:
        marks = await self.memories.forgotten_after(tx, user_id, turn_id) if turn_id is not None else ()
        done = {(mark.key, frozenset(mark.terms)) for mark in marks if mark.is_same_turn}
        return [
            request
            for request in requests
            if (request.key, frozenset(await self.memories.digests(tx, user_id, terms(request.text)))) not in done
        ]

    async def _erase(
        self, tx: Transaction, user_id: UUID, requests: Sequence[ForgetRequest], matches: Sequence[MatchedFact], *, now: datetime
    ) -> None:
        dream_ids = [dream.id for dream in await self.dreams.all(tx, user_id) if is_dream_about(dream, requests, matches)]
        await self.dreams.delete(tx, user_id, dream_ids)
        for matched in matches:
            await self.memories.delete(tx, user_id, matched.fact.id)
        kept = [
            FactChange(fact=remaining_fact(matched.fact, matched.left))
            for matched in matches
            if matched.left and is_live(matched.fact, now)
        ]
        if kept:
            await self.memories.change(tx, user_id, kept, now=now)

    async def _near(self, tx: Transaction, user_id: UUID, embedding: Embedding | None, now: datetime) -> dict[UUID, float]:
        if embedding is None:
            return {}
        found = await self.memories.candidates(tx, user_id, embedding, (), now=now)
        return {row.id: row.cosine for row in found.rows if row.cosine is not None and row.cosine >= MIN_SAME_COSINE}

    async def _was_written(
        self, tx: Transaction, user_id: UUID, requests: Sequence[ForgetRequest], matches: Iterable[MatchedFact], *, besides: UUID | None
    ) -> bool:
        """Whether the user wrote about it in a message that a model may still be shown."""
        if matches:
            return True
        messages = await self.past.recent(tx, user_id, besides=besides)
        return any(is_about_request(message.text, request) for message in messages for request in requests)

    async def _embed(self, texts: Sequence[str]) -> dict[str, Embedding]:
        try:
            async with asyncio.timeout(EMBED_TIMEOUT_S):
                return dict(zip(texts, await self.embeddings.embed(texts), strict=True)) if texts else {}
        except (EmbeddingsUnavailable, TimeoutError):
            return {}


# --- which facts a request is about


def match_requests(requests: Sequence[ForgetRequest], nears: Sequence[Mapping[UUID, float]], known: Sequence[Fact]) -> list[MatchedFact]:
    """The facts that the requests are about, one request after the other: each takes its own items from a list."""
    matches: dict[UUID, MatchedFact] = {}
    for request, near in zip(requests, nears, strict=True):
        left = [replace(fact, text=matches[fact.id].left or "") if fact.id in matches else fact for fact in known]
        for matched in match_request(request, [fact for fact in left if fact.text], near):
            before = matches.get(matched.fact.id)
            matches[matched.fact.id] = MatchedFact(matched.fact, (*(before.gone if before else ()), *matched.gone), matched.left)
    return list(matches.values())


def match_request(request: ForgetRequest, known: Sequence[Fact], near: Mapping[UUID, float]) -> list[MatchedFact]:
    """The facts that a request is about, superseded ones included."""
    rows = [fact for fact in known if fact.key is not None]
    keyed = [
        matched
        for fact in rows
        if (matched := match_by_words(request.text, fact) if request.key is None else match_by_key(request, fact)) is not None
    ]
    gone = [item for matched in keyed if matched.fact.key in NAME_KEYS for item in matched.gone]
    values = dict.fromkeys([*gone, *(split_items(request.text) if request.key in NAME_KEYS else ())])
    free = [fact for fact in known if fact.key is None]
    stated = {fact.id for fact in free[-MAX_READ_FACTS:] if request.key is not None and states_value(fact.text, request)}
    meant = [
        fact
        for fact in free
        if fact.id in stated
        or any(has_value(fact.text, value) for value in values)
        or (
            request.key is None
            and (is_about(fact.text, request.text) or (near.get(fact.id, 0.0) >= MIN_SAME_COSINE and not differ(fact.text, request.text)))
        )
    ]
    return [*keyed, *(MatchedFact(fact, (fact.text,), None) for fact in meant)]


def match_by_key(request: ForgetRequest, fact: Fact) -> MatchedFact | None:
    if fact.key is None or not (fact.key == request.key or (request.text and are_related(fact.key, request.key))):
        return None
    left = merge_values(fact.key, fact.text, request.text, Op.FORGET, same_item)
    if left == fact.text:
        return None
    kept = split_items(left or "")
    return MatchedFact(fact, tuple(item for item in parts_of(fact) if item not in kept), left)


def match_by_words(text: str, fact: Fact) -> MatchedFact | None:
    """The items of a fact that the words name. Words that name a key match that key alone: "my peanut allergy" is no dislike of peanuts."""
    asked = set(terms(text))
    about = key_terms(fact.key or "")
    named = [key for key in KEYS if key_terms(key) <= asked]
    if not asked or (named and fact.key not in named):
        return None
    gone = tuple(item for item in parts_of(fact) if asked <= about or is_named(item, asked - about))
    kept = [item for item in parts_of(fact) if item not in gone]
    return MatchedFact(fact, gone, ", ".join(kept) or None) if gone else None


@cache
def key_terms(key: str) -> frozenset[str]:
    return frozenset(terms(key.replace("_", " ")))


def is_named(item: str, asked: set[str]) -> bool:
    """Whether terms name an item: all are terms of it, or they are its terms and at most one other."""
    own = set(terms(item))
    return bool(own and asked) and (asked <= own or (own <= asked and len(asked - own) <= 1))


def is_about(text: str, subject: str) -> bool:
    """Whether a text has all words of a subject, or most of them and none swapped: a dog called Rex is no cat called Rex."""
    asked = set(terms(subject))
    shared = asked & set(terms(text))
    return bool(asked) and (shared == asked or (len(shared) >= MIN_ABOUT_SHARE * len(asked) and not differ(text, subject)))


def states_value(text: str, request: ForgetRequest) -> bool:
    """Whether a text states this value of the key; if the request has no value, any value."""
    stated = [found.value for found in read_statements(text) if found.key == request.key]
    return any(not request.text or same_item(value, meant) for value in stated for meant in split_items(request.text) or [""])


def has_value(text: str, value: str) -> bool:
    """Whether a text has a value in it, its words in any form."""
    if DENSE_WORD.search(value):
        return fold(value) in fold(text)
    own = words(text)
    named = words(value)
    return bool(named) and all(any(same_item(word, each) for each in own) for word in named)


def is_about_request(text: str, request: ForgetRequest) -> bool:
    if request.key is None:
        return is_about(text, request.text)
    return states_value(text, request) or (request.key in NAME_KEYS and any(has_value(text, value) for value in split_items(request.text)))


def is_dream_about(dream: Dream, requests: Sequence[ForgetRequest], matches: Iterable[MatchedFact]) -> bool:
    """Whether a line of a dream has what is forgotten. Lines whose evidence is erased go with their facts anyway."""
    values = [item for matched in matches for item in matched.gone if matched.fact.key in NAME_KEYS]
    return any(is_about_request(dream.text, request) for request in requests) or any(has_value(dream.text, value) for value in values)


def is_live(fact: Fact, now: datetime) -> bool:
    return fact.superseded_at is None and (fact.expires_at is None or fact.expires_at > now)


def parts_of(fact: Fact) -> list[str]:
    return split_items(fact.text) if fact.key in LIST_KEYS else [fact.text]


def remaining_fact(fact: Fact, left: str) -> NewFact:
    """The rest of a list as a new fact, with the old one's origin, source turn, confidence and expiry."""
    return NewFact(
        text=left,
        key=fact.key,
        origin=fact.origin,
        source_turn=fact.source_turn,
        confidence=fact.confidence,
        expires_at=fact.expires_at,
    )


def describe_match(matched: MatchedFact) -> str:
    return f"{matched.fact.key.replace('_', ' ')}: {', '.join(matched.gone)}" if matched.fact.key else matched.fact.text


# --- marks: what must not be learnt again


def marks_of(requests: Sequence[ForgetRequest], matches: Iterable[MatchedFact]) -> Iterable[tuple[str | None, Sequence[str]]]:
    """The marks of the requests, and of the facts that they matched: the key and the terms of each."""
    requested = [
        (request.key, item)
        for request in requests
        for item in (split_items(request.text) if request.key in LIST_KEYS and request.text else [request.text])
    ]
    found_items = [(matched.fact.key, item) for matched in matches for item in matched.gone]
    # A mark without terms stands for a whole key. So a text whose words are all common ones gets no mark.
    yield from ((key, found) for key, text in [*requested, *found_items] if (found := terms(text)) or not text)


def is_marked(key: str | None, own: frozenset[int], mark: ForgetMark) -> bool:
    """Whether a mark covers a fact: the user asked to forget it since they said it. `own` are the digests of the fact's terms.

    The message that asks to forget a key or everything may also tell something new: a mark without terms does not cover its own turn.
    What was known then has marks of its own."""
    meant = frozenset(mark.terms)
    if not meant:
        return not mark.is_same_turn and mark.key in (None, key)
    if key is None:
        return len(meant & own) >= (MIN_ABOUT_SHARE if mark.key is None else 1) * len(meant)
    is_same_subject = mark.key in (None, key) or are_related(mark.key, key)
    return is_same_subject and bool(own) and (own <= meant or meant <= own)


def find_key(what: str) -> str | None:
    """The structural key that the words name: `home area`, `Allergies`; else None."""
    key = "_".join(fold(what).replace("-", " ").replace("_", " ").split())
    return key if key in KEYS else None
