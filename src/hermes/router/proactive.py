"""Say by ourselves what was asked for earlier: reminders whose time has come, prices that came down.

    take what is due  →  put it into the outbox  →  have it sent, and written into the history  →  commit

What is due is one person's matter. Where it was asked for in a conversation that others read by now, it is said in the newest private one
of the same person with the same account; without such a one it is not said.

All of it is one transaction: it is said once, whoever looks and whoever dies. It goes into the history by a job of its own, between two
turns, because a turn that is under way has pinned the list that its answer will stand under."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog

from hermes.ports.concierge import PriceWatcher, PriceWatchers, Reminder, Reminders
from hermes.ports.graphs import GraphEntry, Graphs
from hermes.ports.inbox import Inbox, InboxMessage
from hermes.ports.job_queue import JobQueue
from hermes.ports.outbox import Outbox, OutboxState
from hermes.ports.sessions import Sessions
from hermes.ports.transactions import Transaction, Transactions
from hermes.ports.users import Users
from hermes.router.outbox_delivery import OutboxDelivery
from hermes.router.replies import Money, ReplyKind, reply
from hermes.router.replies.render import ReplyValue
from hermes.router.services import Languages

log = structlog.get_logger()

BATCH_SIZE = 20
"""How much is said in one transaction. Few: each of them holds its conversation until then."""


@dataclass(frozen=True, slots=True)
class DueMessage:
    """Something to say now."""

    turn_id: UUID
    """The turn that asked for it, and so the conversation to say it in."""
    name: str
    kind: ReplyKind
    values: Mapping[str, ReplyValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProactiveMessenger:
    """Says what is due."""

    transactions: Transactions
    reminders: Reminders
    watchers: PriceWatchers
    inbox: Inbox
    people: Users
    outbox: Outbox
    sessions: Sessions
    graphs: Graphs
    work: JobQueue
    outbox_delivery: OutboxDelivery
    """Which platforms we send to; on the others people fetch what we say, and are only told."""
    languages: Languages
    scan: Callable[[str], object | None]
    """Says what is wrong with a text that is about to enter a prompt; None where nothing is."""

    async def remind(self, now: datetime) -> int:
        """Say everything that is due at this time; return how much it was. Safe to call at once and to cut off. Raises StoreUnavailable."""

        async def reminders(tx: Transaction) -> Sequence[DueMessage]:
            return [reminder_message(reminder) for reminder in await self.reminders.take_due(tx, now, limit=BATCH_SIZE)]

        async def prices(tx: Transaction) -> Sequence[DueMessage]:
            return [price_drop_message(watcher) for watcher in await self.watchers.take_due(tx, limit=BATCH_SIZE)]

        return await self._say_all(reminders) + await self._say_all(prices)

    async def record(self, conversation_id: UUID) -> None:
        """Write what was said into the conversation's history, so that "thanks, done" makes sense to a model. The work behind
        `Work.defer_proactive`: no turn of the conversation may be under way. Safe to repeat."""
        async with self.transactions.begin() as tx:
            news = await self.outbox.take_proactive(tx, conversation_id)
            if not news:
                return
            # A message like any other: it keeps the session alive, and after a long silence it begins the next one.
            session = await self.sessions.current(tx, conversation_id, news[-1].user_id)
            said = [{"role": "assistant", "content": self._presentable(each.text), "metadata": {"news": each.name}} for each in news]
            await self.graphs.append(tx, session.id, session.head, [GraphEntry(message) for message in said])
        log.info("news_recorded", conversation_id=str(conversation_id), news=len(news))

    async def _say_all(self, take: Callable[[Transaction], Awaitable[Sequence[DueMessage]]]) -> int:
        count = 0
        while True:
            async with self.transactions.begin() as tx:
                due = await take(tx)
                asked = await self._asked(tx, due)
                for said, each in asked:
                    await self._promise(tx, said, each)
            if not due:
                return count
            count += len(asked)
            log.info("news_promised", news=len(asked))
            for said, _ in asked:
                if not self._is_sent(said):
                    await self.outbox_delivery.replies.announce(said.conversation_id)

    async def _asked(self, tx: Transaction, due: Sequence[DueMessage]) -> list[tuple[InboxMessage, DueMessage]]:
        """What is due, each with the message that asked for it; what nobody will read is left out."""
        found = [(await self._private(tx, each.turn_id), each) for each in due]
        for said, each in found:
            if said is None:
                log.info("news_for_nobody", turn_id=str(each.turn_id), kind=str(each.kind))
        # Conversations in one order everywhere, so that two who hold several never wait for each other.
        return sorted(((said, each) for said, each in found if said is not None), key=lambda pair: pair[0].conversation_id)

    async def _private(self, tx: Transaction, turn_id: UUID) -> InboxMessage | None:
        """The message that asked, or another one of the same person's where they are alone with Hermes."""
        said = await self.inbox.message_of(tx, turn_id)
        if said is None or not said.envelope.is_shared:
            return said
        return await self.inbox.last_private(tx, said.user_id, said.envelope.account)

    async def _promise(self, tx: Transaction, said: InboxMessage, due: DueMessage) -> None:
        user = await self.people.get(tx, said.user_id)
        text = reply(due.kind, self.languages.of(user, said.envelope.event.text), zone=None, now=None, **due.values)
        parts = self.outbox_delivery.render(said.envelope, text)
        await self.outbox.put_proactive(tx, said, due.name, parts, OutboxState.PENDING if self._is_sent(said) else OutboxState.SENT)
        if self._is_sent(said):
            await self.work.defer_delivery(tx, said.conversation_id)
        await self.work.defer_proactive(tx, said.conversation_id)

    def _is_sent(self, said: InboxMessage) -> bool:
        """Whether we bring it there ourselves. Elsewhere people fetch it, and a bell rings for their conversation."""
        return said.envelope.event.platform in self.outbox_delivery.senders

    def _presentable(self, text: str) -> str:
        """What may stand in a prompt as our own words. What a user wanted to be reminded of is theirs, and may hold orders to a model."""
        if self.scan(text) is None:
            return text
        first, *rest = text.splitlines()
        kept = "\n".join([first, *(line for line in rest if self.scan(line) is None)])
        return kept if self.scan(kept) is None else first


def reminder_message(reminder: Reminder) -> DueMessage:
    return DueMessage(reminder.turn_id, f"reminder/{reminder.code}", ReplyKind.REMINDER, {"text": reminder.text})


def price_drop_message(watcher: PriceWatcher) -> DueMessage:
    product = watcher.product
    values: dict[str, ReplyValue] = {
        "product": f"{product.brand} {product.name}",
        "price": Money(product.price, product.currency),
        "shop": product.shop,
        "link": product.url or None,
    }
    return DueMessage(watcher.turn_id, f"price/{watcher.code}", ReplyKind.PRICE_DROP, values)
