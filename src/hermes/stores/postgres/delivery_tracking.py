"""Delivery tracking on PostgreSQL: receipt ranks that only grow, receipts that came too early, and chats that cannot be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hermes.ports.channels import DeliveryReceipt, ReceiptRank, SendOutcome
from hermes.ports.errors import UserErased
from hermes.ports.outbox import AnswerSource, DeadLetter, DeliveryStatus, SentMessage, readable_text
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.dead_letters import as_dead_letter
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox_body import open_body
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import SealBroken
from hermes.turn import Platform

SQL = load_queries("delivery_tracking")
EARLY_RECEIPT_TTL_S = 86_400.0
"""How long a receipt waits for its message. The message is settled within minutes, or never."""


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
        died = []
        if receipt.rank is ReceiptRank.FAILED:
            await connection_of(tx).execute(SQL["hold_conversations"], row)
            row["outcome"] = receipt.error or SendOutcome.REJECTED
            died = await (await connection_of(tx).execute(SQL["fail"], row)).fetchall()
        await connection_of(tx).execute(SQL["receive"], row)
        return as_dead_letter(died[0]) if died else None

    async def take_arrived(self, tx: Transaction, account: str, platform: Platform, message_id: str) -> DeadLetter | None:
        row: dict[str, Any] = {"account": account, "platform": platform, "message_id": message_id, "failed": ReceiptRank.FAILED}
        for *columns, doubted_at in await fetch_rows(tx, "in_doubt", row):
            letter = as_dead_letter(columns)
            await connection_of(tx).execute(SQL["hold_conversation"], {"conversation_id": letter.conversation_id})
            where = ReceiptQuery(letter.id, letter.conversation_id, account, platform, letter.channel_id, doubted_at)
            if await find_confirmation(tx, where) is None:
                continue
            arrived = {**row, "id": letter.id, "reason": "a receipt told that it arrived, after it was given up"}
            return letter if await fetch_rows(tx, "mark_arrived", arrived) else None
        return None

    async def take_left_in_doubt(self, tx: Transaction) -> DeadLetter | None:
        found = await fetch_rows(tx, "left_in_doubt", {})
        if not found:
            return None
        [[outbox_id, conversation_id]] = found
        await connection_of(tx).execute(SQL["hold_conversation"], {"conversation_id": conversation_id})
        listed = await fetch_rows(tx, "list_left_in_doubt", {"id": outbox_id})
        return as_dead_letter(listed[0]) if listed else None

    async def _find_message(self, tx: Transaction, row: dict[str, Any], receipt: DeliveryReceipt) -> int | None:
        """The id of the outbox message that a receipt is about, if the platform repeats its reference or its text."""
        if receipt.reference is not None:
            columns = parse_reference(receipt.reference)
            found = await fetch_rows(tx, "find_by_reference", {**row, **columns}) if columns else []
            return found[0][0] if found else None
        return await self._find_by_text(tx, row, receipt.text) if receipt.text is not None else None

    async def _find_by_text(self, tx: Transaction, row: dict[str, Any], text: str) -> int | None:
        """The id of the message with exactly this text that waits to be sent, or for the platform's answer, or was given up in doubt."""
        for outbox_id, user_id, turn_id, part, news, body, is_message in await fetch_rows(tx, "undelivered", row):
            try:
                keys = await self._keyring.of(tx, user_id)
                sent = readable_text([open_body(keys, turn_id, part, news, body, is_message=is_message)])
            except (UserErased, SealBroken):
                continue  # the outbox will give it up
            if sent.split() == text.split():
                return int(outbox_id)
        return None

    async def take_early_receipt(self, tx: Transaction) -> tuple[str, Platform, DeliveryReceipt] | None:
        taken = await fetch_rows(tx, "take_early_receipt", {})
        if not taken:
            await connection_of(tx).execute(SQL["delete_old_receipts"], {"keep_s": EARLY_RECEIPT_TTL_S})
            return None
        [[account, platform, message_id, channel_id, rank, outcome, reason]] = taken
        error = SendOutcome(outcome) if outcome else None
        receipt = DeliveryReceipt(message_id=message_id, rank=ReceiptRank(rank), error=error, detail=reason, channel_id=channel_id)
        return account, Platform(platform), receipt

    async def set_reachable(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, is_reachable: bool, since: datetime | None = None
    ) -> None:
        where = {"account": account, "platform": platform, "channel_id": channel_id, "since": since}
        await connection_of(tx).execute(SQL["set_reachable" if is_reachable else "set_unreachable"], where)

    async def move(self, tx: Transaction, account: str, platform: Platform, old: str, new: str) -> None:
        where = {"account": account, "platform": platform, "old": old, "new": new}
        # Channels before conversations, in the same order as the intake of a message.
        await connection_of(tx).execute(SQL["move_sender"], where)
        held = [row[0] for row in await fetch_rows(tx, "hold_both", where)]
        await connection_of(tx).execute(SQL["move_channel"], where)
        await connection_of(tx).execute(SQL["move_messages"], {**where, "conversations": held})

    async def answer_source(
        self, tx: Transaction, account: str, platform: Platform, message_id: str, *, channel_id: str | None = None
    ) -> AnswerSource | None:
        where = {"account": account, "platform": platform, "message_id": message_id, "channel_id": channel_id}
        found = await fetch_rows(tx, "answer_source", where)
        return None if not found else AnswerSource(turn_id=found[0][0], session_id=found[0][1], calls=tuple(found[0][2]))

    async def newest(self, tx: Transaction, *, account: str | None = None, limit: int = 20) -> Sequence[SentMessage]:
        found = await fetch_rows(tx, "newest", {"account": account, "limit": limit})
        return [
            SentMessage(
                turn_id=turn_id, account=name, platform=Platform(platform), channel_id=channel_id, status=as_delivery_status(status)
            )
            for turn_id, name, platform, channel_id, *status in found
        ]

    async def statuses(self, tx: Transaction, turn_id: UUID) -> Sequence[DeliveryStatus]:
        return [as_delivery_status(row) for row in await fetch_rows(tx, "statuses", {"turn_id": turn_id})]


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
    found = await fetch_rows(tx, "find_confirmation", {**asdict(where), "failed": ReceiptRank.FAILED})
    return found[0][0] if found else None


def parse_reference(reference: str) -> dict[str, Any] | None:
    """The columns in an `OutboxMessage.reference`; None for a reference that another program wrote."""
    turn_id, _, rest = reference.partition("/")
    part, _, news = rest.partition("/")
    try:
        return {"turn_id": UUID(turn_id), "part": int(part), "news": news}
    except ValueError:
        return None


async def fetch_rows(tx: Transaction, query: str, values: dict[str, Any]) -> Any:
    return await (await connection_of(tx).execute(SQL[query], values)).fetchall()


def as_delivery_status(row: Any) -> DeliveryStatus:
    part, news, state, rank, ranked_at, outcome, reason, tries, doubts, is_late, promised_at = row
    return DeliveryStatus(
        part=part,
        news=news,
        state=state,
        rank=ReceiptRank(rank) if rank else None,
        ranked_at=ranked_at,
        outcome=SendOutcome(outcome) if outcome else None,
        reason=reason,
        tries=tries,
        doubts=doubts,
        is_late=is_late,
        promised_at=promised_at,
    )
