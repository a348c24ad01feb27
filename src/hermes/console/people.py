"""People as operators see them, and what operators do for them: credits, tier, and to erase them for good.

What Hermes knows about a person is content: `read_memory` demands an `Opened` for this user. A person who writes to several accounts
belongs to none of them alone: an operator of one of them sees the numbers of that one, opens no memory, gives no credits and no tier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from uuid import UUID

from hermes.console.access import AccessRefused, ConsoleAccess, Opened, Subject
from hermes.console.subjects import SubjectReader
from hermes.ports.credits import Balance
from hermes.ports.errors import NotFound, PortError, UserErased, require_known
from hermes.ports.operators import Actor, AuditLog, Role
from hermes.ports.people import CreditLine, MemoryCounts, People, PeopleCursor, PeopleFilter, PersonSummary, UserDaySpend
from hermes.ports.runtime import Transactions
from hermes.ports.users import UserDataCounts, UserState
from hermes.soul.my_data import MyDataStores, MyMemory, forget_user, forget_user_at, my_memory

PAGE = 50
SPEND_DAYS = 30
LEDGER_LINES = 12
MAX_GRANT = 1_000_000
GRANT_EVENT = "operator"


class PersonQueryInvalid(PortError):
    """A field of a search or of a form cannot be used; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """One page of people."""

    people: Sequence[PersonSummary]
    next: PeopleCursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonDetails:
    """Everything about one person that is no content."""

    summary: PersonSummary
    balance: Balance
    ledger: Sequence[CreditLine]
    days: Sequence[UserDaySpend]
    """The last 30 UTC days, each of them."""
    memory: MemoryCounts
    kept: UserDataCounts
    opened: int
    """How often operators opened content of theirs."""
    subject: Subject
    """For opening their memory."""

    @property
    def is_erased(self) -> bool:
        return self.summary.user.state is UserState.DELETED


