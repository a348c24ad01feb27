"""Step 10: end the turn. One transaction writes all of its changes or none: graph, credit, interaction, journal, answer, inbox.

The events of the steps are written here and not on the way, so that no failed log write loses an answer. After the commit nothing can fail
the turn: the update of the hot history may be left out, and a job of its own learns from the message.

An ordinary turn is written by one statement (`TurnEnds`); any other by the statements of each store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from hermes.graph.context import KeepReasoning
from hermes.graph.message import METADATA
from hermes.ports.errors import StaleHead, UserErased
from hermes.ports.inbox import Claim
from hermes.ports.outbox import MessageBody
from hermes.ports.runtime import Transaction
from hermes.ports.session import Session
from hermes.ports.sessions import AppendResult, GraphEntry, JournalNote
from hermes.ports.turn_end import TurnEnd, appended_meta
from hermes.router.approvals import offer_parts, put_private_offers
from hermes.router.decisions import language_sample
from hermes.router.effects import MICRO_PER_USD, JournaledAnswer
from hermes.router.outbox import first_state, put_answer, render_text
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
    "saved_usd": 0.0,
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
    has_ended_job: bool = False
    """Whether the turn's job has ended with it."""

    @property
    def language(self) -> str:
        """The language of the text."""
        return nearest_language(None) if self.person is None else self.person.language


class RecordedTurn(NamedTuple):
    """A turn that has ended."""

    appended: AppendResult | None
    """What it added to the graph; None without a model's answer."""
    has_ended_job: bool


async def record(claim: Claim, ended: TurnResult, services: Services) -> RecordedTurn:
    """End the turn. Raises ClaimLost if another worker has taken it over, and StoreUnavailable."""
    appended = await record_at_once(claim, ended, services)
    has_ended_job = appended is not None
    if appended is None:
        appended = await record_in_steps(claim, ended, services)
    if ended.person is not None:
        services.languages.note(ended.person.user, language_sample(claim.envelope))
    return RecordedTurn(appended, has_ended_job)


async def record_at_once(claim: Claim, ended: TurnResult, services: Services) -> AppendResult | None:
    """End an ordinary turn in one statement. None, and nothing is written: it is no ordinary turn, or the stores cannot do that."""
    transcript, person = ended.transcript, ended.person
    if services.turn_ends is None or transcript is None or person is None or not is_charged(ended, services):
        return None
    prompt = transcript.prompt
    if prompt.offset or transcript.offers or new_language(claim, person, services) is not None:
        return None
    end = TurnEnd(
        session_id=UUID(prompt.session_id),
        head=prompt.head,
        entries=entries_of(transcript),
        meta={**interaction_meta(ended), "attempt": claim.attempt},
        parts=render_text(claim.envelope, ended.text, services.channels),
        state=first_state(claim.envelope),
        notes=end_notes(ended, services),
        is_learned=services.learns_from(claim, person.tier),
    )
    async with services.transactions.once() as tx:
        return await services.turn_ends.end(tx, claim, end)


async def record_in_steps(claim: Claim, ended: TurnResult, services: Services) -> AppendResult | None:
    """End any turn in one transaction."""
    transcript, appended = ended.transcript, None
    async with services.transactions.begin() as tx:
        await services.inbox.hold(tx, claim)
        if transcript is None:
            session_id = (await current_session(tx, claim, ended, services)).id
        else:
            session_id, appended = await write_graph(tx, claim, transcript, services)
            if ended.person is not None and services.learns_from(claim, ended.person.tier):
                await services.learn(tx, claim)
        await (services.credits.post if is_charged(ended, services) else services.credits.void)(tx, claim.turn_id)
        if ended.person is not None:
            await save_language(tx, claim, ended.person, services)
        meta = {**interaction_meta(ended), **appended_meta(appended), "attempt": claim.attempt}
        await services.interactions.add(tx, claim, session_id, meta)
        await put_answer(tx, claim, ended.text, services, more=await show_offers(tx, claim, ended, services))
        await services.inbox.finish(tx, claim)
        # Last, so that the time of this step includes all other statements. The commit follows; no row can say how long its own took.
        await services.journal.note(tx, claim, end_notes(ended, services))
    return appended


def is_charged(ended: TurnResult, services: Services) -> bool:
    return ended.transcript is not None and (ended.transcript.is_sampled or services.charges_cached)


def end_notes(ended: TurnResult, services: Services) -> Sequence[JournalNote]:
    """The notes of the whole attempt; the last one is that of its end, which is now."""
    steps = ended.steps.fork()
    steps.note("credit_posted" if is_charged(ended, services) else "credit_voided")
    steps.end("turn_recorded", outcome=ended.outcome, worker=str(services.process_id))
    return steps.notes()


