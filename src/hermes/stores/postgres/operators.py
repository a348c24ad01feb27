"""Operators and the audit log on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.errors import NotFound
from hermes.ports.operators import (
    ENTRY_ID_CHARS,
    Actor,
    AuditEntry,
    AuditFilter,
    ContentOpening,
    ContentOwner,
    EntryKind,
    Face,
    Operator,
    OperatorEntry,
    OperatorNameTaken,
    Role,
    StoredAuditEntry,
)
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("operators")
OWNER_QUERIES = {"conversation": "owner_of_conversation", "user": "owner_of_user"}


class PostgresOperators:
    """The port Operators."""

    async def add(self, tx: Transaction, name: str, role: Role, *, accounts: frozenset[str] | None = None, by: str) -> Operator:
        row = {"name": name, "role": role, "accounts": None if accounts is None else sorted(accounts), "by": by}
        added = await fetch_row(tx, read_operator, SQL["add"], row)
        if added is None:
            raise OperatorNameTaken(f"there is an operator {name} already")
        return added

    async def find(self, tx: Transaction, name: str) -> Operator | None:
        return await fetch_row(tx, read_operator, SQL["find"], {"name": name})

    async def list(self, tx: Transaction) -> Sequence[Operator]:
        return await fetch_rows(tx, read_operator, SQL["list"])

    async def add_entry(
        self,
        tx: Transaction,
        operator_id: UUID,
        kind: EntryKind,
        digest: bytes,
        *,
        ttl_s: float | None,
        name: str = "",
        address: str = "",
        browser: str = "",
    ) -> None:
        row = {"operator_id": operator_id, "kind": kind, "digest": digest, "ttl_s": ttl_s, "name": name}
        await execute(tx, SQL["add_entry"], {**row, "address": address, "browser": browser})

    async def use_link(self, tx: Transaction, digest: bytes) -> Operator | None:
        return await fetch_row(tx, read_operator, SQL["use_link"], {"digest": digest})

    async def find_entry(self, tx: Transaction, digest: bytes, *, idle_s: float) -> OperatorEntry | None:
        return await fetch_row(tx, read_entry, SQL["find_entry"], {"digest": digest, "idle_s": idle_s})

    async def note_seen(self, tx: Transaction, digest: bytes, *, every_s: float) -> None:
        await execute(tx, SQL["note_seen"], {"digest": digest, "every_s": every_s})

    async def set_role(self, tx: Transaction, name: str, role: Role) -> Operator:
        return require_operator(name, await fetch_row(tx, read_operator, SQL["set_role"], {"name": name, "role": role}))

    async def set_accounts(self, tx: Transaction, name: str, accounts: frozenset[str] | None) -> Operator:
        row = {"name": name, "accounts": None if accounts is None else sorted(accounts)}
        return require_operator(name, await fetch_row(tx, read_operator, SQL["set_accounts"], row))

    async def disable(self, tx: Transaction, name: str) -> Operator:
        return require_operator(name, await fetch_row(tx, read_operator, SQL["disable"], {"name": name}))

    async def enable(self, tx: Transaction, name: str) -> Operator:
        return require_operator(name, await fetch_row(tx, read_operator, SQL["enable"], {"name": name}))

    async def entries(self, tx: Transaction, *, operator_id: UUID | None = None, idle_s: float) -> Sequence[OperatorEntry]:
        return await fetch_rows(tx, read_entry, SQL["entries"], {"operator_id": operator_id, "idle_s": idle_s})

    async def revoke(self, tx: Transaction, entry_id: str) -> OperatorEntry:
        found = await fetch_row(tx, read_entry, SQL["revoke"], {"entry_id": entry_id, "chars": ENTRY_ID_CHARS})
        if found is None:
            raise NotFound(f"there is no link, session or token {entry_id}")
        return found


class PostgresContentOwners:
    """The port ContentOwners."""

    async def find(self, tx: Transaction, subject_kind: str, subject: UUID) -> ContentOwner | None:
        query = OWNER_QUERIES.get(subject_kind)
        return None if query is None else await fetch_row(tx, ContentOwner, SQL[query], {"id": subject})


class PostgresAuditLog:
    """The port AuditLog. A trigger refuses every change of a row."""

    async def add(self, tx: Transaction, actor: Actor, entry: AuditEntry) -> int:
        row = {
            "operator": actor.operator.name,
            "role": actor.operator.role,
            "face": actor.face,
            "address": actor.address,
            "action": entry.action,
            "subject_kind": entry.subject_kind,
            "subject": entry.subject,
            "user_id": entry.user_id,
            "account_id": entry.account_id,
            "reason": entry.reason,
            "allowed": entry.allowed,
            "facts": Jsonb(dict(entry.facts)),
        }
        return int(await fetch_value(tx, SQL["audit"], row))

    async def list(self, tx: Transaction, wanted: AuditFilter, *, before: int | None = None, limit: int = 50) -> Sequence[StoredAuditEntry]:
        row = {
            "operator": wanted.operator,
            "action": wanted.action,
            "subject_kind": wanted.subject_kind,
            "subject": wanted.subject,
            "since": wanted.since,
            "user_id": wanted.user_id,
            "only_refused": wanted.only_refused,
            "accounts": None if wanted.accounts is None else sorted(wanted.accounts),
            "before": before,
            "limit": limit,
        }
        return await fetch_rows(tx, read_audit_entry, SQL["audit_list"], row)

    async def find_opening(self, tx: Transaction, operator: str, kind: str, subject: str, *, within_s: float) -> ContentOpening | None:
        row = {"operator": operator, "subject_kind": kind, "subject": subject, "within_s": within_s}
        return await fetch_row(tx, ContentOpening, SQL["find_opening"], row)

    async def count_opened(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> int:
        return int(await fetch_value(tx, SQL["count_opened"], {"user_id": user_id, "account": account}))


def require_operator(name: str, found: Operator | None) -> Operator:
    if found is None:
        raise NotFound(f"there is no operator {name}")
    return found


def read_operator(*, role: str, accounts: Sequence[str] | None, **columns: Any) -> Operator:
    return Operator(role=Role(role), accounts=None if accounts is None else frozenset(accounts), **columns)


def read_entry(
    *,
    digest: bytes,
    kind: str,
    entry_name: str,
    entry_created_at: datetime,
    seen_at: datetime | None,
    expires_at: datetime | None,
    used_at: datetime | None,
    revoked_at: datetime | None,
    address: str,
    browser: str,
    **operator: Any,
) -> OperatorEntry:
    return OperatorEntry(
        digest=digest,
        kind=EntryKind(kind),
        operator=read_operator(**operator),
        name=entry_name,
        created_at=entry_created_at,
        seen_at=seen_at,
        expires_at=expires_at,
        used_at=used_at,
        revoked_at=revoked_at,
        address=address,
        browser=browser,
    )


def read_audit_entry(*, id: int, at: datetime, operator: str, role: str, face: str, address: str, **columns: Any) -> StoredAuditEntry:  # noqa: A002  # the column's name
    return StoredAuditEntry(id, at, operator, role, Face(face), address, AuditEntry(**columns))