class ConsolePeople:
    """Reads people, and acts on them. Every act is checked and audited first."""

    def __init__(
        self,
        transactions: Transactions,
        people: People,
        stores: MyDataStores,
        access: ConsoleAccess,
        audit: AuditLog,
        *,
        subjects: SubjectReader,
        tiers: Collection[str],
        now: Callable[[], datetime],
    ) -> None:
        self._transactions, self._people, self._stores = transactions, people, stores
        self._access, self._audit, self._subjects, self._now = access, audit, subjects, now
        self.tiers = sorted(tiers)

    async def list(
        self, actor: Actor, *, search: str = "", state: UserState | None = None, before: PeopleCursor | None = None, limit: int = PAGE
    ) -> PeoplePage:
        """Return one page of people: the newest, or those found by an id or by the beginning of a sender's id.

        Raises PersonQueryInvalid for a viewer who searches by sender: to find a person by a number is to know the number."""
        accounts, search = actor.operator.accounts, search.strip()
        async with self._transactions.begin() as tx:
            if user_id := parse_user_id(search):
                found = await self._people.find(tx, user_id, accounts)
                return PeoplePage([] if found is None else [found], None)
            if "\x00" in search:
                raise PersonQueryInvalid("search by a user id, or by the beginning of a sender's id")
            if search and not actor.operator.role.covers(Role.OPERATOR):
                raise PersonQueryInvalid("search by a whole user id; searching by sender needs the role operator")
            wanted = PeopleFilter(state=state, sender=search or None, accounts=accounts)
            people = await self._people.list(tx, wanted, before=before, limit=limit + 1)
        return PeoplePage(people[:limit], None if search or len(people) <= limit else cursor_of(people[limit - 1]))

    async def read(self, actor: Actor, user_id: UUID) -> PersonDetails:
        """Return one person, also an erased one. Raises NotFound, also for a person of accounts that the operator does not see."""
        accounts, today = actor.operator.accounts, self._now().date()
        since = today - timedelta(days=SPEND_DAYS - 1)
        async with self._transactions.begin() as tx:
            summary = await self._people.find(tx, user_id, accounts)
            if summary is None:
                raise NotFound(f"there is no user {user_id}")
            subject = await self._subjects.find_in(tx, "user", user_id)
            shared = sorted({channel.account for channel in summary.channels}) if accounts is not None and subject.account is None else None
            limits: Sequence[str | None] = [None] if shared is None else shared
            seen = None if shared is None else frozenset(shared)
            kept = [await self._stores.people.count_data(tx, user_id, account=limit) for limit in limits]
            spent = await self._people.spend_by_day(tx, user_id, since=since, accounts=accounts)
            return PersonDetails(
                summary=summary,
                balance=await self._stores.credits.balance(tx, user_id),
                ledger=await self._people.ledger(tx, user_id, limit=LEDGER_LINES, accounts=seen),
                days=fill_days(spent, since),
                memory=await self._people.count_memory(tx, user_id, accounts=seen),
                kept=add_counts(kept),
                opened=sum([await self._audit.count_opened(tx, user_id, account=limit) for limit in limits]),
                subject=subject,
            )

    async def read_memory(self, opened: Opened) -> MyMemory:
        """Return what is known about the person who was opened, oldest first. Raises UserErased, AccessRefused for another subject."""
        if opened.subject.kind != "user":
            raise AccessRefused(f"{opened.subject.kind} {opened.subject.id} was opened, no user")
        user_id, stores = UUID(opened.subject.id), self._stores
        return await my_memory(user_id, transactions=self._transactions, memories=stores.memories, dreams=stores.dreams)

    # --- what an owner does

    async def grant(self, actor: Actor, user_id: UUID, amount: int, key: str) -> bool:
        """Give credits; False if this key gave them before. Raises PersonQueryInvalid, NotFound, UserErased, AccessRefused."""
        person = await self._find(actor, user_id)
        await self._permit(actor, "user.credit", person, {"amount": amount})
        if not 1 <= amount <= MAX_GRANT:
            raise PersonQueryInvalid(f"give 1 to {MAX_GRANT:,} credits, got {amount:,}")
        refuse_erased(person)
        async with self._transactions.begin() as tx:
            return await self._stores.credits.grant(tx, user_id, amount, f"{GRANT_EVENT}:{key}")

    async def set_tier(self, actor: Actor, user_id: UUID, tier: str) -> None:
        """Move a person to another tier. Raises NotFound for an unknown tier or person, UserErased, AccessRefused."""
        person = await self._find(actor, user_id)
        await self._permit(actor, "user.tier", person, {"tier": tier[:64], "before": person.user.tier})
        require_known(tier, self.tiers, "tier")
        async with self._transactions.begin() as tx:
            await self._stores.people.set_tier(tx, user_id, tier)

    async def forget(self, actor: Actor, user_id: UUID, typed: str) -> bool:
        """Erase a person for good, or for the accounts of an operator who sees no others; return whether for good.

        `typed` is their id as the operator typed it. Raises PersonQueryInvalid if it is another, NotFound, AccessRefused."""
        person = await self._find(actor, user_id)
        subject = subject_here(actor, person, await self._subjects.find("user", str(user_id)))
        await self._access.permit(actor, Role.OWNER, "user.forget", subject)
        if typed.strip() != str(user_id):
            raise PersonQueryInvalid("nothing was erased: the id that you typed is another one")
        accounts = actor.operator.accounts
        if accounts is None:
            await forget_user(user_id, self._stores)
            return True
        theirs = sorted({channel.account for channel in person.channels} & accounts)
        return [await forget_user_at(user_id, account, self._stores) for account in theirs][-1]

    async def _find(self, actor: Actor, user_id: UUID) -> PersonSummary:
        async with self._transactions.begin() as tx:
            summary = await self._people.find(tx, user_id, actor.operator.accounts)
        if summary is None:
            raise NotFound(f"there is no user {user_id}")
        return summary

    async def _permit(self, actor: Actor, action: str, person: PersonSummary, facts: dict[str, str | int]) -> None:
        await self._access.permit(actor, Role.OWNER, action, await self._subjects.find("user", str(person.user.id)), facts=facts)


def subject_here(actor: Actor, person: PersonSummary, subject: Subject) -> Subject:
    """The subject of an act that stays within the operator's accounts: one of those that they see stands for all."""
    is_shared = actor.operator.accounts is not None and subject.account is None
    return replace(subject, account=next((channel.account for channel in person.channels), None)) if is_shared else subject


def add_counts(counts: Sequence[UserDataCounts]) -> UserDataCounts:
    """The data of several accounts together."""
    records: Counter[str] = Counter()
    for each in counts:
        records.update(each.records)
    return UserDataCounts(
        facts=sum(each.facts for each in counts),
        conversations=sum(each.conversations for each in counts),
        messages=sum(each.messages for each in counts),
        records=dict(records),
    )


def refuse_erased(person: PersonSummary) -> None:
    if person.user.state is UserState.DELETED:
        raise UserErased


def parse_user_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def cursor_of(person: PersonSummary) -> PeopleCursor | None:
    created_at = person.user.created_at
    return None if created_at is None else PeopleCursor(created_at, person.user.id)


def fill_days(spent: Sequence[UserDaySpend], since: date) -> list[UserDaySpend]:
    """Return all days from `since` on, also those without a call."""
    found = {each.day: each for each in spent}
    days = [since + timedelta(days=place) for place in range(SPEND_DAYS)]
    return [found.get(day, UserDaySpend(day, 0, 0)) for day in days]
