"""The outbox and the interactions on PostgreSQL; bodies are sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

import structlog
from psycopg.types.json import Jsonb

from hermes.ports.channels import ReceiptRank, SendOutcome
from hermes.ports.errors import UserErased
from hermes.ports.inbox import Claim, InboxMessage
from hermes.ports.outbox import (
    DeadLetters,
    DeliveryResult,
    DeliveryTracking,
    MessageBody,
    OutboxAnswer,
    OutboxLengths,
    OutboxMessage,
    OutboxState,
    ProactiveMessage,
    readable_text,
)
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.dead_letters import PostgresDeadLetters
from hermes.stores.postgres.delivery_tracking import PostgresDeliveryTracking, ReceiptQuery, find_confirmation
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox_body import open_body, seal_body
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import SealBroken
from hermes.turn import Platform

log = structlog.get_logger()

SQL = load_queries("outbox")
WEEK_S = 7 * 86_400.0


class PostgresOutbox:
    """The port Outbox. A try that has not ended after `cut_off_s` was cut off: no sender works on one message for that long.

    `cap` is how many messages of one account at one platform may wait to be tried again; `keep_dead_s`, how long dead letters are kept."""

    def __init__(self, keyring: Keyring, *, cut_off_s: float = 120.0, cap: int = 5_000, keep_dead_s: float = WEEK_S) -> None:
        self._keyring, self._cut_off_s, self._cap = keyring, cut_off_s, cap
        self.dead_letters: DeadLetters = PostgresDeadLetters(keyring, keep_s=keep_dead_s)
        self.tracking: DeliveryTracking = PostgresDeliveryTracking(keyring)

    async def put(self, tx: Transaction, claim: Claim, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING) -> None:
        row: dict[str, Any] = {"turn_id": claim.turn_id, "conversation_id": claim.conversation_id, "user_id": claim.user_id}
        row |= {"seq": claim.seq, "thread": claim.envelope.thread, "state": state, "news": ""}
        row["reply_to"] = claim.envelope.message_id or None if claim.envelope.is_shared else None
        await self._put(tx, "put", row, parts)

    async def put_proactive(
        self, tx: Transaction, asked: InboxMessage, name: str, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING
    ) -> None:
        row: dict[str, Any] = {"turn_id": asked.turn_id, "conversation_id": asked.conversation_id, "user_id": asked.user_id}
        row |= {"thread": asked.envelope.thread, "state": state, "news": name}
        await connection_of(tx).execute(SQL["hold_conversation"], row)
        await self._put(tx, "put_proactive", row, parts)

    async def _put(self, tx: Transaction, query: str, row: dict[str, Any], parts: Sequence[MessageBody]) -> None:
        keys = await self._keyring.of(tx, row["user_id"])
        for part, body in enumerate(parts):
            values = {**row, **seal_body(keys, row["turn_id"], part, row["news"], body)}
            if await (await connection_of(tx).execute(SQL[query], values)).fetchone() is None:
                return  # an earlier call put it

    async def take_proactive(self, tx: Transaction, conversation_id: UUID) -> Sequence[ProactiveMessage]:
        rows = await (await connection_of(tx).execute(SQL["take_proactive"], {"conversation_id": conversation_id})).fetchall()
        return await self._open_messages(tx, sorted(rows))

    async def proactive_messages(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, after: int = 0, limit: int = 50
    ) -> Sequence[ProactiveMessage]:
        where = {"account": account, "platform": platform, "channel_id": channel_id, "after": after, "limit": limit}
        return await self._open_messages(tx, await (await connection_of(tx).execute(SQL["proactive_messages"], where)).fetchall())

    async def _open_messages(self, tx: Transaction, rows: Sequence[Any]) -> list[ProactiveMessage]:
        found = []
        for (turn_id, user_id, name), parts in groupby(rows, key=lambda row: row[1:4]):
            try:
                keys = await self._keyring.of(tx, user_id)
            except UserErased:
                continue
            ids, bodies, times = zip(
                *((row[0], open_body(keys, turn_id, row[4], name, row[5], is_message=row[6]), row[7]) for row in parts), strict=True
            )
            found.append(ProactiveMessage(ids[0], turn_id, user_id, name, readable_text(bodies), times[0]))
        return found

    async def take(self, tx: Transaction, conversation_id: UUID) -> OutboxMessage | None:
        where = {"conversation_id": conversation_id, "cut_off_s": self._cut_off_s}
        while (row := await (await connection_of(tx).execute(SQL["take"], where)).fetchone()) is not None:
            try:
                return await self._read_message(tx, conversation_id, row)
            except (UserErased, SealBroken) as error:
                # It would block all later messages of its conversation for ever.
                reason = "its user was deleted" if isinstance(error, UserErased) else "what is stored of it is damaged"
                log.warning("outbox_message_not_opened", turn_id=str(row[2]), reason=reason)
                await connection_of(tx).execute(SQL["give_up"], {"id": row[0], "reason": reason})
        return None

    async def _read_message(self, tx: Transaction, conversation_id: UUID, row: Any) -> OutboxMessage:
        outbox_id, user_id, turn_id, seq, part, account, platform, channel_id, body, is_message, tries, doubts, news, failures, *more = row
        thread, reply_to, is_late, taken_at, doubted_at, last_inbound_at, unreachable_since = more
        keys = await self._keyring.of(tx, user_id)
        has_left = unreachable_since is not None and not (last_inbound_at is not None and last_inbound_at > unreachable_since)
        confirming = None
        if doubts:
            where = ReceiptQuery(outbox_id, conversation_id, account, Platform(platform), channel_id, doubted_at)
            confirming = await find_confirmation(tx, where)
        return OutboxMessage(
            *(outbox_id, turn_id, conversation_id, seq, part, account, Platform(platform), channel_id),
            open_body(keys, turn_id, part, news, body, is_message=is_message),
            tries,
            doubts=doubts,
            news=news,
            failures=failures,
            thread=thread,
            reply_to=reply_to,
            is_late=is_late,
            is_reachable=not has_left,
            taken_at=taken_at,
            last_inbound_at=last_inbound_at,
            confirmed_by=confirming,
        )

    async def settle(self, tx: Transaction, message: OutboxMessage, result: DeliveryResult) -> OutboxState | None:
        if result.moved_to is not None:
            await self.tracking.move(tx, message.account, message.platform, message.channel_id, result.moved_to)
        state, reason = result.state, result.reason
        account_row: dict[str, Any] = {"account": message.account, "platform": message.platform, "cap": self._cap}
        if state is not OutboxState.SENT:
            await connection_of(tx).execute(SQL["hold_conversation"], {"conversation_id": message.conversation_id})
        if state is OutboxState.PENDING and await self._is_full(tx, account_row):
            state, reason = OutboxState.DEAD, f"{self._cap} other messages wait to be tried again; {reason}"
        row = {**account_row, "id": message.id, "tries": message.tries, "state": state, "outcome": result.outcome, "reason": reason}
        row |= {"retry_in_s": result.retry_in_s, "failures": int(result.is_failure), "doubts": int(result.is_doubtful)}
        row |= {"message_id": result.message_id, "failed": ReceiptRank.FAILED}
        if await (await connection_of(tx).execute(SQL["settle"], row)).fetchone() is None:
            return None
        if result.outcome is SendOutcome.INVALID_RECIPIENT and state is OutboxState.DEAD:
            gone = {"conversation_id": message.conversation_id, "taken_at": message.taken_at}
            await connection_of(tx).execute(SQL["mark_unreachable"], gone)
        return state

    async def _is_full(self, tx: Transaction, account_row: dict[str, Any]) -> bool:
        await connection_of(tx).execute(SQL["lock_account"], account_row)
        row = await (await connection_of(tx).execute(SQL["is_full"], account_row)).fetchone()
        return bool(row and row[0])

    async def stranded_conversations(self, tx: Transaction, older_than_s: float, *, limit: int = 500) -> Sequence[UUID]:
        limits = {"older_than_s": older_than_s, "cut_off_s": self._cut_off_s, "limit": limit}
        rows = await (await connection_of(tx).execute(SQL["stranded_conversations"], limits)).fetchall()
        return [row[0] for row in rows]

    async def answer(self, tx: Transaction, turn_id: UUID) -> OutboxAnswer | None:
        rows = await (await connection_of(tx).execute(SQL["answer"], {"turn_id": turn_id})).fetchall()
        if not rows:
            return None
        keys = await self._keyring.of(tx, rows[0][0])
        bodies = [open_body(keys, turn_id, part, "", body, is_message=is_message) for _, part, body, is_message, _ in rows]
        return OutboxAnswer(turn_id, readable_text(bodies), rows[0][4] or {})

    async def waiting(self, tx: Transaction) -> int:
        row = await (await connection_of(tx).execute(SQL["waiting"])).fetchone()
        return int(row[0]) if row else 0

    async def lengths(self, tx: Transaction) -> OutboxLengths:
        row = await (await connection_of(tx).execute(SQL["lengths"])).fetchone()
        return OutboxLengths(*row) if row else OutboxLengths(0, 0)


class PostgresInteractions:
    """The port Interactions."""

    async def add(self, tx: Transaction, claim: Claim, session_id: UUID, meta: Mapping[str, Any]) -> None:
        row = {"turn_id": claim.turn_id, "account": claim.envelope.account, "user_id": claim.user_id, "session_id": session_id}
        await connection_of(tx).execute(SQL["log"], {**row, "platform": claim.envelope.event.platform, "meta": Jsonb(dict(meta))})
