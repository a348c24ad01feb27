"""Messages on their way, in memory: the inbox, the outbox, the signals between them, and the breakers of platforms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from hermes.delivery import breaker as rules
from hermes.delivery.breaker import CLOSED, DEFAULT_LIMITS, Breaker, BreakerLimits
from hermes.ports.channels import SendOutcome
from hermes.ports.errors import ClaimLost, InboxFull, UserErased
from hermes.ports.inbox import (
    AcceptedMessage,
    AnswerSignal,
    Claim,
    InboxMessage,
    Revival,
    TurnOrigin,
    UnreadableMessage,
    channel_names,
)
from hermes.ports.key_use import person_forbidden
from hermes.ports.outbox import (
    Admission,
    BreakerChange,
    ChannelName,
    DeliveryResult,
    MessageBody,
    OutboxAnswer,
    OutboxLengths,
    OutboxMessage,
    OutboxState,
    ProactiveMessage,
    readable_text,
)
from hermes.ports.runtime import Clock, Transaction, Transactions
from hermes.ports.sessions import JournalEvent
from hermes.ports.timeline import ATTEMPT_CUT_OFF, ATTEMPT_FAILED, RunRecord, is_effect, step_of_effect
from hermes.ports.users import UserChannel, UserState
from hermes.router.intake import join_messages
from hermes.testing.memory.runtime import MemoryJobQueue
from hermes.testing.memory.users import MemoryUsers
from hermes.turn import Envelope, Platform


@dataclass(slots=True)
class MemoryInbox:
    """The port Inbox. A message can be read until its sender is deleted."""

    messages: dict[UUID, InboxMessage] = field(default_factory=dict)
    """The users' messages by turn, in their order. A test that makes a claim without `accept` puts its message here."""
    finished: list[UUID] = field(default_factory=list)
    buried: dict[UUID, str] = field(default_factory=dict)
    """Turns that were given up, and why."""
    ended_at: dict[UUID, datetime] = field(default_factory=dict)
    joined: dict[UUID, UUID] = field(default_factory=dict)
    """The turns of messages that were joined to an earlier one, and the turn of that one."""
    stopped: set[UUID] = field(default_factory=set)
    """Turns that their clients withdrew."""
    attempts: dict[UUID, int] = field(default_factory=dict)
    revived: dict[UUID, tuple[datetime, int]] = field(default_factory=dict)
    """Turns that an operator revived: when, and after how many attempts."""
    epochs: dict[UUID, int] = field(default_factory=dict)
    """By conversation."""
    runs: dict[UUID, RunRecord] = field(default_factory=dict)
    """The newest attempt at each turn that was claimed."""
    events: dict[UUID, list[JournalEvent]] = field(default_factory=dict)
    """The journal's events by turn. They are here because a claim notes that the attempt before it was cut off."""
    people: MemoryUsers = field(default_factory=MemoryUsers)
    """Tells which user a sender is, and whether the sender of a message was deleted."""
    work: MemoryJobQueue = field(default_factory=MemoryJobQueue)
    """Gets the turns that `accept` defers."""
    cap: int = 10_000
    """How many messages of one account may wait."""

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
        event = envelope.event
        sender = UserChannel(envelope.account, event.platform, event.sender_id)
        if refuses_people and await self.people.is_person(tx, sender):
            raise person_forbidden(event.sender_id)
        user_id = self.people.addresses.get(sender)
        if user_id is None:
            return None
        for message in self.messages.values():
            if (message.envelope.account, message.envelope.event_key) == (envelope.account, envelope.event_key):
                return self._accepted(message, is_new=False)
        if sum(message.envelope.account == envelope.account for message in self._unended()) >= self.cap:
            raise InboxFull
        if alias is not None:
            self.people.addresses.setdefault(replace(sender, sender_id=alias), user_id)
        if event.platform is Platform.REST:
            names = channel_names(envelope.channel_id, is_own=envelope.is_own)
            channel_id = next(name for name in names if self._takes(replace(envelope, channel_id=name), user_id))
            envelope = replace(envelope, channel_id=channel_id)
        known = (message.conversation_id for message in self.messages.values() if channel_of(message) == channel_in(envelope))
        message = InboxMessage(turn_id, next(known, None) or uuid4(), user_id, envelope, datetime.now(UTC), traceparent)
        self.messages[turn_id] = message
        if defer_in_s is not None:
            await self.work.defer_turn(tx, turn_id, message.conversation_id, in_s=defer_in_s)
        return self._accepted(message, is_new=True)

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
        async with transactions.once() as tx:
            return await self.accept(
                tx, envelope, turn_id, defer_in_s=defer_in_s, alias=alias, refuses_people=refuses_people, traceparent=traceparent
            )

    def _accepted(self, message: InboxMessage, *, is_new: bool) -> AcceptedMessage:
        return AcceptedMessage(message.turn_id, message.conversation_id, message.user_id, self._seq(message), is_new=is_new)

    async def claim(
        self,
        _: Transaction,
        turn_id: UUID,
        *,
        worker: UUID | None = None,
        per_minute: int | None = None,  # noqa: ARG002  # here the steps ask the stores themselves
    ) -> Claim | UnreadableMessage | None:
        message = self.messages.get(turn_id)
        if message is None or self.has_ended(turn_id):
            return None
        conversation = message.conversation_id
        self.attempts[turn_id] = self.attempts.get(turn_id, 0) + 1
        self.epochs[conversation] = self.epochs.get(conversation, 0) + 1
        self._note_cut_off(turn_id)
        self.runs[turn_id] = RunRecord(
            state="running",
            epoch=self.epochs[conversation],
            attempt=self.attempts[turn_id],
            worker=worker,
            claimed_at=datetime.now(UTC),
        )
        waits_from, revived_after = self.revived.get(turn_id, (message.received_at, 0))
        age_s = (datetime.now(UTC) - waits_from).total_seconds()
        read = self._read(message)
        if read is None:
            reason = str(UserErased())
            attempt = (turn_id, conversation, self.epochs[conversation], self.attempts[turn_id])
            return UnreadableMessage(*attempt, age_s, reason, is_erased=True, is_damaged=False)
        since = message.received_at - timedelta(minutes=1)
        return Claim(
            turn_id,
            conversation,
            message.user_id,
            seq=self._seq(message),
            epoch=self.epochs[conversation],
            attempt=self.attempts[turn_id],
            envelope=read.envelope,
            age_s=age_s,
            recent=sum(
                (other.conversation_id, other.user_id) == (conversation, message.user_id)
                and since < other.received_at <= message.received_at
                and other.turn_id not in self.joined
                for other in self.messages.values()
            ),
            traceparent=message.traceparent,
            revived_after=revived_after,
        )

    def _note_cut_off(self, turn_id: UUID) -> None:
        before, events = self.runs.get(turn_id), self.events.setdefault(turn_id, [])
        if (
            before is None
            or before.state != "running"
            or any((event.type, event.epoch) == (ATTEMPT_FAILED, before.epoch) for event in events)
        ):
            return
        open_effects = [event for event in events if is_effect(event) and event.done_at is None and event.epoch == before.epoch]
        facts = {"worker": str(before.worker)} if before.worker else {}
        if open_effects:
            facts["step"] = step_of_effect(open_effects[-1])
        began_at, index = before.claimed_at or datetime.now(UTC), sum(event.type == ATTEMPT_CUT_OFF for event in events)
        place = (ATTEMPT_CUT_OFF, index, ATTEMPT_CUT_OFF)
        events.append(JournalEvent(*place, before.attempt, began_at, datetime.now(UTC), facts, before.epoch))

    async def waiting_behind(self, _: Transaction, claim: Claim, limit: int) -> Sequence[InboxMessage]:
        there = [message for message in self.messages.values() if message.conversation_id == claim.conversation_id]
        waiting = [message for message in there[claim.seq :] if not self.has_ended(message.turn_id)]
        found = [self._read(message) for message in waiting if not self.attempts.get(message.turn_id)][:limit]
        return [message for message in found if message is not None]

    async def join(self, tx: Transaction, claim: Claim, others: Sequence[InboxMessage]) -> Claim:
        await self.hold(tx, claim)
        self.joined.update({message.turn_id: claim.turn_id for message in others})
        return replace(claim, envelope=join_messages([claim.envelope, *(message.envelope for message in others)]))

    async def uncount_attempt(self, _: Transaction, claim: Claim) -> None:
        if self.epochs.get(claim.conversation_id) == claim.epoch and not self.has_ended(claim.turn_id):
            self.attempts[claim.turn_id] -= 1

    async def hold(self, _: Transaction, claim: Claim) -> None:
        if self.epochs.get(claim.conversation_id, 0) > claim.epoch:
            raise ClaimLost

    async def finish(self, _: Transaction, claim: Claim) -> None:
        self.finished.append(claim.turn_id)
        self.ended_at[claim.turn_id] = datetime.now(UTC)

    async def bury(self, tx: Transaction, claim: Claim, reason: str) -> None:
        await self.bury_unread(tx, claim.turn_id, reason)

    async def bury_unread(self, _: Transaction, turn_id: UUID, reason: str) -> None:
        self.buried[turn_id] = reason
        self.ended_at[turn_id] = datetime.now(UTC)
        if turn_id in self.runs:
            self.runs[turn_id] = replace(self.runs[turn_id], state="dead")

    async def revive(self, _: Transaction, turn_id: UUID) -> Revival:
        if turn_id not in self.buried:
            return Revival.NOT_BURIED
        if self.is_sender_erased(turn_id):
            return Revival.UNREADABLE
        events = self.events.get(turn_id, [])
        if any(is_effect(event) and event.done_at is not None and not event.has_content for event in events):
            return Revival.EMPTIED
        self.events[turn_id] = [event for event in events if event.step not in ("call_model", "compact") or event.done_at is not None]
        del self.buried[turn_id], self.ended_at[turn_id]
        self.revived[turn_id] = (datetime.now(UTC), self.attempts.get(turn_id, 0))
        return Revival.REVIVED

    async def stop(self, _: Transaction, turn_id: UUID) -> bool:
        message = self.messages.get(turn_id)
        if message is None or self.has_ended(turn_id):
            return False
        self.stopped.add(turn_id)
        if self.attempts.get(turn_id):
            self.epochs[message.conversation_id] += 1
        return True

    async def origin(self, _: Transaction, turn_id: UUID) -> TurnOrigin | None:
        message = self.messages.get(turn_id)
        if message is None:
            return None
        return TurnOrigin(
            *channel_of(message),
            has_ended=self.has_ended(turn_id),
            is_sender_erased=self.is_sender_erased(turn_id),
            is_started=bool(self.attempts.get(turn_id)),
            is_stopped=turn_id in self.stopped,
            user_names=self.people.names_of(message.user_id, message.envelope.account, message.envelope.event.platform),
            is_person=self.people.writes_as_person(message.user_id),
        )

    async def message_of(self, _: Transaction, turn_id: UUID) -> InboxMessage | None:
        message = self.messages.get(turn_id)
        return None if message is None else self._read(message)

    async def last_private(self, _: Transaction, user_id: UUID, account: str) -> InboxMessage | None:
        found = [message for message in self.messages.values() if (message.user_id, message.envelope.account) == (user_id, account)]
        private = [message for message in found if not self._is_shared(message.conversation_id)]
        last = max(private, key=lambda message: message.received_at, default=None)
        return None if last is None else self._read(last)

    async def newest(self, _: Transaction, account: str, platform: Platform) -> InboxMessage | None:
        found = [message for message in self.messages.values() if channel_of(message)[:2] == (account, platform)]
        last = max(found, key=lambda message: message.received_at, default=None)
        return None if last is None else self._read(last)

    async def waiting(self, _: Transaction) -> int:
        return len(self._unended())

    def _unended(self) -> list[InboxMessage]:
        return [message for message in self.messages.values() if not self.has_ended(message.turn_id)]

    def has_ended(self, turn_id: UUID) -> bool:
        return turn_id in self.finished or turn_id in self.buried or turn_id in self.joined or turn_id in self.stopped

    def _seq(self, message: InboxMessage) -> int:
        there = [other.turn_id for other in self.messages.values() if other.conversation_id == message.conversation_id]
        return there.index(message.turn_id) + 1

    def _read(self, message: InboxMessage) -> InboxMessage | None:
        """The message with those that were joined to it; None if its sender was deleted."""
        if self.is_sender_erased(message.turn_id):
            return None
        parts = [message, *(self.messages[other] for other, first in self.joined.items() if first == message.turn_id)]
        envelope = join_messages([part.envelope for part in parts])
        return replace(message, envelope=replace(envelope, is_shared=self._is_shared(message.conversation_id)))

    def is_sender_erased(self, turn_id: UUID) -> bool:
        return turn_id in self.messages and self.is_erased(self.messages[turn_id].user_id)

    def is_erased(self, user_id: UUID) -> bool:
        user = self.people.users.get(user_id)
        return user is not None and user.state is UserState.DELETED

    def last_seq(self, conversation_id: UUID) -> int:
        return sum(message.conversation_id == conversation_id for message in self.messages.values())

    def last_inbound_at(self, conversation_id: UUID) -> datetime | None:
        there = [message.received_at for message in self.messages.values() if message.conversation_id == conversation_id]
        return max(there, default=None)

    async def find_channel(self, _: Transaction, account: str, platform: Platform, user: str, channel: str | None) -> str | None:
        own = self.people.addresses.get(UserChannel(account, platform, user))
        names = channel_names(user if channel is None else channel, is_own=channel is None)
        for name in names:
            there = [message for message in self.messages.values() if channel_of(message) == (account, platform, name)]
            if there and (there[0].user_id == own or not (channel is None or self._is_private(there))):
                return name
        return None

    def _takes(self, envelope: Envelope, user_id: UUID) -> bool:
        """Whether the conversation of this id is for this message."""
        there = [message for message in self.messages.values() if channel_of(message) == channel_in(envelope)]
        if not there:
            return True
        if there[0].user_id == user_id:
            return not envelope.is_own or self._is_private(there) or {message.user_id for message in there} == {user_id}
        return not (envelope.is_own or self._is_private(there))

    def _is_private(self, there: Sequence[InboxMessage]) -> bool:
        envelopes = [message.envelope for message in there]
        is_own = any(envelope.is_own for envelope in envelopes) or envelopes[0].channel_id == envelopes[0].event.sender_id
        return is_own and not self._is_shared(there[0].conversation_id)

    def _is_shared(self, conversation_id: UUID) -> bool:
        there = [message for message in self.messages.values() if message.conversation_id == conversation_id]
        is_api = any(message.envelope.event.platform is Platform.REST for message in there)
        return any(message.envelope.is_shared for message in there) or (is_api and len({message.user_id for message in there}) > 1)


