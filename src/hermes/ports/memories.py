"""What an agent knows of a user: facts and earlier messages, dreams about them, embeddings to find facts by, and the soul that is read from
all of it. `hermes.soul` decides what is worth knowing; this module does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import NamedTuple, Protocol
from uuid import UUID, uuid4

from hermes.ports.backends import EmbeddingInput
from hermes.ports.errors import PortError
from hermes.ports.runtime import Transaction
from hermes.ports.users import Agent, User

# --- facts, with their origin
#
# A fact is superseded, never overwritten: a fact that was true once stays with its dates. Structural facts have a key and one value at a
# time; free facts have no key and are found by their text.


class FactOrigin(StrEnum):
    """Where a fact comes from."""

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
    """Since when it no longer holds; None for a fact that holds."""
    superseded_by: UUID | None = None
    """The fact that replaced it; None also for a fact that the user took back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFact:
    """A fact to store, with what it is found by."""

    text: str
    key: str | None = None
    origin: FactOrigin
    source_turn: UUID | None = None
    confidence: float = 1.0
    expires_at: datetime | None = None
    canonical: str = ""
    """The text in a normal form: two facts with the same canonical form are one fact."""
    terms: Sequence[str] = ()
    """The words it is found by. They are keyed before they are stored."""
    embedding: Embedding | None = None
    id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactChange:
    """One change of the facts: a new fact, the facts that it replaces, or both."""

    fact: NewFact | None
    supersedes: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class RecallCandidate:
    """A free fact as recall sees it, before any fact is decrypted."""

    id: UUID
    cosine: float | None
    """None if the fact has no vector of the question's model."""
    terms: Sequence[int]
    """The keyed digests of its words."""


class KnownFacts(NamedTuple):
    """All free facts of one user, counted."""

    facts: int
    terms: int
    """Words of all of them together."""


@dataclass(frozen=True, slots=True)
class RecallCandidates:
    """Free facts of one user, and the keyed digests of the question's words."""

    asked: Sequence[int]
    rows: Sequence[RecallCandidate]
    known: KnownFacts | None = None
    """How many facts there are, if the rows are only some of them. None: the rows are all."""


@dataclass(frozen=True, slots=True)
class UnembeddedFact:
    """A fact that has no vector of the current model."""

    user_id: UUID
    fact_id: UUID
    text: str


@dataclass(frozen=True, slots=True)
class ForgetMark:
    """Something that a user asked to forget, took back or stated again, by the digests of its words. Without words: all of the key; without
    a key: everything."""

    key: str | None
    terms: Sequence[int]
    is_same_turn: bool
    """The user asked for it in the turn in question, and not in a later one."""


