"""The way of an answer outward: step record puts it into the outbox, and after the commit it is delivered.

    record  →  outbox  →  (commit)  →  claim  →  send  →  settle

The first half is one transaction with all that the turn changed; `delivery/outbox_delivery.py` is the second half. On a platform that is
not in SEND_PLATFORMS clients fetch their answers: there an answer is delivered when it is in the outbox, and a signal tells the clients
that wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.ports.channels import Channels
from hermes.ports.inbox import Claim
from hermes.ports.outbox import MessageBody, OutboxState
from hermes.ports.runtime import Transaction
from hermes.router.services import Services
from hermes.turn import SEND_PLATFORMS, Envelope


async def put_answer(tx: Transaction, claim: Claim, text: str, services: Services, *, more: Sequence[MessageBody] = ()) -> None:
    """Put an answer into the outbox, as part of the turn's last transaction; `more` are messages that follow it, such as an offer."""
    envelope = claim.envelope
    parts = [*render_text(envelope, text, services.channels), *more]
    await services.outbox.put(tx, claim, parts, first_state(envelope))


async def deliver_answer(claim: Claim, services: Services) -> None:
    """After the commit: send what is due in the conversation, or announce the answer to clients that wait for it."""
    if is_sent(claim.envelope):
        await services.deliver(claim.conversation_id)
    else:
        await services.answer_signals.announce(claim.turn_id)


def render_text(envelope: Envelope, text: str, channels: Channels) -> Sequence[MessageBody]:
    """Render a text for the platform of a message, as the parts to send in order. The outbox stores them, so that every try sends the same.

    The text itself is the only part if clients fetch it, or if the account is not set up in this process. If rendering leaves nothing of a
    text, the text is sent as it is."""
    channel = channels.get(envelope.event.platform, envelope.account) if is_sent(envelope) else None
    if channel is None:
        return [text]
    return channel.render(text) or ([{"text": text}] if text.strip() else [])


def first_state(envelope: Envelope) -> OutboxState:
    """The state in which an answer to this message enters the outbox."""
    return OutboxState.PENDING if is_sent(envelope) else OutboxState.SENT


def is_sent(envelope: Envelope) -> bool:
    """Whether Hermes sends the answer to this message; else the client fetches it."""
    return envelope.event.platform in SEND_PLATFORMS
