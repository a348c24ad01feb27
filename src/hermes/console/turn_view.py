"""One turn as operators see it without its content, and a call that has no turn. Also as JSON, for the API and the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hermes.console.access import Subject
from hermes.console.masking import mask_identifier, show_identifier
from hermes.console.turn_plot import PlotAttempt, plot_turn
from hermes.console.why import Explanation, explain_turn
from hermes.ports.errors import NotFound
from hermes.ports.events import HIDDEN_FACTS
from hermes.ports.operators import Actor, Operator, Role
from hermes.ports.runtime import Transactions

if TYPE_CHECKING:
    from hermes.ports.models import ModelCall
    from hermes.ports.timeline import TurnTimeline, TurnTimelines
    from hermes.ports.turn_record import DeliveryRecord, LooseCall, RecordedCall, TurnRecord, TurnRecords

PER_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class PriceLine:
    """One kind of tokens of a call: how many, at which rate, for how much. The rate is the one that was used then."""

    kind: str
    tokens: int
    micro_usd_per_million: int

    @property
    def micro_usd(self) -> float:
        return self.tokens * self.micro_usd_per_million / PER_MILLION


def price_lines(call: ModelCall) -> list[PriceLine]:
    """Tokens times rate, by kind. Their sum, rounded up, is what the call cost; none for a call that cost nothing."""
    usage, rate = call.usage, call.rate
    if not rate:
        return []
    plain = max(0, usage.tokens_in - usage.cache_read - usage.cache_write - usage.cache_write_1h)
    lines = [
        PriceLine("in", plain, int(rate.get("tokens_in", 0))),
        PriceLine("cache read", usage.cache_read, int(rate.get("cache_read", 0))),
        PriceLine("cache write", usage.cache_write, int(rate.get("cache_write", 0))),
        PriceLine("cache write 1 h", usage.cache_write_1h, int(rate.get("cache_write_1h", 0))),
        PriceLine("out", usage.tokens_out, int(rate.get("tokens_out", 0))),
    ]
    return [line for line in lines if line.tokens]


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn, explained and drawn."""

    turn: TurnRecord
    timeline: TurnTimeline | None
    why: Explanation
    attempts: Sequence[PlotAttempt]

    @property
    def subject(self) -> Subject:
        """What an operator opens to read its content."""
        turn = self.turn
        return Subject(kind="conversation", id=str(turn.conversation_id), user_id=turn.user_id, account=turn.account_id)

    @property
    def memory_ids(self) -> list[str]:
        """The facts that were learned from the message, by id."""
        later = self.timeline.later if self.timeline is not None else ()
        return [str(found) for event in later if event.type == "memory_saved" for found in event.facts.get("ids") or ()]

    def step_facts(self, step: str) -> Mapping[str, Any]:
        """The facts of a step, of the newest attempt that reached it."""
        attempts = self.timeline.attempts if self.timeline is not None else ()
        found = [done.facts for attempt in attempts for done in attempt.steps if done.step == step and done.facts]
        return found[-1] if found else {}


@dataclass(frozen=True, slots=True)
class CallView:
    """A call of the completions API, or another one without a turn."""

    loose: LooseCall

    @property
    def subject(self) -> Subject | None:
        """What an operator opens to read its content; None if it was recorded in no conversation."""
        loose, call = self.loose, self.loose.recorded.call
        if loose.conversation_id is None:
            return None
        return Subject(kind="conversation", id=str(loose.conversation_id), user_id=call.user_id, account=call.account_id)


class TurnReader:
    """Reads turns for operators. What belongs to an account that the operator does not see counts as unknown."""

    def __init__(self, transactions: Transactions, records: TurnRecords, timelines: TurnTimelines, *, live_s: float) -> None:
        """`live_s`: how old the last beat of a live process may be."""
        self._transactions, self._records, self._timelines, self._live_s = transactions, records, timelines, live_s

    async def read(self, actor: Actor, turn_id: UUID) -> TurnView:
        """Return the turn. Raises NotFound."""
        async with self._transactions.once() as tx:
            turn = await self._records.find(tx, turn_id, actor.operator.accounts, live_s=self._live_s)
            if turn is None:
                raise NotFound(f"there is no turn {turn_id}")
            timeline = await self._timelines.read(tx, turn_id)
        if not actor.operator.role.covers(Role.OPERATOR):
            turn, timeline = narrow_turn(turn), None if timeline is None else narrow_timeline(timeline)
        return TurnView(turn, timeline, explain_turn(turn, timeline), plot_turn(timeline, [recorded.call for recorded in turn.calls]))

    async def read_call(self, actor: Actor, call_id: UUID) -> CallView:
        """Return the call. Raises NotFound."""
        async with self._transactions.once() as tx:
            loose = await self._records.find_call(tx, call_id, actor.operator.accounts)
        if loose is None:
            raise NotFound(f"there is no call {call_id}")
        return CallView(loose)


# --- for viewers


