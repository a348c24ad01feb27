"""The queues as an operator sees them, and what they do about them: revive a message that was given up, requeue or drop a dead letter.

Shows names and numbers. What a user wrote, and a platform's own words about it, stay closed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import UUID

from hermes.console.access import ConsoleAccess, Subject
from hermes.ports.errors import NotFound, require_known
from hermes.ports.inbox import Inbox, Revival
from hermes.ports.operators import Actor, Operator, Role
from hermes.ports.outbox import DeadLetter, DeadLetterQuery, DeadLetters, Outbox
from hermes.ports.queues import (
    PAGE_ROWS,
    Accounts,
    BuriedMessage,
    DeadEntry,
    JobCount,
    OutboxEntry,
    QueueCount,
    QueueReader,
    WaitingMessage,
)
from hermes.ports.runtime import JobQueue, Transaction, Transactions

if TYPE_CHECKING:
    from hermes.ports.sessions import Interactions, Journal

T = TypeVar("T")
QUEUE_NAMES: Final = ("waiting", "buried", "outbox", "dead")
"""The queues that have pages of entries."""
MAX_LETTERS = 10_000
"""Dead letters that one command requeues or drops."""
REFUSALS: Mapping[Revival, str] = {
    Revival.NOT_BURIED: "it was not given up: it waits, has ended, or was revived already",
    Revival.UNREADABLE: "it cannot be read any more: its sender was deleted, or its key is missing",
    Revival.EMPTIED: "a model or a tool has answered it, and the journal has emptied what they said; another run would pay twice",
}


class PlaceInvalid(NotFound):
    """A page was asked for that begins at no place of its list."""


class RevivalRefused(NotFound):
    """A message could not be revived. The message says why; nothing changed."""


@dataclass(frozen=True, slots=True)
class QueuePage(Generic[T]):
    """Some entries of a queue, and the place after the last one; None at the end of the queue."""

    entries: Sequence[T]
    next: str | None


@dataclass(frozen=True, slots=True)
class RevivedMessages:
    """What became of the messages that were to be revived."""

    revived: Sequence[UUID]
    refused: Mapping[UUID, str]
    """Why the others were not."""


@dataclass(frozen=True, slots=True)
class QueueBoard:
    """Reads the queues."""

    transactions: Transactions
    reader: QueueReader

    async def counts(self, operator: Operator) -> dict[str, QueueCount]:
        """Return the length of each queue, by its name."""
        async with self.transactions.once() as tx:
            return {count.queue: count for count in await self.reader.counts(tx, accounts_of(operator))}

    async def jobs(self, operator: Operator) -> Sequence[JobCount]:
        """Return the jobs by queue and state; none for an operator who does not see all accounts."""
        if operator.accounts is not None:
            return ()
        async with self.transactions.once() as tx:
            return await self.reader.jobs(tx)

    async def entries(self, name: str, operator: Operator, *, place: str | None = None, limit: int = PAGE_ROWS) -> QueuePage[Any]:
        """Return a page of a queue by its name: the methods below. Raises NotFound for an unknown queue, and for a place that is none."""
        match require_known(name, QUEUE_NAMES, "queue"):
            case "waiting":
                return await self.waiting(operator, place=place, limit=limit)
            case "buried":
                return await self.buried(operator, place=place, limit=limit)
            case "outbox":
                return await self.outbox(operator, place=place, limit=limit)
            case _:
                return await self.dead(operator, place=place, limit=limit)

    async def waiting(self, operator: Operator, *, place: str | None = None, limit: int = PAGE_ROWS) -> QueuePage[WaitingMessage]:
        """Return the messages that wait, the oldest first. Raises NotFound for a place that is none."""
        after = None if place is None else parse_place(place)
        async with self.transactions.once() as tx:
            found = await self.reader.waiting(tx, accounts_of(operator), after=after and (after[0], as_uuid(after[1])), limit=limit + 1)
        return cut_page(found, limit, lambda each: place_text(each.since, each.turn_id))

    async def buried(
        self, operator: Operator, *, place: str | None = None, since: datetime | None = None, limit: int = PAGE_ROWS
    ) -> QueuePage[BuriedMessage]:
        """Return the messages that were given up, the newest first."""
        before = None if place is None else parse_place(place)
        values: dict[str, Any] = {"before": before and (before[0], as_uuid(before[1])), "since": since}
        async with self.transactions.once() as tx:
            found = await self.reader.buried(tx, accounts_of(operator), limit=limit + 1, **values)
        return cut_page(found, limit, lambda each: place_text(each.ended_at, each.turn_id))

    async def outbox(self, operator: Operator, *, place: str | None = None, limit: int = PAGE_ROWS) -> QueuePage[OutboxEntry]:
        """Return what is on its way to a platform, the oldest first."""
        async with self.transactions.once() as tx:
            after = None if place is None else as_number(place)
            found = await self.reader.outbox(tx, accounts_of(operator), after=after, limit=limit + 1)
        return cut_page(found, limit, lambda each: str(each.id))

    async def dead(self, operator: Operator, *, place: str | None = None, limit: int = PAGE_ROWS) -> QueuePage[DeadEntry]:
        """Return the dead letters, the newest first."""
        before = None if place is None else parse_place(place)
        async with self.transactions.once() as tx:
            found = await self.reader.dead(tx, accounts_of(operator), before=before and (before[0], as_number(before[1])), limit=limit + 1)
        return cut_page(found, limit, lambda each: place_text(each.died_at, each.id))


@dataclass(frozen=True, slots=True)
class QueueActions:
    """What an operator does about the queues. Every act is in the audit log before it is done."""

    transactions: Transactions
    access: ConsoleAccess
    reader: QueueReader
    inbox: Inbox
    outbox: Outbox
    letters: DeadLetters
    interactions: Interactions
    journal: Journal
    jobs: JobQueue

    async def revive(self, actor: Actor, turn_id: UUID, *, reason: str = "") -> None:
        """Have a message answered that was given up: it runs as the newest of its conversation, is answered once and charged once.

        Raises NotFound for an unknown turn, RevivalRefused, and AccessRefused."""
        async with self.transactions.once() as tx:
            owner = await self.reader.owner(tx, turn_id)
        if owner is None:
            raise NotFound(f"there is no turn {turn_id}")
        subject = Subject(kind="turn", id=str(turn_id), user_id=owner.user_id, account=owner.account)
        await self.access.permit(actor, Role.OPERATOR, "message.revive", subject, reason=reason)
        async with self.transactions.begin() as tx:
            outcome = await self.inbox.revive(tx, turn_id)
            if outcome is not Revival.REVIVED:
                raise RevivalRefused(f"{turn_id} was not revived: {REFUSALS[outcome]}")
            await self._take_back(tx, turn_id, actor.operator.name)

    async def revive_all(self, actor: Actor, *, since: datetime | None = None, reason: str = "") -> RevivedMessages:
        """Revive every message that was given up since then, each in a transaction of its own, the oldest first. Raises AccessRefused, also
        if there is none."""
        accounts = accounts_of(actor.operator)
        every = Subject(kind="turn", id="all", account=accounts[0] if accounts else None)
        await self.access.require(actor, Role.OPERATOR, "message.revive", every)
        async with self.transactions.once() as tx:
            found = [each for each in await self.reader.buried(tx, accounts, since=since, limit=MAX_LETTERS) if not each.is_erased]
        return await self.revive_each(actor, [message.turn_id for message in reversed(found)], reason=reason)

    async def revive_each(self, actor: Actor, turns: Sequence[UUID], *, reason: str = "") -> RevivedMessages:
        """Revive these messages, each in a transaction of its own; an unknown one is refused as any other. Raises AccessRefused."""
        revived, refused = list[UUID](), dict[UUID, str]()
        for turn_id in turns:
            try:
                await self.revive(actor, turn_id, reason=reason)
            except NotFound as error:
                refused[turn_id] = str(error)
            else:
                revived.append(turn_id)
        return RevivedMessages(revived, refused)

    async def _take_back(self, tx: Transaction, turn_id: UUID, by: str) -> None:
        """Take back what giving up had left: the apology, its line in the log of turns. Then defer the turn."""
        apologies = await self.outbox.withdraw(tx, turn_id)
        await self.interactions.withdraw(tx, turn_id)
        await self.journal.add(tx, turn_id, "message_revived", {"by": by, "apologies_sent": apologies})
        message = await self.inbox.message_of(tx, turn_id)
        assert message is not None  # noqa: S101  # it was read when it was revived, in this transaction
        await self.jobs.defer_turn(tx, turn_id, message.conversation_id)

    async def requeue(self, actor: Actor, chosen: DeadLetterQuery, *, by: str = "") -> Sequence[DeadLetter]:
        """Send dead letters again: each goes to the end of its conversation's queue, and gets all its tries again. All of them, or none.

        Raises NotFound if a number is unknown, and AccessRefused."""
        await self._permit_letters(actor, Role.OPERATOR, "dead_letter.requeue", chosen)
        async with self.transactions.begin() as tx:
            sent = await self.letters.requeue(tx, chosen)
            refuse_unknown_letters(chosen, sent)
            for conversation_id in sorted({letter.conversation_id for letter in sent}):
                await self.jobs.defer_delivery(tx, conversation_id)
            for letter in sent:
                await self.journal.add(tx, letter.turn_id, "dead_letter_requeued", {**letter.facts, "by": by or actor.operator.name})
        return sent

    async def drop(self, actor: Actor, chosen: DeadLetterQuery, *, by: str = "") -> Sequence[DeadLetter]:
        """Delete dead letters for good. Raises NotFound if a number is unknown, and AccessRefused."""
        await self._permit_letters(actor, Role.OWNER, "dead_letter.drop", chosen)
        async with self.transactions.begin() as tx:
            dropped = await self.letters.drop(tx, chosen)
            refuse_unknown_letters(chosen, dropped)
            for letter in dropped:
                await self.journal.add(tx, letter.turn_id, "dead_letter_dropped", {**letter.facts, "by": by or actor.operator.name})
        return dropped

    async def _permit_letters(self, actor: Actor, role: Role, action: str, chosen: DeadLetterQuery) -> None:
        """One entry for each letter that is named; one for all letters that match a filter."""
        if chosen.ids is None:
            facts = {"platform": chosen.platform, "account": chosen.account, "outcome": chosen.outcome}
            subject = Subject(kind="dead_letters", id="all", account=chosen.account)
            known = {name: str(value) for name, value in facts.items() if value is not None}
            await self.access.permit(actor, role, action, subject, facts=known)
            return
        async with self.transactions.once() as tx:
            found = await self.letters.list(tx, DeadLetterQuery(ids=chosen.ids), limit=MAX_LETTERS)
        refuse_unknown_letters(chosen, found)
        for letter in found:
            subject = Subject(kind="dead_letter", id=str(letter.id), account=letter.account)
            await self.access.permit(actor, role, action, subject, facts={"turn_id": str(letter.turn_id)})


def refuse_unknown_letters(chosen: DeadLetterQuery, found: Sequence[DeadLetter]) -> None:
    """Raise NotFound if a number is unknown. Within a transaction this undoes the changes of all the others."""
    missing = sorted(set(chosen.ids or ()) - {letter.id for letter in found})
    if missing:
        raise NotFound(f"there is no dead letter {missing[0]}; `hermes dead-letters list` shows them. Nothing changed")


def cut_page(found: Sequence[T], limit: int, place: Callable[[T], str]) -> QueuePage[T]:
    """Return a page of `limit` entries out of one more."""
    entries = found[:limit]
    return QueuePage(entries, place(entries[-1]) if len(found) > limit else None)


def accounts_of(operator: Operator) -> Accounts:
    return None if operator.accounts is None else sorted(operator.accounts)


# --- places in a queue, as a part of an address


def place_text(at: datetime, identity: UUID | int) -> str:
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat()}Z~{identity}"


def parse_place(text: str) -> tuple[datetime, str]:
    at, _, identity = text.partition("~")
    try:
        return datetime.fromisoformat(at), identity
    except ValueError:
        raise PlaceInvalid(f"before {text[:60]!r} is no place in this list; pass `next` of the page before") from None


def as_uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise PlaceInvalid(f"before {text[:60]!r} is no place in this list; pass `next` of the page before") from None


def as_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise PlaceInvalid(f"before {text[:60]!r} is no place in this list; pass `next` of the page before")
    return int(text)
