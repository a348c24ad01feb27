"""The inbox on PostgreSQL: unique by account and event key, numbered within the conversation, sealed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from hermes.ports.errors import ClaimLost, InboxFull, UserErased
from hermes.ports.inbox import AcceptedMessage, Claim, InboxMessage, TurnOrigin, UnreadableMessage
from hermes.ports.runtime import Transaction
from hermes.ports.users import User
from hermes.router.join_messages import join_messages
from hermes.stores.postgres.database import connection_of
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

    async def accept(self, tx: Transaction, envelope: Envelope, user: User, turn_id: UUID) -> AcceptedMessage:
        row: dict[str, Any] = {
            "turn_id": turn_id,
            "account": envelope.account,
            "event_key": envelope.event_key,
            "platform": envelope.event.platform,
            "channel_id": envelope.channel_id,
            "user_id": user.id,
            "is_shared": envelope.is_shared,
        }
        first, is_full = await self._find_first(tx, row)
        if first is not None:
            return first
        if is_full:
            raise InboxFull
        numbered = await (await connection_of(tx).execute(SQL["next_number"], row)).fetchone()
        assert numbered is not None  # noqa: S101  # an upsert returns its row
        row["conversation_id"], row["seq"] = numbered
        keys = await self._keyring.of(tx, user.id)
        row["envelope"] = keys.seal(seal_label(turn_id), encode_envelope(envelope))
        if await (await connection_of(tx).execute(SQL["add"], row)).fetchone() is None:
            # The platform sent the event twice at once, and the other copy was committed while this one waited for the conversation.
            first, _ = await self._find_first(tx, row)
            assert first is not None  # noqa: S101  # its row was the conflict
            return first
        return AcceptedMessage(turn_id, row["conversation_id"], row["seq"], is_new=True)

    async def claim(self, tx: Transaction, turn_id: UUID) -> Claim | UnreadableMessage | None:
        row = await (await connection_of(tx).execute(SQL["claim"], {"turn_id": turn_id})).fetchone()
        if row is None:
            return None
        # `recent` is the number of messages that the user sent in the last minute, for the limit on floods.
        conversation_id, user_id, seq, epoch, attempt, age_s, recent, is_shared, *sealed = row
        try:
            envelope = open_envelope(await self._keyring.of(tx, user_id), turn_id, *sealed)
        except (UserErased, SealError) as error:
            is_damaged = isinstance(error, SealBroken)
            return UnreadableMessage(turn_id, attempt, age_s, str(error), is_erased=isinstance(error, UserErased), is_damaged=is_damaged)
        return Claim(turn_id, conversation_id, user_id, seq, epoch, attempt, mark_shared(envelope, is_shared=is_shared), age_s, recent)

    async def waiting_behind(self, tx: Transaction, claim: Claim, limit: int) -> Sequence[InboxMessage]:
        """Return the messages after the claimed one that were never attempted; those that cannot be opened are left out."""
        values = {"conversation_id": claim.conversation_id, "seq": claim.seq, "limit": limit}
        found = [
            await self._read_message(tx, row) for row in await (await connection_of(tx).execute(SQL["waiting_behind"], values)).fetchall()
        ]
        return [message for message in found if message is not None]

    async def join(self, tx: Transaction, claim: Claim, others: Sequence[InboxMessage]) -> Claim:
        await self.hold(tx, claim)
        await connection_of(tx).execute(SQL["join"], {"turn_id": claim.turn_id, "turns": [message.turn_id for message in others]})
        return replace(claim, envelope=join_messages([claim.envelope, *(message.envelope for message in others)]))

    async def uncount_attempt(self, tx: Transaction, claim: Claim) -> None:
        """Take one attempt off the count, unless the turn has ended or a newer claim was made."""
        row = {"turn_id": claim.turn_id, "conversation_id": claim.conversation_id, "epoch": claim.epoch}
        await connection_of(tx).execute(SQL["uncount_attempt"], row)

    async def hold(self, tx: Transaction, claim: Claim) -> None:
        """Lock the conversation's row until the transaction ends. Raises ClaimLost if its epoch is newer than the claim."""
        row = {"conversation_id": claim.conversation_id, "epoch": claim.epoch}
        if await (await connection_of(tx).execute(SQL["hold"], row)).fetchone() is None:
            raise ClaimLost

    async def finish(self, tx: Transaction, claim: Claim) -> None:
        await connection_of(tx).execute(SQL["finish"], {"turn_id": claim.turn_id})

    async def bury(self, tx: Transaction, claim: Claim, reason: str) -> None:
        """Give the message up: it stays in the inbox as `dead`, with the reason."""
        await connection_of(tx).execute(SQL["bury"], {"turn_id": claim.turn_id, "reason": reason})

    async def bury_unread(self, tx: Transaction, turn_id: UUID, reason: str) -> None:
        await connection_of(tx).execute(SQL["bury"], {"turn_id": turn_id, "reason": reason})

    async def origin(self, tx: Transaction, turn_id: UUID) -> TurnOrigin | None:
        row = await (await connection_of(tx).execute(SQL["origin"], {"turn_id": turn_id})).fetchone()
        return None if row is None else TurnOrigin(row[0], Platform(row[1]), row[2], row[3], row[4])

    async def message_of(self, tx: Transaction, turn_id: UUID) -> InboxMessage | None:
        row = await (await connection_of(tx).execute(SQL["message_of"], {"turn_id": turn_id})).fetchone()
        return None if row is None else await self._read_message(tx, row)

    async def last_private(self, tx: Transaction, user_id: UUID, account: str) -> InboxMessage | None:
        row = await (await connection_of(tx).execute(SQL["last_private"], {"user_id": user_id, "account": account})).fetchone()
        return None if row is None else await self._read_message(tx, row)

    async def newest(self, tx: Transaction, account: str, platform: Platform) -> InboxMessage | None:
        row = await (await connection_of(tx).execute(SQL["newest"], {"account": account, "platform": platform})).fetchone()
        return None if row is None else await self._read_message(tx, row)

    async def _read_message(self, tx: Transaction, row: Any) -> InboxMessage | None:
        turn_id, conversation_id, user_id, received_at, is_shared, *sealed = row
        try:
            envelope = open_envelope(await self._keyring.of(tx, user_id), turn_id, *sealed)
        except (UserErased, SealError) as error:
            log.info("message_not_opened", turn_id=str(turn_id), error=type(error).__name__)
            return None
        return InboxMessage(turn_id, conversation_id, user_id, mark_shared(envelope, is_shared=is_shared), received_at)

    async def waiting(self, tx: Transaction) -> int:
        """Count the messages of all accounts whose turn has not ended."""
        row = await (await connection_of(tx).execute(SQL["waiting"])).fetchone()
        return int(row[0]) if row else 0

    async def _find_first(self, tx: Transaction, row: dict[str, Any]) -> tuple[AcceptedMessage | None, bool]:
        """The accepted message of this event if the event came before, and whether the account's inbox is full."""
        found = await (await connection_of(tx).execute(SQL["first_delivery"], {**row, "cap": self._cap})).fetchone()
        assert found is not None  # noqa: S101  # the query always gives one row
        turn_id, conversation_id, seq, is_full = found
        return None if turn_id is None else AcceptedMessage(turn_id, conversation_id, seq, is_new=False), is_full


