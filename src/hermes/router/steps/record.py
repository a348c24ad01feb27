"""Step 10: the end of the turn. All that it changed, or nothing: graph, credit, interaction, answer, inbox.

An answer in hand is never lost to a log: what is only told about a turn is written with its end or, if that fails, not at all. What comes
after the end waits for nobody: the hot history may be left out, and learning from the message is a job of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.ports.graphs import Appended, Entry
from hermes.ports.inbox import Claim
from hermes.ports.outbox import Parcel
from hermes.ports.transactions import Transaction
from hermes.router.answered import MICRO
from hermes.router.services import Services
from hermes.router.steps.load_history import Past
from hermes.router.steps.resolve_user import Person
from hermes.router.steps.run_tools import Exchange, message_of

PROVENANCE: Mapping[str, Any] = {
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
class Ended:
    """How a turn ends: what is said, what is recorded of it, what it costs."""

    text: str
    outcome: str
    person: Person
    past: Past | None
    """None where the turn did not get that far."""
    exchange: Exchange | None = None
    """None where no model answered: then nothing is charged, and nothing is added to the graph."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """What the steps noted on the way, for the journal."""


async def record(claim: Claim, ended: Ended, services: Services) -> Parcel | None:
    """End the turn; return what is to be sent now. Raises Fenced when another worker has taken it over, and StoreUnavailable."""
    entries, appended = entries_of(ended.exchange), None
    async with services.transactions.begin() as tx:
        await services.inbox.hold(tx, claim)
        if ended.past is None:
            session = await services.sessions.current(tx, claim.conversation_id, claim.user_id)
        else:
            session = ended.past.session
        if ended.exchange is not None:
            appended = await write_graph(tx, ended, entries, services)
            await services.credits.post(tx, claim.turn_id)
            await services.learn(tx, claim.turn_id, claim.envelope.event.text)
        else:
            await services.credits.void(tx, claim.turn_id)
        await keep_language(tx, claim, ended.person, services)
        await services.interactions.add(tx, claim, session.id, {**told(ended, appended), "attempt": claim.attempt})
        paid = "credit_voided" if ended.exchange is None else "credit_posted"
        await services.journal.note(tx, claim, [*ended.notes, (paid, {})])
        parcel = await services.courier.promise(tx, claim, [ended.text])
        await services.inbox.finish(tx, claim)
    if ended.past is not None and ended.exchange is not None and appended is not None and not ended.exchange.prompt.offset:
        said = [entry.message for entry in entries]
        await services.histories.append(claim.envelope.scope, session, ended.past.history, said, head=appended.head)
    return parcel


async def write_graph(tx: Transaction, ended: Ended, entries: Sequence[Entry], services: Services) -> Appended:
    """Append to the session's list. What the model was not shown of it is first taken off, so that its answer stands under what it saw."""
    assert ended.past is not None and ended.exchange is not None  # noqa: S101, PT018  # there is no exchange without a past
    session, prompt = ended.past.session, ended.exchange.prompt
    if not prompt.offset:
        return await services.graphs.append(tx, session.id, prompt.head, entries)
    return await services.graphs.shorten(tx, session.id, prompt.head, prompt.offset, entries)


async def keep_language(tx: Transaction, claim: Claim, person: Person, services: Services) -> None:
    """Know the user by the language that they have come to write in."""
    settled = services.languages.settled(person.user, claim.envelope.event.text)
    if settled is not None:
        await services.people.set_language(tx, claim.user_id, settled)


def told(ended: Ended, appended: Appended | None) -> dict[str, Any]:
    """All that `interactions.meta` says of a turn."""
    meta = {**PROVENANCE, **provenance(ended.exchange), **ended.meta, "outcome": ended.outcome, "language": ended.person.language}
    if appended is not None:
        meta |= {"head": appended.head, "nodes": list(appended.nodes), "context_ids": list(appended.contexts)}
    return meta


def entries_of(exchange: Exchange | None) -> list[Entry]:
    """What a turn adds to the list: the question, and all that was said after it, each sample with its call."""
    if exchange is None:
        return []
    prompt, first = exchange.prompt, exchange.first
    entries = [Entry(prompt.question), sampled(first, exchange)]
    entries += [Entry(message_of(result)) for result in exchange.results]
    if exchange.second is not None:
        entries.append(sampled(exchange.second, exchange))
    elif exchange.raw is not None:
        entries.append(Entry({"role": "assistant", "content": exchange.raw}))
    return entries


def sampled(answered: Any, exchange: Exchange) -> Entry:
    """An answer as a sample; one that was copied out of the cache is context, and names its sample."""
    if answered.copy_of is not None:
        return Entry({**answered.message, "metadata": {"copy_of": answered.copy_of}})
    call = answered.record(exchange.prompt.tools)
    return Entry(answered.message, is_sampled=True, call=call, ephemeral=exchange.prompt.system)


def provenance(exchange: Exchange | None) -> dict[str, Any]:
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
        "cost_usd": sum(answer.micro_usd for answer in answers) / MICRO,
        "rate": dict(answers[-1].rate),
        "calls": [answer.call_id for answer in answers],
    }
