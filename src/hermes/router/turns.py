"""What happens to a message once its turn has come. For now every answer is an echo; the frame around it is the real one.

    claim  →  reserve  →  read the history  →  answer, once  →  record, pay, promise the answer, finish  →  deliver

A claim is a transaction of its own, so that the attempt stays counted; recording, paying, promising and finishing are one. A worker that
dies anywhere in between leaves a turn that another one drives again: what was paid for is in the journal, and the end happens once or
not at all."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog

from hermes.ports.alerts import Alerts
from hermes.ports.credits import Credits
from hermes.ports.errors import Forgotten, OutOfCredit, PortError, StoreUnavailable
from hermes.ports.graphs import Entry, Graphs
from hermes.ports.histories import Histories, History
from hermes.ports.inbox import Claim, Inbox, Unreadable
from hermes.ports.interactions import Interactions
from hermes.ports.journal import Journal
from hermes.ports.sessions import Session, Sessions
from hermes.ports.transactions import Transactions
from hermes.router.courier import Courier
from hermes.router.effects import Done, Effects

log = structlog.get_logger()

OUT_OF_CREDIT = "You have used up your credits."
PATIENCE_WITH_ANSWERS = 4
APOLOGY = "Sorry, I could not answer that message. You have not been charged for it."


class MessageUnreadable(PortError):
    """The message cannot be opened now; it is tried again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long Hermes tries before it apologises."""

    max_attempts: int = 5
    max_age_s: float = 86_400.0


Answerer = Callable[[bytes], Awaitable[Done]]
"""Whoever finds the answer to a prepared request."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Works on turns. Everything it needs, by name."""

    transactions: Transactions
    inbox: Inbox
    sessions: Sessions
    histories: Histories
    graphs: Graphs
    credits: Credits
    journal: Journal
    interactions: Interactions
    courier: Courier
    alerts: Alerts
    answer: Answerer
    limits: Limits

    async def run(self, turn_id: UUID) -> None:
        """Drive a turn to its end. May be called again for the same turn, at any time, by anybody."""
        async with self.transactions.begin() as tx:
            claim = await self.inbox.claim(tx, turn_id)
        match claim:
            case None:
                return
            case Unreadable():
                await self._set_aside(claim)
            case _:
                structlog.contextvars.bind_contextvars(turn_id=str(turn_id))
                try:
                    await self._drive(claim)
                except StoreUnavailable:
                    await self._excuse(claim)
                    raise

    async def _drive(self, claim: Claim) -> None:
        try:
            async with self.transactions.begin() as tx:
                session = await self.sessions.current(tx, claim.conversation_id, claim.user_id)
                is_paid = await self._reserve(tx, claim)
                is_answered = claim.attempt > 1 and await self.journal.has_result(tx, claim, "call_model", 0)
        except Forgotten:
            await self._bury_unread(claim.turn_id, "its sender was deleted")
            return
        # An answer that was paid for is worth more tries; but not all of them, because the conversation waits behind it.
        limit = self.limits.max_attempts * (PATIENCE_WITH_ANSWERS if is_answered else 1)
        if claim.attempt > limit or claim.age_s > self.limits.max_age_s:
            await self._apologise(claim, session)
        elif not is_paid:
            await self._end(claim, session, None, OUT_OF_CREDIT, {"llm_backend": "", "outcome": "out_of_credit"})
        else:
            await self._answer(claim, session)

    async def _reserve(self, tx: Any, claim: Claim) -> bool:
        try:
            await self.credits.reserve(tx, claim.user_id, claim.turn_id)
        except OutOfCredit:
            return False
        return True

    async def _answer(self, claim: Claim, session: Session) -> None:
        history = await self.histories.read(claim.envelope.scope, session)
        question = {"role": "user", "content": claim.envelope.event.text}
        request = json.dumps({"head": history.head, "messages": [question]}, separators=(",", ":")).encode()
        effects = Effects(self.transactions, self.journal)
        answer = (await effects.once(claim, "call_model", 0, request, self.answer, is_repeatable=True)).decode()
        await self._end(claim, session, history, answer, {"llm_backend": "echo", "outcome": "answered"})

    async def _end(self, claim: Claim, session: Session, history: History | None, text: str, meta: Mapping[str, Any]) -> None:
        """End the turn: all that it changed, or nothing. With a history the answer is recorded and charged; without, it is only said."""
        said: Sequence[Mapping[str, Any]] = ()
        head = session.head
        async with self.transactions.begin() as tx:
            await self.inbox.hold(tx, claim)
            if history is not None:
                said = ({"role": "user", "content": claim.envelope.event.text}, {"role": "assistant", "content": text})
                head = await self.graphs.append(tx, session.id, history.head, [Entry(message) for message in said])
                await self.credits.post(tx, claim.turn_id)
            else:
                await self.credits.void(tx, claim.turn_id)
            await self.interactions.add(tx, claim, session.id, {**PROVENANCE, **meta, "attempt": claim.attempt})
            parcel = await self.courier.promise(tx, claim, [text])
            await self.inbox.finish(tx, claim)
        if history is not None:
            await self.histories.append(claim.envelope.scope, session, history, said, head=head)
        await self.courier.hand_over(claim, parcel)
        log.info("turn_ended", outcome=meta["outcome"], attempt=claim.attempt, waited_s=round(claim.age_s, 3))

    async def _apologise(self, claim: Claim, session: Session) -> None:
        """Give up on a message that keeps failing: keep it as a dead letter, charge nothing, and tell its sender."""
        async with self.transactions.begin() as tx:
            await self.inbox.hold(tx, claim)
            await self.credits.void(tx, claim.turn_id)
            await self.interactions.add(tx, claim, session.id, {**PROVENANCE, "outcome": "apologised", "attempt": claim.attempt})
            parcel = await self.courier.promise(tx, claim, [APOLOGY])
            await self.inbox.bury(tx, claim, f"gave up at attempt {claim.attempt} after {claim.age_s:.0f} s")
        self.alerts.alert("message_buried", turn_id=str(claim.turn_id), attempt=claim.attempt, age_s=round(claim.age_s))
        await self.courier.hand_over(claim, parcel)

    async def _set_aside(self, message: Unreadable) -> None:
        """A message that cannot be opened: give up on it if that is for good, else come back; a key that is missing may be found."""
        is_hopeless = message.is_damaged and message.attempt > self.limits.max_attempts
        if message.is_forgotten or is_hopeless or message.age_s > self.limits.max_age_s:
            await self._bury_unread(message.turn_id, message.reason)
            if not message.is_forgotten:
                self.alerts.alert("message_unreadable", turn_id=str(message.turn_id), attempt=message.attempt)
            return
        raise MessageUnreadable(message.reason)

    async def _excuse(self, claim: Claim) -> None:
        with suppress(StoreUnavailable):
            async with self.transactions.begin() as tx:
                await self.inbox.excuse(tx, claim)

    async def _bury_unread(self, turn_id: UUID, reason: str) -> None:
        async with self.transactions.begin() as tx:
            await self.inbox.bury_unread(tx, turn_id, reason)
        log.warning("message_set_aside", turn_id=str(turn_id), reason=reason)


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


async def echo(request: bytes) -> Done:
    """Answer with what was said."""
    text: str = json.loads(request)["messages"][-1]["content"]
    return Done(text.encode(), {"backend": "echo"})
