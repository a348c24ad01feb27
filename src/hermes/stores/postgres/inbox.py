"""The inbox on PostgreSQL: unique by account and event key, numbered within the conversation, sealed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import structlog

from hermes.ports.errors import ClaimLost, InboxFull, UserErased
from hermes.ports.inbox import AcceptedMessage, Claim, InboxMessage, TurnOrigin, UnreadableMessage
from hermes.ports.runtime import Transaction
from hermes.ports.users import User
from hermes.router.intake import join_messages
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import DataKeys, SealBroken, SealError
from hermes.turn import Envelope, MessageEvent, Platform

log = structlog.get_logger()

SQL = load_queries("inbox")


class PostgresInbox:
    """The port Inbox."""

    def __init__(self, keyring: Keyring, *, cap: int = 10_000) -> None:
        self._keyring, self._cap = keyring, cap

    async def accept(
        self, tx: Transaction, envelope: Envelope, user: User, turn_id: UUID, *, traceparent: str | None = None
    ) -> AcceptedMessage:
        row: dict[str, Any] = {
            "turn_id": turn_id,
            "account": envelope.account,
            "event_key": envelope.event_key,
            "platform": envelope.event.platform,
            "channel_id": envelope.channel_id,
            "user_id": user.id,
            "is_shared": envelope.is_shared,
            "api_key_id": envelope.api_key_id,
            "traceparent": traceparent,
        }
        first, is_full = await self._find_first(tx, row)
        if first is not None:
            return first
        if is_full:
            raise InboxFull
        [place] = await fetch_rows(tx, ConversationPlace, SQL["next_number"], row)
        row |= place._asdict()
        keys = await self._keyring.of(tx, user.id)
        row["envelope"] = keys.seal(seal_label(turn_id), encode_envelope(envelope))
        if not await execute(tx, SQL["add"], row):
            # The platform sent the event twice at once, and the other copy was committed while this one waited for the conversation.
            first, _ = await self._find_first(tx, row)
            assert first is not None  # noqa: S101  # its row was the conflict
            return first
        return AcceptedMessage(turn_id, place.conversation_id, place.seq, is_new=True)

    async def claim(self, tx: Transaction, turn_id: UUID, *, worker: UUID | None = None) -> Claim | UnreadableMessage | None:
        row = await fetch_row(tx, ClaimRow, SQL["claim"], {"turn_id": turn_id, "worker": worker})
        if row is None:
            return None
        try:
            envelope = row.open(await self._keyring.of(tx, row.user_id))
        except (UserErased, SealError) as error:
            is_erased, is_damaged = isinstance(error, UserErased), isinstance(error, SealBroken)
            attempt = (turn_id, row.conversation_id, row.epoch, row.attempt)
            return UnreadableMessage(*attempt, row.age_s, str(error), is_erased=is_erased, is_damaged=is_damaged)
        place = (turn_id, row.conversation_id, row.user_id, row.seq, row.epoch, row.attempt)
        return Claim(*place, envelope, row.age_s, row.recent, traceparent=row.traceparent)

    async def waiting_behind(self, tx: Transaction, claim: Claim, limit: int) -> Sequence[InboxMessage]:
        """Return the messages after the claimed one that were never attempted; those that cannot be opened are left out."""
        values = {"conversation_id": claim.conversation_id, "seq": claim.seq, "limit": limit}
        found = [await self._read(tx, row) for row in await fetch_rows(tx, MessageRow, SQL["waiting_behind"], values)]
        return [message for message in found if message is not None]

    async def join(self, tx: Transaction, claim: Claim, others: Sequence[InboxMessage]) -> Claim:
        await self.hold(tx, claim)
        await execute(tx, SQL["join"], {"turn_id": claim.turn_id, "turns": [message.turn_id for message in others]})
        return replace(claim, envelope=join_messages([claim.envelope, *(message.envelope for message in others)]))

    async def uncount_attempt(self, tx: Transaction, claim: Claim) -> None:
        """Take one attempt off the count, unless the turn has ended or a newer claim was made."""
        row = {"turn_id": claim.turn_id, "conversation_id": claim.conversation_id, "epoch": claim.epoch}
        await execute(tx, SQL["uncount_attempt"], row)

    async def hold(self, tx: Transaction, claim: Claim) -> None:
        """Lock the conversation's row until the transaction ends. Raises ClaimLost if its epoch is newer than the claim."""
        row = {"conversation_id": claim.conversation_id, "epoch": claim.epoch}
        if not await execute(tx, SQL["hold"], row):
            raise ClaimLost

    async def finish(self, tx: Transaction, claim: Claim) -> None:
        await execute(tx, SQL["finish"], {"turn_id": claim.turn_id})

    async def bury(self, tx: Transaction, claim: Claim, reason: str) -> None:
        """Give the message up: it stays in the inbox as `dead`, with the reason."""
        await execute(tx, SQL["bury"], {"turn_id": claim.turn_id, "reason": reason})

    async def bury_unread(self, tx: Transaction, turn_id: UUID, reason: str) -> None:
        await execute(tx, SQL["bury"], {"turn_id": turn_id, "reason": reason})

    async def stop(self, tx: Transaction, turn_id: UUID) -> bool:
        # Two statements: the second sees what the previous holder of the lock committed.
        await execute(tx, SQL["lock_conversation"], {"turn_id": turn_id})
        return bool(await execute(tx, SQL["stop"], {"turn_id": turn_id}))

    async def origin(self, tx: Transaction, turn_id: UUID) -> TurnOrigin | None:
        return await fetch_row(tx, read_origin, SQL["origin"], {"turn_id": turn_id})

    async def message_of(self, tx: Transaction, turn_id: UUID) -> InboxMessage | None:
        return await self._read(tx, await fetch_row(tx, MessageRow, SQL["message_of"], {"turn_id": turn_id}))

    async def last_private(self, tx: Transaction, user_id: UUID, account: str) -> InboxMessage | None:
        where = {"user_id": user_id, "account": account}
        return await self._read(tx, await fetch_row(tx, MessageRow, SQL["last_private"], where))

    async def newest(self, tx: Transaction, account: str, platform: Platform) -> InboxMessage | None:
        where = {"account": account, "platform": platform}
        return await self._read(tx, await fetch_row(tx, MessageRow, SQL["newest"], where))

    async def _read(self, tx: Transaction, row: MessageRow | None) -> InboxMessage | None:
        if row is None:
            return None
        try:
            envelope = row.open(await self._keyring.of(tx, row.user_id))
        except (UserErased, SealError) as error:
            log.info("message_not_opened", turn_id=str(row.turn_id), error=type(error).__name__)
            return None
        return InboxMessage(row.turn_id, row.conversation_id, row.user_id, envelope, row.received_at, row.traceparent)

    async def waiting(self, tx: Transaction) -> int:
        """Count the messages of all accounts whose turn has not ended."""
        return int(await fetch_value(tx, SQL["waiting"]))

    async def _find_first(self, tx: Transaction, row: dict[str, Any]) -> tuple[AcceptedMessage | None, bool]:
        """The accepted message of this event if the event came before, and whether the account's inbox is full."""
        [first] = await fetch_rows(tx, read_first_delivery, SQL["first_delivery"], {**row, "cap": self._cap})
        return first


