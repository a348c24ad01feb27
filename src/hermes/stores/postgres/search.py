"""Search by id, code and sender on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from hermes.ports.runtime import Transaction
from hermes.ports.search import HitKind, SearchHit
from hermes.stores.postgres.database import fetch_rows
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("search")


class PostgresSearch:
    """The port SearchIndex."""

    async def by_id(self, tx: Transaction, low: UUID, high: UUID, *, accounts: frozenset[str] | None, limit: int) -> Sequence[SearchHit]:
        return await fetch_rows(tx, read_hit, SQL["by_id"], {"low": low, "high": high, "accounts": account_list(accounts), "limit": limit})

    async def by_code(self, tx: Transaction, code: str, *, accounts: frozenset[str] | None) -> Sequence[SearchHit]:
        return await fetch_rows(tx, read_hit, SQL["by_code"], {"code": code, "accounts": account_list(accounts)})

    async def by_sender(self, tx: Transaction, prefix: str, *, accounts: frozenset[str] | None, limit: int) -> Sequence[SearchHit]:
        pattern = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        return await fetch_rows(tx, read_hit, SQL["by_sender"], {"pattern": pattern, "accounts": account_list(accounts), "limit": limit})


def account_list(accounts: frozenset[str] | None) -> list[str] | None:
    return None if accounts is None else sorted(accounts)


def read_hit(*, kind: str, **columns: Any) -> SearchHit:
    return SearchHit(kind=HitKind(kind), **columns)
