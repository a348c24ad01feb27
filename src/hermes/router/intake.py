"""Take a message in: once, in order, and only acknowledged when it is stored.

    meet the sender  →  number and store the message  →  defer its turn  →  commit  →  acknowledge

All of it is one transaction. The model never runs in here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from hermes.ports.api_keys import IdempotencyKeys
from hermes.ports.credits import Credits
from hermes.ports.inbox import AcceptedMessage, Inbox
from hermes.ports.job_queue import JobQueue
from hermes.ports.transactions import Transactions
from hermes.ports.users import Users, UserState
from hermes.router.join_messages import DEFAULT_JOIN_WINDOW, JoinWindow
from hermes.router.signup import signup_event
from hermes.turn import Envelope


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """An `Idempotency-Key`: whose it is, and a digest of the body that came with it."""

    api_key_id: UUID
    key: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Intake:
    """Where messages enter. Whatever the channel, this is the one door."""

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
        """Store a message and have its turn run; a message that is there already is only found.

        `newcomer` is the state of a sender whom nobody knows yet: active where somebody vouches for them (an API key, the operator's own
        page), a stranger elsewhere. With `trains` whoever vouches for a new sender also says that their words may be trained on.
        `alias` is another id of the sender, where the platform gives two.
        Raises InboxFull, KeyReused, StoreUnavailable; then nothing was stored."""
        turn_id = uuid4()
        async with self.transactions.begin() as tx:
            if idempotency_key is not None:
                # The first request with this key decides the turn: as the event key it makes the inbox find the same message again.
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
            receipt = await self.inbox.accept(tx, envelope, user, turn_id)
            if receipt.is_new:
                await self.work.defer_turn(tx, receipt.turn_id, receipt.conversation_id, in_s=self.join_window.wait_s(envelope))
        return receipt