async def show_offers(tx: Transaction, claim: Claim, ended: TurnResult, services: Services) -> Sequence[MessageBody]:
    """Return the messages that show the offers of this turn, behind its answer; those of a room go to the private chat of their user."""
    offers = ended.transcript.offers if ended.transcript is not None else ()
    if not offers or ended.person is None:
        return ()
    if claim.envelope.is_shared:
        await put_private_offers(tx, claim, offers, ended.person, services)
        return ()
    return [part for notice in offers for part in offer_parts(claim.envelope, notice, ended.person, services)]


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
        as_context = [
            GraphEntry({**entry.message, METADATA: {**entry.message.get(METADATA, {}), "cut_from": "a list that was erased"}})
            for entry in entries
        ]
        return session.id, await services.graphs.append(tx, session.id, session.head, as_context)


async def save_language(tx: Transaction, claim: Claim, person: ResolvedUser, services: Services) -> None:
    """Store the language of the user, if they now write in another one."""
    language = new_language(claim, person, services)
    if language is not None:
        await services.people.set_language(tx, claim.user_id, language)


def new_language(claim: Claim, person: ResolvedUser, services: Services) -> str | None:
    """The language that the user now writes in, if it is another one."""
    return services.languages.new_language(person.user, language_sample(claim.envelope))


def interaction_meta(ended: TurnResult) -> dict[str, Any]:
    """The `interactions.meta` of a turn, without what it added to the graph."""
    meta = {**EMPTY_PROVENANCE, **provenance(ended.transcript), **ended.meta, "outcome": ended.outcome, "language": ended.language}
    if ended.person is not None:
        meta |= {"agent": ended.person.agent.name, "tier": ended.person.tier}
    return meta


def entries_of(transcript: TurnTranscript | None) -> list[GraphEntry]:
    """What a turn adds to the list: the question and everything after it, each sample with its call."""
    if transcript is None:
        return []
    prompt, first = transcript.prompt, transcript.first
    entries = [GraphEntry(prompt.question), *([sampled_entry(first, prompt, is_last=not transcript.results)] if first is not None else ())]
    entries += [GraphEntry(message_of(result)) for result in transcript.results]
    if transcript.second is not None:
        entries.append(sampled_entry(transcript.second, prompt, SECOND_CALL_REASONING))
    elif transcript.raw is not None:
        entries.append(GraphEntry({"role": "assistant", "content": transcript.raw}))
    return entries


def sampled_entry(answer: JournaledAnswer, prompt: Prompt, keep_reasoning: KeepReasoning = "none", *, is_last: bool = True) -> GraphEntry:
    """An answer as a sample, under exactly what was sent. An answer from the cache is context, and names its sample. A last answer that
    calls tools is context too, without those calls: no tool will run, and no vendor takes a list with a call that has no result."""
    if answer.copy_of is not None:
        return GraphEntry({**answer.message, "metadata": {"copy_of": answer.copy_of}})
    if is_last and answer.tool_calls:
        kept = {name: value for name, value in answer.message.items() if name != "tool_calls"}
        return GraphEntry({**kept, "metadata": {"cut_from": answer.call_id}})
    call = answer.record(() if answer.without_tools else prompt.tools)
    return GraphEntry(
        answer.message,
        is_sampled=True,
        call=call,
        system=prompt.system,
        keep_reasoning=keep_reasoning,
        without_tools=answer.without_tools,
    )


def provenance(transcript: TurnTranscript | None) -> dict[str, Any]:
    """The fields of EMPTY_PROVENANCE as far as a model call fills them, with the rate and the calls behind them.

    Tokens and cost are those of the answers that the user got. What else the turn caused (a compaction, attempts that were cut off, what is
    learned from the message later) has rows in `calls` with the turn's id: `ModelCalls.cost_of_turn` sums up all of them."""
    if transcript is None:
        return {}
    tools: dict[str, Any] = {
        "tools": [{"name": result.name, "is_error": result.is_error, "ms": result.ms} for result in transcript.ran],
        "tool_exec_ms": sum(result.ms for result in transcript.ran),
        "tools_gated": transcript.prompt.gate,
    }
    answers = transcript.answers
    if not answers:
        return tools
    return {
        **tools,
        "llm_backend": answers[-1].backend,
        "llm_model": answers[-1].model,
        "llm_cache_hit": answers[-1].copy_of is not None,
        "tokens_in": sum(answer.tokens_in for answer in answers),
        "tokens_out": sum(answer.tokens_out for answer in answers),
        "cost_usd": sum(answer.micro_usd for answer in answers) / MICRO_PER_USD,
        "saved_usd": sum(answer.saved_micro_usd for answer in answers) / MICRO_PER_USD,
        "rate": dict(answers[-1].rate),
        "calls": [answer.call_id for answer in answers],
    }
