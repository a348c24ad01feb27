"""Step 10: end the turn. One transaction writes all of its changes or none: graph, credit, interaction, journal, answer, inbox.

The events of the steps are written here and not on the way, so that no failed log write loses an answer. After the commit nothing can fail
the turn: the update of the hot history may be left out, and a job of its own learns from the message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from hermes.graph.context import KeepReasoning
from hermes.ports.errors import StaleHead, UserErased
from hermes.ports.inbox import Claim
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import AppendResult, GraphEntry, Session
from hermes.router.effects import MICRO_PER_USD, JournaledAnswer
from hermes.router.outbox import put_answer
from hermes.router.replies import nearest_language
from hermes.router.services import Services
from hermes.router.step_log import StepLog
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
"""The fields that every `interactions.meta` has, each with the value for a turn in which it did not happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How a turn ends: the text for the user, and what is recorded of it."""

    text: str
    outcome: str
    person: ResolvedUser | None
    """None if the user could not be read in time: then the text is in English."""
    past: LoadedHistory | None
    """None if the turn did not get that far."""
    transcript: TurnTranscript | None = None
    """None if no model answered: then no credit is charged, and nothing is added to the graph."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    steps: StepLog = field(default_factory=StepLog)
    """The log of the attempt, for the journal."""

    @property
    def language(self) -> str:
        """The language of the text."""
        return nearest_language(None) if self.person is None else self.person.language


async def record(claim: Claim, ended: TurnResult, services: Services) -> AppendResult | None:
    """End the turn; return what it added to the graph; None without a model's answer.

    Raises ClaimLost if another worker has taken it over, and StoreUnavailable."""
    transcript, appended = ended.transcript, None
    async with services.transactions.begin() as tx:
        await services.inbox.hold(tx, claim)
        if transcript is None:
            session_id = (await current_session(tx, claim, ended, services)).id
        else:
            session_id, appended = await write_graph(tx, claim, transcript, services)
            await services.learn(tx, claim)
        is_charged = transcript is not None and (transcript.is_sampled or services.charges_cached)
        await (services.credits.post if is_charged else services.credits.void)(tx, claim.turn_id)
        if ended.person is not None:
            await save_language(tx, claim, ended.person, services)
        await services.interactions.add(tx, claim, session_id, {**interaction_meta(ended, appended), "attempt": claim.attempt})
        await put_answer(tx, claim, ended.text, services)
        await services.inbox.finish(tx, claim)
        # Last, so that the time of this step includes all other statements. The commit follows; no row can say how long its own took.
        steps = ended.steps.fork()
        steps.note("credit_posted" if is_charged else "credit_voided")
        steps.end("turn_recorded", outcome=ended.outcome, worker=str(services.process_id))
        await services.journal.note(tx, claim, steps.notes())
    if ended.person is not None:
        services.languages.note(ended.person.user, claim.envelope.event.text)
    return appended


async def extend_hot_history(claim: Claim, ended: TurnResult, appended: AppendResult | None, services: Services) -> None:
    """Add the messages that were just committed to the hot history, if the model was shown all of it. Never raises."""
    transcript, past = ended.transcript, ended.past
    if transcript is None or past is None or appended is None or transcript.prompt.offset or transcript.prompt.head != past.history.head:
        return
    messages = [entry.message for entry in entries_of(transcript)]
    await services.histories.append(claim.envelope.conversation_key, past.session, past.history, messages, head=appended.head)


async def current_session(tx: Transaction, claim: Claim, ended: TurnResult, services: Services) -> Session:
    if ended.past:
        return ended.past.session
    return await services.sessions.current(tx, claim.conversation_id, claim.user_id, is_shared=claim.envelope.is_shared)