@dataclass(slots=True)
class MemoryOutbox:
    """The port Outbox. Any number of messages may wait, a try is never cut off, and an answer has no provenance."""

    answers: dict[UUID, list[MessageBody]] = field(default_factory=dict)
    queued_messages: list[OutboxMessage] = field(default_factory=list)
    """The messages to send, in order."""
    settled: list[tuple[OutboxMessage, DeliveryResult]] = field(default_factory=list)
    proactive: list[tuple[InboxMessage, ProactiveMessage, OutboxState]] = field(default_factory=list)
    """Each with the user's message that asked for it."""
    recorded: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    """The messages that are being sent."""
    not_before: dict[int, datetime] = field(default_factory=dict)
    """When a message that was put back is due."""
    owners: dict[int, UUID] = field(default_factory=dict)
    """The user of each message."""
    unreachable: dict[UUID, datetime] = field(default_factory=dict)
    """By conversation: the last message of a user who left after it."""
    inbox: MemoryInbox = field(default_factory=MemoryInbox)
    """Tells when a user last wrote, and whether a user was deleted."""

    async def put(self, _: Transaction, claim: Claim, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING) -> None:
        if claim.turn_id in self.answers:
            return
        self.answers[claim.turn_id] = [*parts]
        if state is OutboxState.PENDING:
            self._queue(claim, claim.envelope, claim.seq, parts)

    async def withdraw(self, _: Transaction, turn_id: UUID) -> int:
        parts = self.answers.pop(turn_id, [])
        queued = [message for message in self.queued_messages if message.turn_id == turn_id and not message.news]
        self.queued_messages = [message for message in self.queued_messages if message not in queued]
        self.taken -= {message.id for message in queued}
        return len(parts) - len(queued)

    async def take(self, _: Transaction, conversation_id: UUID) -> OutboxMessage | None:
        for message in [message for message in self.queued_messages if message.conversation_id == conversation_id]:
            if self.inbox.is_erased(self.owners[message.id]):
                self.queued_messages.remove(message)
                self.settled.append((message, DeliveryResult(state=OutboxState.DEAD, reason="its user was deleted")))
                continue
            if message.id in self.taken or not self._is_due(message):
                return None
            last = self.inbox.last_inbound_at(conversation_id) or message.last_inbound_at
            left = self.unreachable.get(conversation_id)
            is_reachable = left is None or last is None or last > left
            taken = replace(message, tries=message.tries + 1, taken_at=datetime.now(UTC), last_inbound_at=last, is_reachable=is_reachable)
            self.queued_messages[self.queued_messages.index(message)] = taken
            self.taken.add(message.id)
            return taken
        return None

    async def settle(self, _: Transaction, message: OutboxMessage, result: DeliveryResult) -> OutboxState | None:
        if message not in self.queued_messages or message.id not in self.taken:
            return None
        self.taken.remove(message.id)
        if result.outcome is SendOutcome.INVALID_RECIPIENT and message.last_inbound_at is not None:
            self.unreachable[message.conversation_id] = message.last_inbound_at
        if result.moved_to is not None:
            there = [queued.id for queued in self.queued_messages if outgoing_channel(queued) == outgoing_channel(message)]
            message = replace(message, channel_id=result.moved_to)
            for place, queued in enumerate(self.queued_messages):
                if queued.id in there:
                    self.queued_messages[place] = replace(queued, channel_id=result.moved_to)
        if result.state is OutboxState.PENDING:
            place = self.queued_messages.index(message)
            failures, doubts = message.failures + result.is_failure, message.doubts + result.is_doubtful
            self.queued_messages[place] = replace(message, failures=failures, doubts=doubts)
            self.not_before[message.id] = datetime.now(UTC) + timedelta(seconds=result.retry_in_s)
        else:
            self.queued_messages.remove(message)
            self.settled.append((message, result))
        return result.state

    async def settle_sent(
        self, tx: Transaction, message: OutboxMessage, result: DeliveryResult, facts: Mapping[str, Any]
    ) -> OutboxMessage | None:
        if await self.settle(tx, message, result) is not None:
            type_, now, events = "response_delivered", datetime.now(UTC), self.inbox.events.setdefault(message.turn_id, [])
            index, attempt = sum(event.type == type_ for event in events), self.inbox.attempts.get(message.turn_id, 1)
            events.append(JournalEvent(type_, index, type_, attempt, now, now, facts, None))
        return await self.take(tx, message.conversation_id)

    async def answer(self, _: Transaction, turn_id: UUID) -> OutboxAnswer | None:
        return OutboxAnswer(turn_id, readable_text(self.answers[turn_id]), {}) if turn_id in self.answers else None

    async def waiting(self, _: Transaction) -> int:
        return len(self.queued_messages)

    async def put_proactive(
        self, _: Transaction, asked: InboxMessage, name: str, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING
    ) -> None:
        if any((message.turn_id, message.name) == (asked.turn_id, name) for _, message, _ in self.proactive):
            return
        message = ProactiveMessage(len(self.proactive) + 1, asked.turn_id, asked.user_id, name, readable_text(parts), datetime.now(UTC))
        self.proactive.append((asked, message, state))
        if state is OutboxState.PENDING:
            self._queue(asked, asked.envelope, self.inbox.last_seq(asked.conversation_id), parts, name)

    async def take_proactive(self, _: Transaction, conversation_id: UUID) -> Sequence[ProactiveMessage]:
        found = [
            message
            for asked, message, _ in self.proactive
            if asked.conversation_id == conversation_id and message.id not in self.recorded and not self.inbox.is_erased(asked.user_id)
        ]
        self.recorded |= {message.id for message in found}
        return found

    async def proactive_messages(
        self, _: Transaction, account: str, platform: Platform, channel_id: str, *, after: int = 0, limit: int = 50
    ) -> Sequence[ProactiveMessage]:
        found = [
            message
            for asked, message, _ in self.proactive
            if channel_of(asked) == (account, platform, channel_id) and message.id > after and not self.inbox.is_erased(asked.user_id)
        ]
        return found[:limit]

    async def stranded_conversations(self, _: Transaction, __: float, *, limit: int = 500) -> Sequence[UUID]:
        """All conversations whose oldest message is due and not being sent: no message is ever touched long ago here."""
        oldest = {message.conversation_id: message for message in reversed(self.queued_messages)}
        found = [message for message in oldest.values() if message.id not in self.taken and self._is_due(message)]
        return [message.conversation_id for message in sorted(found, key=lambda message: message.id)][:limit]

    async def lengths(self, _: Transaction) -> OutboxLengths:
        dead = sum(result.state is OutboxState.DEAD for _, result in self.settled)
        put_back = sum(message.tries > 0 and message.id not in self.taken for message in self.queued_messages)
        return OutboxLengths(failed_sends=put_back, dead_letters=dead)

    def _queue(self, turn: Claim | InboxMessage, envelope: Envelope, seq: int, parts: Sequence[MessageBody], news: str = "") -> None:
        """Add messages in the order of their turns; a proactive message follows all answers up to its place."""
        where = channel_in(envelope)
        for part, body in enumerate(parts):
            place = (len(self.owners) + 1, turn.turn_id, turn.conversation_id, seq, part)
            message = OutboxMessage(*place, *where, body, 0, news=news, thread=envelope.thread, last_inbound_at=datetime.now(UTC))
            message = replace(message, traceparent=turn.traceparent)
            self.owners[message.id] = turn.user_id
            self.queued_messages.append(message)
        self.queued_messages.sort(key=lambda message: (message.seq, message.news != "", message.id))

    def _is_due(self, message: OutboxMessage) -> bool:
        return message.id not in self.not_before or self.not_before[message.id] <= datetime.now(UTC)


