"""Recognise the chat of a request, and write the answer into its message graph. For clients that send the whole chat with each request.

A client of the OpenAI endpoint sends messages and no name for the chat. Hermes recognises the chat by its own answers in them: a request
joins a chat only through a response that was sampled in it. A difference around that response is an edit, or a compaction if the client
made the chat shorter. A request without any response of ours is a new chat, however similar it looks.

In the plain case only the new messages cost anything, however long the chat is: a digest proves that the recorded list is what the client
sent, and the list grows by the client's new messages and the answer. Otherwise the recorder loads the graph, changes the list to what the
client sent (an edit or a compaction, which keeps every sampled context), and commits the answer to that."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from hermes.gateway.chat_changes import ChatChangeKind, change_between
from hermes.gateway.chat_fingerprints import ChatFingerprinter
from hermes.gateway.chat_request import ChatRequest, clean_message, message_key
from hermes.gateway.quoted_answers import (
    JOINED_BY,
    Evidence,
    find_evidence,
    hint_evidence,
    request_traces,
    strongest,
)
from hermes.gateway.recent_chats import RecentChats
from hermes.gateway.unwritten_answers import UnwrittenAnswers
from hermes.graph import CallRecord, MessageGraph, Overlay, Turn
from hermes.graph.context import KeepReasoning
from hermes.graph.message import METADATA, canonical, canonical_message
from hermes.ports.backends import LOGPROBS, ChatMessage, Completion, RecordedTokens
from hermes.ports.errors import NotFound, PortError
from hermes.ports.models import ModelCall, ModelCalls
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.sessions import NO_TRACES, ChatFingerprint, ChatMatch, ChatTraces, ClientChats, GraphEntry, Graphs

MAX_WAITED_FOR = 2
"""How many of the newest answers that a request shows may be unrecorded yet in another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatStores:
    """Where chats are recorded."""

    chats: ClientChats
    graphs: Graphs
    calls: ModelCalls
    transactions: Transactions
    unwritten: UnwrittenAnswers = field(default_factory=UnwrittenAnswers, init=False, repr=False)
    recent: RecentChats = field(default_factory=RecentChats, init=False, repr=False)


