"""Write an answer into the message graph of the chat that it was given in.

The plain case costs what is new, whatever the length of the chat: its list is known, by digest, to be what the client showed, and grows by
the client's new messages and the answer. Otherwise the graph is loaded, the list is made what the client showed (an edit or a compaction,
which keeps every sampled context), and the answer is committed to that."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from hermes.gateway.client_chats.matching import ChatChangeKind, ChatFingerprinter, ChatMessage, change_between, clean_message, message_key
from hermes.gateway.client_chats.request import ChatRequest
from hermes.graph import CallRecord, MessageGraph, Overlay, Turn
from hermes.graph.context import KeepReasoning
from hermes.graph.message import canonical
from hermes.ports.backends import LOGPROBS, Completion, Usage
from hermes.ports.client_chats import ChatFingerprint, ChatMatch, ClientChats
from hermes.ports.graphs import GraphEntry, Graphs
from hermes.ports.model_calls import ModelCall
from hermes.ports.transactions import Transaction


class ChatRecorder:
    """One request and the answers to it; the gateway's Record. Several answers to it are several samples in one context, in one chat."""

    def __init__(
        self,
        request: ChatRequest,
        chats: ClientChats,
        graphs: Graphs,
        *,
        account: str,
        user_id: UUID,
        name: str | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """`name` is what the client itself calls the chat; `limits` are the longest answers of models by their ids."""
        self._request, self._chats, self._graphs = request, chats, graphs
        self._account, self._user_id, self._name = account, user_id, name
        self._marker = ChatFingerprinter(request.messages)
        self._limits = limits
        self._session_id: UUID | None = None
        self._context: ShownContext | None = None
        self._turn: Turn | None = None

    async def open(self, tx: Transaction) -> None:
        """Settle which chat it is before there is an answer: where several will come at once, each must find the same one."""
        self._session_id = (await self._chat(tx)).session_id

    async def give_up(self, tx: Transaction) -> None:
        """No answer came: a chat that was begun for them is not one."""
        if self._session_id is not None:
            await self._chats.drop_empty(tx, self._user_id, self._session_id)

    async def at_once(self, call: ModelCall, completion: Completion) -> UUID | None:
        if self._session_id is not None or self._name is not None:
            return None
        found = await self._chats.look(self._user_id, self._marker.marks) if self._marker.marks else None
        if found is not None and not self._goes_on(found):
            return None
        message = clean_message(completion.message)
        entries = self._entries(found, message, call, completion)
        return await self._chats.add(self._user_id, found, entries, self._mark(found, message), call)

    async def write(self, tx: Transaction, call: ModelCall, completion: Completion) -> UUID:
        message, found = clean_message(completion.message), await self._chat(tx)
        if self._session_id is None and self._goes_on(found):
            entries, mark = self._entries(found, message, call, completion), self._mark(found, message)
            head: str | None = (await self._graphs.append(tx, found.session_id, found.head, entries)).head
        else:
            head, mark = await self._commit(tx, found, message, call, completion)
        if mark is not None:
            await self._chats.note(tx, self._user_id, found.session_id, head, mark)
        return found.session_id

    def _mark(self, found: ChatMatch | None, message: ChatMessage) -> ChatFingerprint | None:
        """What the list that goes on will be known by. Of reasoning that the client did not show, nobody here knows what it is."""
        mark = self._marker.behind(message)
        return replace(mark, whole=os.urandom(32)) if mark is not None and found is not None and found.hides_reasoning else mark

    async def _chat(self, tx: Transaction) -> ChatMatch:
        marks = self._marker.marks
        if self._session_id is not None:
            found = await self._chats.get(tx, self._user_id, self._session_id, marks)
        elif self._name is not None:
            found = await self._chats.find_or_begin(tx, self._account, self._user_id, self._name, marks)
        else:
            found = await self._chats.find(tx, self._user_id, marks)
        return found if found is not None else await self._chats.begin(tx, self._account, self._user_id)

    def _goes_on(self, found: ChatMatch) -> bool:
        """Whether the list is what the client showed, up to its new messages, and shown with all of its reasoning or with none."""
        if found.known is None:
            return found.is_new
        return found.has_reasoning or not shows_reasoning(self._request.messages[found.known.length :])

    def _entries(self, found: ChatMatch | None, message: ChatMessage, call: ModelCall, completion: Completion) -> list[GraphEntry]:
        """What a chat that goes on grows by: the client's new messages, and the answer."""
        known = found.known.length if found is not None and found.known is not None else 0
        new = self._request.messages[known:]
        is_whole = (found is not None and found.has_reasoning) or shows_reasoning(new)
        keep: KeepReasoning = "all" if is_whole and completion.is_reasoning_sent else "none"
        record = record_of(self._request, call, completion, self._limits)
        return [*map(GraphEntry, new), GraphEntry(message, is_sampled=True, call=record, keep_reasoning=keep)]

    async def _commit(
        self, tx: Transaction, found: ChatMatch, message: ChatMessage, call: ModelCall, completion: Completion
    ) -> tuple[str | None, ChatFingerprint | None]:
        """Make the list what the client showed, whatever it was, and record the answer to that. Return the list's head, if it ends with
        the answer, and what the list is known by."""
        graph = await self._graphs.load(tx, found.session_id)
        if self._context is None:
            self._context = recorded_context(graph, self._request.messages)
            edit_to_match(graph, self._context.messages)
            self._turn = graph.prepare(self._request.tools or None)
        assert self._turn is not None  # noqa: S101  # it comes with the context
        keep = self._context.keep if completion.is_reasoning_sent else "none"
        turn = Turn(self._turn.nodes, replace(self._turn.overlay, keep_reasoning=keep), self._turn.seed)
        before = len(graph)
        graph.commit(turn, message, record_of(self._request, call, completion, self._limits))
        head = await self._graphs.save(tx, found.session_id, found.head, graph)
        return head if len(graph) > before else None, ChatFingerprinter(self._context.messages).behind(message)


@dataclass(frozen=True, slots=True)
class ShownContext:
    """What a client showed, as it is recorded, and how much of the reasoning in it was shown."""

    messages: list[ChatMessage]
    keep: KeepReasoning


def recorded_context(graph: MessageGraph, shown: Sequence[ChatMessage]) -> ShownContext:
    """What the client showed, with our own responses as they were recorded, reasoning included.

    Where what it shows of the reasoning is neither none nor all nor this turn's, it is context of its own making."""
    ours = {message_key(response.message): response.message for response in graph.responses()}
    here = {at: message for at, message in enumerate(graph) if message["role"] == "assistant"}
    whole = [recorded_message(message, message_key(message), here.get(at), ours) for at, message in enumerate(shown)]
    wanted = [canonical(message) for message in shown]
    for keep in ("none", "all", "current_turn"):
        if [canonical(message) for message in Overlay(keep_reasoning=keep).render(whole)] == wanted:
            return ShownContext(whole, keep)
    return ShownContext(list(shown), "all")


def recorded_message(message: ChatMessage, key: bytes, here: ChatMessage | None, ours: Mapping[bytes, ChatMessage]) -> ChatMessage:
    """A message as it is recorded: as it stands in its place of the list, or else as one of our responses; of two that say the same with
    other thoughts, the one in its place."""
    if message["role"] != "assistant":
        return message
    if here is not None and message_key(here) == key:
        return dict(here)
    return ours.get(key, message)


def edit_to_match(graph: MessageGraph, wanted: Sequence[ChatMessage]) -> None:
    """Make the list what is wanted, in one edit."""
    change = change_between(list(graph), wanted, canonical)
    if change.kind in (ChatChangeKind.EDIT, ChatChangeKind.COMPACTION):
        graph.replace(slice(change.start, change.stop), change.messages, kind=change.kind)
    graph.extend(change.tail, sampled=False)


def shows_reasoning(messages: Sequence[ChatMessage]) -> bool:
    return any("reasoning" in message for message in messages)


def record_of(request: ChatRequest, call: ModelCall, completion: Completion, limits: Mapping[str, int] | None = None) -> CallRecord:
    """The call as the graph keeps it: what was asked for, what came back, what it cost."""
    about = {
        "call_id": str(call.id),
        "backend": call.backend,
        "latency_ms": call.latency_ms,
        "first_token_ms": call.first_token_ms,
        "micro_usd": call.micro_usd,
        "metadata": request.metadata,
        **{name: value for name, value in completion.extra.items() if name != LOGPROBS},
    }
    most = [limit for limit in (request.max_tokens, (limits or {}).get(call.model)) if limit is not None]
    asked = {
        "max_tokens": min(most) if most else None,
        "tool_choice": request.tool_choice,
        "response_format": request.response_format,
    }
    return CallRecord(
        model=completion.model,
        policy_version=request.metadata.get("policy_version"),
        sampling={**request.sampling, **{name: value for name, value in asked.items() if value is not None}},
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
    """The counts under the names that exports look for. An estimate of ours is not what a server counted, and has another name."""
    if usage.is_estimated:
        return {"estimated_prompt_tokens": usage.tokens_in, "estimated_completion_tokens": usage.tokens_out}
    cached = {"cache_read": usage.cache_read, "cache_write": usage.cache_write, "cache_write_1h": usage.cache_write_1h}
    return {
        "prompt_tokens": usage.tokens_in,
        "completion_tokens": usage.tokens_out,
        **{name: count for name, count in cached.items() if count},
    }
