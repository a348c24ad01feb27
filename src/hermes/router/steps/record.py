"""Step 10: the end of the turn. All that it changed, or nothing: graph, credit, interaction, answer, inbox.

An answer in hand is never lost to a log: what is only told about a turn is written with its end or, if that fails, not at all. What comes
after the end waits for nobody: the hot history may be left out, and learning from the message is a job of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from hermes.graph.context import KeepReasoning
from hermes.ports.errors import StaleHead, UserErased
from hermes.ports.graphs import AppendResult, GraphEntry
from hermes.ports.inbox import Claim
from hermes.ports.outbox import OutboxMessage
from hermes.ports.sessions import Session
from hermes.ports.transactions import Transaction
from hermes.router.model_call import MICRO_PER_USD, JournaledAnswer
from hermes.router.services import Services
from hermes.router.steps.build_messages import SECOND_CALL_REASONING, Prompt
from hermes.router.steps.load_history import LoadedHistory
from hermes.router.steps.resolve_user import ResolvedUser
from hermes.router.steps.run_tools import TurnTranscript, message_of

EMPTY_PROVENANCE: Mapping[str, Any] = {
    "soul_load_ms": 0,
    "semantic_recall_used": False,
    "llm_backend": "",
    "llm_cache_hit": False,
    "tools": [],
    "tool_exec_ms": 0,
    "tokens_in": 0,
    "tokens_out": 0,
    "cost_usd": 0.0,
}
"""The founding fields of `interactions.meta`, each with the value that says: this did not happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How a turn ends: what is said, what is recorded of it, what it costs."""

    text: str
    outcome: str
    person: ResolvedUser
    past: LoadedHistory | None
    """None where the turn did not get that far."""
    transcript: TurnTranscript | None = None
    """None where no model answered: then nothing is charged, and nothing is added to the graph."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """What the steps noted on the way, for the journal."""


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """What the end of a turn leaves to do."""

    outbox_message: OutboxMessage | None
    appended: AppendResult | None


async def record(claim: Claim, ended: TurnResult, services: Services) -> RecordedTurn:
    """End the turn; return what is left to do. Raises Fenced when another worker has taken it over, and StoreUnavailable."""
    exchange, appended = ended.transcript, None
    async with services.transactions.begin() as tx:
        await services.inbox.hold(tx, claim)
        if exchange is None:
            session_id = (await current_session(tx, claim, ended, services)).id
        else:
            session_id, appended = await write_graph(tx, claim, exchange, services)
            await services.learn(tx, claim)
        is_charged = exchange is not None and (exchange.is_sampled or services.charges_cached)
        await (services.credits.post if is_charged else services.credits.void)(tx, claim.turn_id)
        await save_language(tx, claim, ended.person, services)
        await services.interactions.add(tx, claim, session_id, {**interaction_meta(ended, appended), "attempt": claim.attempt})
        await services.journal.note(tx, claim, [*ended.notes, ("credit_posted" if is_charged else "credit_voided", {})])
        parcel = await services.outbox_delivery.put_answer(tx, claim, [ended.text])
        await services.inbox.finish(tx, claim)
    services.languages.note(ended.person.user, claim.envelope.event.text)
    return RecordedTurn(parcel, appended)


async def extend_hot_history(claim: Claim, ended: TurnResult, recorded: RecordedTurn, services: Services) -> None:
    """Add to the hot copy what was just committed, where the model was shown all of it. Never raises."""
    exchange, past, appended = ended.transcript, ended.past, recorded.appended
    if exchange is None or past is None or appended is None or exchange.prompt.offset or exchange.prompt.head != past.history.head:
        return
    said = [entry.message for entry in entries_of(exchange)]
    await services.histories.append(claim.envelope.conversation_key, past.session, past.history, said, head=appended.head)


async def current_session(tx: Transaction, claim: Claim, ended: TurnResult, services: Services) -> Session:
    if ended.past:
        return ended.past.session
    return await services.sessions.current(tx, claim.conversation_id, claim.user_id, is_shared=claim.envelope.is_shared)


async def write_graph(tx: Transaction, claim: Claim, exchange: TurnTranscript, services: Services) -> tuple[UUID, AppendResult]:
    """Append to the list that the model was shown, also where another session has begun since; return its session.

    What the model was not shown of it is first taken off, so that its answer stands under what it saw. A list whose owner was deleted
    meanwhile can be written by nobody, and one that somebody was erased from is another one now: what was said goes on as context."""
    prompt, entries = exchange.prompt, entries_of(exchange)
    session_id = UUID(prompt.session_id)
    try:
        if prompt.offset:
            return session_id, await services.graphs.compact(tx, session_id, prompt.head, prompt.offset, entries)
        return session_id, await services.graphs.append(tx, session_id, prompt.head, entries)
    except (UserErased, StaleHead):
        # What the model was shown of a private list stays out of a room's, also where the conversation became a room meanwhile.
        is_shared = (await services.sessions.get(tx, session_id)).is_shared
        session = await services.sessions.current(tx, claim.conversation_id, claim.user_id, is_shared=is_shared)
        said = [GraphEntry({**entry.message, "metadata": {"cut_from": "a list that was erased"}}) for entry in entries]
        return session.id, await services.graphs.append(tx, session.id, session.head, said)


async def save_language(tx: Transaction, claim: Claim, person: ResolvedUser, services: Services) -> None:
    """Know the user by the language that they have come to write in."""
    settled = services.languages.settled(person.user, claim.envelope.event.text)
    if settled is not None:
        await services.people.set_language(tx, claim.user_id, settled)


def interaction_meta(ended: TurnResult, appended: AppendResult | None) -> dict[str, Any]:
    """All that `interactions.meta` says of a turn."""
    meta = {**EMPTY_PROVENANCE, **provenance(ended.transcript), **ended.meta, "outcome": ended.outcome, "language": ended.person.language}
    if appended is not None:
        meta |= {"head": appended.head, "nodes": list(appended.nodes), "context_ids": list(appended.contexts)}
    return meta


def entries_of(exchange: TurnTranscript | None) -> list[GraphEntry]:
    """What a turn adds to the list: the question, and all that was said after it, each sample with its call."""
    if exchange is None:
        return []
    prompt, first = exchange.prompt, exchange.first
    entries = [GraphEntry(prompt.question), sampled_entry(first, prompt)]
    entries += [GraphEntry(message_of(result)) for result in exchange.results]
    if exchange.second is not None:
        entries.append(sampled_entry(exchange.second, prompt, SECOND_CALL_REASONING))
    elif exchange.raw is not None:
        entries.append(GraphEntry({"role": "assistant", "content": exchange.raw}))
    return entries


def sampled_entry(answered: JournaledAnswer, prompt: Prompt, keep_reasoning: KeepReasoning = "none") -> GraphEntry:
    """An answer as a sample, under exactly what was sent. One that was copied out of the cache is context, and names its sample; so is one
    that calls tools again, which nobody will run: without those calls, because no vendor takes a list with a call that has no result."""
    if answered.copy_of is not None:
        return GraphEntry({**answered.message, "metadata": {"copy_of": answered.copy_of}})
    if keep_reasoning == SECOND_CALL_REASONING and answered.tool_calls:
        kept = {name: value for name, value in answered.message.items() if name != "tool_calls"}
        return GraphEntry({**kept, "metadata": {"cut_from": answered.call_id}})
    call = answered.record(prompt.tools)
    return GraphEntry(answered.message, is_sampled=True, call=call, ephemeral=prompt.system, keep_reasoning=keep_reasoning)


def provenance(exchange: TurnTranscript | None) -> dict[str, Any]:
    """The founding fields, and the rate and calls behind them."""
    if exchange is None:
        return {}
    answers = exchange.answers
    return {
        "llm_backend": answers[-1].backend,
        "llm_model": answers[-1].model,
        "llm_cache_hit": answers[-1].copy_of is not None,
        "tools": [{"name": result.name, "is_error": result.is_error, "ms": result.ms} for result in exchange.results],
        "tool_exec_ms": sum(result.ms for result in exchange.results),
        "tools_gated": exchange.prompt.gate,
        "tokens_in": sum(answer.tokens_in for answer in answers),
        "tokens_out": sum(answer.tokens_out for answer in answers),
        "cost_usd": sum(answer.micro_usd for answer in answers) / MICRO_PER_USD,
        "rate": dict(answers[-1].rate),
        "calls": [answer.call_id for answer in answers],
    }