class ChatRecorder:
    """Records the answers to one request. Several answers to the request are several samples in one context, in one chat.

    The only answer to a request need not wait for its record: while the model answers, `look_ahead` looks for the chat, and if the answer
    can be appended to it, `place` says where it will be recorded."""

    def __init__(
        self,
        request: ChatRequest,
        stores: ChatStores,
        *,
        account: str,
        user_id: UUID,
        name: str | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """`name` is the client's own name of the chat; `limits` are the longest answers in tokens, by the models' ids."""
        self._request, self._stores = request, stores
        self._account, self._user_id, self._name = account, user_id, name
        self._fingerprinter = ChatFingerprinter(request.messages)
        self._limits = limits
        self._session_id: UUID | None = None
        self._evidence: tuple[UUID, Evidence] | None = None
        self._request_traces: ChatTraces | None = None
        self._traced: Sequence[UUID] | None = None
        self._context: ShownContext | None = None
        self._turn: Turn | None = None
        self._looking: asyncio.Task[ChatMatch | None] | None = None
        self._place: PlannedRecord | None = None
        self._announced: Sequence[bytes] = ()
        self._is_placed = False

    @contextmanager
    def look_ahead(self) -> Iterator[None]:
        """Look for the chat while the block runs. A chat with a name is locked first, and an answer that the client may fetch again is
        recorded before the client has it."""
        if self._name is None and self._request.kept is None:
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            if not self._is_placed:  # the answer is recorded already, or there is none
                self._withdraw()
            if self._looking is not None:
                self._looking.cancel()
                self._looking.add_done_callback(lambda looking: looking.cancelled() or looking.exception())

    async def _look(self) -> ChatMatch | None:
        """The chat to append to, which may be a new one; None if that is not known before the list is locked."""
        chats, fingerprints = self._stores.chats, self._fingerprinter.fingerprints
        found = await self._recent() if fingerprints else None
        if found is None:
            await self._wait_for_answers()
            if fingerprints:
                found = await chats.look(self._user_id, fingerprints)
            elif not self._hint:
                found = await chats.plan(self._user_id)
        if found is None or not self._can_append(found):
            return None
        # Before the answer can leave, so that no process takes the next request of the chat for one of a new chat.
        self._announced, sent = await chats.announce(self._user_id, self._fingerprinter.shown, found.session_id)
        traces = self._traces()
        if found.is_new and (traces.contexts or traces.spans) and await chats.is_traced(self._user_id, traces):
            return None
        await sent
        return found

    async def _recent(self) -> ChatMatch | None:
        """The chat whose list ends with the newest answer that the request shows, if this process recorded that answer lately. If it is
        recording it now, this waits for the record.

        Not a chat that has moved on: another one of the user may have the same list and still end there, and it is the one to continue."""
        newest, recent = self._fingerprinter.fingerprints[-1], self._stores.recent
        if self._stores.unwritten.has_any(self._user_id):
            await self._stores.unwritten.wait_for(self._user_id, [newest.shown])
        found = recent.find(self._user_id, newest)
        if found is None or await self._stores.chats.is_unchanged(found):
            return found
        recent.forget(self._user_id, found.session_id)
        return None

    async def _wait_for_answers(self) -> None:
        """Wait for the records of the answers that the request shows, or that are in the chat that it names."""
        unwritten, by_id = self._stores.unwritten, None
        if unwritten.has_any(self._user_id):
            await (
                unwritten.wait_for(self._user_id, self._shown_digests()) if self._name is None else unwritten.wait_for_all(self._user_id)
            )
        if self._name is not None:
            with suppress(ValueError):
                by_id = UUID(self._name)
        newest = [fingerprint.context for fingerprint in self._fingerprinter.fingerprints[-MAX_WAITED_FOR:]]
        if newest or by_id is not None:
            await self._stores.chats.wait_for_announced(self._user_id, newest, by_id)

    def _shown_digests(self) -> Iterator[bytes]:
        """The digests by which a request shows an answer that may be unwritten yet."""
        for fingerprint in self._fingerprinter.fingerprints:
            yield fingerprint.shown
            yield fingerprint.echo
        traces = self._traces()
        yield from traces.contexts
        yield from traces.spans

    def _withdraw(self) -> None:
        names, self._announced = self._announced, ()
        self._stores.chats.withdraw(names)

    async def place(self, completion: Completion) -> UUID | None:
        """Return the chat in which an answer will be recorded, and have requests that show it wait for that; None if the answer must be
        recorded first. Never raises."""
        if self._looking is None or self._stores.unwritten.is_full:
            return None
        if not self._looking.done():
            await asyncio.wait([self._looking])
        if self._looking.cancelled() or self._looking.exception() is not None:
            return None  # the client has left; or the record meets the same error, and reports it
        found = self._looking.result()
        if found is None:
            return None
        message = clean_message(completion.message)
        fingerprint = self._fingerprint(found, message)
        self._is_placed = True
        self._place = PlannedRecord(found, message, fingerprint, self._stores.unwritten.add(self._user_id, fingerprint, found.known))
        return found.session_id

    @asynccontextmanager
    async def open_chat(self) -> AsyncIterator[None]:
        """Choose the chat before there is an answer: several answers that come at once must all find the same chat. A chat that was begun
        for them and got none is removed again."""
        await self._wait_for_answers()
        async with self._stores.transactions.begin() as tx:
            self._session_id = (await self._chat(tx)).session_id
        try:
            yield
        except BaseException:
            await asyncio.shield(self._drop_empty(self._session_id))
            raise

    async def record(self, call: ModelCall, completion: Completion) -> UUID:
        """The gateway's CallRecorder: write the call's row and the answer, in one statement if possible, or else in one transaction."""
        place, self._place = self._place, None
        if place is None:
            self._stores.unwritten.hurry()  # so that chats are recorded in the order of their answers
            await self._wait_for_answers()
            session_id = await self.append(call, completion)
        else:
            try:
                await self._stores.unwritten.gather()
                session_id = await self._append(place.chat, place.message, place.fingerprint, call, completion)
                if session_id is None:  # another request of the chat came first
                    self._session_id = place.chat.session_id
                    self._stores.recent.forget(self._user_id, self._session_id)
                    return await self._lock_and_write(call, completion)
            finally:
                place.end()
                self._withdraw()
        return session_id if session_id is not None else await self._lock_and_write(call, completion)

    async def _lock_and_write(self, call: ModelCall, completion: Completion) -> UUID:
        async with self._stores.transactions.begin() as tx:
            await self._stores.chats.hold_user(tx, self._account, self._user_id)
            session_id = await self._write(tx, call, completion)
            await self._stores.calls.add(tx, replace(call, session_id=session_id))
        return session_id

    async def append(self, call: ModelCall, completion: Completion) -> UUID | None:
        """Append call and answer in one statement; None, and nothing is written, if the list has to be changed or locked first."""
        if self._session_id is not None or self._name is not None:
            return None
        chats, fingerprints = self._stores.chats, self._fingerprinter.fingerprints
        found = await chats.look(self._user_id, fingerprints) if fingerprints else None
        if found is not None and not self._can_append(found):
            return None
        if found is None and self._hint:
            return None  # a chat has to be looked for by more than that
        message = clean_message(completion.message)
        unless = NO_TRACES if found is not None else self._traces()
        return await self._append(found, message, self._fingerprint(found, message), call, completion, unless=unless)

    async def _append(
        self,
        found: ChatMatch | None,
        message: ChatMessage,
        fingerprint: ChatFingerprint | None,
        call: ModelCall,
        completion: Completion,
        *,
        unless: ChatTraces = NO_TRACES,
    ) -> UUID | None:
        chats, before = self._stores.chats, found or await self._stores.chats.plan(self._user_id)
        entries = self._entries(found, message, call, completion)
        now = await chats.add(self._user_id, before, entries, fingerprint, call, unless=unless)
        if now is None:
            return None
        self._stores.recent.note(self._user_id, now, before)
        return now.session_id

    async def _drop_empty(self, session_id: UUID) -> None:
        # This waits for no recording: an answer that is being recorded locks the chat's row, and a chat with an answer is not empty.
        with suppress(PortError):
            async with self._stores.transactions.begin() as tx:
                await self._stores.chats.drop_empty(tx, self._user_id, session_id)

    async def _write(self, tx: Transaction, call: ModelCall, completion: Completion) -> UUID:
        message, found = clean_message(completion.message), await self._chat(tx)
        if self._session_id is None and self._can_append(found):
            entries, fingerprint = self._entries(found, message, call, completion), self._fingerprint(found, message)
            head: str | None = (await self._stores.graphs.append(tx, found.session_id, found.head, entries)).head
        else:
            head, fingerprint = await self._commit(tx, found, message, call, completion)
        if fingerprint is not None:
            await self._stores.chats.note(tx, self._user_id, found.session_id, head, fingerprint)
        return found.session_id

    def _fingerprint(self, found: ChatMatch | None, message: ChatMessage) -> ChatFingerprint | None:
        """The fingerprint of the longer list. If the client did not send the list's reasoning, it is not known here: then `whole` is random
        bytes, which match nothing."""
        fingerprint = self._fingerprinter.fingerprint_after(message)
        if fingerprint is None or found is None or not found.hides_reasoning:
            return fingerprint
        return replace(fingerprint, whole=os.urandom(32))

    async def _chat(self, tx: Transaction) -> ChatMatch:
        chats, fingerprints = self._stores.chats, self._fingerprinter.fingerprints
        if self._session_id is not None:
            found = await chats.get(tx, self._user_id, self._session_id, fingerprints)
        elif self._name is not None:
            found = await chats.find_or_begin(tx, self._account, self._user_id, self._name, fingerprints)
        else:
            found = await chats.find(tx, self._user_id, fingerprints) or await self._find_hinted(tx) or await self._join(tx)
        return found if found is not None else await chats.begin(tx, self._account, self._user_id, self._hint)

    @property
    def _hint(self) -> bytes:
        """The client's own name of the chat, with the system prompt, because its subagents may use the same name; empty without one."""
        key = self._request.cache_key
        return f"{key}/".encode() + self._fingerprinter.system if key else b""

    async def _find_hinted(self, tx: Transaction) -> ChatMatch | None:
        if not self._hint:
            return None
        found = await self._stores.chats.find_by_hint(tx, self._account, self._user_id, self._hint, self._fingerprinter.fingerprints)
        if found is not None:
            self._evidence = found.session_id, hint_evidence(self._request.messages, "prompt_cache_key")
        return found

    def _traces(self) -> ChatTraces:
        """What the request may show of a chat that it rewrites or summarises. Without a message of ours and a long text it has no trace."""
        if self._request_traces is None:
            shown, messages = self._fingerprinter, self._request.messages
            self._request_traces = request_traces([mark.context for mark in shown.fingerprints], shown.system, messages)
        return self._request_traces

    async def _trace(self) -> Sequence[UUID]:
        """The chats that the request may rewrite or summarise."""
        if self._traced is None:
            traces = self._traces()
            self._traced = await self._stores.chats.trace(self._user_id, traces) if traces.contexts or traces.spans else ()
        return self._traced

    async def _join(self, tx: Transaction) -> ChatMatch | None:
        """The chat that the request rewrites or summarises, locked, if exactly one of those that left a trace is proved to be it."""
        if self._evidence is None:
            found = [(chat, evidence) for chat in await self._trace() if (evidence := await self._prove(tx, chat)) is not None]
            self._evidence = strongest(found)
            if self._evidence is None:
                return None
        return await self._stores.chats.get(tx, self._user_id, self._evidence[0])

    async def _prove(self, tx: Transaction, chat: UUID) -> Evidence | None:
        try:
            return find_evidence(await self._stores.graphs.load(tx, chat), self._request.messages)
        except NotFound:
            return None

    def _can_append(self, found: ChatMatch) -> bool:
        """Whether the list is what the client sent, up to its new messages, and was sent with all of its reasoning or with none."""
        if found.known is None:
            return found.is_new
        return found.has_reasoning or not shows_reasoning(self._request.messages[found.known.length :])

    def _entries(self, found: ChatMatch | None, message: ChatMessage, call: ModelCall, completion: Completion) -> list[GraphEntry]:
        """The entries to append: the client's new messages, and the answer."""
        known = found.known.length if found is not None and found.known is not None else 0
        new = self._request.messages[known:]
        is_whole = (found is not None and found.has_reasoning) or shows_reasoning(new)
        keep: KeepReasoning = "all" if is_whole and completion.is_reasoning_sent else "none"
        record = record_of(self._request, call, completion, self._limits)
        return [*map(GraphEntry, new), GraphEntry(message, is_sampled=True, call=record, keep_reasoning=keep)]

    async def _commit(
        self, tx: Transaction, found: ChatMatch, message: ChatMessage, call: ModelCall, completion: Completion
    ) -> tuple[str | None, ChatFingerprint | None]:
        """Change the list to what the client sent, and record the answer to that. Return the list's head, if the list ends with the
        answer, and its fingerprint."""
        graph = await self._stores.graphs.load(tx, found.session_id)
        if self._context is None:
            self._context = recorded_context(graph, self._request.messages)
            edit_to_match(graph, self._context.messages, self._evidence[1] if self._evidence is not None else None)
            self._turn = graph.prepare(self._request.tools or None)
        assert self._turn is not None  # noqa: S101  # set together with the context
        keep = self._context.keep if completion.is_reasoning_sent else "none"
        turn = Turn(self._turn.nodes, replace(self._turn.overlay, keep_reasoning=keep), self._turn.seed)
        before = len(graph)
        graph.commit(turn, message, record_of(self._request, call, completion, self._limits))
        head = await self._stores.graphs.save(tx, found.session_id, found.head, graph)
        return head if len(graph) > before else None, ChatFingerprinter(self._context.messages).fingerprint_after(message)


@dataclass(frozen=True, slots=True)
class PlannedRecord:
    """Where an answer will be recorded that its client has already."""

    chat: ChatMatch
    message: ChatMessage
    fingerprint: ChatFingerprint | None
    end: Callable[[], None]
    """Lets the requests go on that wait for the record."""


@dataclass(frozen=True, slots=True)
class ShownContext:
    """The messages that a client sent, in their recorded form, and how much of their reasoning the client sent."""

    messages: list[ChatMessage]
    keep: KeepReasoning


def recorded_context(graph: MessageGraph, shown: Sequence[ChatMessage]) -> ShownContext:
    """The client's messages, with our own responses as they were recorded, reasoning included.

    If the client sent neither none nor all nor this turn's reasoning, its messages are recorded as it sent them."""
    ours = {message_key(response.message): response.message for response in graph.responses()}
    here = {at: message for at, message in enumerate(graph) if message["role"] == "assistant"}
    whole = [recorded_message(message, message_key(message), here.get(at), ours) for at, message in enumerate(shown)]
    target = [canonical(message) for message in shown]
    for keep in ("none", "all", "current_turn"):
        if [canonical(message) for message in Overlay(keep_reasoning=keep).render(whole)] == target:
            return ShownContext(whole, keep)
    return ShownContext(list(shown), "all")


def recorded_message(message: ChatMessage, key: bytes, here: ChatMessage | None, ours: Mapping[bytes, ChatMessage]) -> ChatMessage:
    """The recorded form of a message: the message at the same place of the list, or else one of our responses. Of two responses with the
    same text and other reasoning, the one at the same place counts."""
    if message["role"] != "assistant":
        return message
    if here is not None and message_key(here) == key:
        return dict(here)
    return ours.get(key, message)


def edit_to_match(graph: MessageGraph, target: Sequence[ChatMessage], evidence: Evidence | None = None) -> None:
    """Change the list to these messages, in one edit. With evidence its kind is the evidence's, and the message that shows it says so."""
    if evidence is not None:
        noted = {**target[evidence.at], METADATA: {JOINED_BY: {"edge": evidence.kind, **evidence.facts}}}
        target = [*target[: evidence.at], noted, *target[evidence.at + 1 :]]
    change = change_between(list(graph), target, canonical_message)
    if change.kind in (ChatChangeKind.EDIT, ChatChangeKind.COMPACTION):
        kind = change.kind if evidence is None else evidence.kind
        graph.replace(slice(change.start, change.stop), change.messages, kind=kind)
    graph.extend(change.tail, sampled=False)


def shows_reasoning(messages: Sequence[ChatMessage]) -> bool:
    return any("reasoning" in message for message in messages)


def record_of(request: ChatRequest, call: ModelCall, completion: Completion, limits: Mapping[str, int] | None = None) -> CallRecord:
    """The call as the graph keeps it: the request's parameters, the server's answer, its cost."""
    about = {
        "call_id": str(call.id),
        "backend": call.backend,
        "latency_ms": call.latency_ms,
        "first_token_ms": call.first_token_ms,
        "micro_usd": call.micro_usd,
        "metadata": request.metadata,
        "response": kept_of(request, completion),
        "thinking_sent": sorted(request.thinking),
        **{name: value for name, value in completion.extra.items() if name != LOGPROBS},
    }
    token_limits = [limit for limit in (request.max_tokens, (limits or {}).get(call.model)) if limit is not None]
    parameters = {
        "max_tokens": min(token_limits) if token_limits else None,
        "tool_choice": request.tool_choice,
        "response_format": request.response_format,
    }
    tokens = RecordedTokens.of(
        model=completion.model,
        prompt_token_ids=completion.prompt_token_ids,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
        logprob_mode=completion.logprob_mode,
        derived=completion.derived,
    )
    # The client names the weights of the model that it asked for; another model of the chain has others.
    label = request.metadata.get("policy_version") if len({each.model for each in call.attempts}) <= 1 else None
    derived = [*tokens.derived, *(["policy_version"] if label is not None and completion.policy_version is None else [])]
    sampling = request.sampling if completion.sampling is None else completion.sampling
    not_sent = [name for name in request.sampling if name not in sampling]
    return CallRecord(
        model=completion.model,
        policy_version=label if completion.policy_version is None else completion.policy_version,
        sampling={**sampling, **{name: value for name, value in parameters.items() if value is not None}},
        finish_reason=completion.finish_reason,
        usage=completion.usage.to_record(),
        raw_text=completion.raw_text,
        tools=request.tools or None,
        request_digest=completion.request_digest or None,
        **tokens.fields,
        sample_id=str(call.id),
        extra={name: value for name, value in {**about, "derived": derived, "not_sent": not_sent}.items() if value not in (None, {}, [])},
    )


def kept_of(request: ChatRequest, completion: Completion) -> Mapping[str, Any] | None:
    """What is kept so that the client can ask for the answer again, or continue it: the thinking that the vendor then wants back, too."""
    if request.kept is None:
        return None
    thinking = completion.message.get("thinking_blocks")
    return request.kept if thinking is None else {**request.kept, "thinking": thinking}
