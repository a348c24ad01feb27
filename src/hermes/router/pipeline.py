"""One message, ten steps, one answer. An error in a step is answered too: one table says with which reply.

A message by which its sender approves an offer takes the steps in another order: the offer is carried out first (run_tools), and the model
is asked after it, once, to put the result into words (call_model)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from hermes.ports.backends import BackendError
from hermes.ports.credits import BudgetSpent, BudgetWindow, CallsPaused
from hermes.ports.errors import OutOfCredit
from hermes.ports.inbox import Claim
from hermes.ports.memories import Soul
from hermes.ports.models import ChainFailed, NoAnswer, NoCapacity
from hermes.ports.timeline import STEP_EVENT_NAMES
from hermes.ports.tools import ImageTooLarge, ImageUnreadable, ToolResult
from hermes.router.approvals import OfferClosed, read_decision, with_result
from hermes.router.effects import JournaledAnswer
from hermes.router.outbox import is_sent
from hermes.router.replies import ReplyKind, reply
from hermes.router.services import Services
from hermes.router.step_log import StepLog
from hermes.router.steps.build_messages import Prompt, build_messages
from hermes.router.steps.call_model import call_model
from hermes.router.steps.gate_tools import gate_tools
from hermes.router.steps.load_history import LoadedHistory, load_history
from hermes.router.steps.load_soul import load_soul
from hermes.router.steps.record import TurnResult, extend_hot_history, record
from hermes.router.steps.resolve_user import NotActivated, ResolvedUser, SenderRefused, TooManyMessages, UnknownSender, resolve_user
from hermes.router.steps.route_image import route_image
from hermes.router.steps.run_tools import TurnTranscript, carry_out_offer, conclude_offer, run_tools
from hermes.router.steps.take_credit import take_credit

log = structlog.get_logger()
T = TypeVar("T")

ANSWERED = "answered"

FALLBACKS: Mapping[type[Exception], ReplyKind] = {
    TooManyMessages: ReplyKind.TOO_MANY_MESSAGES,
    UnknownSender: ReplyKind.SIGNUP,
    NotActivated: ReplyKind.ACTIVATION,
    OfferClosed: ReplyKind.OFFER_EXPIRED,
    OutOfCredit: ReplyKind.UPGRADE,
    BudgetSpent: ReplyKind.DAY_BUDGET,
    CallsPaused: ReplyKind.PAUSED,
    NoCapacity: ReplyKind.BUSY,
    ImageTooLarge: ReplyKind.IMAGE_TOO_LARGE,
    ImageUnreadable: ReplyKind.IMAGE_UNREADABLE,
    NoAnswer: ReplyKind.RETRY_LATER,
    BackendError: ReplyKind.RETRY_LATER,
    TimeoutError: ReplyKind.RETRY_LATER,
}
"""The reply when a step raises; the first entry that fits counts. Each of them voids the credit. Any other error leaves the turn open, and
a worker drives it again."""


async def handle_message(claim: Claim, services: Services, steps: StepLog | None = None) -> TurnResult:
    """Answer one message: ten steps, or the reply that the table gives. Every end is recorded, and every end is an answer.

    `steps` is the log of this attempt, for a caller that notes where the attempt failed.
    Raises any error that is not in the table, such as ClaimLost and StoreUnavailable; a worker drives the turn again then."""
    run = PipelineRun(services, steps or StepLog())
    try:
        run.person = person = await run.step("resolve_user", resolve_user(claim, services))
        async with asyncio.timeout(services.step_s):
            approval = await read_decision(claim, person, services)
        await run.step("take_credit", take_credit(claim, services))
        soul = await run.step("load_soul", load_soul(claim, person, services))
        run.person = person = person.in_timezone(soul.timezone)
        run.past = past = await run.step("load_history", load_history(claim, person, services), limit_s=services.model_s)
        image = await run.step("route_image", route_image(claim, services))
        prompt = run.pure_step("build_messages", lambda: build_messages(claim, soul, past, image))
        prompt = run.pure_step("gate_tools", lambda: gate_tools(claim, prompt, person, past, services))
        async with services.typing(claim.envelope):
            if approval is not None:
                done = await run.step("run_tools", carry_out_offer(claim, approval, person, services), limit_s=services.tools_s)
                run.intent = "approval"
                transcript = await run.step(
                    "call_model",
                    conclude_offer(claim, with_result(prompt, approval, done), done, person, past, services),
                    limit_s=services.model_s,
                )
            else:
                first_call = await run.step("call_model", call_model(claim, prompt, person, past, services), limit_s=services.model_s)
                prompt, _ = first_call
                run.intent = prompt.intent or prompt.gate
                transcript = await run.step("run_tools", run_tools(claim, first_call, person, past, services), limit_s=services.tools_s)
        meta = {"soul_load_ms": soul.load_ms, "semantic_recall_used": soul.is_recall_used, "intent": run.intent}
        ended = TurnResult(
            text=transcript.text, outcome=ANSWERED, person=person, past=past, transcript=transcript, meta=meta, steps=run.steps
        )
    except tuple(FALLBACKS) as error:
        kind = fallback_for(error)
        log.warning("turn_fell_back", kind=str(kind), step=run.steps.at, error=type(error).__name__)
        run.steps.end("fallback_used", kind=str(kind), step=run.steps.at, error=type(error).__name__)
        if isinstance(error, SenderRefused):
            run.person = error.person
        text = fallback_text(kind, error, run.person, services)
        why = {"error": type(error).__name__, "step": run.steps.at, "intent": run.intent, **last_error_of(error)}
        ended = TurnResult(text=text, outcome=str(kind), person=run.person, past=run.past, meta=why, steps=run.steps)
    recorded = await run.step("record", record(claim, ended, services))
    services.meter.count_turn(ended.outcome, run.intent)
    if not is_sent(claim.envelope):
        await services.answer_signals.announce(claim.turn_id)  # first: its client waits
    await extend_hot_history(claim, ended, recorded.appended, services)
    if is_sent(claim.envelope):
        await services.deliver(claim.conversation_id)  # may take long, and the next turn needs the history
    log.info("turn_ended", outcome=ended.outcome, attempt=claim.attempt, waited_s=round(claim.age_s, 3))
    return replace(ended, has_ended_job=recorded.has_ended_job)


def fallback_for(error: Exception) -> ReplyKind:
    """The reply to an error: the first entry of the table that fits."""
    if isinstance(error, BudgetSpent) and error.window is BudgetWindow.MONTH:
        return ReplyKind.MONTH_BUDGET
    if isinstance(error, OfferClosed):
        return error.reply_kind
    return next(kind for type_, kind in FALLBACKS.items() if isinstance(error, type_))


def last_error_of(error: Exception) -> dict[str, Any]:
    """What the last model of a failed chain raised, by name: no words of a vendor, which may repeat the user's."""
    last = error.last if isinstance(error, ChainFailed) else None
    if last is None:
        return {}
    return {"last_error": {"error": type(last).__name__, "backend": last.backend, "model": last.model, "status": last.status}}


