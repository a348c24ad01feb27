"""What is known about a user: facts with where they come from, and what was dreamt of them.

A fact is superseded, never overwritten: what was true once stays there with its dates. Structural facts have a key and one value at a
time; free facts have none and are found by what they say. Nothing here decides what is worth knowing; `hermes.soul` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID, uuid4

from hermes.ports.embeddings import Embedding
from hermes.ports.transactions import Transaction


class FactOrigin(StrEnum):
    """Who says so."""

    SAID = "said"
    """The user's own words, read by a model."""
    RULE = "rule"
    """The user's own words, read by rules."""
    TOOL = "tool"
    """A tool that the user asked for."""
    SYSTEM = "system"
    """Hermes itself, from what it did: a booking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something known about a user."""

    id: UUID
    text: str
    key: str | None
    origin: FactOrigin
    source_turn: UUID | None
    """The turn in which the user said it."""
    confidence: float
    valid_from: datetime
    expires_at: datetime | None = None
    superseded_at: datetime | None = None
    """Since when it is no longer held to be true; None for a fact that is."""
    superseded_by: UUID | None = None
    """What took its place; None also for one that was taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFact:
    """A fact to keep, with what it is found by."""

    text: str
    key: str | None = None
    origin: FactOrigin
    source_turn: UUID | None = None
    confidence: float = 1.0
    expires_at: datetime | None = None
    canonical: str = ""
    """The text without what makes no difference: two facts with one canonical form are one fact."""
    terms: Sequence[str] = ()
    """The words it is found by. They are keyed before they are stored."""
    embedding: Embedding | None = None
    id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactChange:
    """One step of what is known: a new fact, those that it takes the place of, or both."""

    fact: NewFact | None
    supersedes: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class RecallCandidate:
    """A free fact as recall sees it before any of them is opened."""

    id: UUID
    cosine: float | None
    """None where the fact has no vector of the model that was asked for."""
    terms: Sequence[int]
    """Its words, keyed."""


@dataclass(frozen=True, slots=True)
class RecallCandidates:
    """All free facts of one user, and the question's own words keyed alike."""

    asked: Sequence[int]
    rows: Sequence[RecallCandidate]


@dataclass(frozen=True, slots=True)
class UnembeddedFact:
    """A fact that has no vector of the current model."""

    user_id: UUID
    fact_id: UUID
    text: str


@dataclass(frozen=True, slots=True)
class ForgetMark:
    """Something that a user asked to forget, took back or said anew, by its words' digests. Without words: all of the key, and without a
    key everything."""

    key: str | None
    terms: Sequence[int]
    is_same_turn: bool
    """It was asked for in the turn that was named, and not in a later one."""


