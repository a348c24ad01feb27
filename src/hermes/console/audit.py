"""The audit log as operators read it: newest first, by page, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hermes.ports.operators import Actor, AuditFilter, AuditLog, Role, StoredAuditEntry
from hermes.ports.runtime import Transactions

PAGE_ENTRIES = 50
HIDDEN_WORDS = "•••"


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Entries, newest first, and where the page after them begins."""

    entries: Sequence[StoredAuditEntry]
    next: int | None
    """For `before`; None: these are the oldest."""


@dataclass(frozen=True, slots=True)
class AuditReader:
    """Reads the audit log for an operator: an operator of some accounts sees the entries of those."""

    transactions: Transactions
    audit: AuditLog

    async def read(self, actor: Actor, wanted: AuditFilter, *, before: int | None = None, limit: int = PAGE_ENTRIES) -> AuditPage:
        seen = replace(wanted, accounts=actor.operator.accounts)
        async with self.transactions.once() as tx:
            found = await self.audit.list(tx, seen, before=before, limit=limit + 1)
        entries = [entry if actor.operator.role.covers(Role.OPERATOR) else hide_words(entry) for entry in found[:limit]]
        return AuditPage(entries, entries[-1].id if len(found) > limit else None)


def hide_words(stored: StoredAuditEntry) -> StoredAuditEntry:
    """For a viewer: without what operators wrote, and without their addresses."""
    reason = HIDDEN_WORDS if stored.entry.reason else ""
    return replace(stored, address="", entry=replace(stored.entry, reason=reason))


def audit_json(stored: StoredAuditEntry) -> dict[str, Any]:
    """An entry for programs: the same in the API and on the command line."""
    entry = stored.entry
    return {
        "id": stored.id,
        "at": stored.at.isoformat(),
        "operator": stored.operator,
        "role": stored.role,
        "face": stored.face,
        "address": stored.address,
        "action": entry.action,
        "allowed": entry.allowed,
        "subject_kind": entry.subject_kind,
        "subject": entry.subject,
        "user_id": None if entry.user_id is None else str(entry.user_id),
        "account": entry.account_id,
        "reason": entry.reason,
        "facts": dict(entry.facts),
    }