def channel_of(message: InboxMessage) -> tuple[str, Platform, str]:
    return channel_in(message.envelope)


def outgoing_channel(message: OutboxMessage) -> tuple[str, Platform, str]:
    return message.account, message.platform, message.channel_id


def channel_in(envelope: Envelope) -> tuple[str, Platform, str]:
    return envelope.account, envelope.event.platform, envelope.channel_id


@dataclass(slots=True)
class MemoryAnswerSignals:
    """The port AnswerSignals, within one process."""

    announced: list[UUID] = field(default_factory=list)
    _listeners: dict[UUID, list[AnswerSignal]] = field(default_factory=dict)

    @property
    def is_heard(self) -> bool:
        return True

    async def announce(self, turn_id: UUID) -> None:
        self.announced.append(turn_id)
        for listener in self._listeners.get(turn_id, ()):
            listener.fire()

    @asynccontextmanager
    async def listen(self, turn_id: UUID) -> AsyncIterator[AnswerSignal]:
        listener, there = AnswerSignal(), self._listeners.setdefault(turn_id, [])
        there.append(listener)
        if turn_id in self.announced:
            listener.fire()
        try:
            yield listener
        finally:
            there.remove(listener)


@dataclass(slots=True)
class MemoryBreakers:
    """The port Breakers."""

    clock: Clock
    limits: BreakerLimits = DEFAULT_LIMITS
    states: dict[ChannelName, Breaker] = field(default_factory=dict)

    async def admit(self, channel_name: ChannelName) -> Admission:
        self.states[channel_name], admission = rules.admit(self._of(channel_name), self._now, self.limits)
        return admission

    async def record_success(self, channel_name: ChannelName) -> BreakerChange | None:
        self.states[channel_name], changed = rules.record_success(self._of(channel_name))
        return changed

    async def record_failure(self, channel_name: ChannelName, admission: Admission) -> BreakerChange | None:
        self.states[channel_name], changed = rules.record_failure(
            self._of(channel_name), self._now, self.limits, is_probe=admission.is_probe
        )
        return changed

    async def release_probe(self, channel_name: ChannelName, admission: Admission) -> None:
        self.states[channel_name] = rules.release_probe(self._of(channel_name), is_probe=admission.is_probe)

    async def stop(self, channel_name: ChannelName) -> BreakerChange | None:
        self.states[channel_name], changed = rules.record_unauthorized(self._of(channel_name), self._now, self.limits)
        return changed

    def _of(self, channel_name: ChannelName) -> Breaker:
        return self.states.get(channel_name, CLOSED)

    @property
    def _now(self) -> float:
        return self.clock.now().timestamp()