def open_envelope(keys: DataKeys, turn_id: UUID, sealed: bytes, turns: Sequence[UUID] | None, others: Sequence[bytes] | None) -> Envelope:
    """The envelope of a turn, together with the messages that were joined to it. Raises SealError."""
    parts = zip([turn_id, *(turns or ())], [sealed, *(others or ())], strict=True)
    return join_messages([decode_envelope(keys.open(seal_label(part), body)) for part, body in parts])


def mark_shared(envelope: Envelope, *, is_shared: bool) -> Envelope:
    """The envelope, marked as shared if its conversation is shared now: it may have become shared since the message came."""
    return replace(envelope, is_shared=envelope.is_shared or is_shared)


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
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_envelope(data: bytes) -> Envelope:
    """Read an envelope back. Fields that only a newer Hermes knows are ignored: both versions may run during an update."""
    fields = {name: value for name, value in json.loads(data).items() if name in ENVELOPE_FIELDS}
    event = {name: value for name, value in fields.pop("event").items() if name in EVENT_FIELDS}
    sent_at = fields.pop("sent_at")
    if "is_shared" not in fields:  # a version that did not store it wrote this envelope
        fields["is_shared"] = fields["channel_id"].startswith(GROUP_PREFIXES.get(Platform(event["platform"]), NO_PREFIXES))
    return Envelope(
        event=MessageEvent(**{**event, "platform": Platform(event["platform"])}),
        sent_at=datetime.fromisoformat(sent_at) if sent_at else None,
        attachments=tuple(fields.pop("attachments")),
        **fields,
    )
