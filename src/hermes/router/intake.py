"""Accept a message: once, in order, and acknowledged only when it is stored.

    find or create the sender  →  number and store the message  →  defer its turn  →  commit  →  acknowledge

All of it is one transaction. No model is called here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from hermes.ports.credits import Credits
from hermes.ports.inbox import AcceptedMessage, Inbox
from hermes.ports.runtime import JobQueue, Transactions
from hermes.ports.users import IdempotencyKeys, Users, UserState
from hermes.router.join_messages import DEFAULT_JOIN_WINDOW, JoinWindow
from hermes.router.signup import signup_event
from hermes.turn import Envelope


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """An `Idempotency-Key` header: the API key that sent it, and a digest of the body that came with it."""

    api_key_id: UUID
    key: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Intake:
    """The one entry for messages, whatever their channel."""

    transactions: Transactions
    people: Users
    credits: Credits
    inbox: Inbox
    work: JobQueue
    idempotency_keys: IdempotencyKeys
    signup_grant: int
    join_window: JoinWindow = DEFAULT_JOIN_WINDOW

    async def accept(
        self,
        envelope: Envelope,
        *,
        newcomer: UserState,
        trains: bool = False,
        idempotency_key: IdempotencyKey | None = None,
        alias: str | None = None,
    ) -> AcceptedMessage:
        """Store a message and defer its turn; for a message that is stored already, only return it.

        `newcomer` is the state for a sender who is not a user yet: active if an API key or the operator's own page vouches for them,
        else a stranger. `trains` says that a new sender's words may be used for training: the API key allows it.
        `alias` is another id of the sender, if the platform gives two.
        Raises InboxFull, IdempotencyKeyReused, StoreUnavailable; then nothing was stored."""
        turn_id = uuid4()
        async with self.transactions.begin() as tx:
            if idempotency_key is not None:
                # The first request with this key decides the turn. Its turn id becomes the event key, so the inbox finds the same message.
                api_key_id, key, digest = idempotency_key.api_key_id, idempotency_key.key, idempotency_key.digest
                first_turn_id = await self.idempotency_keys.keep(tx, api_key_id, key, digest, turn_id)
                envelope = replace(envelope, event_key=str(first_turn_id))
            event = envelope.event
            user, is_new = await self.people.find_or_create(
                tx, envelope.account, event.platform, event.sender_id, state=newcomer, alias=alias
            )
            if is_new and newcomer is UserState.ACTIVE and self.signup_grant:
                await self.credits.grant(tx, user.id, self.signup_grant, signup_event(user.id))
            if is_new and trains:
                await self.people.allow_training(tx, user.id, trains=True)
            accepted = await self.inbox.accept(tx, envelope, user, turn_id)
            if accepted.is_new:
                await self.work.defer_turn(tx, accepted.turn_id, accepted.conversation_id, in_s=self.join_window.wait_s(envelope))
        return accepted
