"""The outbox on PostgreSQL; bodies are sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.event_log import get_logger
from hermes.ports.channels import ReceiptRank, SendOutcome
from hermes.ports.errors import UserErased
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
    offers_in,
    readable_text,
)
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.delivery_tracking import (
    PostgresDeadLetters,
    PostgresDeliveryTracking,
    ReceiptQuery,
    SealedBody,
    find_confirmation,
    seal_body,
)
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import SealBroken
from hermes.turn import Platform

if TYPE_CHECKING:
    from hermes.ports.inbox import Claim, InboxMessage

log = get_logger(__name__)

SQL = load_queries("outbox")
WEEK_S = 7 * 86_400.0
WITHDRAWN = "withdrawn"
"""The name under which the parts of an answer are kept that were sent before the turn got another one: `withdrawn/1`."""


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

    async def withdraw(self, tx: Transaction, turn_id: UUID) -> int:
        await execute(tx, SQL["keep_doubts"], {"turn_id": turn_id})
        kept = await fetch_rows(tx, KnownPart, SQL["parts_with_receipts"], {"turn_id": turn_id})
        for part in kept:
            # Receipts of what the platform knows go on coming. Without its row they would be taken for those of another message.
            keys = await self._keyring.of(tx, part.user_id)
            name = f"{WITHDRAWN}/{part.earlier + 1}"
            columns = seal_body(keys, turn_id, part.part, name, part.open(keys))
            await execute(tx, SQL["keep_part"], {**columns, "id": part.id, "news": name})
        removed: list[int] = await fetch_values(tx, SQL["withdraw"], {"turn_id": turn_id})
        return len(kept) + sum(removed)

    async def put_proactive(
        self, tx: Transaction, asked: InboxMessage, name: str, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING
    ) -> None:
        row: dict[str, Any] = {"turn_id": asked.turn_id, "conversation_id": asked.conversation_id, "user_id": asked.user_id}
        row |= {"thread": asked.envelope.thread, "state": state, "news": name}
        await execute(tx, SQL["hold_conversation"], row)
        await self._put(tx, "put_proactive", row, parts)

    async def _put(self, tx: Transaction, query: str, row: dict[str, Any], parts: Sequence[MessageBody]) -> None:
        keys = await self._keyring.of(tx, row["user_id"])
        for part, body in enumerate(parts):
            values = {**row, **seal_body(keys, row["turn_id"], part, row["news"], body)}
            if not await execute(tx, SQL[query], values):
                return  # an earlier call put it

    async def take_proactive(self, tx: Transaction, conversation_id: UUID) -> Sequence[ProactiveMessage]:
        rows = await fetch_rows(tx, ProactiveRow, SQL["take_proactive"], {"conversation_id": conversation_id})
        return await self._open_messages(tx, sorted(rows, key=lambda row: row.id))

    async def proactive_messages(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, after: int = 0, limit: int = 50
    ) -> Sequence[ProactiveMessage]:
        where = {"account": account, "platform": platform, "channel_id": channel_id, "after": after, "limit": limit}
        return await self._open_messages(tx, await fetch_rows(tx, ProactiveRow, SQL["proactive_messages"], where))

    async def _open_messages(self, tx: Transaction, rows: Sequence[ProactiveRow]) -> list[ProactiveMessage]:
        found = []
        for _, group in groupby(rows, key=lambda row: (row.turn_id, row.user_id, row.news)):
            first, *rest = group
            try:
                keys = await self._keyring.of(tx, first.user_id)
            except UserErased:
                continue
            text = readable_text([row.open(keys) for row in (first, *rest)])
            found.append(ProactiveMessage(first.id, first.turn_id, first.user_id, first.news, text, first.put_at))
        return found

    async def take(self, tx: Transaction, conversation_id: UUID) -> OutboxMessage | None:
        return await self._open_taken(tx, conversation_id, await self._take(tx, conversation_id))

    async def settle_sent(
        self, tx: Transaction, message: OutboxMessage, result: DeliveryResult, facts: Mapping[str, Any]
    ) -> OutboxMessage | None:
        row = {
            "id": message.id,
            "tries": message.tries,
            "account": message.account,
            "platform": message.platform,
            "facts": Jsonb(dict(facts)),
        }
        row |= {"message_id": result.message_id, "outcome": result.outcome, "reason": result.reason, "failed": ReceiptRank.FAILED}
        row |= {"conversation_id": message.conversation_id, "cut_off_s": self._cut_off_s}
        return await self._open_taken(tx, message.conversation_id, await fetch_row(tx, TakenRow, SQL["settle_sent"], row))

    async def _take(self, tx: Transaction, conversation_id: UUID) -> TakenRow | None:
        return await fetch_row(tx, TakenRow, SQL["take"], {"conversation_id": conversation_id, "cut_off_s": self._cut_off_s})

    async def _open_taken(self, tx: Transaction, conversation_id: UUID, row: TakenRow | None) -> OutboxMessage | None:
        """Open a message that was taken; one that cannot be opened is given up, and the next one is taken."""
        while row is not None:
            try:
                return await self._read_message(tx, row)
            except (UserErased, SealBroken) as error:
                # It would block all later messages of its conversation for ever.
                reason = "its user was deleted" if isinstance(error, UserErased) else "what is stored of it is damaged"
                log.warning("outbox_message_not_opened", turn_id=str(row.turn_id), reason=reason)
                await execute(tx, SQL["give_up"], {"id": row.id, "reason": reason})
                row = await self._take(tx, conversation_id)
        return None

    async def _read_message(self, tx: Transaction, row: TakenRow) -> OutboxMessage:
        platform, last_inbound_at, unreachable_since = Platform(row.platform), row.last_inbound_at, row.unreachable_since
        keys = await self._keyring.of(tx, row.user_id)
        has_left = unreachable_since is not None and not (last_inbound_at is not None and last_inbound_at > unreachable_since)
        confirmed_by = None
        if row.doubts:
            where = ReceiptQuery(row.id, row.conversation_id, row.account, platform, row.channel_id, row.doubted_at)
            confirmed_by = await find_confirmation(tx, where)
        return OutboxMessage(
            *(row.id, row.turn_id, row.conversation_id, row.seq, row.part, row.account, platform, row.channel_id),
            row.open(keys),
            row.tries,
            doubts=row.doubts,
            news=row.news,
            failures=row.failures,
            thread=row.thread,
            reply_to=row.reply_to,
            is_late=row.is_late,
            is_reachable=not has_left,
            taken_at=row.taken_at,
            last_inbound_at=last_inbound_at,
            confirmed_by=confirmed_by,
            traceparent=row.traceparent,
        )

    async def settle(self, tx: Transaction, message: OutboxMessage, result: DeliveryResult) -> OutboxState | None:
        if result.moved_to is not None:
            await self.tracking.move(tx, message.account, message.platform, message.channel_id, result.moved_to)
        state, reason = result.state, result.reason
        account_row: dict[str, Any] = {"account": message.account, "platform": message.platform, "cap": self._cap}
        if state is not OutboxState.SENT:
            await execute(tx, SQL["hold_conversation"], {"conversation_id": message.conversation_id})
        if state is OutboxState.PENDING and await self._is_full(tx, account_row):
            state, reason = OutboxState.DEAD, f"{self._cap} other messages wait to be tried again; {reason}"
        row = {**account_row, "id": message.id, "tries": message.tries, "state": state, "outcome": result.outcome, "reason": reason}
        row |= {"retry_in_s": result.retry_in_s, "failures": int(result.is_failure), "doubts": int(result.is_doubtful)}
        row |= {"message_id": result.message_id, "failed": ReceiptRank.FAILED}
        if not await execute(tx, SQL["settle"], row):
            return None
        if result.outcome is SendOutcome.INVALID_RECIPIENT and state is OutboxState.DEAD:
            gone = {"conversation_id": message.conversation_id, "taken_at": message.taken_at}
            await execute(tx, SQL["mark_unreachable"], gone)
        return state

    async def _is_full(self, tx: Transaction, account_row: dict[str, Any]) -> bool:
        await execute(tx, SQL["lock_account"], account_row)
        return bool(await fetch_value(tx, SQL["is_full"], account_row))

    async def stranded_conversations(self, tx: Transaction, older_than_s: float, *, limit: int = 500) -> Sequence[UUID]:
        limits = {"older_than_s": older_than_s, "cut_off_s": self._cut_off_s, "limit": limit}
        return await fetch_values(tx, SQL["stranded_conversations"], limits)

    async def answer(self, tx: Transaction, turn_id: UUID) -> OutboxAnswer | None:
        parts = await fetch_rows(tx, AnswerRow, SQL["answer"], {"turn_id": turn_id})
        if not parts:
            return None
        keys = await self._keyring.of(tx, parts[0].user_id)
        bodies = [part.open(keys) for part in parts]
        return OutboxAnswer(turn_id, readable_text(bodies), parts[0].meta or {}, offers_in(bodies))

    async def waiting(self, tx: Transaction) -> int:
        return int(await fetch_value(tx, SQL["waiting"]))

    async def lengths(self, tx: Transaction) -> OutboxLengths:
        [lengths] = await fetch_rows(tx, OutboxLengths, SQL["lengths"])
        return lengths


@dataclass(slots=True, kw_only=True)
class ProactiveRow(SealedBody):
    """One part of a proactive message."""

    put_at: datetime


@dataclass(slots=True, kw_only=True)
class KnownPart(SealedBody):
    """A part of an answer that the platform has, under an id of its own."""

    earlier: int
    """How many answers of the turn were withdrawn before."""


@dataclass(slots=True, kw_only=True)
class AnswerRow(SealedBody):
    """One part of a turn's answer."""

    meta: dict[str, object] | None
    """The interaction's provenance."""


@dataclass(slots=True, kw_only=True)
class TakenRow(SealedBody):
    """A message that was just taken, and what is known of its conversation."""

    conversation_id: UUID
    seq: int
    account: str
    platform: str
    channel_id: str
    tries: int
    doubts: int
    failures: int
    thread: str | None
    reply_to: str | None
    is_late: bool
    taken_at: datetime
    doubted_at: datetime
    """When the first try whose outcome is unknown was made; means nothing without doubts."""
    last_inbound_at: datetime | None
    unreachable_since: datetime | None
    traceparent: str | None
