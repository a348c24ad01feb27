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
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any
from uuid import UUID

from hermes.gateway.chat_request import ChatRequest, clean_message, message_key
from hermes.graph import CallRecord, MessageGraph, Overlay, Turn, edit
from hermes.graph.context import KeepReasoning
from hermes.graph.message import canonical
from hermes.ports.backends import LOGPROBS, ChatMessage, Completion, Usage
from hermes.ports.errors import PortError
from hermes.ports.models import ModelCall, ModelCalls
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.sessions import ChatFingerprint, ChatMatch, ClientChats, GraphEntry, Graphs


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatStores:
    """Where chats are recorded."""

    chats: ClientChats
    graphs: Graphs
    calls: ModelCalls
    transactions: Transactions


class ChatRecorder:
    """Records the answers to one request. Several answers to the request are several samples in one context, in one chat."""

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
        self._context: ShownContext | None = None
        self._turn: Turn | None = None

    @asynccontextmanager
    async def open_chat(self) -> AsyncIterator[None]:
        """Choose the chat before there is an answer: several answers that come at once must all find the same chat. A chat that was begun
        for them and got none is removed again."""
        async with self._stores.transactions.begin() as tx:
            self._session_id = (await self._chat(tx)).session_id
        try:
            yield
        except BaseException:
            await asyncio.shield(self._drop_empty(self._session_id))
            raise

    async def record(self, call: ModelCall, completion: Completion) -> UUID:
        """The gateway's CallRecorder: write the call's row and the answer, in one statement if possible, or else in one transaction."""
        session_id = await self.append(call, completion)
        if session_id is None:
            async with self._stores.transactions.begin() as tx:
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
        message = clean_message(completion.message)
        entries = self._entries(found, message, call, completion)
        return await chats.add(self._user_id, found, entries, self._fingerprint(found, message), call)

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
            found = await chats.find(tx, self._user_id, fingerprints)
        return found if found is not None else await chats.begin(tx, self._account, self._user_id)

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
            edit_to_match(graph, self._context.messages)
            self._turn = graph.prepare(self._request.tools or None)
        assert self._turn is not None  # noqa: S101  # set together with the context
        keep = self._context.keep if completion.is_reasoning_sent else "none"
        turn = Turn(self._turn.nodes, replace(self._turn.overlay, keep_reasoning=keep), self._turn.seed)
        before = len(graph)
        graph.commit(turn, message, record_of(self._request, call, completion, self._limits))
        head = await self._stores.graphs.save(tx, found.session_id, found.head, graph)
        return head if len(graph) > before else None, ChatFingerprinter(self._context.messages).fingerprint_after(message)


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


def edit_to_match(graph: MessageGraph, target: Sequence[ChatMessage]) -> None:
    """Change the list to these messages, in one edit."""
    change = change_between(list(graph), target, canonical)
    if change.kind in (ChatChangeKind.EDIT, ChatChangeKind.COMPACTION):
        graph.replace(slice(change.start, change.stop), change.messages, kind=change.kind)
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
        **{name: value for name, value in completion.extra.items() if name != LOGPROBS},
    }
    token_limits = [limit for limit in (request.max_tokens, (limits or {}).get(call.model)) if limit is not None]
    parameters = {
        "max_tokens": min(token_limits) if token_limits else None,
        "tool_choice": request.tool_choice,
        "response_format": request.response_format,
    }
    return CallRecord(
        model=completion.model,
        policy_version=request.metadata.get("policy_version"),
        sampling={**request.sampling, **{name: value for name, value in parameters.items() if value is not None}},
        finish_reason=completion.finish_reason,
        usage=usage_of(completion.usage),
        raw_text=completion.raw_text,
        tools=request.tools or None,
        request_digest=completion.request_digest or None,
        tokenizer=completion.model if completion.token_ids is not None else None,
        prompt_token_ids=completion.prompt_token_ids,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs if completion.token_ids is not None else None,
        sample_id=str(call.id),
        extra={name: value for name, value in about.items() if value not in (None, {})},
    )


def usage_of(usage: Usage) -> dict[str, Any]:
    """The counts under the names that exports look for. Our own estimates are not a server's counts and have other names."""
    if usage.is_estimated:
        return {"estimated_prompt_tokens": usage.tokens_in, "estimated_completion_tokens": usage.tokens_out}
    cached = {"cache_read": usage.cache_read, "cache_write": usage.cache_write, "cache_write_1h": usage.cache_write_1h}
    return {
        "prompt_tokens": usage.tokens_in,
        "completion_tokens": usage.tokens_out,
        **{name: count for name, count in cached.items() if count},
    }


