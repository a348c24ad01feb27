"""Run the turn of a message: claim it, take it through the ten steps, and give it up only with an apology to its sender.

    claim  →  ten steps  →  (too often, too old) apology

A claim is a transaction of its own, so that the attempt stays counted. If a worker dies anywhere, another worker drives the turn again: the
journal has the results that were paid for, and the turn ends once or not at all."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from uuid import UUID

import structlog

from hermes.ports.errors import PortError, StoreUnavailable, UserErased
from hermes.ports.inbox import Claim, UnreadableMessage
from hermes.ports.traces import TraceSpan
from hermes.ports.users import UserState
from hermes.router.intake import DEFAULT_JOIN_WINDOW, MAX_JOINED_MESSAGES, JoinWindow
from hermes.router.outbox import deliver_answer, put_answer
from hermes.router.pipeline import handle_message
from hermes.router.replies import ReplyKind, reply
from hermes.router.services import Services
from hermes.router.step_log import StepLog
from hermes.router.steps.record import EMPTY_PROVENANCE, TurnResult
from hermes.router.steps.resolve_user import load_user

log = structlog.get_logger()

ANSWERED_ATTEMPTS_FACTOR = 4
"""A turn whose model has answered may be tried this many times as often."""


CLAIM = "claim"
"""In place of a step's name, for an attempt that failed before the first step."""


class MessageUnreadable(PortError):
    """The message cannot be opened now; a worker tries it again."""


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """How often and how long Hermes tries to answer a message before it apologises."""

    max_attempts: int = 5
    max_age_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class TurnRunner:
    """Runs turns."""

    services: Services
    limits: TurnLimits
    join_window: JoinWindow = DEFAULT_JOIN_WINDOW

    async def run(self, turn_id: UUID, claim: Claim | UnreadableMessage | None = None) -> bool:
        """Drive a turn to its end; claim it first, unless it was claimed with its job. Any worker may call it again for the same turn, at
        any time. Returns whether its last transaction has ended its job too."""
        if claim is None:
            async with self.services.transactions.once() as tx:
                claim = await self.services.inbox.claim(tx, turn_id, worker=self.services.process_id, per_minute=self.services.per_minute)
        if claim is None:
            return False
        steps = StepLog()
        async with FailureNotes(self.services, claim, steps):
            if isinstance(claim, UnreadableMessage):
                await self._give_up_or_retry(claim)
                return False
            structlog.contextvars.bind_contextvars(turn_id=str(turn_id))
            try:
                with self.services.tracer.turn(claim) as span:
                    return await self._drive(await self._join_waiting(claim, span), steps, span)
            except UserErased:
                # In a group it may be another member who was deleted; then the sender still waits for an answer.
                if not await self._is_sender_deleted(claim):
                    raise
                await self._bury_unread(claim.turn_id, "its sender was deleted")
        return False

    async def _join_waiting(self, claim: Claim, span: TraceSpan) -> Claim:
        """Join the waiting messages that belong to this one. Not once an earlier attempt has asked the model: it was not shown them."""
        if not self.join_window.wait_s(claim.envelope):
            return claim
        async with self.services.transactions.begin() as tx:
            if await self.services.journal.effect(tx, claim.turn_id, "call_model", 0) is not None:
                return claim
            others = self.join_window.messages_to_join(claim, await self.services.inbox.waiting_behind(tx, claim, MAX_JOINED_MESSAGES))
            for other in others:
                span.link(other.traceparent)
            return await self.services.inbox.join(tx, claim, others) if others else claim

    async def _drive(self, claim: Claim, steps: StepLog, span: TraceSpan) -> bool:
        if await self._is_given_up(claim):
            span.note(outcome="apologised")
            await self._apologise(claim, steps)
            return False
        ended = await handle_message(claim, self.services, steps)
        note_result(span, claim, ended)
        return ended.has_ended_job

    async def _is_given_up(self, claim: Claim) -> bool:
        is_answered = False
        if claim.tries > self.limits.max_attempts:
            async with self.services.transactions.begin() as tx:
                is_answered = await self.services.journal.has_result(tx, claim, "call_model", 0)
        # An answer that was paid for is worth more tries, but not endless ones: the rest of the conversation waits behind it.
        limit = self.limits.max_attempts * (ANSWERED_ATTEMPTS_FACTOR if is_answered else 1)
        return claim.tries > limit or self._age_s(claim) > self.limits.max_age_s

    def _age_s(self, claim: Claim) -> float:
        """How long ago the message was sent, if its platform says so: one that the platform held back for days is old when it arrives.
        A message that an operator revived is as old as its revival."""
        sent_at = claim.envelope.sent_at
        return (
            claim.age_s
            if sent_at is None or claim.revived_after
            else max(claim.age_s, (self.services.clock.now() - sent_at).total_seconds())
        )

    async def _apologise(self, claim: Claim, steps: StepLog) -> None:
        """Give up on a message that keeps failing: keep it as a dead letter, charge nothing, and apologise to its sender."""
        services = self.services
        person = await load_user(claim, services)
        text = reply(ReplyKind.APOLOGY, person.language, zone=person.zone, now=services.clock.now())
        meta = {**EMPTY_PROVENANCE, "outcome": "apologised", "attempt": claim.attempt, "language": person.language}
        meta |= {"agent": person.agent.name, "tier": person.tier, "intent": "unknown"}
        async with services.transactions.begin() as tx:
            await services.inbox.hold(tx, claim)
            session = await services.sessions.current(tx, claim.conversation_id, claim.user_id, is_shared=claim.envelope.is_shared)
            await services.credits.void(tx, claim.turn_id)
            await services.interactions.add(tx, claim, session.id, meta)
            await put_answer(tx, claim, text, services)
            await services.inbox.bury(tx, claim, f"gave up at attempt {claim.attempt} after {self._age_s(claim):.0f} s")
            steps = steps.fork()
            steps.note("fallback_used", kind=str(ReplyKind.APOLOGY), worker=str(services.process_id))
            steps.note("credit_voided")
            await services.journal.note(tx, claim, steps.notes())
        services.alerts.alert("message_buried", turn_id=str(claim.turn_id), attempt=claim.attempt, age_s=round(claim.age_s))
        services.meter.count_turn("apologised", "unknown")
        await deliver_answer(claim, services)

    async def _give_up_or_retry(self, message: UnreadableMessage) -> None:
        """Give up on a message that can never be opened; else raise MessageUnreadable and try again later: a missing key may be found."""
        is_hopeless = message.is_damaged and message.attempt > self.limits.max_attempts
        if message.is_erased or is_hopeless or message.age_s > self.limits.max_age_s:
            await self._bury_unread(message.turn_id, message.reason)
            if not message.is_erased:
                self.services.alerts.alert("message_unreadable", turn_id=str(message.turn_id), attempt=message.attempt)
            return
        raise MessageUnreadable(message.reason)

    async def _is_sender_deleted(self, claim: Claim) -> bool:
        async with self.services.transactions.once() as tx:
            return (await self.services.people.get(tx, claim.user_id)).state is UserState.DELETED

    async def _bury_unread(self, turn_id: UUID, reason: str) -> None:
        async with self.services.transactions.begin() as tx:
            await self.services.inbox.bury_unread(tx, turn_id, reason)
            await self.services.credits.void(tx, turn_id)
        log.warning("message_given_up", turn_id=str(turn_id), reason=reason)