def narrow_turn(turn: TurnRecord) -> TurnRecord:
    """The turn as a viewer may see it: identifiers masked, and no platform's own words about a message, which may repeat words of it."""
    deliveries = [
        replace(
            part,
            reason=part.reason if part.reason in OWN_REASONS else "",
            message_id=None if part.message_id is None else mask_identifier(part.message_id),
        )
        for part in turn.deliveries
    ]
    sender_id = None if turn.sender_id is None else mask_identifier(turn.sender_id)
    return replace(turn, channel_id=mask_identifier(turn.channel_id), sender_id=sender_id, deliveries=deliveries)


OWN_REASONS = frozenset({"the breaker is open", "the pace limit of the chat or account is reached", "the user has not written for a day"})
"""Reasons in Hermes' own words. A message id of WhatsApp has its receiver's number in it."""


def narrow_timeline(timeline: TurnTimeline) -> TurnTimeline:
    """The timeline without the facts that the public stream of events leaves out too."""
    later = [
        replace(event, facts={name: value for name, value in event.facts.items() if name not in HIDDEN_FACTS.get(event.type, ())})
        for event in timeline.later
    ]
    return replace(timeline, later=later)


# --- as JSON


def turn_json(view: TurnView, operator: Operator) -> dict[str, Any]:
    """A turn without content, for the API and for programs. Identifiers as the operator may see them."""
    turn = view.turn
    return {
        "turn_id": str(turn.turn_id),
        "why": why_json(view.why),
        "account": turn.account_id,
        "platform": str(turn.platform),
        "channel": show_identifier(turn.channel_id, operator),
        "sender": None if turn.sender_id is None else show_identifier(turn.sender_id, operator),
        **{name: text_or_none(getattr(turn, name)) for name in TURN_ID_FIELDS},
        "is_shared": turn.is_shared,
        "is_erased": turn.is_erased,
        "seq": turn.seq,
        "state": turn.state,
        "outcome": turn.outcome,
        "reason": turn.reason,
        "attempts": turn.attempts,
        **{name: time_or_none(getattr(turn, name)) for name in ("received_at", "ended_at", "stopped_at")},
        "joined": [str(joined) for joined in turn.joined],
        "replays": turn.replays,
        "micro_usd": turn.micro_usd,
        "tokens": turn.tokens,
        "timeline": [attempt_json(attempt) for attempt in view.attempts],
        "calls": [call_json(recorded) for recorded in turn.calls],
        "deliveries": [delivery_json(part) for part in turn.deliveries],
        "credits": [
            {"kind": line.kind, "amount": line.amount, "attempt": line.attempt, "at": line.created_at.isoformat()} for line in turn.credits
        ],
        "memory_saved": view.memory_ids,
        "soul": dict(view.step_facts("load_soul")),
        "meta": dict(turn.meta),
        "workers": [
            {"id": str(process.id), "host": process.host, "pid": process.pid, "is_live": process.is_live} for process in turn.workers
        ],
    }


TURN_ID_FIELDS = ("conversation_id", "session_id", "user_id", "api_key_id", "trace_id", "joined_to", "previous_id", "next_id", "behind")


def why_json(why: Explanation) -> dict[str, Any]:
    return {"sentence": why.sentence, "causes": [{"text": cause.text, "step": cause.step} for cause in why.causes]}


def attempt_json(attempt: PlotAttempt) -> dict[str, Any]:
    steps = [
        {
            "step": row.step,
            "state": str(row.state),
            "began_ms": row.began_ms,
            "ms": row.ms,
            "facts": row.facts,
            "error": row.error,
            "effects": [{"label": effect.label, "ms": effect.ms, "is_error": effect.is_error} for effect in row.effects],
        }
        for row in attempt.rows
    ]
    return {
        "attempt": attempt.attempt,
        "end": str(attempt.end),
        "title": attempt.title,
        "worker": text_or_none(attempt.worker),
        "steps": steps,
    }


def call_json(recorded: RecordedCall) -> dict[str, Any]:
    """A call with its attempts and with tokens times rate. No content."""
    call = recorded.call
    names = ("source", "purpose", "tier", "agent", "model", "answered_by", "backend", "outcome", "error")
    return {
        "call_id": str(call.id),
        "at": recorded.at.isoformat(),
        **{name: text_or_none(getattr(call, name)) for name in names},
        "latency_ms": call.latency_ms,
        "waited_ms": call.waited_ms,
        "first_token_ms": call.first_token_ms,
        "plan": call.plan,
        "attempts": [
            {"model": attempt.name, "backend": attempt.backend, "outcome": attempt.outcome, "ms": attempt.ms, "status": attempt.status}
            for attempt in call.attempts
        ],
        "tokens_in": call.usage.tokens_in,
        "tokens_out": call.usage.tokens_out,
        "cache_read": call.usage.cache_read,
        "cache_hit": call.cache_hit,
        "is_estimated": call.usage.is_estimated,
        "micro_usd": call.micro_usd,
        "rate": dict(call.rate),
    }


def delivery_json(part: DeliveryRecord) -> dict[str, Any]:
    names = ("id", "part", "news", "state", "tries", "failures", "doubts", "outcome", "reason", "message_id", "is_late")
    return {
        **{name: getattr(part, name) for name in names},
        "rank": None if part.rank is None else part.rank.name.lower(),
        **{name: time_or_none(getattr(part, name)) for name in ("ranked_at", "put_at", "touched_at", "not_before", "died_at")},
    }


def text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def time_or_none(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
