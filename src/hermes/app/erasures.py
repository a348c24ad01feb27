"""Keep the ledger of erasures beside the database, and repeat in a restored database what was erased after its backup."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

import structlog

from hermes.app.packs import read_user_tables
from hermes.config import Settings
from hermes.ports.runtime import Transactions
from hermes.soul.my_data import ConversationEraser
from hermes.stores.erasure_ledger import LEDGER_NAME, Erasure, ErasureLedger
from hermes.stores.postgres.database import NestedTransactions
from hermes.stores.postgres.erasures import delete_fact, has_user, list_erasures, newest_number, note_repeated
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.postgres.users import PostgresUsers

log = structlog.get_logger()

OVERLAP = timedelta(minutes=10)
"""How far before its newest line the ledger looks again: a transaction that began earlier may have committed later."""


def ledger_in(home: Path) -> ErasureLedger:
    return ErasureLedger(home / LEDGER_NAME)


async def update_ledger(transactions: Transactions, home: Path) -> None:
    """Write down what was erased since the newest line of the ledger. A ledger that cannot be written is logged: erasing goes on, and the
    database itself still has the list."""
    ledger = ledger_in(home)
    try:
        newest = await asyncio.to_thread(ledger.newest)
        async with transactions.begin() as tx:
            found = await list_erasures(tx, newest - OVERLAP if newest else None)
        await asyncio.to_thread(ledger.add, found)
    except OSError as error:
        log.warning("erasures_not_written_down", folder=str(home), error=error.strerror)


async def repeat_erasures(
    transactions: NestedTransactions, settings: Settings, keyring: Keyring, erasures: Iterable[Erasure]
) -> list[Erasure]:
    """Erase again what is in the list and not yet in the database; return what was erased.

    Erasures of users and facts that the database never had change nothing. One that it has made itself is not repeated: after it, the user
    may have come back to the account."""
    async with transactions.begin() as tx:
        known = set(await list_erasures(tx))
    people = PostgresUsers(keyring, await read_user_tables(settings, transactions))
    eraser = ConversationEraser(PostgresSessions(keyring), PostgresGraphs(keyring), None)
    todo = sorted({*erasures} - known, key=lambda erasure: erasure.at)
    return [erasure for erasure in todo if await repeat_erasure(transactions, people, eraser, erasure)]


async def repeat_erasure(transactions: NestedTransactions, people: PostgresUsers, eraser: ConversationEraser, erasure: Erasure) -> bool:
    """Erase one user, or a part of what is known of them; return whether the database knew the user."""
    async with transactions.begin() as tx:
        if not await has_user(tx, erasure):
            return False
        before = await newest_number(tx)
    if erasure.fact_id is None:
        await eraser.erase(erasure.user_id, transactions, account=erasure.account)
    async with transactions.begin() as tx:
        if erasure.fact_id is not None:
            await delete_fact(tx, erasure)
            await eraser.sessions.end(tx, erasure.user_id)  # the fact may stand in messages that models are shown
        elif erasure.account is not None:
            await people.forget_in_account(tx, erasure.user_id, erasure.account)
        else:
            await people.forget(tx, erasure.user_id)
        await note_repeated(tx, erasure, before)
    return True


def read_ledgers(files: Sequence[Path]) -> list[Erasure]:
    """The erasures in these files. Raises LedgerDamaged, and OSError."""
    return [erasure for file in files for erasure in ErasureLedger(file).read()]
