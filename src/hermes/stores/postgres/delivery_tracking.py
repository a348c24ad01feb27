"""What became of outbox messages, on PostgreSQL: how far they came, those that were given up, and users who cannot be reached.

Receipt ranks only grow; a receipt that comes too early waits for its message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hermes.ports.channels import DeliveryReceipt, ReceiptRank, SendOutcome
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.outbox import (
    ALL_DEAD_LETTERS,
    AnswerSource,
    DeadLetter,
    DeadLetterQuery,
    DeliveryStatus,
    MessageBody,
    SentMessage,
    readable_text,
)
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import DataKeys, SealBroken
from hermes.turn import Platform

SQL, DEAD_LETTERS = load_queries("delivery_tracking"), load_queries("dead_letters")
EARLY_RECEIPT_TTL_S = 86_400.0
"""How long a receipt waits for its message. The message is settled within minutes, or never."""


# --- the body of an outbox message: sealed for its user, under a label of its own, so that it opens in no other row


@dataclass(slots=True, kw_only=True)
class SealedBody:
    """One part of an answer as it is stored."""

    id: int
    user_id: UUID
    turn_id: UUID
    part: int
    news: str
    body: bytes
    is_message: bool
    """Whether the body is a platform's message, and not a text."""

    def open(self, keys: DataKeys) -> MessageBody:
        """Open what `seal_body` sealed. Raises SealError."""
        text = keys.open(seal_label(self.turn_id, self.part, self.news), self.body).decode()
        if not self.is_message:
            return text
        message: dict[str, Any] = json.loads(text)
        return message


def seal_body(keys: DataKeys, turn_id: UUID, part: int, news: str, body: MessageBody) -> dict[str, Any]:
    """The columns of a part: its number, its body, and whether the body is a platform's message."""
    is_message = not isinstance(body, str)
    text = json.dumps(body, separators=(",", ":")) if is_message else body
    return {"part": part, "body": keys.seal(seal_label(turn_id, part, news), str(text).encode()), "is_message": is_message}


def seal_label(turn_id: UUID, part: int, news: str = "") -> str:
    return f"outbox/{turn_id}/{news}/{part}" if news else f"outbox/{turn_id}/{part}"


# --- dead letters