class Memories(Protocol):
    """Facts by user. Every call names the user, and never touches a row of another user.

    Fails closed. Values are sealed: methods that read them raise UserErased for a deleted user, and DataDamaged."""

    async def lock(self, tx: Transaction, user_id: UUID) -> None:
        """Lock this user's facts against other writers until the transaction ends. Call it before reading the facts to decide upon."""
        ...

    async def has_free(self, tx: Transaction, user_id: UUID) -> bool:
        """Whether this user has any free fact: without one there is nothing to recall."""
        ...

    async def structural(self, tx: Transaction, user_id: UUID, *, now: datetime) -> Sequence[Fact]:
        """Return the structural facts that hold now, by key."""
        ...

    async def live(self, tx: Transaction, user_id: UUID, *, now: datetime) -> Sequence[Fact]:
        """Return all facts that hold now, oldest first."""
        ...

    async def all(self, tx: Transaction, user_id: UUID) -> Sequence[Fact]:
        """Return every fact of the user, oldest first, also superseded and expired ones."""
        ...

    async def candidates(
        self, tx: Transaction, user_id: UUID, embedding: Embedding | None, terms: Sequence[str], *, now: datetime
    ) -> RecallCandidates:
        """Return every free fact that holds now with its exact cosine to the question. Structural facts are left out."""
        ...

    async def near(
        self, tx: Transaction, user_id: UUID, embedding: Embedding | None, terms: Sequence[str], *, now: datetime, limit: int
    ) -> RecallCandidates:
        """As `candidates`, but only the facts that may be among the best `limit`: those that share a word with the question, and of all
        facts the `limit` with the highest cosine. Another fact has no word's score, and a lower cosine than so many."""
        ...

    async def read(self, tx: Transaction, user_id: UUID, fact_ids: Sequence[UUID]) -> Sequence[Fact]:
        """Return these facts of the user, in this order; ids of other users' facts are left out."""
        ...

    async def change(self, tx: Transaction, user_id: UUID, changes: Sequence[FactChange], *, now: datetime) -> Sequence[Fact]:
        """Supersede and add facts; return those added. A free fact whose canonical form holds already is left out.

        Only one value of a key holds: the old one must be among the superseded facts."""
        ...

    async def delete(self, tx: Transaction, user_id: UUID, fact_id: UUID) -> bool:
        """Delete one fact, also if it superseded another or was superseded, and the dreams about it; False if the user has no such fact."""
        ...

    async def share(self, tx: Transaction, user_id: UUID, turn_id: UUID, fact_ids: Sequence[UUID], *, now: datetime) -> Sequence[Fact]:
        """Share facts of the user with the conversation of one of their turns; return those of them that hold. Others are left out."""
        ...

    async def unshare(self, tx: Transaction, user_id: UUID, turn_id: UUID, fact_ids: Sequence[UUID]) -> None:
        """Share them no more with that conversation."""
        ...

    async def shared(self, tx: Transaction, user_id: UUID, conversation_id: UUID, *, now: datetime) -> Sequence[Fact]:
        """Return the facts that the user shares with a conversation and that hold now, oldest first."""
        ...

    async def learnt_in(self, tx: Transaction, user_id: UUID, account: str) -> frozenset[UUID]:
        """Return which facts of a user come from messages to an account; facts without a source turn belong to no account."""
        ...

    async def erase(self, tx: Transaction, user_id: UUID) -> int:
        """Delete all facts and dreams of a user; return how many facts there were."""
        ...

    async def mark_forgotten(
        self, tx: Transaction, user_id: UUID, turn_id: UUID | None, marks: Sequence[tuple[str | None, Sequence[str]]]
    ) -> None:
        """Note what must not be learnt again from messages up to this turn's, each by its key and its words; without a turn, up to now.

        The words are stored as keyed digests, for thirty days: no memory job runs later than that."""
        ...

    async def forgotten_after(self, tx: Transaction, user_id: UUID, turn_id: UUID) -> Sequence[ForgetMark]:
        """Return what the user asked to forget in this turn or in a later one."""
        ...

    async def digests(self, tx: Transaction, user_id: UUID, terms: Sequence[str]) -> Sequence[int]:
        """Return the keyed digests of words, to compare with those of marks."""
        ...

    async def unembedded(self, tx: Transaction, model: str, *, after: UUID | None = None, limit: int = 100) -> Sequence[UnembeddedFact]:
        """Return some free facts that hold and have no vector of this model, by id after `after`. Unreadable facts are left out."""
        ...

    async def embed(self, tx: Transaction, user_id: UUID, fact_id: UUID, embedding: Embedding) -> None:
        """Store the vector of a fact. No change for a fact that is gone."""
        ...

    async def convert_vectors(self, tx: Transaction, *, after: UUID | None = None, limit: int = 100) -> UUID | None:
        """Store some vectors in the way that the operator chose, sealed or plain, by id after `after`, if they are stored in the other way.
        Return the last fact's id; None if there is none left."""
        ...


# --- earlier messages


@dataclass(frozen=True, slots=True)
class PastMessage:
    """A message that the user wrote earlier."""

    text: str
    at: datetime


class PastMessages(Protocol):
    """Earlier messages of users. Fails closed."""

    async def last(self, tx: Transaction, user_id: UUID, *, limit: int = 5) -> Sequence[PastMessage]:
        """Return the user's last messages of sessions that are over, oldest first. Raises UserErased."""
        ...

    async def recent(self, tx: Transaction, user_id: UUID, *, besides: UUID | None, limit: int = 100) -> Sequence[PastMessage]:
        """Return the user's last messages of any session that a model may still be shown, except that of one turn; newest first."""
        ...


# --- dreams: what follows from the facts


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
    """Something worth knowing that Hermes does not know."""


class DreamReview(StrEnum):
    """Whether a line of a dream was accepted."""

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
    """The first day of the period that the dream covers; set by the store."""
    id: UUID = field(default_factory=uuid4)


class Dreams(Protocol):
    """Dreams by user, day and depth. Fails closed; texts are sealed."""

    async def due(self, tx: Transaction, depth: DreamDepth, period: date, *, after: UUID | None = None, limit: int = 100) -> Sequence[UUID]:
        """Return some users who have facts and no dream of this depth for this period, ordered by id, from the id `after` on; for a light
        dream the facts must be new."""
        ...

    async def add(self, tx: Transaction, user_id: UUID, depth: DreamDepth, period: date, dreams: Sequence[Dream], *, now: datetime) -> bool:
        """Store a dream, also an empty one; False, and no change, if this period has a dream already."""
        ...

    async def newest(self, tx: Transaction, user_id: UUID, depth: DreamDepth) -> Sequence[Dream]:
        """Return the accepted lines of the newest dream of a depth, in the order in which they were added."""
        ...

    async def all(self, tx: Transaction, user_id: UUID) -> Sequence[Dream]:
        """Return every line of every dream, oldest first, the rejected ones too."""
        ...

    async def delete(self, tx: Transaction, user_id: UUID, dream_ids: Sequence[UUID]) -> None:
        """Delete lines; ids of other users' lines are left out."""
        ...

    async def review(self, tx: Transaction, user_id: UUID, dream_id: UUID, review: DreamReview, *, reason: str = "") -> bool:
        """Store a person's review of a line; False if the user has no such line."""
        ...