class ConversationPlace(NamedTuple):
    """The next place in a conversation."""

    conversation_id: UUID
    seq: int


@dataclass(slots=True, kw_only=True)
class SealedMessage:
    """A message as it is stored, together with the messages that were joined to it."""

    turn_id: UUID
    conversation_id: UUID
    user_id: UUID
    is_shared: bool
    """Of its conversation, now."""
    envelope: bytes
    traceparent: str | None = None
    joined_turns: Sequence[UUID] | None = None
    joined_envelopes: Sequence[bytes] | None = None

    def open(self, keys: DataKeys) -> Envelope:
        """The envelope of the turn, marked as shared if its conversation has become shared since. Raises SealError."""
        parts = zip([self.turn_id, *(self.joined_turns or ())], [self.envelope, *(self.joined_envelopes or ())], strict=True)
        envelope = join_messages([decode_envelope(keys.open(seal_label(part), body)) for part, body in parts])
        return replace(envelope, is_shared=envelope.is_shared or self.is_shared)


@dataclass(slots=True, kw_only=True)
class MessageRow(SealedMessage):
    """A message that is read outside of its turn."""

    received_at: datetime


@dataclass(slots=True, kw_only=True)
class ClaimRow(SealedMessage):
    """A message whose turn was just claimed."""

    seq: int
    epoch: int
    attempt: int
    age_s: float
    recent: int
    """How many messages the user sent in the last minute, for the limit on floods."""


def read_first_delivery(*, turn_id: UUID | None, conversation_id: UUID, seq: int, is_full: bool) -> tuple[AcceptedMessage | None, bool]:
    return None if turn_id is None else AcceptedMessage(turn_id, conversation_id, seq, is_new=False), is_full


def read_origin(*, platform: str, **columns: Any) -> TurnOrigin:
    return TurnOrigin(platform=Platform(platform), **columns)


ENVELOPE_FIELDS = frozenset(Envelope.__dataclass_fields__)
EVENT_FIELDS = frozenset(MessageEvent.__dataclass_fields__)


GROUP_PREFIXES = {Platform.TELEGRAM: ("-",), Platform.WHATSAPP: ("group:",)}
"""How the channel id of a group begins, on the platforms that have groups."""
NO_PREFIXES: tuple[str, ...] = ()


def seal_label(turn_id: UUID) -> str:
    return f"inbox/{turn_id}"


def encode_envelope(envelope: Envelope) -> bytes:
    """Write an envelope as JSON; `decode_envelope` reads it back."""
    fields = asdict(envelope)
    fields["sent_at"] = envelope.sent_at.isoformat() if envelope.sent_at else None
    fields["api_key_id"] = str(envelope.api_key_id) if envelope.api_key_id else None
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_envelope(data: bytes) -> Envelope:
    """Read an envelope back. Fields that only a newer Hermes knows are ignored: both versions may run during an update."""
    fields = {name: value for name, value in json.loads(data).items() if name in ENVELOPE_FIELDS}
    event = {name: value for name, value in fields.pop("event").items() if name in EVENT_FIELDS}
    sent_at, api_key_id = fields.pop("sent_at"), fields.pop("api_key_id", None)
    if "is_shared" not in fields:  # a version that did not store it wrote this envelope
        fields["is_shared"] = fields["channel_id"].startswith(GROUP_PREFIXES.get(Platform(event["platform"]), NO_PREFIXES))
    return Envelope(
        event=MessageEvent(**{**event, "platform": Platform(event["platform"])}),
        sent_at=datetime.fromisoformat(sent_at) if sent_at else None,
        attachments=tuple(fields.pop("attachments")),
        api_key_id=UUID(api_key_id) if api_key_id else None,
        **fields,
    )
