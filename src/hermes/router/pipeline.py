"""The plot: a message comes in, ten steps, an answer goes out. What fails on the way is answered too, by one table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from hermes.ports.backends import BackendError
from hermes.ports.budgets import BudgetSpent, Paused, Window
from hermes.ports.errors import OutOfCredit
from hermes.ports.images import ImageTooLarge, ImageUnreadable
from hermes.ports.inbox import Claim
from hermes.ports.models import NoAnswer, NoCapacity
from hermes.router.replies import ReplyKind, reply
from hermes.router.services import Services
from hermes.router.steps import (
    Ended,
    NotActivated,
    Past,
    Person,
    UnknownSender,
    build_messages,
    call_model,
    gate_tools,
    load_history,
    load_soul,
    record,
    resolve_user,
    route_image,
    run_tools,
    take_credit,
)
from hermes.router.steps.resolve_user import find_user

log = structlog.get_logger()
T = TypeVar("T")

STEP_S = 10.0
"""How long a step may take that asks no model and no tool; those have limits of their own."""

FALLBACKS: Mapping[type[Exception], ReplyKind] = {
    UnknownSender: ReplyKind.SIGNUP,
    NotActivated: ReplyKind.ACTIVATION,
    OutOfCredit: ReplyKind.UPGRADE,
    BudgetSpent: ReplyKind.DAY_BUDGET,
    Paused: ReplyKind.PAUSED,
    NoCapacity: ReplyKind.BUSY,
    ImageTooLarge: ReplyKind.IMAGE_TOO_LARGE,
    ImageUnreadable: ReplyKind.IMAGE_UNREADABLE,
    NoAnswer: ReplyKind.RETRY_LATER,
    BackendError: ReplyKind.RETRY_LATER,
    TimeoutError: ReplyKind.RETRY_LATER,
}
"""What is said when a step fails; the first that fits. The credit is voided for all of them. What is not here drives the turn again."""


async def handle_message(claim: Claim, services: Services) -> Ended:
    """Answer one message: ten steps, or what the table says. Every end is recorded, and every end is an answer."""
    person, run = await find_user(claim, services), Run(services)
    try:
        with run.watched():
            person = await run.step("resolve_user", resolve_user(person))
            await run.step("take_credit", take_credit(claim, services))
            soul = await run.step("load_soul", load_soul(claim, person, services))
            run.past = await run.step("load_history", load_history(claim, services))
            picture = await run.step("route_image", route_image(claim, person, services))
            prompt = run.at_once("build_messages", lambda: build_messages(soul, run.known_past, claim.envelope.event, picture))
            prompt = run.at_once("gate_tools", lambda: gate_tools(claim, prompt, person, run.known_past, services))
            asked = await run.step("call_model", call_model(claim, prompt, person, run.known_past, services), limit_s=None)
            exchange = await run.step("run_tools", run_tools(claim, asked, person, run.known_past, services), limit_s=None)
        meta = {"soul_load_ms": soul.load_ms, "semantic_recall_used": soul.is_recall_used}
        ended = Ended(text=exchange.text, outcome="answered", past=run.past, exchange=exchange, meta=meta, notes=run.notes)
    except tuple(FALLBACKS) as error:
        kind = kind_of(error)
        log.warning("turn_fell_back", kind=str(kind), step=run.at, error=type(error).__name__)
        run.note("fallback_used", kind=str(kind), error=type(error).__name__)
        text = say(kind, error, person, services)
        ended = Ended(text=text, outcome=str(kind), past=run.past, meta={"error": type(error).__name__, "step": run.at}, notes=run.notes)
    await run.step("record", record(claim, ended, services))
    return ended


def kind_of(error: Exception) -> ReplyKind:
    """The reply to an error: the first of the table that fits."""
    if isinstance(error, BudgetSpent) and error.window is Window.MONTH:
        return ReplyKind.MONTH_BUDGET
    return next(kind for type_, kind in FALLBACKS.items() if isinstance(error, type_))


def say(kind: ReplyKind, error: Exception, person: Person, services: Services) -> str:
    links = services.links
    link = {ReplyKind.SIGNUP: links.signup, ReplyKind.ACTIVATION: links.activation, ReplyKind.UPGRADE: links.upgrade}.get(kind)
    return reply(
        kind,
        person.language,
        zone=person.zone,
        now=services.clock.now(),
        link=link,
        referral_code=person.user.referral_code,
        reward=links.referral_reward,
        resets_at=getattr(error, "resets_at", None) or getattr(error, "until", None),
        max_bytes=getattr(error, "max_bytes", None),
    )


@dataclass(slots=True)
class Run:
    """One way through the steps: where it is, what it noted, how long each step took."""

    services: Services
    at: str = ""
    past: Past | None = None
    notes: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    @property
    def known_past(self) -> Past:
        assert self.past is not None  # noqa: S101  # after step 4
        return self.past

    async def step(self, name: str, doing: Awaitable[T], *, limit_s: float | None = STEP_S) -> T:
        """Take a step, within its time, and note how long it took."""
        began, self.at = time.monotonic(), name
        try:
            async with asyncio.timeout(limit_s):
                return await doing
        finally:
            self._took(name, began)

    def at_once(self, name: str, doing: Callable[[], T]) -> T:
        """Take a step that waits for nothing."""
        began, self.at = time.monotonic(), name
        try:
            return doing()
        finally:
            self._took(name, began)

    def note(self, type_: str, **facts: Any) -> None:
        self.notes.append((type_, facts))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Say in the log which step something unexpected happened in; it is raised all the same, and the turn driven again."""
        try:
            yield
        except tuple(FALLBACKS):
            raise
        except Exception as error:
            log.warning("step_failed", step=self.at, error=type(error).__name__)
            raise

    def _took(self, name: str, began: float) -> None:
        seconds = time.monotonic() - began
        self.services.observe(name, seconds)
        if name in NOTED:
            self.note(NOTED[name], ms=round(seconds * 1_000))


NOTED = {
    "resolve_user": "user_resolved",
    "take_credit": "credit_reserved",
    "load_soul": "soul_loaded",
    "route_image": "intent_classified",
    "gate_tools": "tools_gated",
}
"""What a step is in the journal. Model and tools are there by themselves: they are effects."""
