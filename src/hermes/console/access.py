"""Who may do what, and the way to content: every act of an operator is checked and written to the audit log first.

Content is what a user or a model wrote. A reader of content demands an `Opened`; only `ConsoleAccess` makes one, after the audit log has
the entry. So there is no other path to content, and none that leaves no trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from hermes.ports.errors import PortError
from hermes.ports.operators import Actor, AuditEntry, AuditLog, Role
from hermes.ports.runtime import Transactions

OPEN_S = 900.0
"""How long content stays open for an operator who opened it."""
MIN_REASON_CHARS, MAX_REASON_CHARS = 3, 500
MAX_SUBJECT_CHARS = 200
"""Of the name of a subject: refused acts are in the log too, and none is ever deleted."""
OPEN_ACTION = "content.open"


class AccessRefused(PortError):
    """The operator may not do this. The audit log has an entry of it."""


class ReasonMissing(AccessRefused):
    """Content is opened with a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What an act is about."""

    kind: str
    """turn, conversation, user, agent, key, operator, dead_letter, alert, setting …"""
    id: str
    user_id: UUID | None = None
    """The user whose content or account it is about."""
    account: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """The right to read the content of one subject, until it ends. Only ConsoleAccess makes it."""

    actor: Actor
    subject: Subject
    until: datetime
    reason: str = ""


class ConsoleAccess:
    """Checks and audits what operators do. An entry is committed before the act begins; a refused act has an entry too."""

    def __init__(self, transactions: Transactions, audit: AuditLog, *, needs_reason: bool, now: Callable[[], datetime]) -> None:
        """`needs_reason`: whether content is opened with a reason only, as in production."""
        self._transactions, self._audit, self._needs_reason, self._now = transactions, audit, needs_reason, now

    @property
    def needs_reason(self) -> bool:
        return self._needs_reason

    async def permit(
        self, actor: Actor, needed: Role, action: str, subject: Subject, *, reason: str = "", facts: Mapping[str, Any] | None = None
    ) -> None:
        """Write the act to the audit log. Raises AccessRefused, after the log has the refusal, if the operator's role does not cover it or
        the subject belongs to an account that they do not see."""
        entry = replace(entry_of(action, subject), reason=clean_text(reason, MAX_REASON_CHARS), facts=facts or {})
        refusal = refuse_act(actor, needed, action, subject)
        await self._write(actor, entry if refusal is None else replace(entry, allowed=False))
        if refusal is not None:
            raise AccessRefused(refusal)

    async def require(self, actor: Actor, needed: Role, action: str, subject: Subject) -> None:
        """Raise AccessRefused, after the log has the refusal, as `permit` does; write nothing if the operator may. For pages that only show
        what a role sees."""
        if refuse_act(actor, needed, action, subject) is not None:
            await self.permit(actor, needed, action, subject)

    async def open(self, actor: Actor, subject: Subject, reason: str = "") -> Opened:
        """Open the content of a subject for a quarter of an hour. Raises AccessRefused, or ReasonMissing in production without a reason."""
        if self._needs_reason and len(reason.strip()) < MIN_REASON_CHARS:
            await self._write(actor, replace(entry_of(OPEN_ACTION, subject), allowed=False))
            raise ReasonMissing("say in a few words why you open this; the words go into the audit log")
        await self.permit(actor, Role.OPERATOR, OPEN_ACTION, subject, reason=reason)
        return Opened(actor, subject, self._now() + timedelta(seconds=OPEN_S), clean_text(reason, MAX_REASON_CHARS))

    async def find_opened(self, actor: Actor, subject: Subject) -> Opened | None:
        """Return the right to content that this operator opened a short while ago; None if they did not. Writes nothing."""
        if refuse_act(actor, Role.OPERATOR, OPEN_ACTION, subject) is not None:
            return None
        async with self._transactions.once() as tx:
            found = await self._audit.find_opening(tx, actor.operator.name, subject.kind, subject.id, within_s=OPEN_S)
        return None if found is None else Opened(actor, subject, found.at + timedelta(seconds=OPEN_S), found.reason)

    async def _write(self, actor: Actor, entry: AuditEntry) -> None:
        async with self._transactions.begin() as tx:
            await self._audit.add(tx, actor, entry)


def entry_of(action: str, subject: Subject) -> AuditEntry:
    return AuditEntry(
        action=action,
        subject_kind=subject.kind,
        subject=clean_text(subject.id, MAX_SUBJECT_CHARS),
        user_id=subject.user_id,
        account_id=subject.account,
    )


def clean_text(text: str, most: int) -> str:
    """Return the text as the store can hold it: without zero bytes and halves of characters, and not longer than this."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode().strip()[:most]


def refuse_act(actor: Actor, needed: Role, action: str, subject: Subject) -> str | None:
    """Return why an operator may not do this; None if they may."""
    operator = actor.operator
    if not operator.role.covers(needed):
        return f"{action} needs the role {needed}; {operator.name} is {operator.role}"
    if not operator.sees(subject.account):
        return f"{operator.name} does not see {subject.kind} {subject.id}: it belongs to another account"
    return None
