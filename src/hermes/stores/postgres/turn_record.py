"""Turns for operators, on PostgreSQL: what is known of one without a key, and its content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hermes.ports.backends import Usage
from hermes.ports.channels import ReceiptRank
from hermes.ports.errors import DataDamaged, UserErased
from hermes.ports.models import CallAttempt, CallOutcome, CallPurpose, CallSource, ModelCall
from hermes.ports.runtime import Transaction
from hermes.ports.turn_record import (
    CreditRecord,
    DeliveryRecord,
    LooseCall,
    ProcessName,
    RecordedCall,
    StoredEffect,
    StoredMessage,
    StoredPart,
    StoredText,
    StoredWords,
    TurnRecord,
    WhyHidden,
)
from hermes.stores.postgres.database import fetch_row, fetch_rows, fetch_values
from hermes.stores.postgres.delivery_tracking import seal_label as part_label
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.inbox import decode_envelope
from hermes.stores.postgres.inbox import seal_label as message_label
from hermes.stores.postgres.journal import seal_label as effect_label
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import DataKeys, SealError
from hermes.turn import Platform

if TYPE_CHECKING:
    from hermes.graph import MessageGraph

SQL = load_queries("turn_record")
USAGE_FIELDS = tuple(field.name for field in fields(Usage))
ATTEMPT_FIELDS = frozenset(field.name for field in fields(CallAttempt))


class PostgresTurnRecords:
    """The port TurnRecords."""

    async def find(self, tx: Transaction, turn_id: UUID, accounts: frozenset[str] | None, *, live_s: float) -> TurnRecord | None:
        values = {"turn_id": turn_id, "accounts": None if accounts is None else sorted(accounts), "live_s": live_s}
        turn = await fetch_row(tx, read_turn, SQL["turn"], values)
        if turn is None:
            return None
        return replace(
            turn,
            calls=await fetch_rows(tx, read_recorded_call, SQL["calls"], values),
            deliveries=await fetch_rows(tx, read_delivery, SQL["deliveries"], values),
            credits=await fetch_rows(tx, CreditRecord, SQL["credits"], values),
            workers=await fetch_rows(tx, ProcessName, SQL["workers"], values),
        )

    async def find_call(self, tx: Transaction, call_id: UUID, accounts: frozenset[str] | None) -> LooseCall | None:
        values = {"call_id": call_id, "accounts": None if accounts is None else sorted(accounts)}
        return await fetch_row(tx, read_loose_call, SQL["call"], values)


def read_turn(*, platform: str, trace_id: str | None, **columns: Any) -> TurnRecord:
    return TurnRecord(platform=Platform(platform), trace_id=trace_id or None, **columns)


def read_recorded_call(
    *,
    at: datetime,
    source: str,
    outcome: str,
    purpose: str | None,
    platform: str | None,
    attempts: Sequence[Mapping[str, Any]],
    **columns: Any,
) -> RecordedCall:
    usage = Usage(**{name: columns.pop(name) for name in USAGE_FIELDS})
    call = ModelCall(
        **columns,
        usage=usage,
        source=CallSource(source),
        outcome=CallOutcome(outcome),
        purpose=CallPurpose(purpose) if purpose else None,
        platform=Platform(platform) if platform else None,
        attempts=[CallAttempt(**{name: value for name, value in attempt.items() if name in ATTEMPT_FIELDS}) for attempt in attempts],
    )
    return RecordedCall(call, at)


def read_loose_call(*, conversation_id: UUID | None, is_erased: bool, api_key_name: str | None, **columns: Any) -> LooseCall:
    recorded = read_recorded_call(**columns)
    return LooseCall(recorded=recorded, conversation_id=conversation_id, is_erased=is_erased, api_key_name=api_key_name)


def read_delivery(*, rank: int, **columns: Any) -> DeliveryRecord:
    return DeliveryRecord(rank=ReceiptRank(rank) if rank else None, **columns)


# --- content


class PostgresTurnWords:
    """The port TurnWords."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def read(self, tx: Transaction, turn_id: UUID) -> StoredWords:
        values = {"turn_id": turn_id}
        messages = await fetch_rows(tx, MessageBytes, SQL["messages"], values)
        effects = await fetch_rows(tx, EffectBytes, SQL["effects"], values)
        parts = await fetch_rows(tx, PartBytes, SQL["parts"], values)
        users = [*(row.user_id for row in messages), *(row.user_id for row in effects), *(row.user_id for row in parts)]
        erased = await self._find_erased(tx, users)
        return StoredWords(
            [await self._message(tx, row, erased) for row in messages],
            [await self._effect(tx, turn_id, row, erased) for row in effects],
            [await self._part(tx, turn_id, row, erased) for row in parts],
        )

    async def read_prompt(self, tx: Transaction, turn_id: UUID) -> StoredText:
        row = await fetch_row(tx, EffectBytes, SQL["prompt"], {"turn_id": turn_id})
        if row is None:
            return StoredText(None, WhyHidden.EXPIRED)
        return (await self._effect(tx, turn_id, row, await self._find_erased(tx, [row.user_id]))).request

    async def load_graph(self, tx: Transaction, session_id: UUID) -> MessageGraph:
        try:
            return await PostgresGraphs(self._keyring).load(tx, session_id)
        except SealError as error:
            raise DataDamaged(str(error)) from error

    async def _find_erased(self, tx: Transaction, users: Sequence[UUID]) -> frozenset[UUID]:
        """Those of these users who were forgotten. The keyring may hold their keys a while longer, if another process did it."""
        return frozenset(await fetch_values(tx, SQL["erased"], {"users": list(dict.fromkeys(users))}))

    async def _message(self, tx: Transaction, row: MessageBytes, erased: frozenset[UUID]) -> StoredMessage:
        opened = await self._open(tx, row.user_id, message_label(row.turn_id), row.envelope, erased=erased)
        if opened.body is None:
            return StoredMessage(row.turn_id, None, hidden=opened.hidden)
        envelope = decode_envelope(opened.body)
        media = [envelope.event.media_type or "media"] if envelope.event.media_url else []
        return StoredMessage(row.turn_id, envelope.event.text, [*media, *("attachment" for _ in envelope.attachments)])

    async def _effect(self, tx: Transaction, turn_id: UUID, row: EffectBytes, erased: frozenset[UUID]) -> StoredEffect:
        request, result = (effect_label(turn_id, row.step, row.index, part) for part in ("request", "result"))
        missing = WhyHidden.EXPIRED if row.has_ended else WhyHidden.RUNNING
        return StoredEffect(
            row.step,
            row.index,
            await self._open(tx, row.user_id, request, row.request, WhyHidden.EXPIRED, erased=erased),
            await self._open(tx, row.user_id, result, row.result, missing, erased=erased),
        )

    async def _part(self, tx: Transaction, turn_id: UUID, row: PartBytes, erased: frozenset[UUID]) -> StoredPart:
        body = await self._open(tx, row.user_id, part_label(turn_id, row.part, row.news), row.body, erased=erased)
        return StoredPart(row.id, row.part, row.news, row.is_message, body)

    async def _open(
        self,
        tx: Transaction,
        user_id: UUID,
        label: str,
        sealed: bytes | None,
        missing: WhyHidden = WhyHidden.EXPIRED,
        *,
        erased: frozenset[UUID],
    ) -> StoredText:
        """Open sealed bytes. A user without keys was erased, also where the bytes are gone."""
        if user_id in erased:
            return StoredText(None, WhyHidden.ERASED)
        try:
            keys: DataKeys = await self._keyring.of(tx, user_id)
            return StoredText(keys.open(label, sealed)) if sealed else StoredText(None, missing)
        except UserErased:
            return StoredText(None, WhyHidden.ERASED)
        except (SealError, DataDamaged):
            return StoredText(None, WhyHidden.UNREADABLE)


@dataclass(slots=True, kw_only=True)
class MessageBytes:
    """A message as it is stored."""

    turn_id: UUID
    user_id: UUID
    envelope: bytes


@dataclass(slots=True, kw_only=True)
class EffectBytes:
    """An effect as it is stored."""

    user_id: UUID
    step: str
    index: int
    request: bytes | None
    result: bytes | None
    has_ended: bool


@dataclass(slots=True, kw_only=True)
class PartBytes:
    """An outbox message as it is stored."""

    id: int
    user_id: UUID
    part: int
    news: str
    is_message: bool
    body: bytes