@dataclass(frozen=True, slots=True)
class FailureNotes:
    """Notes that an attempt failed, if its block raises an error that leaves the turn open. The error is raised further.

    Nothing is noted while the store is down, nor for an attempt that is cancelled because its process stops: then the next claim notes that
    the attempt was cut off. If a store was down, the attempt is not counted."""

    services: Services
    claim: Claim | UnreadableMessage
    steps: StepLog

    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if not isinstance(error, Exception):
            return
        where, services = {"step": self.steps.at or CLAIM, "error": type(error).__name__}, self.services
        self.steps.end("attempt_failed", **where, worker=str(services.process_id))
        with suppress(StoreUnavailable):
            async with services.transactions.begin() as tx:
                # First the journal, which locks the conversation, then the turn's row: everywhere in this order.
                await services.journal.note_failed(tx, self.claim, self.steps.notes())
                if isinstance(error, StoreUnavailable) and isinstance(self.claim, Claim):
                    await services.inbox.uncount_attempt(tx, self.claim)


def note_result(span: TraceSpan, claim: Claim, ended: TurnResult) -> None:
    """Add to a turn's span how it ended."""
    person, prompt = ended.person, ended.transcript.prompt if ended.transcript else None
    span.note(outcome=ended.outcome, intent=(prompt.intent or prompt.gate) if prompt else None)
    span.note(tier=person.tier if person else None, agent=person.agent.name if person else None)
    span.note(session_id=ended.past.session.id if ended.past else None)
    span.show_texts(question=claim.envelope.event.text, answer=ended.text)
