"""The inbox on PostgreSQL: unique by account and event key, numbered within the conversation, sealed."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from hermes.event_log import get_logger
from hermes.ports.credits import ReserveOutcome
from hermes.ports.errors import ClaimLost, InboxFull, UserErased
from hermes.ports.inbox import AcceptedMessage, Claim, InboxMessage, Revival, TurnOrigin, TurnStart, UnreadableMessage, channel_names
from hermes.ports.key_use import person_forbidden
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.session import Session
from hermes.ports.users import User, UserChannel, UserState
from hermes.router.intake import join_messages
from hermes.stores.postgres.accept_batch import UNKNOWN, AcceptBatch, AcceptOutcome, read_accepted
from hermes.stores.postgres.database import Database, execute, fetch_row, fetch_rows, fetch_value
from hermes.stores.postgres.keyring import Keyring, StoredKey
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import DataKeys, SealBroken, SealError
from hermes.turn import PROGRAM_PLATFORMS, Envelope, MessageEvent, Platform

log = get_logger(__name__)

SQL = load_queries("inbox")
CLAIM = SQL["claim"] + b"\n" + SQL["claim_rest"]


MAX_SENDERS = 10_000
"""Senders whose user a process remembers."""


class PostgresInbox:
    """The port Inbox. `accept_message` in the database decides, by the rows that it locks; what is remembered here only saves look-ups."""

    def __init__(self, keyring: Keyring, *, cap: int = 10_000, idle_s: float | None = None, database: Database | None = None) -> None:
        """`idle_s` is how long a session lasts without a message, as PostgresSessions has it. With it, a claim also finds the user and the
        session and reserves the credit; so users, sessions and credits must be those of this database.

        With `database`, messages that come at the same time are accepted together."""
        self._keyring, self._cap, self._idle_s = keyring, cap, idle_s
        self._batch = None if database is None else AcceptBatch(database)
        self._senders: OrderedDict[UserChannel, UUID] = OrderedDict()
        self._waiting: dict[str, tuple[int, int]] = {}
        """By account: how many messages waited, and the number of the last message at that time."""

    async def accept(
        self,
        tx: Transaction,
        envelope: Envelope,
        turn_id: UUID,
        *,
        defer_in_s: float | None = None,
        alias: str | None = None,
        refuses_people: bool = False,
        traceparent: str | None = None,
    ) -> AcceptedMessage | None:
        sender = sender_of(envelope)
        about = about_message(alias, defer_in_s, traceparent, refuses_people=refuses_people)
        known = self._remembered(sender)
        found = UNKNOWN if known is None else await self._store(tx, envelope, turn_id, known, about)
        if found.outcome == "unknown":
            rows = await fetch_rows(tx, StoredKey, SQL["sender_keys"], sender_values(sender))
            if (known := await self._remember(sender, rows)) is not None:
                found = await self._store(tx, envelope, turn_id, known, about)
        return found.accepted

    async def accept_now(
        self,
        transactions: Transactions,
        envelope: Envelope,
        turn_id: UUID,
        *,
        defer_in_s: float | None = None,
        alias: str | None = None,
        refuses_people: bool = False,
        traceparent: str | None = None,
    ) -> AcceptedMessage | None:
        if self._batch is not None:
            sender = sender_of(envelope)
            known = self._remembered(sender)
            if known is None and (known := await self._remember(sender, await self._batch.sender_keys(sender))) is None:
                return None
            about = about_message(alias, defer_in_s, traceparent, refuses_people=refuses_people)
            row, channel_id = self._row(envelope, turn_id, known, about), first_name(envelope)
            found = self._read_outcome(row, await self._batch.accept(seal_row(row, envelope, channel_id, known.keys)))
            if found.outcome in ("new", "known"):
                return found.accepted
            # Another name of the channel, another user, or a lock to wait for: that takes statements of its own.
        async with transactions.once() as tx:
            return await self.accept(
                tx, envelope, turn_id, defer_in_s=defer_in_s, alias=alias, refuses_people=refuses_people, traceparent=traceparent
            )

    def _remembered(self, sender: UserChannel) -> KnownSender | None:
        user_id = self._senders.get(sender)
        keys = None if user_id is None else self._keyring.known(user_id)
        return None if user_id is None or keys is None else KnownSender(user_id, keys)

    async def _remember(self, sender: UserChannel, rows: Sequence[StoredKey]) -> KnownSender | None:
        """The user of a channel, and their keys, by the rows that were found; None without such a user."""
        self._senders.pop(sender, None)
        if not rows:
            return None
        user_id = self._senders[sender] = rows[0].user_id
        if len(self._senders) > MAX_SENDERS:
            self._senders.popitem(last=False)
        return KnownSender(user_id, await self._keyring.open(user_id, rows))

    async def _store(
        self, tx: Transaction, envelope: Envelope, turn_id: UUID, known: KnownSender, about: Mapping[str, Any]
    ) -> AcceptOutcome:
        """Store a message under the first of its names that takes it. Raises InboxFull and KeyForbids."""
        row = self._row(envelope, turn_id, known, about)
        for channel_id in channel_names(envelope.channel_id, is_own=envelope.is_own):
            [found] = await fetch_rows(tx, read_accepted, SQL["accept"], seal_row(row, envelope, channel_id, known.keys))
            if self._read_outcome(row, found).outcome != "elsewhere":
                return found
        raise InboxFull

    def _row(self, envelope: Envelope, turn_id: UUID, known: KnownSender, about: Mapping[str, Any]) -> dict[str, Any]:
        """A message as `accept_message` takes it, without its channel and its sealed envelope."""
        event = envelope.event
        known_waiting, known_at = self._waiting.get(envelope.account, (None, None))
        return {
            **about,
            **sender_values(sender_of(envelope)),
            "turn_id": turn_id,
            "user_id": known.user_id,
            "event_key": envelope.event_key,
            "cap": self._cap,
            "is_shared": envelope.is_shared,
            "is_own": envelope.is_own,
            "is_private": event.platform is Platform.REST and (envelope.is_own or envelope.channel_id == event.sender_id),
            "api_key_id": envelope.api_key_id,
            "known_waiting": known_waiting,
            "known_at": known_at,
        }

    def _read_outcome(self, row: Mapping[str, Any], found: AcceptOutcome) -> AcceptOutcome:
        """Remember what was counted. Raises InboxFull and KeyForbids."""
        if found.waiting is not None:
            self._waiting[row["account"]] = found.waiting
        if found.outcome == "person":
            raise person_forbidden(row["sender"])
        if found.outcome == "full":
            raise InboxFull
        return found

    async def claim(
        self, tx: Transaction, turn_id: UUID, *, worker: UUID | None = None, per_minute: int | None = None
    ) -> Claim | UnreadableMessage | None:
        values = {"turn_id": turn_id, "worker": worker}
        row: ClaimRow | None
        if per_minute is None or self._idle_s is None:
            row = await fetch_row(tx, ClaimRow, CLAIM, values)
        else:
            row = await fetch_row(tx, StartRow, SQL["start"], {**values, "per_minute": per_minute, "idle_s": self._idle_s})
        return None if row is None else await self.read_claim(tx, row)

    @property
    def starts_turns(self) -> bool:
        """Whether `start_turns` may be called."""
        return self._idle_s is not None

    async def start_turns(
        self, tx: Transaction, queue: str, worker_id: int, limit: int, *, worker: UUID, per_minute: int
    ) -> list[StartedJob]:
        """Fetch up to `limit` jobs of turns, and claim their turns with them."""
        values = {"queue": queue, "worker_id": worker_id, "limit": limit, "worker": worker, "per_minute": per_minute}
        return await fetch_rows(tx, read_started_job, SQL["start_turns"], {**values, "idle_s": self._idle_s})

    async def read_claim(self, tx: Transaction, row: ClaimRow) -> Claim | UnreadableMessage:
        """Open the message of a turn that was claimed."""
        try:
            envelope = row.open(await self._keys(tx, row))
        except (UserErased, SealError) as error:
            is_erased, is_damaged = isinstance(error, UserErased), isinstance(error, SealBroken)
            attempt = (row.turn_id, row.conversation_id, row.epoch, row.attempt)
            return UnreadableMessage(*attempt, row.age_s, str(error), is_erased=is_erased, is_damaged=is_damaged)
        start = await self._start(tx, row) if isinstance(row, StartRow) else None
        place = (row.turn_id, row.conversation_id, row.user_id, row.seq, row.epoch, row.attempt)
        return Claim(*place, envelope, row.age_s, row.recent, traceparent=row.traceparent, revived_after=row.revived_after, start=start)

    async def _keys(self, tx: Transaction, row: ClaimRow) -> DataKeys:
        keys = self._keyring.known(row.user_id)
        if keys is None and isinstance(row, StartRow) and (stored := row.stored_keys):
            return await self._keyring.open(row.user_id, stored)
        return keys or await self._keyring.of(tx, row.user_id)

    async def _start(self, tx: Transaction, row: StartRow) -> TurnStart:
        session = row.session
        if session is not None:
            try:
                await self._keyring.of(tx, session.user_id)
            except UserErased:
                session = None  # as `find_current`: no worker can read or continue it
            else:
                self._keyring.note_owner(session.id, session.user_id)
        return TurnStart(row.user, session, None if row.credit is None else ReserveOutcome(row.credit))

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

    async def revive(self, tx: Transaction, turn_id: UUID) -> Revival:
        await execute(tx, SQL["lock_conversation"], {"turn_id": turn_id})
        is_emptied: bool | None = await fetch_value(tx, SQL["burial"], {"turn_id": turn_id})
        if is_emptied is None:
            return Revival.NOT_BURIED
        if await self.message_of(tx, turn_id) is None:
            return Revival.UNREADABLE
        if is_emptied:
            return Revival.EMPTIED
        await execute(tx, SQL["drop_open_effects"], {"turn_id": turn_id})
        await execute(tx, SQL["revive"], {"turn_id": turn_id})
        return Revival.REVIVED

    async def stop(self, tx: Transaction, turn_id: UUID) -> bool:
        # Two statements: the second sees what the previous holder of the lock committed.
        await execute(tx, SQL["lock_conversation"], {"turn_id": turn_id})
        return bool(await execute(tx, SQL["stop"], {"turn_id": turn_id}))

    async def find_channel(self, tx: Transaction, account: str, platform: Platform, user: str, channel: str | None) -> str | None:
        names = channel_names(user if channel is None else channel, is_own=channel is None)
        where = {"account": account, "platform": platform, "user": user, "names": names, "is_own": channel is None}
        found: str | None = await fetch_value(tx, SQL["find_channel"], where)
        return found

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


class KnownSender(NamedTuple):
    """The user who is a sender, and the keys that seal what they send."""

    user_id: UUID
    keys: DataKeys


def sender_of(envelope: Envelope) -> UserChannel:
    return UserChannel(envelope.account, envelope.event.platform, envelope.event.sender_id)


def sender_values(sender: UserChannel) -> dict[str, Any]:
    return {"account": sender.account, "platform": sender.platform, "sender": sender.sender_id}


def about_message(alias: str | None, defer_in_s: float | None, traceparent: str | None, *, refuses_people: bool) -> dict[str, Any]:
    programs = [*PROGRAM_PLATFORMS] if refuses_people else None
    return {"alias": alias, "defer_in_s": defer_in_s, "traceparent": traceparent, "programs": programs}


def first_name(envelope: Envelope) -> str:
    return channel_names(envelope.channel_id, is_own=envelope.is_own)[0]


def seal_row(row: Mapping[str, Any], envelope: Envelope, channel_id: str, keys: DataKeys) -> dict[str, Any]:
    """A message as `accept_message` takes it, in the conversation of this name."""
    envelope = envelope if envelope.channel_id == channel_id else replace(envelope, channel_id=channel_id)
    return {**row, "channel_id": channel_id, "envelope": keys.seal(seal_label(row["turn_id"]), encode_envelope(envelope))}


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
    revived_after: int


@dataclass(slots=True, kw_only=True)
class StartRow(ClaimRow):
    """A message whose turn was just claimed, with its user, their session and the outcome of the reserve."""

    state: str
    tier: str
    language: str | None
    referral_code: str
    trains: bool
    referred_by: UUID | None
    created_at: datetime
    session_id: UUID | None
    session_user_id: UUID
    previous: UUID | None
    head: str
    length: int
    credit: str | None
    generations: Sequence[int] | None
    masters: Sequence[str] | None
    wraps: Sequence[bytes] | None
    vault_numbers: Sequence[int | None] | None
    vault: UUID | None

    @property
    def stored_keys(self) -> list[StoredKey]:
        """The user's rows of data_keys, as they were at the claim."""
        rows = zip(self.generations or (), self.masters or (), self.wraps or (), self.vault_numbers or (), strict=True)
        return [StoredKey(self.user_id, *row, vault=self.vault) for row in rows]

    @property
    def user(self) -> User:
        return User(
            self.user_id,
            UserState(self.state),
            *(self.tier, self.language, self.referral_code, self.trains, self.referred_by, self.created_at),
        )

    @property
    def session(self) -> Session | None:
        """The session that goes on; None: a new one must begin."""
        if self.session_id is None:
            return None
        place = (self.session_id, self.conversation_id, self.session_user_id, self.previous)
        return Session(*place, self.head, self.length, self.is_shared)


