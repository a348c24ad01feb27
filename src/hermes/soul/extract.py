"""Learn from what a user just wrote, after the turn, so that the answer does not wait for it.

Reads the user's own new text and nothing else: never the answer, a tool's output, the history or recalled facts. Rules read the
common keys; a model, if there is one, reads the rest. A fact is checked, cleaned, compared with known facts, and refused if the prompt
already had it: a memory that learns from its own facts grows without end.

LearnJob is the job that `JobQueue.defer_memory` defers. It reads the user's text from the inbox and, from the journal, what the model was
shown beside it; so it needs only the turn's id, and may run minutes later, in another process. It learns only from turns that a model
answered, not from a message that was refused for lack of credit or of an account, and not in a room that several people share: Hermes tells
its members that it notes nothing about them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog

from hermes.ports.errors import UserErased
from hermes.ports.inbox import Inbox, InboxMessage
from hermes.ports.memories import Embedding, Embeddings, EmbeddingsUnavailable, Fact, FactChange, FactOrigin, ForgetMark, Memories, Souls
from hermes.ports.models import CallPurpose
from hermes.ports.runtime import Clock, Transaction, Transactions
from hermes.ports.sessions import Journal
from hermes.ports.traces import NO_TRACER, Tracer
from hermes.router.steps.build_messages import Prompt
from hermes.soul.extract_answer import MAX_TEXT_CHARS, BadAnswer, extraction_prompt, read_answer
from hermes.soul.extract_rules import can_read_at_once, read_statements
from hermes.soul.fact_keys import LIST_KEYS, BadValue, Op, normalize_value, split_items
from hermes.soul.forgetting import ForgetRequest, MemoryEraser, is_marked
from hermes.soul.memory_model import MemoryCause, MemoryModel, TextCompleter
from hermes.soul.prompt_layers import Sanitize
from hermes.soul.recall import rank_facts
from hermes.soul.supersede import LearnedFact, facts_after, outdated_value, plan_change
from hermes.soul.terms import canonical, comparable_facts, excerpt, facts_with_terms, is_nearly_equal, terms

log = structlog.get_logger()

MIN_CONFIDENCE = 0.5
RULE_CONFIDENCE = 0.9
MAX_NEAR_FACTS = 10
MAX_CHARS_AT_ONCE = 300
"""Longer messages are read by their own job only."""
MAX_LINE_CHARS = 2_000
"""Characters that are compared of a line that the model was shown; no fact is that long."""
JUNK_PATTERNS = (
    re.compile(r"https?://|www\.|\S+@\S+\.\w", re.IGNORECASE),
    re.compile(r"\d[\d -]{10,}\d"),  # card and telephone numbers
    re.compile(
        r"\b(?:password|passcode|contrase|mot de passe|passwort|kata sandi|senha|wachtwoord|parola|api[ _-]?key|pin code)\b", re.IGNORECASE
    ),
    re.compile(r"\b(?:john doe|jane doe|lorem ipsum|the assistant|as an ai|language model|system prompt)\b", re.IGNORECASE),
    re.compile(r"[?\uff1f\u061f]\s*$"),
)


@dataclass(frozen=True, slots=True)
class RelatedFacts:
    """The known free facts to compare a learned fact with, and the cosines of those that may say the same."""

    facts: Sequence[Fact]
    cosines: Mapping[UUID, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWriter:
    """Saves what users say about themselves."""

    transactions: Transactions
    memories: Memories
    embeddings: Embeddings
    souls: Souls
    """Every write drops the user's cached base here."""
    sanitize: Sanitize
    is_trivial: Callable[[str], bool]
    complete: TextCompleter | None = None
    """None: only the rules read messages."""
    fails_with: tuple[type[Exception], ...] = (TimeoutError,)
    """What `complete` raises if no model answers; then the rules alone count."""
    timeout_s: float = 30.0
    forgetting: MemoryEraser | None = None
    """None: nothing is forgotten; but what the user asks to forget is not learnt either."""

    def may_learn(self, text: str, *, is_shown_to_model: bool) -> bool:
        """Whether a message may hold something to remember or to forget. If no model will read it, the rules know now; unless it is long,
        or in a language that this process has not read yet: then reading takes so long that it is left to the job."""
        if not text.strip() or self.is_trivial(text):
            return False
        is_quick = len(text) <= MAX_CHARS_AT_ONCE and can_read_at_once(text)
        return is_shown_to_model or not is_quick or bool(read_statements(text))

    async def extract_and_save(
        self, user_id: UUID, turn_id: UUID, text: str, *, shown: Sequence[str] = (), now: datetime
    ) -> Sequence[Fact]:
        """Learn from one message; return the new facts. `shown` is what was sent to the model beside it: system message and note.

        What the user asks to forget is forgotten first. It is not learnt from this message, nor from earlier ones that are read later.
        Safe to repeat: facts of the first run are known in the second. Raises UserErased, and StoreUnavailable, so that the job runs
        again."""
        if not text.strip() or self.is_trivial(text):
            return ()
        read = await asyncio.to_thread(read_statements, text)
        # "Forget what I said about my diet" looks like an attack on a prompt; but users have the right to have their facts forgotten.
        forget_quotes = {found.quote for found in read if found.op is Op.FORGET}
        by_rule = [
            LearnedFact(
                text=found.value, key=found.key, op=found.op, origin=FactOrigin.RULE, source_turn=turn_id, confidence=RULE_CONFIDENCE
            )
            for found in read
            if found.quote in forget_quotes or self.sanitize(found.quote) is not None
        ]
        by_model = await self._ask_model(user_id, turn_id, text, now)
        # A model understands the sentence, rules know only its words; if both found the same key, the model counts.
        decided = {learnt.key for learnt in by_model if learnt.key is not None}
        combined = by_model + [learnt for learnt in by_rule if learnt.op is Op.FORGET or learnt.key is None or learnt.key not in decided]
        await self._forget(user_id, turn_id, [ForgetRequest(learnt.key, learnt.text) for learnt in combined if learnt.op is Op.FORGET], now)
        to_save = [learnt for learnt in combined if learnt.op is not Op.FORGET]
        return await self.save(user_id, await asyncio.to_thread(facts_not_shown, to_save, shown), now=now)

    async def _forget(self, user_id: UUID, turn_id: UUID, requests: Sequence[ForgetRequest], now: datetime) -> None:
        """Forget what a message asks to forget, unless a tool did so in the same turn."""
        if requests and self.forgetting is not None:
            await self.forgetting.forget(user_id, requests, turn_id=turn_id, now=now, is_afterwards=True)

    async def save(self, user_id: UUID, learned_facts: Sequence[LearnedFact], *, now: datetime) -> Sequence[Fact]:
        """Save the facts that are clean and new; return them. Tools save their facts here too: `save_preference`, the last booking."""
        cleaned = [clean for learnt in learned_facts if (clean := self._clean(learnt)) is not None]
        if not cleaned:
            return ()
        vectors = await self._embed([learnt.text for learnt in cleaned if learnt.key is None])
        ready = [replace(learnt, embedding=vectors.get(learnt.text)) if learnt.key is None else learnt for learnt in cleaned]
        async with self.transactions.begin() as tx:
            planned = await self._plan_changes(tx, user_id, ready, now)
            changes = [change for _, change in planned]
            added = await self.memories.change(tx, user_id, changes, now=now) if changes else ()
            await self._mark_outdated(tx, user_id, [learnt for learnt, _ in planned])
        if changes:
            log.info("memory_saved", user_id=str(user_id), added=len(added), superseded=sum(len(change.supersedes) for change in changes))
            await self.souls.invalidate(user_id)
        return added

    async def _mark_outdated(self, tx: Transaction, user_id: UUID, learnt: Sequence[LearnedFact]) -> None:
        """Mark what was just removed or replaced, so that an earlier message that is read later does not bring it back."""
        for each in learnt:
            if each.source_turn is None or each.key is None or each.origin is FactOrigin.SYSTEM:
                continue
            if each.op is Op.REMOVE:
                marks = [(each.key, found) for item in split_items(each.text) if (found := terms(item))]
                await self.memories.mark_forgotten(tx, user_id, each.source_turn, marks)
            elif each.key not in LIST_KEYS:
                await self.memories.mark_forgotten(tx, user_id, each.source_turn, [(each.key, ())])

    async def _plan_changes(
        self, tx: Transaction, user_id: UUID, ready: Sequence[LearnedFact], now: datetime
    ) -> list[tuple[LearnedFact, FactChange]]:
        """Plan the changes under the user's lock, one after the other, so that a fact that is twice in one message is saved once.

        Of the known free facts only those are read that may matter for the learned ones; there may be thousands."""
        await self.memories.lock(tx, user_id)
        known = list(await self.memories.structural(tx, user_id, now=now))
        changes: list[tuple[LearnedFact, FactChange]] = []
        own: dict[UUID, Embedding] = {}
        gone: set[UUID] = set()
        for learnt in await self._without_forgotten(tx, user_id, ready):
            related = await self._related_facts(tx, user_id, learnt, known, now)
            cosines = {**related.cosines, **cosines_to(learnt, own)}
            change = await asyncio.to_thread(
                plan_change, [*known, *(fact for fact in related.facts if fact.id not in gone)], learnt, cosines
            )
            if change is None:
                continue
            changes.append((learnt, change))
            gone.update(change.supersedes)
            known = facts_after(known, change, now)
            if change.fact is not None and change.fact.embedding is not None:
                own[change.fact.id] = change.fact.embedding
        return changes

    async def _without_forgotten(self, tx: Transaction, user_id: UUID, ready: Sequence[LearnedFact]) -> list[LearnedFact]:
        """The learned facts without those that the user asked to forget since they said them. A tool's facts are newer, and stay."""
        marks: dict[UUID, Sequence[ForgetMark]] = {}
        left = []
        for learnt in ready:
            turn_id = learnt.source_turn if learnt.origin in (FactOrigin.RULE, FactOrigin.SAID) else None
            if turn_id is not None and turn_id not in marks:
                marks[turn_id] = await self.memories.forgotten_after(tx, user_id, turn_id)
            since = marks.get(turn_id, ()) if turn_id is not None else ()
            parts = split_items(learnt.text) if learnt.key in LIST_KEYS else [learnt.text]
            kept = [part for part in parts if not since or not await self._is_forgotten(tx, user_id, learnt.key, part, since)]
            if kept:
                left.append(learnt if kept == parts else replace(learnt, text=", ".join(kept)))
        return left

    async def _is_forgotten(self, tx: Transaction, user_id: UUID, key: str | None, text: str, since: Sequence[ForgetMark]) -> bool:
        own = frozenset(await self.memories.digests(tx, user_id, terms(text)))
        return any(is_marked(key, own, mark) for mark in since)

    async def _related_facts(
        self, tx: Transaction, user_id: UUID, learnt: LearnedFact, known: Sequence[Fact], now: datetime
    ) -> RelatedFacts:
        """The stored free facts to compare a learned fact with."""
        if learnt.key is None:
            found = await self.memories.candidates(tx, user_id, learnt.embedding, terms(learnt.text), now=now)
            cosines = await asyncio.to_thread(comparable_facts, found)
            fact_ids = [*cosines, *(row.id for row in found.rows if row.id == learnt.replaces and row.id not in cosines)]
            return RelatedFacts(await self.memories.read(tx, user_id, fact_ids) if fact_ids else (), cosines)
        outdated = outdated_value(known, learnt)
        if outdated is None:
            return RelatedFacts((), {})
        found = await self.memories.candidates(tx, user_id, None, terms(outdated), now=now)
        fact_ids = await asyncio.to_thread(facts_with_terms, found)
        return RelatedFacts(await self.memories.read(tx, user_id, fact_ids) if fact_ids else (), {})

    async def _ask_model(self, user_id: UUID, turn_id: UUID, text: str, now: datetime) -> list[LearnedFact]:
        """The facts that a model finds in the text; none without a model, or if it does not answer in the right form."""
        if self.complete is None:
            return []
        near = await self._near(user_id, excerpt(text), now)
        read = text[:MAX_TEXT_CHARS]  # the model is shown this much, and its quotes must be in it
        no_answer: tuple[type[Exception], ...] = (BadAnswer, TimeoutError, *self.fails_with)
        try:
            async with asyncio.timeout(self.timeout_s):
                answer = await self.complete(extraction_prompt(read, [fact.text for fact in near]))
            extracted = await asyncio.to_thread(read_answer, answer, read, len(near))
        except no_answer as error:
            log.warning("memory_not_extracted", turn_id=str(turn_id), error=type(error).__name__, reason=str(error)[:200])
            return []
        return [
            LearnedFact(
                text=each.value,
                key=each.key,
                op=each.op,
                origin=FactOrigin.SAID,
                source_turn=turn_id,
                confidence=each.confidence,
                expires_at=None if each.lasts_days is None else now + timedelta(days=each.lasts_days),
                replaces=None if each.replaces is None else near[each.replaces - 1].id,
            )
            for each in extracted
        ]

    async def _near(self, user_id: UUID, text: str, now: datetime) -> Sequence[Fact]:
        """The known free facts that the message may be about."""
        embedding = (await self._embed([text])).get(text)
        async with self.transactions.begin() as tx:
            found = await self.memories.candidates(tx, user_id, embedding, terms(text), now=now)
            weight = self.embeddings.weight if embedding else 0.0
            best = await asyncio.to_thread(rank_facts, found, vector_weight=weight, limit=MAX_NEAR_FACTS)
            return await self.memories.read(tx, user_id, best)

    async def _embed(self, texts: Sequence[str]) -> dict[str, Embedding]:
        if not texts:
            return {}
        try:
            return dict(zip(texts, await self.embeddings.embed(texts), strict=True))
        except EmbeddingsUnavailable as error:
            log.warning("memory_without_vectors", error=str(error))
            return {}

    def _clean(self, learnt: LearnedFact) -> LearnedFact | None:
        """The fact as it may be stored: normalized, harmless and no junk; else None. No part of a refused fact is kept."""
        if learnt.confidence < MIN_CONFIDENCE:
            return None
        if learnt.key is not None:
            return self._clean_value(learnt, learnt.key)
        clean = self.sanitize(learnt.text)
        if clean is None:
            log.warning("memory_refused", key=None, reason="unsafe")
            return None
        return None if self._is_junk(clean) else replace(learnt, text=clean)

    def _clean_value(self, learnt: LearnedFact, key: str) -> LearnedFact | None:
        """The fact with a value that its key can hold; else None. A list is checked item by item: as one line it would lose its end."""
        try:
            value = normalize_value(key, learnt.text)
        except BadValue as error:
            log.info("memory_refused", key=key, reason=str(error))
            return None
        if any(self.sanitize(item) is None for item in (split_items(value) if key in LIST_KEYS else [value])):
            log.warning("memory_refused", key=key, reason="unsafe")
            return None
        return replace(learnt, text=value)

    def _is_junk(self, text: str) -> bool:
        found = terms(text)
        is_too_short = not found or (len(found) < 2 and len(text.split()) < 3)
        return is_too_short or self.is_trivial(text) or any(pattern.search(text) for pattern in JUNK_PATTERNS)