class PostgresDeadLetters:
    """The port DeadLetters. They are kept for `keep_s`."""

    def __init__(self, keyring: Keyring, *, keep_s: float) -> None:
        self._keyring, self._keep_s = keyring, keep_s

    async def list(self, tx: Transaction, query: DeadLetterQuery = ALL_DEAD_LETTERS, *, limit: int = 100) -> Sequence[DeadLetter]:
        return await fetch_rows(tx, read_dead_letter, DEAD_LETTERS["list"], {**query_columns(query), "limit": limit})

    async def text(self, tx: Transaction, letter_id: int) -> str:
        body = await fetch_row(tx, SealedBody, DEAD_LETTERS["text"], {"id": letter_id})
        if body is None:
            raise NotFound(f"there is no dead letter {letter_id}")
        return readable_text([body.open(await self._keyring.of(tx, body.user_id))])

    async def requeue(self, tx: Transaction, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        return await self._take_out(tx, "requeue", query)

    async def drop(self, tx: Transaction, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        return await self._take_out(tx, "drop", query)

    async def purge(self, tx: Transaction) -> int:
        return await execute(tx, DEAD_LETTERS["purge"], {"keep_s": self._keep_s})

    async def _take_out(self, tx: Transaction, statement: str, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        held = await fetch_values(tx, DEAD_LETTERS["hold_conversations"], query_columns(query))
        # Statements of their own, so that they see what other transactions requeued or put while this one waited for the conversations.
        chosen = {**query_columns(query), "held": held}
        await execute(tx, DEAD_LETTERS["note_doubts"], chosen)
        return await fetch_rows(tx, read_dead_letter, DEAD_LETTERS[statement], chosen)


def query_columns(query: DeadLetterQuery) -> dict[str, Any]:
    ids = None if query.ids is None else [*query.ids]
    return {"ids": ids, "platform": query.platform, "account": query.account, "outcome": query.outcome}


def read_dead_letter(*, platform: str, outcome: str | None, **columns: Any) -> DeadLetter:
    return DeadLetter(platform=Platform(platform), outcome=SendOutcome(outcome) if outcome else None, **columns)


# --- receipts


class PostgresDeliveryTracking:
    """The port DeliveryTracking."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def receive(self, tx: Transaction, account: str, platform: Platform, receipt: DeliveryReceipt) -> DeadLetter | None:
        row: dict[str, Any] = {"account": account, "platform": platform, "message_id": receipt.message_id, "rank": receipt.rank}
        row |= {"channel_id": receipt.channel_id, "outcome": receipt.error, "reason": receipt.detail, "delivered": ReceiptRank.DELIVERED}
        row["parcel_id"] = await self._find_message(tx, row, receipt)
        if row["parcel_id"] is None and (receipt.text is not None or receipt.reference is not None):
            row["channel_id"] = None  # a message that the operator sent by hand, or a dropped one: the receipt confirms nothing
        letter = None
        if receipt.rank is ReceiptRank.FAILED:
            await execute(tx, SQL["hold_conversations"], row)
            row["outcome"] = receipt.error or SendOutcome.REJECTED
            letter = await fetch_row(tx, read_dead_letter, SQL["fail"], row)
        await execute(tx, SQL["receive"], row)
        return letter

    async def take_arrived(self, tx: Transaction, account: str, platform: Platform, message_id: str) -> DeadLetter | None:
        row: dict[str, Any] = {"account": account, "platform": platform, "message_id": message_id, "failed": ReceiptRank.FAILED}
        for letter, doubted_at in await fetch_rows(tx, read_letter_in_doubt, SQL["in_doubt"], row):
            await execute(tx, SQL["hold_conversation"], {"conversation_id": letter.conversation_id})
            where = ReceiptQuery(letter.id, letter.conversation_id, account, platform, letter.channel_id, doubted_at)
            if await find_confirmation(tx, where) is None:
                continue
            arrived = {**row, "id": letter.id, "reason": "a receipt told that it arrived, after it was given up"}
            return letter if await execute(tx, SQL["mark_arrived"], arrived) else None
        return None

    async def take_left_in_doubt(self, tx: Transaction) -> DeadLetter | None:
        found: dict[str, Any] | None = await fetch_row(tx, dict, SQL["left_in_doubt"])
        if found is None:
            return None
        await execute(tx, SQL["hold_conversation"], found)
        return await fetch_row(tx, read_dead_letter, SQL["list_left_in_doubt"], found)

    async def _find_message(self, tx: Transaction, row: dict[str, Any], receipt: DeliveryReceipt) -> int | None:
        """The id of the outbox message that a receipt is about, if the platform repeats its reference or its text."""
        if receipt.reference is not None:
            columns = parse_reference(receipt.reference)
            found: int | None = await fetch_value(tx, SQL["find_by_reference"], {**row, **columns}) if columns else None
            return found
        return await self._find_by_text(tx, row, receipt.text) if receipt.text is not None else None

    async def _find_by_text(self, tx: Transaction, row: dict[str, Any], text: str) -> int | None:
        """The id of the message with exactly this text that waits to be sent, or for the platform's answer, or was given up in doubt."""
        for body in await fetch_rows(tx, SealedBody, SQL["undelivered"], row):
            try:
                sent = readable_text([body.open(await self._keyring.of(tx, body.user_id))])
            except (UserErased, SealBroken):
                continue  # the outbox will give it up
            if sent.split() == text.split():
                return body.id
        return None

    async def take_early_receipt(self, tx: Transaction) -> tuple[str, Platform, DeliveryReceipt] | None:
        taken = await fetch_row(tx, read_early_receipt, SQL["take_early_receipt"])
        if taken is None:
            await execute(tx, SQL["delete_old_receipts"], {"keep_s": EARLY_RECEIPT_TTL_S})
        return taken

    async def set_reachable(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, is_reachable: bool, since: datetime | None = None
    ) -> None:
        where = {"account": account, "platform": platform, "channel_id": channel_id, "since": since}
        await execute(tx, SQL["set_reachable" if is_reachable else "set_unreachable"], where)

    async def move(self, tx: Transaction, account: str, platform: Platform, old: str, new: str) -> None:
        where = {"account": account, "platform": platform, "old": old, "new": new}
        # Channels before conversations, in the same order as the intake of a message.
        await execute(tx, SQL["move_sender"], where)
        held = await fetch_values(tx, SQL["hold_both"], where)
        await execute(tx, SQL["move_channel"], where)
        await execute(tx, SQL["move_messages"], {**where, "conversations": held})

    async def answer_source(
        self, tx: Transaction, account: str, platform: Platform, message_id: str, *, channel_id: str | None = None
    ) -> AnswerSource | None:
        where = {"account": account, "platform": platform, "message_id": message_id, "channel_id": channel_id}
        return await fetch_row(tx, read_answer_source, SQL["answer_source"], where)

    async def newest(self, tx: Transaction, *, account: str | None = None, limit: int = 20) -> Sequence[SentMessage]:
        return await fetch_rows(tx, read_sent_message, SQL["newest"], {"account": account, "limit": limit})

    async def statuses(self, tx: Transaction, turn_id: UUID) -> Sequence[DeliveryStatus]:
        return await fetch_rows(tx, read_delivery_status, SQL["statuses"], {"turn_id": turn_id})


@dataclass(frozen=True, slots=True)
class ReceiptQuery:
    """The columns by which the receipts of a message in doubt are found."""

    id: int
    conversation_id: UUID
    account: str
    platform: Platform
    channel_id: str
    doubted_at: datetime
    """When the first try whose outcome is unknown was made."""


async def find_confirmation(tx: Transaction, where: ReceiptQuery) -> str | None:
    """The platform's id of the message, if a receipt proves that it arrived; None while nothing is proven."""
    found: str | None = await fetch_value(tx, SQL["find_confirmation"], {**asdict(where), "failed": ReceiptRank.FAILED})
    return found


def parse_reference(reference: str) -> dict[str, Any] | None:
    """The columns in an `OutboxMessage.reference`; None for a reference that another program wrote."""
    turn_id, _, rest = reference.partition("/")
    part, _, news = rest.partition("/")
    try:
        return {"turn_id": UUID(turn_id), "part": int(part), "news": news}
    except ValueError:
        return None


def read_letter_in_doubt(*, doubted_at: datetime, **columns: Any) -> tuple[DeadLetter, datetime]:
    return read_dead_letter(**columns), doubted_at


def read_early_receipt(
    *, account: str, platform: str, rank: int, error: str | None, **columns: Any
) -> tuple[str, Platform, DeliveryReceipt]:
    receipt = DeliveryReceipt(rank=ReceiptRank(rank), error=SendOutcome(error) if error else None, **columns)
    return account, Platform(platform), receipt


def read_answer_source(*, calls: Sequence[str], **columns: Any) -> AnswerSource:
    return AnswerSource(calls=tuple(calls), **columns)


def read_sent_message(*, turn_id: UUID, account: str, platform: str, channel_id: str, **status: Any) -> SentMessage:
    known = read_delivery_status(**status)
    return SentMessage(turn_id=turn_id, account=account, platform=Platform(platform), channel_id=channel_id, status=known)


def read_delivery_status(*, rank: int, outcome: str | None, **columns: Any) -> DeliveryStatus:
    return DeliveryStatus(rank=ReceiptRank(rank) if rank else None, outcome=SendOutcome(outcome) if outcome else None, **columns)
