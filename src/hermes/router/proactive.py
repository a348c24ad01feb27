"""Send the proactive messages that users asked for earlier: packs say what is due, such as reminders.

    take what is due  →  put it into the outbox  →  defer its delivery, and its entry in the history  →  commit

A proactive message is private. If others read the conversation in which the user asked for it, Hermes sends it to the user's newest private
conversation with the same account; if there is none, Hermes does not send it.

All of it is one transaction, so each message goes out once, however many processes look and whichever of them dies. A job of its own writes
the message into the history, between two turns: a turn that is running has pinned the list that its answer will stand under."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog

from hermes.ports.channels import Channels
from hermes.ports.inbox import AnswerSignals, Inbox, InboxMessage
from hermes.ports.outbox import Outbox
from hermes.ports.runtime import JobQueue, Transaction, Transactions
from hermes.ports.sessions import GraphEntry, Graphs, Sessions
from hermes.ports.users import Users
from hermes.router.outbox import first_state, is_sent, render_text
from hermes.router.services import Languages

log = structlog.get_logger()

BATCH_SIZE = 20
"""Messages of one transaction. Few, because each of them locks its conversation until the commit."""


@dataclass(frozen=True, slots=True)
class DueMessage:
    """A proactive message that is due."""

    turn_id: UUID
    """The turn in which the user asked for it."""
    name: str
    """What it is, and its code: `reminder/K7M2PQ`. Two messages of one name are one message."""
    say: Callable[[str | None], str]
    """Returns its text in a language."""


TakeDue = Callable[[Transaction, datetime, int], Awaitable[Sequence[DueMessage]]]
"""Takes messages that are due at this time, at most so many, each once: for the first transaction that commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProactiveMessenger:
    """Sends the proactive messages that are due."""

    transactions: Transactions
    sources: Sequence[TakeDue]
    inbox: Inbox
    people: Users
    outbox: Outbox
    sessions: Sessions
    graphs: Graphs
    work: JobQueue
    channels: Channels
    answer_signals: AnswerSignals
    languages: Languages
    scan: Callable[[str], object | None]
    """Finds an attack in a text that is about to enter a prompt; None if there is none."""

    async def remind(self, now: datetime) -> int:
        """Send everything that is due at this time; return how many. Safe to run in parallel and to cut off. Raises StoreUnavailable."""
        return sum([await self._send_all(take, now) for take in self.sources])

    async def record(self, conversation_id: UUID) -> None:
        """Write the proactive messages into the conversation's history, so that a model understands "thanks, done". The job of
        `JobQueue.defer_proactive`: no turn of the conversation may be running. Safe to repeat."""
        async with self.transactions.begin() as tx:
            unrecorded = await self.outbox.take_proactive(tx, conversation_id)
            if not unrecorded:
                return
            # It counts as any message: it keeps the session open, and after a long silence it begins the next one.
            session = await self.sessions.current(tx, conversation_id, unrecorded[-1].user_id)
            entries = [
                GraphEntry({"role": "assistant", "content": self._text_for_prompt(each.text), "metadata": {"news": each.name}})
                for each in unrecorded
            ]
            await self.graphs.append(tx, session.id, session.head, entries)
        log.info("proactive_recorded", conversation_id=str(conversation_id), messages=len(unrecorded))

    async def _send_all(self, take: TakeDue, now: datetime) -> int:
        count = 0
        while True:
            async with self.transactions.begin() as tx:
                due = await take(tx, now, BATCH_SIZE)
                queued = await self._with_origins(tx, due)
                for origin, each in queued:
                    await self._queue(tx, origin, each)
            if not due:
                return count
            count += len(queued)
            log.info("proactive_queued", messages=len(queued))
            for origin, _ in queued:
                if not is_sent(origin.envelope):
                    await self.answer_signals.announce(origin.conversation_id)

    async def _with_origins(self, tx: Transaction, due: Sequence[DueMessage]) -> list[tuple[InboxMessage, DueMessage]]:
        """Each due message with the inbox message whose conversation it goes to; those that have none are left out."""
        found = [(await self._private_origin(tx, each.turn_id), each) for each in due]
        for origin, each in found:
            if origin is None:
                log.info("proactive_without_reader", turn_id=str(each.turn_id), kind=each.name.partition("/")[0])
        # Conversations in one order everywhere, so that two processes that lock several never wait for each other.
        return sorted(((origin, each) for origin, each in found if origin is not None), key=lambda pair: pair[0].conversation_id)

    async def _private_origin(self, tx: Transaction, turn_id: UUID) -> InboxMessage | None:
        """The message in which the user asked or, if others read that conversation, the user's last message in a private one."""
        origin = await self.inbox.message_of(tx, turn_id)
        if origin is None or not origin.envelope.is_shared:
            return origin
        return await self.inbox.last_private(tx, origin.user_id, origin.envelope.account)

    async def _queue(self, tx: Transaction, origin: InboxMessage, due: DueMessage) -> None:
        user = await self.people.get(tx, origin.user_id)
        text = due.say(self.languages.of(user, origin.envelope.event.text))
        parts = render_text(origin.envelope, text, self.channels)
        await self.outbox.put_proactive(tx, origin, due.name, parts, first_state(origin.envelope))
        if is_sent(origin.envelope):
            await self.work.defer_delivery(tx, origin.conversation_id)
        await self.work.defer_proactive(tx, origin.conversation_id)

    def _text_for_prompt(self, text: str) -> str:
        """The text as it may stand in a prompt. A reminder repeats the user's words, which may hold orders to a model.

        If `scan` finds an attack, the lines with an attack are dropped, except the first line; if the rest together is still an attack,
        only the first line stays."""
        if self.scan(text) is None:
            return text
        first, *rest = text.splitlines()
        kept = "\n".join([first, *(line for line in rest if self.scan(line) is None)])
        return kept if self.scan(kept) is None else first