class StartedJob(NamedTuple):
    """A job of the queue of turns, and the claim of its turn if it was made with it."""

    id: int
    task_name: str
    subject_id: UUID
    attempts: int
    claimed: StartRow | None


def read_started_job(*, job_id: int, job_task: str, subject: UUID, tries: int, turn_id: UUID | None, **claim: Any) -> StartedJob:
    return StartedJob(job_id, job_task, subject, tries, None if turn_id is None else StartRow(turn_id=turn_id, **claim))


def read_origin(*, platform: str, user_names: Sequence[str], **columns: Any) -> TurnOrigin:
    return TurnOrigin(platform=Platform(platform), user_names=tuple(user_names), **columns)


ENVELOPE_FIELDS = frozenset(Envelope.__dataclass_fields__)
EVENT_FIELDS = frozenset(MessageEvent.__dataclass_fields__)


GROUP_PREFIXES = {Platform.TELEGRAM: ("-",), Platform.WHATSAPP: ("group:",)}
"""How the channel id of a group begins, on the platforms that have groups."""
NO_PREFIXES: tuple[str, ...] = ()


def seal_label(turn_id: UUID) -> str:
    return f"inbox/{turn_id}"


def encode_envelope(envelope: Envelope) -> bytes:
    """Write an envelope as JSON; `decode_envelope` reads it back."""
    fields = {name: getattr(envelope, name) for name in Envelope.__dataclass_fields__}
    fields["event"] = {name: getattr(envelope.event, name) for name in MessageEvent.__dataclass_fields__}
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