def fallback_text(kind: ReplyKind, error: Exception, person: ResolvedUser | None, services: Services) -> str:
    """The reply in the user's language; in English if it is not known who writes, because the user could not be read in time."""
    links = services.links
    link = {ReplyKind.SIGNUP: links.signup, ReplyKind.ACTIVATION: links.activation, ReplyKind.UPGRADE: links.upgrade}.get(kind)
    return reply(
        kind,
        person.language if person else None,
        zone=person.zone if person else None,
        now=services.clock.now(),
        link=link,
        referral_code=person.user.referral_code if person else None,
        reward=links.referral_reward,
        resets_at=getattr(error, "resets_at", None) or getattr(error, "until", None),
        max_bytes=getattr(error, "max_bytes", None),
        retry_in=getattr(error, "retry_in", None),
    )


@dataclass(slots=True)
class PipelineRun:
    """One run through the steps: the log of its steps, and what is known so far."""

    services: Services
    steps: StepLog
    person: ResolvedUser | None = None
    past: LoadedHistory | None = None
    intent: str = "unknown"

    async def step(self, name: str, work: Awaitable[T], *, limit_s: float | None = None) -> T:
        """Run a step within its time limit, measure how long it takes, and log its event for the journal. Raises what the step raises."""
        self.steps.begin(name)
        try:
            with self.services.tracer.step(name):
                async with asyncio.timeout(limit_s or self.services.step_s):
                    result = await work
        finally:
            self.services.meter.count_step(name, self.steps.step_s)
        return self._log_step(name, result)

    def pure_step(self, name: str, work: Callable[[], T]) -> T:
        """Run a step that awaits nothing, as `step` does."""
        self.steps.begin(name)
        try:
            with self.services.tracer.step(name):
                result = work()
        finally:
            self.services.meter.count_step(name, self.steps.step_s)
        return self._log_step(name, result)

    def _log_step(self, name: str, result: T) -> T:
        if name in STEP_FACTS:
            self.steps.end(STEP_EVENT_NAMES[name], **STEP_FACTS[name](result))
        return result


def soul_facts(soul: Soul) -> Mapping[str, Any]:
    """Which layers the prompt has, and which facts recall found: names, sizes, scores and ids of rows, never a text or a key."""
    layers = [{"name": layer.name, "chars": layer.chars} for layer in soul.layers]
    recalled = [{"id": str(fact.id), "score": round(fact.score, 3)} for fact in soul.recalled]
    return {"is_recall_used": soul.is_recall_used, "layers": layers, "recalled": recalled}


def history_facts(past: LoadedHistory) -> Mapping[str, Any]:
    return {"messages": len(past.history.messages), "is_compacted": past.is_compacted, "is_missing": past.is_missing}


def tool_facts(done: TurnTranscript | ToolResult) -> Mapping[str, Any]:
    results = [done] if isinstance(done, ToolResult) else done.results
    return {"tools": len(results), "errors": sum(result.is_error for result in results)}


def model_facts(done: TurnTranscript | tuple[Prompt, JournaledAnswer]) -> Mapping[str, Any]:
    """The last answer of the step; no facts if it was the result of an approved offer that no model could put into words."""
    answer = done.first if isinstance(done, TurnTranscript) else done[1]
    return {} if answer is None else {"backend": answer.backend, "model": answer.model, "tool_calls": len(answer.tool_calls)}


STEP_FACTS: Mapping[str, Callable[[Any], Mapping[str, Any]]] = {
    "resolve_user": lambda person: {"tier": person.tier, "language": person.language, "agent": person.agent.name},
    "take_credit": lambda _: {},
    "load_soul": soul_facts,
    "load_history": history_facts,
    "route_image": lambda image: {"intent": "text" if image is None else str(image.intent)},
    "build_messages": lambda prompt: {"messages": len(prompt.history) + 1, "characters": prompt.characters},
    "gate_tools": lambda prompt: {"subset": prompt.gate, "tools": len(prompt.tools)},
    "call_model": model_facts,
    "run_tools": tool_facts,
}
"""The facts of a step's result that its event in the journal may show. Step record is not listed: it logs its own event, in its own
transaction. What a model call cost and how long each tool ran is in their effects."""