# --- texts as vectors: two texts with nearly the same meaning have nearly the same direction


class EmbeddingsUnavailable(PortError):
    """No vector can be computed now; recall uses the words alone."""


class UnknownTokens(PortError):
    """These token ids are none of the embedding model's own tokenizer."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """A text's vector, of length one, and the model that made it. Vectors of two models are never compared."""

    model: str
    vector: Sequence[float]
    tokens: int | None = None
    """The tokens that the model read; None if it does not tell. Known only for several texts at once, the first has them all."""


class Embeddings(Protocol):
    """An embedding model. Fails open: recall works without it, and rows that have no vector get one later."""

    @property
    def model(self) -> str:
        """The name that every row keeps beside its vector. Another model, or another version of it, has another name."""
        ...

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        ...

    @property
    def weight(self) -> float:
        """How much its cosine counts beside the words of a text, from 0 to 1; measured by `benchmarks/recall.py`."""
        ...

    async def embed(self, texts: Sequence[EmbeddingInput]) -> Sequence[Embedding]:
        """Return the vector of each text, in order. Never blocks the event loop. Raises EmbeddingsUnavailable, and UnknownTokens."""
        ...


# --- the soul: the agent's personality, and what it knows about the user
#
# It has two parts, because they change at different speeds. `system` is the same from turn to turn, so that prompts extend each other and
# the vendor's prompt cache holds. `note` changes with every message; it goes into that turn's user message and stays there.


@dataclass(frozen=True, slots=True)
class SoulLayer:
    """A layer of a prompt, without its text."""

    name: str
    chars: int


@dataclass(frozen=True, slots=True)
class RecalledFact:
    """A fact that recall found for a message, by its id."""

    id: UUID
    score: float


@dataclass(frozen=True, slots=True)
class Soul:
    """What Hermes adds to a turn's prompt."""

    system: str
    """Personality, user facts, fitness context, cross-session context, deep-dream synthesis. User-editable text stands in a data block."""
    note: str | None
    """Time of day in the user's zone, relative times, RELEVANT CONTEXT: for this turn's user message."""
    is_recall_used: bool
    """Whether facts were searched for, found or not."""
    load_ms: int
    timezone: str | None = None
    """The user's own, if they told it: an IANA name."""
    layers: Sequence[SoulLayer] = ()
    """The layers of system message and note, in their order. An empty layer is absent."""
    recalled: Sequence[RecalledFact] = ()
    """The facts that recall found, the best first."""
    opening_note: str | None = None
    """In place of `note` if a trivial message begins a list: with the part of the day and without the minute, so that equal greetings are
    equal requests. None for every other message."""


class Souls(Protocol):
    """Loads souls. Fails open: parts that cannot be loaded are left out, down to the personality alone."""

    async def load(self, user: User, agent: Agent, text: str, *, now: datetime, conversation_id: UUID) -> Soul:
        """Return the soul for one message. Never raises, whatever store is down."""
        ...

    async def for_room(self, user: User, agent: Agent, *, now: datetime, conversation_id: UUID) -> Soul:
        """Return the soul for a message in a room that several people share: the agent's personality, the time, and the facts that the
        message's sender shares with this very room. Nothing else: no recall, no earlier sessions, no dreams, no time zone. Never raises."""
        ...

    async def invalidate(self, user_id: UUID) -> None:
        """Make the next load read what was just written; call it after the commit. Three tries, then an alert. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class CachedSoul:
    """What the soul cache returned: the value, and a mark to pass to `put`."""

    value: bytes | None
    mark: bytes | None
    """None if the cache cannot be reached; then nothing is put."""


class SoulCache(Protocol):
    """The cached part of souls by user, sealed, for an hour."""

    async def get(self, user_id: UUID) -> CachedSoul:
        """Return the cached value. Never raises: a value that cannot be read counts as missing."""
        ...

    async def put(self, user_id: UUID, value: bytes, mark: bytes | None) -> None:
        """Store a value, unless `drop` was called since `mark` was given: the value may be outdated. Never raises."""
        ...

    async def drop(self, user_id: UUID) -> None:
        """Delete the value, and refuse values made before. Raises StoreUnavailable."""
        ...

    @property
    def ttl_s(self) -> int:
        """How long a value is used: so long an outdated value may be shown if `drop` failed."""
        ...