async def write_graph(tx: Transaction, claim: Claim, transcript: TurnTranscript, services: Services) -> tuple[UUID, AppendResult]:
    """Append to the list that the model was shown, even if another session has begun since; return its session.

    Messages that the model was not shown are first compacted away, so that its answer stands under exactly what it saw. If the list's owner
    was deleted meanwhile, or a user was erased from the list, the messages go to the current session, as context only."""
    prompt, entries = transcript.prompt, entries_of(transcript)
    session_id = UUID(prompt.session_id)
    try:
        if prompt.offset:
            return session_id, await services.graphs.compact(tx, session_id, prompt.head, prompt.offset, entries)
        return session_id, await services.graphs.append(tx, session_id, prompt.head, entries)
    except (UserErased, StaleHead):
        # Words from a private list stay out of a room's list, even if the conversation became a room meanwhile.
        is_shared = (await services.sessions.get(tx, session_id)).is_shared
        session = await services.sessions.current(tx, claim.conversation_id, claim.user_id, is_shared=is_shared)
        as_context = [GraphEntry({**entry.message, "metadata": {"cut_from": "a list that was erased"}}) for entry in entries]
        return session.id, await services.graphs.append(tx, session.id, session.head, as_context)


async def save_language(tx: Transaction, claim: Claim, person: ResolvedUser, services: Services) -> None:
    """Store the language of the user, if they now write in another one."""
    new_language = services.languages.new_language(person.user, claim.envelope.event.text)
    if new_language is not None:
        await services.people.set_language(tx, claim.user_id, new_language)


def interaction_meta(ended: TurnResult, appended: AppendResult | None) -> dict[str, Any]:
    """The `interactions.meta` of a turn."""
    meta = {**EMPTY_PROVENANCE, **provenance(ended.transcript), **ended.meta, "outcome": ended.outcome, "language": ended.language}
    if ended.person is not None:
        meta |= {"agent": ended.person.agent.name, "tier": ended.person.tier}
    if appended is not None:
        meta |= {"head": appended.head, "nodes": list(appended.nodes), "context_ids": list(appended.contexts)}
    return meta


def entries_of(transcript: TurnTranscript | None) -> list[GraphEntry]:
    """What a turn adds to the list: the question and everything after it, each sample with its call."""
    if transcript is None:
        return []
    prompt, first = transcript.prompt, transcript.first
    entries = [GraphEntry(prompt.question), sampled_entry(first, prompt)]
    entries += [GraphEntry(message_of(result)) for result in transcript.results]
    if transcript.second is not None:
        entries.append(sampled_entry(transcript.second, prompt, SECOND_CALL_REASONING))
    elif transcript.raw is not None:
        entries.append(GraphEntry({"role": "assistant", "content": transcript.raw}))
    return entries


def sampled_entry(answer: JournaledAnswer, prompt: Prompt, keep_reasoning: KeepReasoning = "none") -> GraphEntry:
    """An answer as a sample, under exactly what was sent. An answer from the cache is context, and names its sample. A second answer that
    calls tools again is context too, without those calls: no tool will run, and no vendor takes a list with a call that has no result."""
    if answer.copy_of is not None:
        return GraphEntry({**answer.message, "metadata": {"copy_of": answer.copy_of}})
    if keep_reasoning == SECOND_CALL_REASONING and answer.tool_calls:
        kept = {name: value for name, value in answer.message.items() if name != "tool_calls"}
        return GraphEntry({**kept, "metadata": {"cut_from": answer.call_id}})
    call = answer.record(prompt.tools)
    return GraphEntry(answer.message, is_sampled=True, call=call, ephemeral=prompt.system, keep_reasoning=keep_reasoning)


def provenance(transcript: TurnTranscript | None) -> dict[str, Any]:
    """The fields of EMPTY_PROVENANCE as far as a model call fills them, with the rate and the calls behind them.

    Tokens and cost are those of the answers that the user got. What else the turn caused (a compaction, attempts that were cut off, what is
    learned from the message later) has rows in `calls` with the turn's id: `ModelCalls.cost_of_turn` sums up all of them."""
    if transcript is None:
        return {}
    answers = transcript.answers
    return {
        "llm_backend": answers[-1].backend,
        "llm_model": answers[-1].model,
        "llm_cache_hit": answers[-1].copy_of is not None,
        "tools": [{"name": result.name, "is_error": result.is_error, "ms": result.ms} for result in transcript.results],
        "tool_exec_ms": sum(result.ms for result in transcript.results),
        "tools_gated": transcript.prompt.gate,
        "tokens_in": sum(answer.tokens_in for answer in answers),
        "tokens_out": sum(answer.tokens_out for answer in answers),
        "cost_usd": sum(answer.micro_usd for answer in answers) / MICRO_PER_USD,
        "rate": dict(answers[-1].rate),
        "calls": [answer.call_id for answer in answers],
    }
