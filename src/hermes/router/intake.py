"""How messages come in: the events of a webhook are routed, and a message is stored once, in order, before it is acknowledged.

    webhook  →  its events, one by one  →  message   →  find or create the sender, number and store it, defer its turn  →  acknowledge
                                           receipt   →  delivery
                                           reaction  →  feedback

Each event is a transaction of its own. If the store goes away in the middle, the platform sends the whole webhook again, and the events
that were stored already are found and not stored twice. No model is called here.

Some messages are joined into one turn: the items of an album and, if the settings say so, messages that one user writes in quick
succession. Platforms send every item as a message of its own. The first one waits a little; the worker that claims it joins the messages
that came after it meanwhile. Only on platforms that Hermes sends answers to: on the others each request waits for an answer of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from uuid import UUID

import structlog

from hermes.ports.channels import Channel, DeliveryReceipt, IdChanged, Ignored, InboundEvent, InboundMessage, ReachabilityChanged, Reaction
from hermes.ports.credits import Credits
from hermes.ports.errors import UserErased
from hermes.ports.inbox import AcceptedMessage, Claim, Inbox, InboxMessage
from hermes.ports.models import PlatformMeter
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.traces import NO_TRACER, Tracer
from hermes.ports.users import IdempotencyKeys, Users, UserState
from hermes.router.feedback import Feedback
from hermes.router.signup import signup_event
from hermes.time_ids import new_time_id
from hermes.turn import SEND_PLATFORMS, Envelope, Platform

log = structlog.get_logger()

MAX_JOINED_MESSAGES = 20
"""The largest album has ten items."""


@dataclass(frozen=True, slots=True)
class InboundRouter:
    """Gives each inbound event of a platform to the part that handles it."""

    intake: Intake
    apply_report: Callable[[Platform, str, DeliveryReceipt | ReachabilityChanged | IdChanged], Awaitable[None]]
    """Apply what a platform reports after a send, given the platform and the account. Raises StoreUnavailable."""
    feedback: Feedback
    meter: PlatformMeter

    async def route(self, channel: Channel, events: Sequence[InboundEvent], *, newcomer: UserState) -> int:
        """Handle all events; return the number of new messages. Raises InboxFull and StoreUnavailable; then the platform sends it again.

        `newcomer` is the state for a sender who is not a user yet."""
        new = 0
        for event in events:
            match event:
                case InboundMessage():
                    new += (await self.intake.accept(event.stored_envelope, newcomer=newcomer, alias=event.alias)).is_new
                case DeliveryReceipt() | ReachabilityChanged() | IdChanged():
                    await self.apply_report(channel.platform, channel.account, event)
                case Reaction():
                    await self.feedback.apply(channel.platform, channel.account, event)
                case Ignored():
                    self._count_ignored(channel, event)
        return new

    def _count_ignored(self, channel: Channel, ignored: Ignored) -> None:
        facts = {"platform": str(channel.platform), "account": channel.account, "reason": ignored.reason}
        self.meter.count_ignored(facts["platform"], ignored.reason)
        if ignored.meant_for:
            # The sender waits for an answer that never comes: the operator has to add that account, or to unsubscribe it.
            log.warning("webhook_ignored", **facts, meant_for=ignored.meant_for)
        else:
            log.info("webhook_ignored", **facts)


@dataclass(frozen=True, slots=True)
class JoinWindow:
    """How long a message waits for others to join it, in seconds."""

    album_s: float = 1.0
    burst_s: float = 0.0
    """0: a message that is not part of an album does not wait."""

    def wait_s(self, envelope: Envelope) -> float:
        """How long this message waits before its turn begins."""
        if envelope.event.platform not in SEND_PLATFORMS or envelope.choice:
            return 0.0
        return max(self.burst_s, self.album_s if envelope.album is not None else 0.0)

    def messages_to_join(self, claim: Claim, behind: Sequence[InboxMessage]) -> list[InboxMessage]:
        """Return the waiting messages that belong to the claimed one: all of its album; and in a burst, all up to the first message of
        another sender or thread. `behind` is in the order of arrival."""
        album, is_burst, joined = claim.envelope.album, bool(self.burst_s), []
        for message in behind if not claim.envelope.choice else ():
            # A pressed button decides something by itself, so it is a turn by itself.
            is_same_sender = message.user_id == claim.user_id and message.envelope.thread == claim.envelope.thread
            is_same_sender = is_same_sender and not message.envelope.choice
            if is_same_sender and (is_burst or (album is not None and message.envelope.album == album)):
                joined.append(message)
            else:
                is_burst = False
        return joined


DEFAULT_JOIN_WINDOW = JoinWindow()


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """An `Idempotency-Key` header: the API key that sent it, and a digest of the body that came with it."""

    api_key_id: UUID
    key: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class SignupTerms:
    """What becomes of a sender who is not a user yet."""

    newcomer: UserState
    alias: str | None
    """Another id of the sender, if the platform gives two."""
    trains: bool
    """Whether their words may be used for training."""


@dataclass(frozen=True, slots=True)
class Intake:
    """The one entry for messages, whatever their channel."""

    transactions: Transactions
    people: Users
    credits: Credits
    inbox: Inbox
    idempotency_keys: IdempotencyKeys
    signup_grant: int
    join_window: JoinWindow = DEFAULT_JOIN_WINDOW
    defers_turns: bool = True
    """Whether turns are deferred to a worker; otherwise the caller runs them."""
    tracer: Tracer = NO_TRACER

    async def accept(
        self,
        envelope: Envelope,
        *,
        newcomer: UserState,
        trains: bool = False,
        idempotency_key: IdempotencyKey | None = None,
        alias: str | None = None,
        refuses_people: bool = False,
    ) -> AcceptedMessage:
        """Store a message and defer its turn; for a message that is stored already, only return it.

        `newcomer` is the state for a sender who is not a user yet: active if an API key or the operator's own page vouches for them,
        else a stranger. `trains` says that a new sender's words may be used for training: the API key allows it.
        `alias` is another id of the sender, if the platform gives two.
        `refuses_people`: an API key sends it that may not speak for a person who also writes from a messenger.
        Raises InboxFull, IdempotencyKeyReused, KeyForbids, StoreUnavailable; then nothing was stored."""
        with self.tracer.accept(envelope) as span:
            how: dict[str, Any] = {
                "defer_in_s": self.join_window.wait_s(envelope) if self.defers_turns else None,
                "alias": alias,
                "refuses_people": refuses_people,
                "traceparent": span.traceparent,
            }
            accepted = await self._store(how, envelope, new_time_id(), SignupTerms(newcomer, alias, trains), idempotency_key)
            place = {"conversation_id": accepted.conversation_id, "user_id": accepted.user_id}
            span.note(turn_id=accepted.turn_id, **place, is_new=accepted.is_new)
        return accepted

    async def _store(
        self,
        how: Mapping[str, Any],
        envelope: Envelope,
        turn_id: UUID,
        signup: SignupTerms,
        idempotency_key: IdempotencyKey | None,
    ) -> AcceptedMessage:
        """Store a message, all or nothing: together with those that come at the same time, unless it comes with an idempotency key or its
        sender is no user yet. `how` is what the inbox is told beside the message."""
        if idempotency_key is None:
            accepted = await self.inbox.accept_now(self.transactions, envelope, turn_id, **how)
            if accepted is not None:
                return accepted
        async with self.transactions.begin() as tx:
            if idempotency_key is not None:
                # The first request with this key decides the turn. Its turn id becomes the event key, so the inbox finds the same message.
                api_key_id, key, digest = idempotency_key.api_key_id, idempotency_key.key, idempotency_key.digest
                first_turn_id = await self.idempotency_keys.keep(tx, api_key_id, key, digest, turn_id)
                envelope = replace(envelope, event_key=str(first_turn_id))
                accepted = await self.inbox.accept(tx, envelope, turn_id, **how)
                if accepted is not None:
                    return accepted
            await self._sign_up(tx, envelope, signup)
            accepted = await self.inbox.accept(tx, envelope, turn_id, **how)
            if accepted is None:
                raise UserErased
        return accepted

    async def _sign_up(self, tx: Transaction, envelope: Envelope, signup: SignupTerms) -> None:
        """Make the sender a user, unless another transaction just did."""
        account, event = envelope.account, envelope.event
        user, is_new = await self.people.find_or_create(
            tx, account, event.platform, event.sender_id, state=signup.newcomer, alias=signup.alias
        )
        if is_new and signup.newcomer is UserState.ACTIVE and self.signup_grant:
            await self.credits.grant(tx, user.id, self.signup_grant, signup_event(user.id))
        if is_new and signup.trains:
            await self.people.allow_training(tx, user.id, trains=True)


def join_messages(envelopes: Sequence[Envelope]) -> Envelope:
    """Join several messages of one sender into one: all their texts in order, and all their media."""
    first = envelopes[0]
    if len(envelopes) == 1:
        return first
    text = "\n".join(envelope.event.text for envelope in envelopes if envelope.event.text.strip())
    with_media = [envelope for envelope in envelopes if envelope.event.media_url]
    # An image comes first: if the first medium is a video, step route_image shows the model none of them.
    with_media.sort(key=lambda envelope: not (envelope.event.media_type or "").startswith("image/"))
    shown = with_media[0].event if with_media else first.event
    more = chain.from_iterable((envelope.event.media_url, *envelope.attachments) for envelope in with_media)
    event = replace(first.event, text=text, media_url=shown.media_url, media_type=shown.media_type)
    return replace(first, event=event, attachments=tuple(reference for reference in more if reference)[1:])
