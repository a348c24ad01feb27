"""Why a turn went as it did, in one sentence and in numbered causes. Pure: the record and the timeline in, words out. No content.

claude-haiku answered after claude-sonnet timed out; 1 tool; $0.0021; delivered at try 2"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

from hermes.console.amounts import MICRO_USD, count_phrase, show_age, show_ms, show_usd
from hermes.ports.models import CallAttempt, CallOutcome, CallPurpose, ModelCall
from hermes.ports.timeline import AttemptEnd, TurnAttempt, TurnTimeline
from hermes.time_ids import shorten_id

if TYPE_CHECKING:
    from hermes.ports.turn_record import DeliveryRecord, TurnRecord

ANSWERED, APOLOGISED = "answered", "apologised"
SKIPPED, CANCELLED, PAUSED, EMPTY_ANSWER = "skipped: ", "CancelledError", "CallsPaused: ", "EmptyAnswer"
KEY_SPENT, KEY_REACHED = "KeyQuotaSpent: ", "KeyRateReached: "
MAX_TOLD_ATTEMPTS = 2
SLOW_MS = 1_000
"""A backend that was unreachable for longer than this timed out; a shorter one refused the connection."""

FAILURE_WORDS = MappingProxyType(
    {
        "Overloaded": "was overloaded",
        "RateLimited": "limited our rate",
        "Garbled": "answered nonsense",
        "Unauthorized": "refused our key",
        "ContextTooLong": "was sent too long a prompt",
        "Unsupported": "does not take such a request",
        "BadRequest": "refused the request as invalid",
        "CutShort": "broke off",
        "CancelledError": "was cut off",
        "NoCapacity": "had no free slot",
    }
)
FALLBACK_WORDS = MappingProxyType(
    {
        "signup": "the sender is not signed up",
        "activation": "the sender is not activated yet",
        "upgrade": "the user is out of credit",
        "day_budget": "the user's tokens of the day are used up",
        "month_budget": "the user's tokens of the month are used up",
        "paused": "model calls are paused",
        "busy": "no slot became free in time",
        "retry_later": "no model answered",
        "image_too_large": "the image is too large",
        "image_unreadable": "the image cannot be read",
        "too_many_messages": "the sender writes too fast",
    }
)
"""What each fallback means, by its kind."""
CREDIT_WORDS = MappingProxyType({"reserve": "held", "post": "charged", "void": "given back", "refund": "given back: not delivered"})


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause, and the step whose row shows more of it."""

    text: str
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a turn went as it did."""

    sentence: str
    causes: Sequence[Cause]


def explain_turn(turn: TurnRecord, timeline: TurnTimeline | None) -> Explanation:
    """Say what happened, in one sentence and in causes. Costs are those of all calls that the turn caused so far."""
    attempts = timeline.attempts if timeline is not None else ()
    return Explanation("; ".join(write_clauses(turn, attempts)), [*name_causes(turn, timeline)])


# --- the sentence


def write_clauses(turn: TurnRecord, attempts: Sequence[TurnAttempt]) -> list[str]:
    if turn.joined_to is not None:
        return [f"joined to turn {short(turn.joined_to)}: they have one answer"]
    if turn.state == "waiting":
        return [say_waiting(turn, attempts), *say_cost(turn)]
    if turn.stopped_at is not None:
        after_s = (turn.stopped_at - turn.received_at).total_seconds()
        return [f"stopped by its client after {show_age(after_s)}", *([show_usd(turn.micro_usd)] if turn.calls else [])]
    clauses = [say_end(turn), *say_attempts(attempts), *say_tools(turn)]
    return [*clauses, show_usd(turn.micro_usd), *say_delivery(turn)]


def say_waiting(turn: TurnRecord, attempts: Sequence[TurnAttempt]) -> str:
    """Why there is no answer yet."""
    waited = show_age((turn.now - (turn.revived_at or turn.received_at)).total_seconds())
    newest = attempts[-1] if attempts else None
    is_claimed = newest is not None and newest.end is AttemptEnd.RUNNING
    if newest is not None and is_claimed and is_driven(turn, newest):
        runs = "runs" if newest.began_at is None else f"has run for {show_age((turn.now - newest.began_at).total_seconds())}"
        at = f" at {newest.steps[-1].step}" if newest.steps else ""
        return f"attempt {newest.attempt} {runs}{at}; {'revived' if turn.revived_at else 'received'} {waited} ago"
    if turn.behind is not None:
        return f"has waited {waited}: behind turn {short(turn.behind)} of the same conversation"
    if not turn.live_workers:
        return f"has waited {waited}: no worker is alive"
    if newest is not None and is_claimed:
        return f"has waited {waited}: the worker of attempt {newest.attempt} gives no sign of life, and another one takes over"
    if newest is not None and newest.end is AttemptEnd.FAILED:
        return f"has waited {waited}: {say_broken(newest)}, and it is tried again"
    return f"has waited {waited} for a free worker"


def is_driven(turn: TurnRecord, attempt: TurnAttempt) -> bool:
    """Whether the process of an attempt is alive: a command that chats drives turns too, and is no worker. One without a row counts as
    alive while any worker is."""
    known = [process.is_live for process in turn.workers if process.id == attempt.worker]
    return known[0] if known else turn.live_workers > 0


def say_end(turn: TurnRecord) -> str:
    outcome = turn.outcome
    if outcome == APOLOGISED:
        return f"{turn.reason or 'given up'}; the user got an apology"
    if turn.state == "dead" or outcome is None:
        return f"buried: {turn.reason or 'no reason is recorded'}"
    if outcome == ANSWERED:
        return say_answer(turn)
    error, step = turn.meta.get("error"), turn.meta.get("step")
    why = say_no_answer(turn, outcome)
    where = f" ({error} at {step})" if error and step else ""
    return f"no answer: {why}{where}; the user got the reply {outcome}"


def say_no_answer(turn: TurnRecord, outcome: str) -> str:
    """Why the user got a fallback: what each model did, or what paused all of them."""
    calls = asked_calls(turn)
    if turn.meta.get("error") == EMPTY_ANSWER and calls and calls[-1].outcome is CallOutcome.ANSWERED:
        return f"{answering_name(calls[-1])} answered nothing{say_after(calls)}"
    failed = [f"{attempt.name} {say_failure(attempt)}" for call in calls for attempt in call.attempts if is_failure(attempt)]
    if failed and outcome == "retry_later":
        return ", ".join(failed)
    spent = [call.error.removeprefix(KEY_SPENT) for call in calls if call.error and call.error.startswith((KEY_SPENT, KEY_REACHED))]
    if spent and outcome in {"day_budget", "month_budget", "busy"}:
        return f"the API key has reached its {spent[-1].removeprefix(KEY_REACHED)}"
    paused = [call.error.removeprefix(PAUSED) for call in calls if call.error and call.error.startswith(PAUSED)]
    return FALLBACK_WORDS.get(outcome, outcome) + (f" by the {paused[-1]}" if paused and outcome == "paused" else "")


def say_answer(turn: TurnRecord) -> str:
    """Which model answered, and which failed before it. If the call before the tools had another model, both calls are told."""
    calls = asked_calls(turn)
    answers = [call for call in calls if call.outcome is CallOutcome.ANSWERED]
    if not answers:
        return f"{turn.meta.get('llm_model') or turn.meta.get('llm_backend') or 'a model'} answered{say_after(calls)}"
    if turn.meta.get("llm_cache_hit") or answers[-1].cache_hit:
        saved_usd = turn.meta.get("saved_usd")
        saved = f", which saved {show_usd(round(saved_usd * MICRO_USD))}" if saved_usd else ""
        return f"the cache answered with an earlier answer of {answering_name(answers[-1])}{say_after(calls)}{saved}"
    if turn.meta.get("tools") and len(turn.meta.get("calls") or ()) < CALLS_WITH_TOOLS:
        return f"the user got the tools' output as it is: no model answered after them{say_why_not(calls)}"
    first, last = answering_name(answers[0]), answering_name(answers[-1])
    if first == last:
        return f"{last} answered{say_after(calls)}"
    cut = calls.index(answers[0]) + 1
    return f"{first} called the tools{say_after(calls[:cut])}, then {last} answered{say_after(calls[cut:])}"


STAND_INS = ("scripted", "local")
"""Backends that answer in the place of a model whose vendor has no key here (`llm.stand_in`)."""
CALLS_WITH_TOOLS = 2
"""A turn that ran tools made a call before them and one after them."""


def say_why_not(calls: Sequence[ModelCall]) -> str:
    """` (claude-sonnet timed out)`, ` (BudgetSpent: day)`: why the call after the tools gave no answer."""
    after = [call for call in calls if call.purpose is CallPurpose.CONCLUDE]
    words = [f"{attempt.name} {say_failure(attempt)}" for call in after for attempt in call.attempts if is_failure(attempt)]
    words = words or [call.error for call in after if call.error]
    return f" ({', '.join(words)})" if words else ""


def say_after(calls: Sequence[ModelCall]) -> str:
    """` after claude-sonnet timed out`; empty if no model failed."""
    failed = [f"{attempt.name} {say_failure(attempt)}" for call in calls for attempt in call.attempts if is_failure(attempt)]
    return f" after {' and '.join(dict.fromkeys(failed))}" if failed else ""


def asked_calls(turn: TurnRecord) -> list[ModelCall]:
    """The calls that were made for the answer, the oldest first: not those for the history or the memory."""
    wanted = (None, CallPurpose.ANSWER, CallPurpose.CONCLUDE)
    return [recorded.call for recorded in turn.calls if recorded.call.purpose in wanted]


def answering_name(call: ModelCall) -> str:
    """The name of the model that answered, as the chain has it; where a stand-in answered, its own name first."""
    names = [attempt.name for attempt in call.attempts if attempt.outcome == ANSWERED]
    return with_stand_in(call, names[-1] if names else call.model)


def with_stand_in(call: ModelCall, name: str) -> str:
    """`scripted (in place of claude-haiku)` if a stand-in answered this call; else the name."""
    is_stand_in = call.backend in STAND_INS and call.answered_by is not None and call.answered_by != name
    return f"{call.answered_by} (in place of {name})" if is_stand_in else name


def is_failure(attempt: CallAttempt) -> bool:
    """Whether a model failed. One that was cut off with its worker did not."""
    return attempt.outcome not in (ANSWERED, CANCELLED)


def say_failure(attempt: CallAttempt) -> str:
    """What a backend did instead of answering: `timed out`, `failed with 500`."""
    if attempt.outcome.startswith(SKIPPED):
        return f"was skipped ({attempt.outcome.removeprefix(SKIPPED)})"
    if attempt.outcome == "Unreachable":
        return "timed out" if attempt.ms >= SLOW_MS else "could not be reached"
    if attempt.outcome == "Overloaded" and attempt.status is not None:
        return f"failed with {attempt.status}"
    return FAILURE_WORDS.get(attempt.outcome, f"failed ({attempt.outcome})")


def say_attempts(attempts: Sequence[TurnAttempt]) -> list[str]:
    """The attempts before the last one, if there were any. Those of a message that was revived were told in its apology."""
    if gave_up := [attempt for attempt in attempts[:-1] if attempt.end is AttemptEnd.ENDED]:
        since = [*attempts[attempts.index(gave_up[-1]) + 1 :]]
        return [f"an operator revived it after attempt {gave_up[-1].attempt} had given up", *say_attempts(since)]
    broken = [attempt for attempt in attempts if attempt.end in (AttemptEnd.CUT_OFF, AttemptEnd.FAILED)]
    if len(broken) > MAX_TOLD_ATTEMPTS:
        return [f"{len(broken)} attempts before it; the last one: {say_broken(broken[-1])}"]
    return [", ".join(say_broken(attempt) for attempt in broken)] if broken else []


def say_broken(attempt: TurnAttempt) -> str:
    at = f" at {attempt.step}" if attempt.step else ""
    if attempt.end is AttemptEnd.CUT_OFF:
        return f"attempt {attempt.attempt} was cut off{at}"
    return f"attempt {attempt.attempt} failed{at}" + (f" ({attempt.error})" if attempt.error else "")


def say_tools(turn: TurnRecord) -> list[str]:
    tools = turn.meta.get("tools") or []
    errors = sum(bool(tool.get("is_error")) for tool in tools)
    return [count_phrase(len(tools), "tool") + (f", {errors} failed" if errors else "")] if tools else []


def say_cost(turn: TurnRecord) -> list[str]:
    return [f"{show_usd(turn.micro_usd)} so far"] if turn.calls else []


def say_delivery(turn: TurnRecord) -> list[str]:
    """What became of the answer: the part that fared worst."""
    parts = [part for part in turn.deliveries if not part.news]
    if not parts:
        return ["no answer is kept"] if turn.is_erased else []
    rank = {"dead": 0, "attempting": 1, "pending": 2, "sent": 3}
    return [say_part(min(parts, key=lambda part: (rank.get(part.state, 0), -part.tries)))]


def say_part(part: DeliveryRecord) -> str:
    why = f" ({part.outcome}{': ' + part.reason if part.reason else ''})" if part.outcome and part.outcome != "sent" else ""
    why = why or (f" ({part.reason})" if part.reason and part.state != "sent" else "")
    match part.state:
        case "dead":
            return f"not delivered: given up after {'1 try' if part.tries == 1 else f'{part.tries} tries'}{why}"
        case "attempting":
            return f"being sent, try {part.tries}"
        case "pending":
            return f"not delivered yet{f' after try {part.tries}' if part.tries else ''}{why}"
    if not part.tries:
        return "fetched by its client"
    word = {1: "sent", 2: "delivered", 3: "read"}.get(int(part.rank or 1), "delivered")
    return f"{'delivered' if word == 'sent' else word} at try {part.tries}"


# --- the causes


def name_causes(turn: TurnRecord, timeline: TurnTimeline | None) -> list[Cause]:
    """The causes in the order of time: the wait, the attempts, the calls, the tools, the credit, the delivery, what was learned."""
    attempts = timeline.attempts if timeline is not None else ()
    causes = [*name_wait(turn, attempts), *(name_attempt(turn, attempt, is_last=attempt is attempts[-1]) for attempt in attempts)]
    causes += [Cause(say_call(recorded.call), step_of(recorded.call)) for recorded in turn.calls]
    for tool in turn.meta.get("tools") or ():
        causes.append(
            Cause(f"tool {tool.get('name')} {'failed' if tool.get('is_error') else 'ended'} after {show_ms(tool.get('ms'))}", "run_tools")
        )
    causes += [Cause(f"credit: {line.amount} {CREDIT_WORDS.get(line.kind, line.kind)}", "take_credit") for line in turn.credits]
    causes += [Cause(f"{part.news or f'part {part.part + 1}'}: {say_part(part)}", "record") for part in turn.deliveries]
    learned = sum(int(event.facts.get("added", 0)) for event in (timeline.later if timeline else ()) if event.type == "memory_saved")
    return [*causes, Cause(f"learned from it afterwards: {count_phrase(learned, 'fact')}")] if learned else causes


def name_wait(turn: TurnRecord, attempts: Sequence[TurnAttempt]) -> list[Cause]:
    began = attempts[0].began_at if attempts else None
    waited_s = ((began or turn.ended_at or turn.now) - turn.received_at).total_seconds()
    if turn.state == "waiting" and began is None:
        return [Cause(say_waiting(turn, attempts))]
    if began is None:
        return [Cause(f"waited {show_ms(max(waited_s, 0) * 1_000)}; no attempt is recorded")]
    joined = [Cause(f"{count_phrase(len(turn.joined), 'more message')} joined to it: one answer for all")] if turn.joined else []
    return [Cause(f"waited {show_ms(max(waited_s, 0) * 1_000)} before its first attempt"), *joined]


def name_attempt(turn: TurnRecord, attempt: TurnAttempt, *, is_last: bool) -> Cause:
    by = f" by worker {short(attempt.worker)}" if attempt.worker else ""
    match attempt.end:
        case AttemptEnd.CUT_OFF | AttemptEnd.FAILED:
            return Cause(f"{say_broken(attempt)}{by}", attempt.step)
        case AttemptEnd.RUNNING:
            return Cause(f"attempt {attempt.attempt} runs{by}", attempt.steps[-1].step if attempt.steps else None)
    if turn.stopped_at is not None and is_last:
        return Cause(f"attempt {attempt.attempt} was stopped: the client withdrew the message")
    if not is_last:
        return Cause(f"attempt {attempt.attempt} gave up; an operator revived the message")
    fell_back = f": {attempt.error} at {attempt.step}, so it fell back" if attempt.error and attempt.step else ""
    return Cause(f"attempt {attempt.attempt} ended the turn{by}{fell_back}", attempt.step if fell_back else None)


def say_call(call: ModelCall) -> str:
    """A call with its attempts and its price: `answer: claude-sonnet timed out (45.0 s), claude-haiku answered (1.2 s); …`."""
    what = call.purpose or call.source
    tried = [
        f"{with_stand_in(call, attempt.name)} answered ({show_ms(attempt.ms)})"
        if attempt.outcome == ANSWERED
        else f"{attempt.name} {say_failure(attempt)} ({show_ms(attempt.ms)})"
        for attempt in call.attempts
    ]
    if call.cache_hit:
        tried = ["from the answer cache"]
    words = ", ".join(tried) or FAILURE_WORDS.get(call.error or "", call.error or "") or str(call.outcome)
    if call.error and call.attempts and call.outcome is not CallOutcome.ANSWERED and call.error not in FAILURE_WORDS:
        words += f"; {call.error}"
    tokens = f"; {call.usage.tokens_in:,} tokens in, {call.usage.tokens_out:,} out" if call.tokens else ""
    return f"{what}: {words}{tokens}; {show_usd(call.micro_usd)}"


def step_of(call: ModelCall) -> str | None:
    steps = {CallPurpose.ANSWER: "call_model", CallPurpose.CONCLUDE: "run_tools", CallPurpose.COMPACT: "load_history"}
    return steps.get(call.purpose) if call.purpose is not None else None


def short(identity: UUID) -> str:
    return shorten_id(identity)
