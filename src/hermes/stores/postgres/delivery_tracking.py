"""What became of messages, on PostgreSQL: ranks that only grow, receipts that came too early, people who left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hermes.ports.channels import DeliveryReceipt, ReceiptRank, SendOutcome
from hermes.ports.dead_letters import DeadLetter
from hermes.ports.delivery_tracking import AnswerSource, DeliveryStatus, SentMessage
from hermes.ports.errors import UserErased
from hermes.ports.outbox import readable_text
from hermes.ports.transactions import Transaction
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.dead_letters import as_dead_letter
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox_body import open_body
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import SealBroken
from hermes.turn import Platform

SQL = load_queries("delivery_tracking")
EARLY_RECEIPT_TTL_S = 86_400.0
"""How long a receipt waits for its message. That one is settled within minutes, or never."""


class PostgresDeliveryTracking:
    """The port Arrivals."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def receive(self, tx: Transaction, account: str, platform: Platform, receipt: DeliveryReceipt) -> DeadLetter | None:
        row: dict[str, Any] = {"account": account, "platform": platform, "message_id": receipt.message_id, "rank": receipt.rank}
        row |= {"channel_id": receipt.channel_id, "outcome": receipt.error, "reason": receipt.detail, "delivered": ReceiptRank.DELIVERED}
        row["parcel_id"] = await self._parcel_of(tx, row, receipt)
        if row["parcel_id"] is None and (receipt.text is not None or receipt.reference is not None):
            row["channel_id"] = None  # of a person of ours, or of what was dropped: it confirms nothing
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
            told = {**row, "id": letter.id, "reason": "a receipt told that it arrived, after it was given up"}
            return letter if await fetch_rows(tx, "arrive", told) else None
        return None

    async def take_left_in_doubt(self, tx: Transaction) -> DeadLetter | None:
        found = await fetch_rows(tx, "left_in_doubt", {})
        if not found:
            return None
        [[parcel_id, conversation_id]] = found
        await connection_of(tx).execute(SQL["hold_conversation"], {"conversation_id": conversation_id})
        listed = await fetch_rows(tx, "list_left_in_doubt", {"id": parcel_id})
        return as_dead_letter(listed[0]) if listed else None

    async def _parcel_of(self, tx: Transaction, row: dict[str, Any], receipt: DeliveryReceipt) -> int | None:
        """The parcel that a receipt is about, where the platform repeats its name or its words."""
        if receipt.reference is not None:
            named = parse_reference(receipt.reference)
            found = await fetch_rows(tx, "named", {**row, **named}) if named else []
            return found[0][0] if found else None
        return await self._parcel_that_says(tx, row, receipt.text) if receipt.text is not None else None

    async def _parcel_that_says(self, tx: Transaction, row: dict[str, Any], text: str) -> int | None:
        """What waits for its channel, or for the platform's answer, or was given up in doubt, and says just this."""
        for parcel_id, user_id, turn_id, part, news, body, is_message in await fetch_rows(tx, "on_their_way", row):
            try:
                keys = await self._keyring.of(tx, user_id)
                said = readable_text([open_body(keys, turn_id, part, news, body, is_message=is_message)])
            except (UserErased, SealBroken):
                continue  # it will be given up
            if said.split() == text.split():
                return int(parcel_id)
        return None

    async def take_early_receipt(self, tx: Transaction) -> tuple[str, Platform, DeliveryReceipt] | None:
        taken = await fetch_rows(tx, "take_found", {})
        if not taken:
            await connection_of(tx).execute(SQL["forget_old"], {"keep_s": EARLY_RECEIPT_TTL_S})
            return None
        [[account, platform, message_id, channel_id, rank, outcome, reason]] = taken
        error = SendOutcome(outcome) if outcome else None
        receipt = DeliveryReceipt(message_id=message_id, rank=ReceiptRank(rank), error=error, detail=reason, channel_id=channel_id)
        return account, Platform(platform), receipt

    async def reach(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, is_reachable: bool, since: datetime | None = None
    ) -> None:
        where = {"account": account, "platform": platform, "channel_id": channel_id, "since": since}
        await connection_of(tx).execute(SQL["came_back" if is_reachable else "left"], where)

    async def move(self, tx: Transaction, account: str, platform: Platform, old: str, new: str) -> None:
        where = {"account": account, "platform": platform, "old": old, "new": new}
        # Channels before conversations, as whoever takes a message in.
        await connection_of(tx).execute(SQL["move_sender"], where)
        held = [row[0] for row in await fetch_rows(tx, "hold_both", where)]
        await connection_of(tx).execute(SQL["move_channel"], where)
        await connection_of(tx).execute(SQL["move_messages"], {**where, "conversations": held})

    async def answered(
        self, tx: Transaction, account: str, platform: Platform, message_id: str, *, channel_id: str | None = None
    ) -> AnswerSource | None:
        where = {"account": account, "platform": platform, "message_id": message_id, "channel_id": channel_id}
        found = await fetch_rows(tx, "answered", where)
        return None if not found else AnswerSource(turn_id=found[0][0], session_id=found[0][1], calls=tuple(found[0][2]))

    async def newest(self, tx: Transaction, *, account: str | None = None, limit: int = 20) -> Sequence[SentMessage]:
        found = await fetch_rows(tx, "newest", {"account": account, "limit": limit})
        return [
            SentMessage(
                turn_id=turn_id, account=name, platform=Platform(platform), channel_id=channel_id, status=as_delivery_status(standing)
            )
            for turn_id, name, platform, channel_id, *standing in found
        ]

    async def standings(self, tx: Transaction, turn_id: UUID) -> Sequence[DeliveryStatus]:
        return [as_delivery_status(row) for row in await fetch_rows(tx, "statuses", {"turn_id": turn_id})]


@dataclass(frozen=True, slots=True)
class ReceiptQuery:
    """Of a parcel in doubt, what its receipts are found by."""

    id: int
    conversation_id: UUID
    account: str
    platform: Platform
    channel_id: str
    doubted_at: datetime
    """When it was first tried with a doubtful end."""


async def find_confirmation(tx: Transaction, where: ReceiptQuery) -> str | None:
    """The platform's id of the message that a receipt told of, and that must be this parcel; None while nothing is proven."""
    found = await fetch_rows(tx, "confirmed", {**asdict(where), "failed": ReceiptRank.FAILED})
    return found[0][0] if found else None


def parse_reference(reference: str) -> dict[str, Any] | None:
    """The columns of `Parcel.reference`; None for what another program wrote."""
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
