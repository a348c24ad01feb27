"""Dead letters on PostgreSQL: outbox messages that were given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes.ports.channels import SendOutcome
from hermes.ports.errors import NotFound
from hermes.ports.outbox import ALL_DEAD_LETTERS, DeadLetter, DeadLetterQuery, readable_text
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox_body import open_body
from hermes.stores.postgres.queries import load_queries
from hermes.turn import Platform

SQL = load_queries("dead_letters")


class PostgresDeadLetters:
    """The port DeadLetters. They are kept for `keep_s`."""

    def __init__(self, keyring: Keyring, *, keep_s: float) -> None:
        self._keyring, self._keep_s = keyring, keep_s

    async def list(self, tx: Transaction, query: DeadLetterQuery = ALL_DEAD_LETTERS, *, limit: int = 100) -> Sequence[DeadLetter]:
        return [as_dead_letter(row) for row in await fetch_rows(tx, "list", {**query_columns(query), "limit": limit})]

    async def text(self, tx: Transaction, letter_id: int) -> str:
        found = await fetch_rows(tx, "text", {"id": letter_id})
        if not found:
            raise NotFound(f"there is no dead letter {letter_id}")
        [[user_id, turn_id, part, news, body, is_message]] = found
        keys = await self._keyring.of(tx, user_id)
        return readable_text([open_body(keys, turn_id, part, news, body, is_message=is_message)])

    async def requeue(self, tx: Transaction, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        return await self._take_out(tx, "requeue", query)

    async def drop(self, tx: Transaction, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        return await self._take_out(tx, "drop", query)

    async def purge(self, tx: Transaction) -> int:
        return (await connection_of(tx).execute(SQL["purge"], {"keep_s": self._keep_s})).rowcount

    async def _take_out(self, tx: Transaction, statement: str, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        held = [row[0] for row in await fetch_rows(tx, "hold_conversations", query_columns(query))]
        # Statements of their own, so that they see what other transactions requeued or put while this one waited for the conversations.
        chosen = {**query_columns(query), "held": held}
        await connection_of(tx).execute(SQL["note_doubts"], chosen)
        return [as_dead_letter(row) for row in await fetch_rows(tx, statement, chosen)]


async def fetch_rows(tx: Transaction, query: str, values: dict[str, Any]) -> Any:
    return await (await connection_of(tx).execute(SQL[query], values)).fetchall()


def query_columns(query: DeadLetterQuery) -> dict[str, Any]:
    ids = None if query.ids is None else [*query.ids]
    return {"ids": ids, "platform": query.platform, "account": query.account, "outcome": query.outcome}


def as_dead_letter(row: Any) -> DeadLetter:
    """Read a row of a dead letter's columns, in the order in which every query selects them."""
    letter_id, turn_id, conversation_id, account, platform, channel_id, part, news, outcome, reason, tries, doubts, is_late, *times = row
    promised_at, died_at = times
    return DeadLetter(
        id=letter_id,
        turn_id=turn_id,
        conversation_id=conversation_id,
        account=account,
        platform=Platform(platform),
        channel_id=channel_id,
        part=part,
        news=news,
        outcome=SendOutcome(outcome) if outcome else None,
        reason=reason,
        tries=tries,
        doubts=doubts,
        is_late=is_late,
        promised_at=promised_at,
        died_at=died_at,
    )