# --- how a chat is recognised, and what the client changed in it. Pure: messages in, decisions out


class ChatChangeKind(StrEnum):
    """What a client changed in the chat since its last request. The last two are kinds of edges in the graph."""

    NOTHING = "nothing"
    EXTENDED = "extended"
    EDIT = edit.EDIT
    COMPACTION = edit.COMPACTION


@dataclass(frozen=True, slots=True)
class ChatChange:
    """Replace `current[start:stop]` by `messages`, append `tail`, and the list is what the client sent."""

    kind: ChatChangeKind
    start: int
    stop: int
    messages: tuple[ChatMessage, ...] = ()
    tail: tuple[ChatMessage, ...] = ()


class ChatFingerprinter:
    """Takes a fingerprint of a list after each assistant message with content: there a chat may be recognised.

    An empty message recognises nothing: two chats that each hold an empty answer have nothing in common."""

    def __init__(self, messages: Iterable[ChatMessage] = ()) -> None:
        self._shown, self._whole = sha256(), sha256()
        self._length = 0
        self.fingerprints: list[ChatFingerprint] = []
        for message in messages:
            self._add(message)

    def fingerprint_after(self, message: ChatMessage) -> ChatFingerprint | None:
        """The fingerprint of the list with this message at its end; None for an empty message. The list itself stays as it is."""
        if not has_content(message):
            return None
        longer = ChatFingerprinter()
        longer._shown, longer._whole, longer._length = self._shown.copy(), self._whole.copy(), self._length
        longer._add(message)
        return longer.fingerprints[0]

    def _add(self, message: ChatMessage) -> None:
        key = message_key(message)
        full = canonical(message) if "reasoning" in message else key
        self._shown.update(len(key).to_bytes(8, "big") + key)
        self._whole.update(len(full).to_bytes(8, "big") + full)
        self._length += 1
        if message["role"] == "assistant" and has_content(message):
            self.fingerprints.append(ChatFingerprint(self._length, self._shown.digest(), self._whole.digest(), sha256(key).digest()))


def has_content(message: ChatMessage) -> bool:
    return bool(message.get("content") or message.get("tool_calls") or message.get("refusal"))


def change_between(
    current: Sequence[ChatMessage], sent: Sequence[ChatMessage], key: Callable[[ChatMessage], bytes] = message_key
) -> ChatChange:
    """Return the change from the current list to the list that the client sent: one splice, and the new messages after it.

    Worked example, `[S U1 A1 U2 A2]` is the list: `[S (summary) A2 U3]` is a compaction of 1 to 4 with the tail `U3`;
    `[S U1' A1 U2 A2 U3]` is an edit of 1 with the same tail; `[S U1]` removes everything from 2 on, which is an edit."""
    ours, theirs = [key(message) for message in current], [key(message) for message in sent]
    known = set(ours)
    core = len(theirs)  # where the client's new messages begin
    while core and theirs[core - 1] not in known:
        core -= 1
    shorter = min(len(ours), len(theirs))
    start = next((at for at in range(shorter) if ours[at] != theirs[at]), shorter)
    if start == len(ours):
        return ChatChange(
            ChatChangeKind.NOTHING if start == len(theirs) else ChatChangeKind.EXTENDED, start, start, tail=tuple(sent[start:])
        )
    core = max(core, start)
    longest = min(len(ours), core) - start
    shared = next((back for back in range(longest) if ours[-1 - back] != theirs[core - 1 - back]), longest)
    stop, end = len(ours) - shared, core - shared
    if not shared:  # the end of our list is gone: the new messages stand in its place
        last = len(ours) - next((back for back, one in enumerate(reversed(ours)) if core and one == theirs[core - 1]), len(ours))
        is_shorter = core > start and last - start > core - start
        return ChatChange(ChatChangeKind.COMPACTION if is_shorter else ChatChangeKind.EDIT, start, len(ours), tuple(sent[start:]))
    kind = ChatChangeKind.COMPACTION if stop - start > end - start else ChatChangeKind.EDIT
    return ChatChange(kind, start, stop, tuple(sent[start:end]), tuple(sent[core:]))
