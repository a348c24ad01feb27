"""What is remembered of a conversation: its session, the graph and the hot history of that session, and the record of every turn."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import UUID

from hermes.graph.response import sent_id
from hermes.graph.stored_graph import history_of
from hermes.ports.runtime import Transaction
from hermes.ports.session import Session

if TYPE_CHECKING:
    from hermes.graph import CallRecord, MessageGraph
    from hermes.graph.context import KeepReasoning
    from hermes.ports.inbox import Claim, ClaimedTurn
    from hermes.ports.models import ModelCall

# --- sessions: the part of a conversation between two long silences, recorded in one message graph


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Which sessions: those that match every field that is set."""

    names: tuple[str, ...] = ()
    """Ids of sessions, conversations or channels, or the chat names of completions clients; () for all sessions."""
    since: datetime | None = None
    """The last message was then or later."""
    account: str | None = None


@dataclass(frozen=True, slots=True)
class UserNodes:
    """What one user's turns added to the graph of a session: the ids, without the text."""

    session_id: UUID
    nodes: frozenset[str]
    """The messages of their turns, answers and tool results included, by the ids of `AppendResult.nodes`."""
    others: frozenset[str]
    """The messages of all other users' turns."""
    news: frozenset[str] = frozenset()
    """The names of the proactive messages in it that the user had asked for."""