async def re_embed(transactions: Transactions, memories: Memories, embeddings: Embeddings, *, batch: int = 64) -> int:
    """Give every free fact a vector of the current embedding model; return how many got one. For a change of model; safe to repeat.

    Until then, facts of the old model are found by their words. Raises EmbeddingsUnavailable and StoreUnavailable."""
    done, last = 0, None
    while True:
        async with transactions.begin() as tx:
            last = await memories.convert_vectors(tx, after=last, limit=batch)
        if last is None:
            break
    while True:
        async with transactions.begin() as tx:
            rows = await memories.unembedded(tx, embeddings.model, after=last, limit=batch)
        if not rows:
            return done
        made = await embeddings.embed([row.text for row in rows])
        async with transactions.begin() as tx:
            for row, embedding in zip(rows, made, strict=True):
                await memories.embed(tx, row.user_id, row.fact_id, embedding)
        done, last = done + len(rows), rows[-1].fact_id


def facts_not_shown(facts: Sequence[LearnedFact], shown: Sequence[str]) -> list[LearnedFact]:
    """The facts that the prompt did not have already: no line of it is the fact, or contains it. Facts with a key always pass."""
    if all(learnt.key is not None for learnt in facts):
        return list(facts)
    lines = {canonical(line[:MAX_LINE_CHARS]) for text in shown for line in text.splitlines()} - {""}
    return [learnt for learnt in facts if learnt.key is not None or not is_in_lines(canonical(learnt.text), lines)]