class Memories(Protocol):
    """Facts by user. Every call names the user, and no row of anybody else is ever touched.

    Fails closed. Values are sealed: what reads them raises Forgotten for a user who was deleted, and Damaged."""

    async def lock(self, tx: Transaction, user_id: UUID) -> None:
        """Let nobody else change this user's facts until the transaction ends. Taken before what is decided upon is read."""
        ...

    async def has_free(self, tx: Transaction, user_id: UUID) -> bool:
        """Whether there is any free fact of this user: without one there is nothing to recall."""
        ...

    async def structural(self, tx: Transaction, user_id: UUID, *, now: datetime) -> Sequence[Fact]:
        """Return the structural facts that hold now, by key."""
        ...

    async def live(self, tx: Transaction, user_id: UUID, *, now: datetime) -> Sequence[Fact]:
        """Return all facts that hold now, oldest first."""
        ...

    async def all(self, tx: Transaction, user_id: UUID) -> Sequence[Fact]:
        """Return every fact there ever was, oldest first, also what is superseded or expired."""
        ...

    async def candidates(
        self, tx: Transaction, user_id: UUID, embedding: Embedding | None, terms: Sequence[str], *, now: datetime
    ) -> RecallCandidates:
        """Return every free fact that holds now with its exact cosine to the question. Structural facts are left out."""
        ...

    async def read(self, tx: Transaction, user_id: UUID, fact_ids: Sequence[UUID]) -> Sequence[Fact]:
        """Return these facts of the user, in this order; ids of others are not there."""
        ...

    async def change(self, tx: Transaction, user_id: UUID, changes: Sequence[FactChange], *, now: datetime) -> Sequence[Fact]:
        """Supersede and add; return what was added. A free fact whose canonical form holds already is left out.

        Of a key only one value holds: the old one must be among what is superseded."""
        ...

    async def delete(self, tx: Transaction, user_id: UUID, fact_id: UUID) -> bool:
        """Take one fact out for good, whatever superseded it or was superseded by it, and what was dreamt of it; False if the user has no
        such fact."""
        ...

    async def learnt_in(self, tx: Transaction, user_id: UUID, account: str) -> frozenset[UUID]:
        """Return which facts of a user come from what they said to an account; those without a source turn come from none."""
        ...

    async def erase(self, tx: Transaction, user_id: UUID) -> int:
        """Take everything out that is known of a user, dreams included; return how many facts there were."""
        ...

    async def mark_forgotten(
        self, tx: Transaction, user_id: UUID, turn_id: UUID | None, marks: Sequence[tuple[str | None, Sequence[str]]]
    ) -> None:
        """Note what is not to be learnt again from messages until this turn's, each by its key and its words; without a turn, until now.

        The words are kept as keyed digests, for thirty days: no job comes later."""
        ...

    async def forgotten_after(self, tx: Transaction, user_id: UUID, turn_id: UUID) -> Sequence[ForgetMark]:
        """Return what was asked to be forgotten in this turn or in a later one."""
        ...

    async def digests(self, tx: Transaction, user_id: UUID, terms: Sequence[str]) -> Sequence[int]:
        """Return the keyed digests of words, to compare with those of marks."""
        ...

    async def unembedded(self, tx: Transaction, model: str, *, after: UUID | None = None, limit: int = 100) -> Sequence[UnembeddedFact]:
        """Return some free facts that hold and have no vector of this model, by id after `after`. What cannot be opened is left out."""
        ...

    async def embed(self, tx: Transaction, user_id: UUID, fact_id: UUID, embedding: Embedding) -> None:
        """Give a fact its vector. No change for one that is gone."""
        ...


class DreamDepth(StrEnum):
    """How deep a dream is."""

    LIGHT = "light"
    """Every day, over what is new."""
    DEEP = "deep"
    """Every week, over all of it."""


class DreamKind(StrEnum):
    INSIGHT = "insight"
    """Something that follows from several facts."""
    GAP = "gap"
    """Something worth knowing that nobody knows."""


class DreamReview(StrEnum):
    """What became of a dream."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dream:
    """One line of a dream. It stands beside the facts and changes none of them."""

    kind: DreamKind
    text: str
    key: str | None = None
    """The structural key that is missing; for gaps."""
    evidence: tuple[UUID, ...] = ()
    """The facts that an insight follows from."""
    review: DreamReview = DreamReview.ACCEPTED
    reason: str = ""
    """Why it was rejected."""
    depth: DreamDepth = DreamDepth.DEEP
    period: date | None = None
    """The first day of what it was dreamt over; the store knows it."""
    id: UUID = field(default_factory=uuid4)


class Dreams(Protocol):
    """Dreams by user, day and depth. Fails closed; texts are sealed."""

    async def due(self, tx: Transaction, depth: DreamDepth, period: date, *, limit: int = 100) -> Sequence[UUID]:
        """Return some users who have facts and no dream of this depth for this period; for a light one the facts must be new."""
        ...

    async def add(self, tx: Transaction, user_id: UUID, depth: DreamDepth, period: date, dreams: Sequence[Dream], *, now: datetime) -> bool:
        """Keep a dream, an empty one too; False, and no change, if this period was dreamt already."""
        ...

    async def newest(self, tx: Transaction, user_id: UUID, depth: DreamDepth) -> Sequence[Dream]:
        """Return the accepted lines of the newest dream of a depth, as they were added."""
        ...

    async def all(self, tx: Transaction, user_id: UUID) -> Sequence[Dream]:
        """Return every line of every dream, oldest first, the rejected ones too."""
        ...

    async def delete(self, tx: Transaction, user_id: UUID, dream_ids: Sequence[UUID]) -> None:
        """Take lines out for good; ids of others are not there."""
        ...

    async def review(self, tx: Transaction, user_id: UUID, dream_id: UUID, review: DreamReview, *, reason: str = "") -> bool:
        """Let a person's word on a line stand; False if the user has no such line."""
        ...
