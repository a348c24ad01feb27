"""One message, ten steps, one answer. An error in a step is answered too: one table says with which reply."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from hermes.ports.backends import BackendError
from hermes.ports.credits import BudgetSpent, BudgetWindow, CallsPaused
from hermes.ports.errors import OutOfCredit
from hermes.ports.inbox import Claim
from hermes.ports.models import NoAnswer, NoCapacity
from hermes.ports.tools import ImageTooLarge, ImageUnreadable
from hermes.router.outbox import deliver_answer
from hermes.router.replies import ReplyKind, reply
from hermes.router.services import Services
from hermes.router.steps.build_messages import build_messages
from hermes.router.steps.call_model import call_model
from hermes.router.steps.gate_tools import gate_tools
from hermes.router.steps.load_history import LoadedHistory, load_history
from hermes.router.steps.load_soul import load_soul
from hermes.router.steps.record import TurnResult, extend_hot_history, record
from hermes.router.steps.resolve_user import NotActivated, ResolvedUser, SenderRefused, TooManyMessages, UnknownSender, resolve_user
from hermes.router.steps.route_image import route_image
from hermes.router.steps.run_tools import run_tools
from hermes.router.steps.take_credit import take_credit

log = structlog.get_logger()
T = TypeVar("T")

ANSWERED = "answered"

FALLBACKS: Mapping[type[Exception], ReplyKind] = {
    TooManyMessages: ReplyKind.TOO_MANY_MESSAGES,
    UnknownSender: ReplyKind.SIGNUP,
    NotActivated: ReplyKind.ACTIVATION,
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


async def handle_message(claim: Claim, services: Services) -> TurnResult:
    """Answer one message: ten steps, or the reply that the table gives. Every end is recorded, and every end is an answer.

    Raises any error that is not in the table, such as ClaimLost and StoreUnavailable; a worker drives the turn again then."""
    run = PipelineRun(services)
    try:
        run.person = person = await run.step("resolve_user", resolve_user(claim, services))
        await run.step("take_credit", take_credit(claim, services))
        soul = await run.step("load_soul", load_soul(claim, person, services))
        run.person = person = person.in_timezone(soul.timezone)
        run.past = past = await run.step("load_history", load_history(claim, person, services), limit_s=services.model_s)
        image = await run.step("route_image", route_image(claim, services))
        prompt = run.pure_step("build_messages", lambda: build_messages(claim, soul, past, image))
        prompt = run.pure_step("gate_tools", lambda: gate_tools(claim, prompt, person, past, services))
        async with services.typing(claim.envelope):
            first_call = await run.step("call_model", call_model(claim, prompt, person, past, services), limit_s=services.model_s)
            prompt, _ = first_call
            run.intent = prompt.intent or prompt.gate
            transcript = await run.step("run_tools", run_tools(claim, first_call, person, past, services), limit_s=services.tools_s)
        meta = {"soul_load_ms": soul.load_ms, "semantic_recall_used": soul.is_recall_used}
        ended = TurnResult(
            text=transcript.text, outcome=ANSWERED, person=person, past=past, transcript=transcript, meta=meta, notes=run.notes
        )
    except tuple(FALLBACKS) as error:
        kind = fallback_for(error)
        log.warning("turn_fell_back", kind=str(kind), step=run.at, error=type(error).__name__)
        run.note("fallback_used", kind=str(kind), error=type(error).__name__)
        if isinstance(error, SenderRefused):
            run.person = error.person
        text = fallback_text(kind, error, run.person, services)
        why = {"error": type(error).__name__, "step": run.at}
        ended = TurnResult(text=text, outcome=str(kind), person=run.person, past=run.past, meta=why, notes=run.notes)
    appended = await run.step("record", record(claim, ended, services))
    services.meter.count_turn(ended.outcome, run.intent)
    await extend_hot_history(claim, ended, appended, services)
    await deliver_answer(claim, services)
    log.info("turn_ended", outcome=ended.outcome, attempt=claim.attempt, waited_s=round(claim.age_s, 3))
    return ended


def fallback_for(error: Exception) -> ReplyKind:
    """The reply to an error: the first entry of the table that fits."""
    if isinstance(error, BudgetSpent) and error.window is BudgetWindow.MONTH:
        return ReplyKind.MONTH_BUDGET
    return next(kind for type_, kind in FALLBACKS.items() if isinstance(error, type_))


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
    """One run through the steps: the step it is at, its notes for the journal, and how long each step takes."""

    services: Services
    at: str = ""
    """The name of the step."""
    person: ResolvedUser | None = None
    past: LoadedHistory | None = None
    intent: str = "unknown"
    notes: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    async def step(self, name: str, work: Awaitable[T], *, limit_s: float | None = None) -> T:
        """Run a step within its time limit, measure how long it takes, and note its event for the journal. Raises what the step raises."""
        began, self.at = time.monotonic(), name
        try:
            with self.services.tracer.step(name):
                async with asyncio.timeout(limit_s or self.services.step_s):
                    result = await work
        finally:
            self.services.meter.count_step(name, time.monotonic() - began)
        return self._note_step(name, began, result)

    def pure_step(self, name: str, work: Callable[[], T]) -> T:
        """Run a step that awaits nothing, as `step` does."""
        began, self.at = time.monotonic(), name
        try:
            with self.services.tracer.step(name):
                result = work()
        finally:
            self.services.meter.count_step(name, time.monotonic() - began)
        return self._note_step(name, began, result)

    def note(self, type_: str, **facts: Any) -> None:
        self.notes.append((type_, facts))

    def _note_step(self, name: str, began: float, result: T) -> T:
        if name in STEP_EVENTS:
            type_, facts_of = STEP_EVENTS[name]
            self.note(type_, ms=round((time.monotonic() - began) * 1_000), **facts_of(result))
        return result


STEP_EVENTS: Mapping[str, tuple[str, Callable[[Any], Mapping[str, Any]]]] = {
    "resolve_user": ("user_resolved", lambda person: {"tier": person.tier, "language": person.language, "agent": person.agent.name}),
    "take_credit": ("credit_reserved", lambda _: {}),
    "load_soul": ("soul_loaded", lambda soul: {"is_recall_used": soul.is_recall_used}),
    "load_history": ("history_loaded", lambda past: {"messages": len(past.history.messages), "is_compacted": past.is_compacted}),
    "route_image": ("intent_classified", lambda image: {"intent": "text" if image is None else str(image.intent)}),
    "gate_tools": ("tools_gated", lambda prompt: {"subset": prompt.gate, "tools": len(prompt.tools)}),
}
"""The event of each step in the journal, and the facts of its result that the event may show. Model calls and tool runs are not listed:
they are effects, and the journal has those anyway."""