def is_in_lines(new: str, lines: Iterable[str]) -> bool:
    return any(new in line or is_nearly_equal(line, new) for line in lines)


def cosines_to(learnt: LearnedFact, own: Mapping[UUID, Embedding]) -> dict[UUID, float]:
    """The cosines to the facts that were learnt from the same message."""
    vector = learnt.embedding
    return {} if vector is None or learnt.key is not None else {fact_id: dot(vector, embedding) for fact_id, embedding in own.items()}


def dot(one: Embedding, other: Embedding) -> float:
    """The cosine of two vectors of length one; 0 if different models made them."""
    return sum(a * b for a, b in zip(one.vector, other.vector, strict=True)) if one.model == other.model else 0.0


# --- the job

FIRST_CALL = ("call_model", 0)
"""Step and index under which the journal has the first model call of a turn."""


@dataclass(frozen=True, slots=True)
class LearnableMessage:
    """A message to learn from."""

    message: InboxMessage
    shown: Sequence[str]
    """What was sent to the model beside it: the system message, and the note of that turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnJob:
    """Learns from turns."""

    transactions: Transactions
    inbox: Inbox
    journal: Journal
    writer: MemoryWriter
    clock: Clock
    memory_model: MemoryModel | None = None
    """None: only the rules read messages."""
    tracer: Tracer = NO_TRACER

    async def remember(self, turn_id: UUID) -> None:
        """Learn from a turn's message. Safe to repeat. Does nothing for a turn that is gone or was not answered, nor for a deleted user.
        Raises StoreUnavailable; then the caller must call it again."""
        with structlog.contextvars.bound_contextvars(turn_id=str(turn_id)):
            try:
                learnable = await self._learnable_message(turn_id)
                if learnable is not None:
                    with self.tracer.job("remember", turn_id, learnable.message.traceparent) as span:
                        await self._learn(learnable)
                        span.note(user_id=learnable.message.user_id)
            except UserErased:
                log.info("learn_skipped_erased")

    async def _learnable_message(self, turn_id: UUID) -> LearnableMessage | None:
        async with self.transactions.begin() as tx:
            message = await self.inbox.message_of(tx, turn_id)
            call = await self.journal.effect(tx, turn_id, *FIRST_CALL)
        if message is None or message.envelope.is_shared or call is None or call.result is None:
            return None
        prompt = Prompt.from_bytes(call.request)
        return LearnableMessage(message, (prompt.system, note_before_text(prompt.question, message.envelope.event.text)))

    async def _learn(self, learnable: LearnableMessage) -> None:
        message, writer = learnable.message, self.writer
        if self.memory_model is not None:
            envelope = message.envelope
            cause = MemoryCause(CallPurpose.REMEMBER, envelope.event.platform, envelope.api_key_id, message.turn_id)
            writer = replace(writer, complete=self.memory_model.on_behalf_of(message.user_id, envelope.account, cause))
        text, now = message.envelope.event.text, self.clock.now()
        saved = await writer.extract_and_save(message.user_id, message.turn_id, text, shown=learnable.shown, now=now)
        if saved:
            async with self.transactions.begin() as tx:
                # By id: even the key of a fact says something about the user, such as `allergies`.
                ids = [str(fact.id) for fact in saved]
                await self.journal.add(tx, message.turn_id, "memory_saved", {"added": len(saved), "ids": ids})


def note_before_text(question: Mapping[str, Any], text: str) -> str:
    """The note in a turn's user message, without the user's own words: with them in `shown`, no fact of the message would count as new."""
    content = question["content"]
    whole = content if isinstance(content, str) else "\n".join(part["text"] for part in content if part.get("type") == "text")
    return whole.removesuffix(text)