class Sessions(Protocol):
    """Sessions of conversations. Fails closed."""

    async def current(self, tx: Transaction, conversation_id: UUID, user_id: UUID, *, is_shared: bool = False) -> Session:
        """Return the session that a message belongs to now, and note the time. A new session begins after 12 h (a setting) of silence,
        after the session was ended, and if `is_shared` differs from the session's: a private list is never shown to a room.

        A new session starts with an empty list and knows its predecessor. Two calls at once make one session. It is sealed for the user
        who opened the conversation; if that user was deleted, a new session begins, sealed for `user_id`, who writes now. Raises NotFound,
        and UserErased if `user_id` was deleted too."""
        ...

    async def find_current(self, tx: Transaction, conversation_id: UUID, *, is_shared: bool = False) -> Session | None:
        """Return the session that a message belongs to now, and note the time; None if a new session must begin. One write."""
        ...

    async def get(self, tx: Transaction, session_id: UUID) -> Session:
        """Return a session; raise NotFound."""
        ...

    async def find(self, tx: Transaction, query: SessionQuery) -> Sequence[UUID]:
        """Return the ids of the sessions that match the query, in the order of their beginning, each once.

        A chat name that several clients use stands for all of those chats. Raises NotFound for an unknown name or account; a known one
        without a matching session gives none."""
        ...

    async def begin(self, tx: Transaction, session: Session, user_id: UUID) -> Session:
        """End a session that cannot be continued, and return the one that replaces it, with an empty list."""
        ...

    async def end(self, tx: Transaction, user_id: UUID) -> Sequence[UUID]:
        """End every session of the conversations that a user opened or wrote in; return those that were not ended before.

        The next message of any user begins a new session with an empty list, and the messages of this user until now are not carried over
        into later sessions either. A turn that is under way still ends in the list in which it began."""
        ...

    async def user_nodes(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> Sequence[UserNodes]:
        """Return which messages of a user are in graphs that outlive the user's key, because they are sealed for another user.

        With an account: in the graphs of that account, also in those sealed for the user in which other users wrote too. Sessions noted
        as erased are left out, and so are those that cannot be read any more."""
        ...

    async def note_erased(self, tx: Transaction, user_id: UUID, session_id: UUID) -> None:
        """Note that a user's words were erased from a session's graph."""
        ...

    async def may_train(self, tx: Transaction, session_id: UUID) -> bool:
        """Whether all users who wrote in a session allow training now. A deleted user does not.

        Raises NotFound, and UserErased if the session's owner was deleted."""
        ...


# --- stored message graphs: what each model was shown, sealed, each message once


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """One message to append. With `is_sampled`, a model sampled it in exactly the context before it."""

    message: Mapping[str, Any]
    is_sampled: bool = False
    call: CallRecord | None = None
    """How it was sampled; implies `is_sampled`."""
    sample_id: str | None = None
    """The journal's key for the sample; the same id twice is the same sample. Implies `is_sampled`, and becomes the call's `sample_id`."""
    keep_reasoning: KeepReasoning = "none"
    """Which earlier reasoning the model was shown when it sampled this."""
    system: str | None = None
    """The system prompt that the model was shown beside the list when it sampled this: the soul. Makes no version."""
    without_tools: bool = False
    """The model was shown the list without tool calls and results. If the list has some, the sample is on a branch without them, and the
    list goes on with a copy."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The state of a list after messages were appended."""

    head: str
    nodes: tuple[str, ...] = ()
    """The ids of the messages that were appended, in their order; the last one is the head."""
    contexts: tuple[str, ...] = ()
    """For each sample among them, in their order, the id of the context in which it was sampled: exactly what was sent."""

    @classmethod
    def to(cls, graph: MessageGraph, count: int) -> Self:
        """Return the result after the last `count` messages of a graph were appended."""
        history, before = history_of(graph), len(graph) - count
        place = history.place_of(history.live)
        nodes = tuple(history.id_of(place, at).hex() for at in range(before + 1, len(graph) + 1))
        slots = sorted((at, samples[-1]) for at, samples in history.slots().items() if at >= before)
        return cls(graph.head, nodes, tuple(sent_id(history.id_of(place, at), sample.overlay) for at, sample in slots))


class Graphs(Protocol):
    """The message graphs of sessions. Fails closed. A graph comes back as it was: versions, responses, annotations, ids."""

    async def append(self, tx: Transaction, session_id: UUID, head: str, entries: Sequence[GraphEntry]) -> AppendResult:
        """Append to the current list and return its new state. The cost depends on what is appended, not on the length of the list.

        Works as MessageGraph.append does, entry by entry; so a sample that the list ends with already is not appended again. Raises
        StaleHead if `head` is not the stored list's head any more, NotFound, UserErased, and SampleConflict if a sample id is known with
        other content; then nothing is written."""
        ...

    async def compact(self, tx: Transaction, session_id: UUID, head: str, count: int, entries: Sequence[GraphEntry]) -> AppendResult:
        """Remove the first `count` messages from the list, as a compaction, then append, and return the new state. Raises as `append` does.

        Responses that were sampled with those messages keep their context in a version of their own."""
        ...

    async def load(self, tx: Transaction, session_id: UUID) -> MessageGraph:
        """Return the whole graph. Raises NotFound, UserErased if its key is gone, and DataDamaged."""
        ...

    async def save(self, tx: Transaction, session_id: UUID, head: str, graph: MessageGraph) -> str:
        """Store all changes of a graph that was loaded when the stored head was `head`: edits, versions, samples, annotations, erasures.

        Return the new head; the same graph can then be changed and saved again. Writes what changed, each message once; content that no
        version has any more is removed. Raises StaleHead if the graph was written in between, even if the head is the same again; then
        nothing is written. A graph whose transaction rolled back is stale too: load it again. Raises ValueError for a graph that was
        not loaded from this session: a copy of a loaded graph can be saved, a graph read from JSON cannot."""
        ...


# --- the hot copy of a session's last messages, so that a turn need not read the graph


@dataclass(frozen=True, slots=True)
class RecentHistory:
    """The last messages of a session's current list, oldest first, and the head they lead to."""

    messages: tuple[Mapping[str, Any], ...]
    head: str
    offset: int = 0
    """How many messages of the list stand before these. A model is not shown those."""
    mark: bytes | None = field(default=None, compare=False, repr=False)
    """The end of the hot copy from which this was read, if it was: by it the store extends the copy without reading it again."""


class Histories(Protocol):
    """Hot histories by conversation key, sealed. Fails open: without Redis every read comes from the graph store, every write is left out.

    Call it outside of any transaction, so that no caller waits for Redis while it locks a row."""

    async def read(self, conversation_key: str, session: Session) -> RecentHistory:
        """Return the last messages of the session, without `metadata`; from the graph store if no hot copy is at the session's head.

        The oldest messages are dropped only in large steps, so that one turn's prompt extends the one before.
        Raises NotFound, UserErased and DataDamaged."""
        ...

    async def append(
        self, conversation_key: str, session: Session, before: RecentHistory, messages: Sequence[Mapping[str, Any]], *, head: str
    ) -> None:
        """Add the messages that were just committed to the hot copy whose head was `before.head`. Never raises; a copy with another head
        is dropped."""
        ...

    async def drop(self, session_ids: Sequence[UUID]) -> None:
        """Delete the hot copies of sessions. Never raises: a copy that cannot be deleted now stays sealed, and expires."""
        ...


# --- chats of completions clients: a chat that the client does not name is found again by the responses that were sampled in it


@dataclass(frozen=True, slots=True)
class ChatTraces:
    """Digests of what is left of a response if its client rewrites or summarises the chat. All have the system prompt in them. The store
    keys them with the user's own key."""

    contexts: tuple[bytes, ...] = ()
    """Of lists in which a response was sampled."""
    spans: tuple[bytes, ...] = ()
    """Of spans of words."""


NO_TRACES = ChatTraces()


@dataclass(frozen=True, slots=True)
class ChatFingerprint:
    """Digests by which a chat is recognised after one of its responses. The store keys them with the user's own key."""

    length: int
    """How many messages the list has up to there, the response included."""
    shown: bytes
    """Digest of the list without its reasoning."""
    whole: bytes
    """Digest of the list with its reasoning."""
    echo: bytes
    """Digest of the response alone; of a short one, with the message before it."""
    context: bytes = b""
    """Digest of the list before the response, without reasoning."""
    traces: ChatTraces = field(default_factory=ChatTraces)
    """By what the response is recognised where it is not shown word for word. Stored with a new response; not looked for."""


@dataclass(frozen=True, slots=True)
class ChatMatch:
    """A chat that a request belongs to. Its row is locked until the transaction ends, so no other request writes in it meanwhile."""

    session_id: UUID
    head: str
    """The context id of its current list."""
    known: ChatFingerprint | None = None
    """The place in the request up to which the client sent exactly the current list; None if the list must be compared."""
    is_new: bool = False
    has_reasoning: bool = False
    """Whether the client also sent the reasoning of that list. Means nothing if the list has none."""
    hides_reasoning: bool = False
    """Whether the list has reasoning, and the client sent none of it."""
    seed: bytes = b""
    """Of a chat that is only planned: what the store begins it with."""


class AnnouncedAnswers(Protocol):
    """Answers that may leave before they are recorded, shared by all processes."""

    def announce(self, names: Sequence[bytes]) -> Awaitable[None]:
        """Announce an answer by its names. The answer may leave when what is returned is done; that raises if the store is away."""
        ...

    def withdraw(self, names: Sequence[bytes]) -> None:
        """Say that it is recorded now, or that it never will be. Never raises."""
        ...

    async def wait_for(self, names: Sequence[bytes]) -> None:
        """Wait until no answer with one of these names is announced; at most about a second, because its process may have been killed.
        Never raises."""
        ...


class ClientChats(Protocol):
    """The chats of the completions endpoint. Fails closed."""

    async def find(self, tx: Transaction, user_id: UUID, fingerprints: Sequence[ChatFingerprint]) -> ChatMatch | None:
        """Return the user's chat that a request with these fingerprints belongs to; None for a new one. Locks it.

        A chat matches if its list is in the request up to a response, word for word; of several, the longest wins, then one that ends
        there, then the newest. If none matches, the newest response in the request that was given in one chat only decides: an answer that
        several chats have says nothing. Raises UserErased."""
        ...

    async def look(self, user_id: UUID, fingerprints: Sequence[ChatFingerprint]) -> ChatMatch | None:
        """As `find`, in a transaction of its own and without a lock: the result may be outdated when it is used."""
        ...

    async def is_unchanged(self, chat: ChatMatch) -> bool:
        """Whether the list of a chat that was found earlier still ends where it ended then. Takes no lock."""
        ...

    async def trace(self, user_id: UUID, traces: ChatTraces) -> Sequence[UUID]:
        """Return the user's chats in which responses with such traces were sampled, the likeliest first, at most four: the longest list
        first, then the most spans. A span that responses of several chats have does not count. Takes no lock. Raises UserErased."""
        ...

    async def is_traced(self, user_id: UUID, traces: ChatTraces) -> bool:
        """Whether `trace` would find a chat. Raises UserErased."""
        ...

    async def announce(self, user_id: UUID, context: bytes, session_id: UUID) -> tuple[Sequence[bytes], Awaitable[None]]:
        """Announce an answer to this list (its digest) in this chat. Return the names to withdraw it by, and what to wait for before the
        answer can leave."""
        ...

    def withdraw(self, names: Sequence[bytes]) -> None:
        """Say that an announced answer is recorded, or never will be. Never raises."""
        ...

    async def wait_for_announced(self, user_id: UUID, contexts: Sequence[bytes], session_id: UUID | None = None) -> None:
        """Wait until no answer to one of these lists, or in this chat, is announced any more by any process. Raises UserErased."""
        ...

    async def plan(self, user_id: UUID) -> ChatMatch:
        """Return a chat that `add` begins with its first response; nothing is written before. Raises UserErased."""
        ...

    async def add(
        self,
        user_id: UUID,
        chat: ChatMatch,
        entries: Sequence[GraphEntry],
        fingerprint: ChatFingerprint | None,
        call: ModelCall,
        *,
        unless: ChatTraces = NO_TRACES,
    ) -> ChatMatch | None:
        """Append to a chat that `look` found, or begin one that was planned, and record the response and its call: all of it, or nothing.

        Return the chat with its new list; None if it has changed since `look`, and if one was to be begun although a response of the user
        has one of the traces `unless`."""
        ...

    async def get(self, tx: Transaction, user_id: UUID, session_id: UUID, fingerprints: Sequence[ChatFingerprint] = ()) -> ChatMatch | None:
        """Return one of the user's chats by its id; None if there is none. Locks it."""
        ...

    async def find_or_begin(
        self, tx: Transaction, account: str, user_id: UUID, name: str, fingerprints: Sequence[ChatFingerprint]
    ) -> ChatMatch:
        """Return the chat that the client names, and begin it if there is none; the messages of the request do not matter. Locks it.

        `name` may be the id of one of the user's chats."""
        ...

    async def find_by_hint(
        self, tx: Transaction, account: str, user_id: UUID, hint: bytes, fingerprints: Sequence[ChatFingerprint]
    ) -> ChatMatch | None:
        """Return the chat that was begun with this hint, and lock it; None if there is none. Until the transaction ends, no other
        transaction begins one."""
        ...

    async def begin(self, tx: Transaction, account: str, user_id: UUID, hint: bytes = b"") -> ChatMatch:
        """Begin a chat with an empty list. `hint` is something by which it may be found again; it is stored as a digest under the user's
        key. Raises UserErased."""
        ...

    async def hold_user(self, tx: Transaction, account: str, user_id: UUID) -> None:
        """Lock the user against erasure until the transaction ends. Raises UserErased if the account does not know the user any more."""
        ...

    async def drop_empty(self, tx: Transaction, user_id: UUID, session_id: UUID) -> None:
        """Delete a chat that never had a message; no change for any other chat."""
        ...

    async def note(self, tx: Transaction, user_id: UUID, session_id: UUID, head: str | None, fingerprint: ChatFingerprint) -> None:
        """Store the fingerprint of a response. `head` is the head of the list that ends with the response; None if the list does not."""
        ...


# --- the journal: what a turn did, step by step
#
# It records paid and outward effects, so that a turn that runs again does not repeat them.


class EffectProgress(StrEnum):
    """How far an effect got, as far as the journal knows."""

    NEW = "new"
    """Never tried before; it is noted as started now."""
    STARTED = "started"
    """An earlier attempt started it and did not note how it ended: it may have happened."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect of a turn as the journal knows it."""

    progress: EffectProgress
    request: bytes
    """The request prepared before the first try; a later try uses it unchanged."""
    result: bytes | None


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """One entry of the journal, for reading."""

    step: str
    index: int
    type: str
    attempt: int
    started_at: datetime
    done_at: datetime | None
    facts: Mapping[str, Any]
    """Numbers and names, never message text."""
    epoch: int | None = None
    """The epoch of the claim that wrote it. None for an event that was added after the turn, and in rows of an earlier version."""
    has_content: bool = False
    """Whether the journal still has its request or its result, sealed."""


@dataclass(frozen=True, slots=True)
class JournalNote:
    """An event that is no effect, and when it happened: as time before now, so that the store's clock alone counts."""

    type: str
    facts: Mapping[str, Any]
    """Numbers and names, never message text."""
    began_ago_us: int = 0
    ended_ago_us: int = 0


@dataclass(frozen=True, slots=True)
class EmptiedBatch:
    """What one batch of the journal's retention did."""

    last_id: int
    """The next batch begins after it."""
    emptied: int
    has_more: bool


class Journal(Protocol):
    """The effects and events of turns, sealed. Fails closed: an effect that cannot be noted is not started."""

    async def begin(self, tx: Transaction, claim: Claim, step: str, index: int, request: bytes) -> Effect:
        """Note that an effect is about to start, or return what is known of it. An effect that an earlier attempt left open belongs to this
        attempt from now on. Raises ClaimLost if the claim no longer stands."""
        ...

    async def finish(self, tx: Transaction, claim: Claim, step: str, index: int, result: bytes, *, facts: Mapping[str, Any]) -> bytes:
        """Note how an effect ended, and return the result that stands: the first one noted, by whichever attempt. From then on the effect
        belongs to that attempt. `facts["us"]` is how long it took."""
        ...

    async def has_result(self, tx: Transaction, claim: Claim, step: str, index: int) -> bool:
        """Whether an effect has ended, in any attempt."""
        ...

    async def note(self, tx: Transaction, claim: Claim, notes: Sequence[JournalNote]) -> None:
        """Add events that are no effects: user_resolved, credit_reserved, tools_gated, … The caller's transaction holds the claim."""
        ...

    async def note_failed(self, tx: Transaction, claim: ClaimedTurn, notes: Sequence[JournalNote]) -> None:
        """Add the events of an attempt that leaves its turn open. No change if the turn has ended, or if the claim no longer stands: then
        the next claim has noted that this attempt was cut off."""
        ...

    async def add(self, tx: Transaction, turn_id: UUID, type_: str, facts: Mapping[str, Any]) -> None:
        """Add an event to a turn that has ended: memory_saved. No change for an unknown turn."""
        ...

    async def effect(self, tx: Transaction, turn_id: UUID, step: str, index: int) -> Effect | None:
        """Return what is known of an effect, for callers outside of the turn; None for one that never began, or whose user was erased."""
        ...

    async def read(self, tx: Transaction, turn_id: UUID) -> Sequence[JournalEvent]:
        """Return the events of a turn in the order in which they were noted. In the order of the steps: TurnTimelines."""
        ...

    async def empty(self, tx: Transaction, *, ended_before: datetime, after_id: int, limit: int) -> EmptiedBatch:
        """Empty the requests and results of turns that ended before a time, what their tools brought, and what replays of them answered:
        one batch of at most `limit` entries after `after_id` that still have content. Their facts stay. Turns that have not ended are
        never touched.

        An emptied effect counts as none for `effect`; no attempt can meet one, because a turn that has ended is not claimed."""
        ...


# --- one row per answered turn: its user, its session, and how the answer was made


class Interactions(Protocol):
    """The log of answered turns. Fails closed, as part of the turn's last transaction."""

    async def add(self, tx: Transaction, claim: Claim, session_id: UUID, meta: Mapping[str, Any]) -> None:
        """Log a turn with its provenance: times, backend, tools, tokens, cost. Repeating it adds nothing. No message text."""
        ...

    async def withdraw(self, tx: Transaction, turn_id: UUID) -> None:
        """Remove a turn from the log, because it will end again."""
        ...
