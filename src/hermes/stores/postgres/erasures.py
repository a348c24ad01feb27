"""The erasures that a database knows of."""

from __future__ import annotations

from datetime import datetime

from hermes.ports.runtime import Transaction
from hermes.stores.erasure_ledger import Erasure
from hermes.stores.postgres.database import execute, fetch_rows, fetch_value
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("erasures")


async def list_erasures(tx: Transaction, since: datetime | None = None) -> list[Erasure]:
    """The erasures since a time, or all; the oldest first. A database of an earlier version only knows which users were erased."""
    if not await fetch_value(tx, SQL["has_table"]):
        return await fetch_rows(tx, Erasure, SQL["list_before"])
    return await fetch_rows(tx, Erasure, SQL["list_since"], {"since": since})


async def has_user(tx: Transaction, erasure: Erasure) -> bool:
    """Whether its user is in this database, and not erased."""
    return bool(await fetch_value(tx, SQL["has_user"], {"user_id": erasure.user_id}))


async def newest_number(tx: Transaction) -> int:
    return int(await fetch_value(tx, SQL["newest"]))


async def delete_fact(tx: Transaction, erasure: Erasure) -> None:
    """Delete the fact, and the dreams that follow from it. Unlike Memories.delete it needs no key, and notes nothing."""
    await execute(tx, SQL["delete_fact"], {"user_id": erasure.user_id, "fact_id": erasure.fact_id})


async def note_repeated(tx: Transaction, erasure: Erasure, after: int) -> None:
    """Note an erasure that was repeated with the time at which it was first made; `after` is the newest number before the repetition."""
    await execute(tx, SQL["forget_repeated"], {"after": after})
    row = {"user_id": erasure.user_id, "account": erasure.account, "fact_id": erasure.fact_id, "at": erasure.at}
    await execute(tx, SQL["note"], row)
