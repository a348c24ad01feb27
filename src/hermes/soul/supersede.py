"""Plan how a learned fact changes the known facts. Reads and writes no store: the caller stores the planned change.

A fact has a key (`diet`) and one value, or is a free fact: a text without a key.

known vegan, learned {diet: pescatarian}  ->  pescatarian supersedes vegan, and the free fact "I'm vegan and love tempeh" too
known "My dog is called Rex", learned "I have a dog named Rex"  ->  nothing"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from hermes.ports.memories import Embedding, Fact, FactChange, FactOrigin, NewFact
from hermes.soul.fact_keys import IDENTITY_KEYS, Op, merge_values
from hermes.soul.statements.same_item import same_item
from hermes.soul.terms import canonical, fold, is_nearly_equal, is_same, terms


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedFact:
    """Something that a user said about themselves, or that a tool noted, before it is compared with known facts."""

    text: str
    key: str | None = None
    op: Op = Op.SET
    origin: FactOrigin
    source_turn: UUID | None = None
    confidence: float = 1.0
    expires_at: datetime | None = None
    replaces: UUID | None = None
    """A known free fact that this one replaces."""
    embedding: Embedding | None = None


def plan_change(known: Sequence[Fact], learned: LearnedFact, cosines: Mapping[UUID, float]) -> FactChange | None:
    """Return what to change; None if the fact is known already. `cosines` says how near the vector of each known
    free fact is to that of the learned one.

    `known` must hold these facts, and may leave out all others: for a learned key its present value and, if `outdated_value` gives a value,
    the free facts that name it; for a learned free fact those that may say the same (`comparable_facts`), and the one that it replaces."""
    if learned.key is not None:
        return plan_key_change(known, learned, learned.key)
    free = [fact for fact in known if fact.key is None]
    replaced = tuple(fact.id for fact in free if fact.id == learned.replaces)
    if any(is_same_fact(fact, learned, cosines.get(fact.id, 0.0)) for fact in free if fact.id not in replaced):
        return None
    fact = new_fact(learned, learned.text)
    if replaced and canonical(next(each.text for each in free if each.id in replaced)) == fact.canonical:
        return None
    return FactChange(fact=fact, supersedes=replaced)


def plan_key_change(known: Sequence[Fact], learned: LearnedFact, key: str) -> FactChange | None:
    old = next((fact for fact in known if fact.key == key), None)
    value = merge_values(key, old.text if old else None, learned.text, learned.op, same_item)
    if value == (old.text if old else None):
        return None
    gone: tuple[UUID, ...] = () if old is None else (old.id,)
    if old is not None and key in IDENTITY_KEYS:
        gone += tuple(fact.id for fact in known if fact.key is None and has_word(fact.text, old.text))
    # No value is left if the user took back the last one: then the old fact ends, and no new one begins.
    return FactChange(fact=None if value is None else new_fact(learned, value), supersedes=gone)


def outdated_value(known: Sequence[Fact], learned: LearnedFact) -> str | None:
    """The known value of an identity key that a fact was learned for; else None. If the learned value differs, free facts that name the
    known one are no longer true."""
    return next((fact.text for fact in known if fact.key == learned.key), None) if learned.key in IDENTITY_KEYS else None


def facts_after(known: Sequence[Fact], change: FactChange, now: datetime) -> list[Fact]:
    """The known facts after a change, for the next change that is planned for the same message."""
    kept = [fact for fact in known if fact.id not in change.supersedes]
    if change.fact is None:
        return kept
    new = change.fact
    return [
        *kept,
        Fact(
            id=new.id,
            text=new.text,
            key=new.key,
            origin=new.origin,
            source_turn=new.source_turn,
            confidence=new.confidence,
            valid_from=now,
            expires_at=new.expires_at,
        ),
    ]


def is_same_fact(fact: Fact, learned: LearnedFact, cosine: float) -> bool:
    one, other = canonical(fact.text), canonical(learned.text)
    return one == other or is_nearly_equal(one, other) or is_same(fact.text, learned.text, cosine)


def has_word(text: str, value: str) -> bool:
    """Whether a text has a value as a whole word."""
    return re.search(rf"(?<!\w){re.escape(fold(value))}(?!\w)", fold(text)) is not None


def new_fact(learned: LearnedFact, text: str) -> NewFact:
    bare = NewFact(
        text=text,
        key=learned.key,
        origin=learned.origin,
        source_turn=learned.source_turn,
        confidence=learned.confidence,
        expires_at=learned.expires_at,
    )
    if learned.key is not None:
        return bare
    return replace(bare, canonical=canonical(text), terms=tuple(terms(text)), embedding=learned.embedding)
