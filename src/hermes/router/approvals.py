"""Approvals: what a user decided about an offer, read by code from a button or a code, before any model sees the message.

    button "approve"   →  envelope.choice = "offer:approve:7KQ2MP"   →  carried out
    a message that is only the code, in a private chat               →  carried out
    button "refuse"    →  envelope.choice = "offer:refuse:7KQ2MP"    →  refused
    any other words, "yes" among them                                →  an ordinary message, which approves nothing

The sender of the message must be the user of the offer: the store looks offers up by both. In a room that several people share nothing is
read, because the room would read how it ended. What the offer says and what is done are the stored terms; a model only hears the result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hermes.graph.message import METADATA, NOTE
from hermes.ports.channels import Button, SupportsButtons
from hermes.ports.errors import PortError
from hermes.ports.inbox import Claim, InboxMessage
from hermes.ports.outbox import MessageBody
from hermes.ports.runtime import Transaction
from hermes.ports.tools import OfferNotice, Offers, OfferState, OfferView, ToolCall, ToolResult, ToolUser
from hermes.router.approved_block import write_approved
from hermes.router.chores import ChoreRun
from hermes.router.decisions import choice_of, decision_in
from hermes.router.outbox import first_state, is_sent, render_text
from hermes.router.replies import ReplyKind, reply
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt, text_of
from hermes.router.steps.resolve_user import ResolvedUser
from hermes.turn import Envelope

MARKDOWN_MARKS = re.compile(r"[\\`*_{}\[\]<>()#+\-.!|~&]")
OFFER_PREFIX = "offer/"
"""Begins the name of the proactive message that shows an offer made in a room to its user."""


class OfferClosed(PortError):
    """The offer cannot be carried out: it was refused, used or too old, or there is none."""

    def __init__(self, state: OfferState | None, *, is_refused_now: bool = False) -> None:
        super().__init__()
        self.state, self.is_refused_now = state, is_refused_now

    @property
    def reply_kind(self) -> ReplyKind:
        if self.is_refused_now:
            return ReplyKind.OFFER_REFUSED
        return ReplyKind.OFFER_USED if self.state is OfferState.APPROVED else ReplyKind.OFFER_EXPIRED


@dataclass(frozen=True, slots=True)
class Approval:
    """An open offer that the sender of this message approved."""

    code: str
    offer: OfferView

    @property
    def call(self) -> ToolCall:
        """The call that carries it out, as the journal keeps it."""
        return ToolCall(f"offer_{self.code}", self.offer.tool, self.offer.text)


async def read_decision(claim: Claim, person: ResolvedUser, services: Services) -> Approval | None:
    """Return the offer that this message approves; None for an ordinary message. A refusal is noted here.

    Raises OfferClosed for an offer that cannot be carried out, and for a refusal."""
    decision = decision_in(claim.envelope)
    if decision is None:
        return None
    user = tool_user(claim, person, services)
    async with services.transactions.begin() as tx:
        offer = await services.offers.look(tx, user, decision.code)
        if offer is None and not decision.is_certain:
            return None
        state = None if offer is None else offer.state
        if not decision.is_approved and state is OfferState.OFFERED:
            await services.offers.refuse(tx, user, decision.code)
            state = OfferState.REFUSED
    # After the commit: a refusal stays, whatever becomes of the reply.
    if offer is None or state is not OfferState.OFFERED:
        raise OfferClosed(state, is_refused_now=not decision.is_approved and state is OfferState.REFUSED)
    return Approval(decision.code, offer)


def tool_user(claim: Claim, person: ResolvedUser, services: Services) -> ToolUser:
    return ToolUser(claim.user_id, claim.envelope.account, person.language, str(person.zone), claim.turn_id, services.clock.now())


def with_result(prompt: Prompt, approval: Approval, result: ToolResult) -> Prompt:
    """Return the prompt with what was approved and what it brought. The model gets no tool call for it: it can only tell the user."""
    block = write_approved(approval.offer.text, result.name, result.text)
    note: str = (prompt.question.get(METADATA) or {}).get(NOTE) or ""
    words = text_of(prompt.question).removeprefix(note).strip()
    text = "\n\n".join(part for part in (note, block, words) if part)
    return replace(prompt, question={**prompt.question, "content": text}, tool_choice="none" if prompt.tools else None)


async def expire_offers(run: ChoreRun, offers: Offers) -> int:
    """Note which open offers are too old, so that the turns that made them say so; return how many."""
    count = 0
    while True:
        async with run.transactions.begin() as tx:
            batch = await offers.expire(tx, run.now)
        if not batch:
            return count
        count += batch


# --- showing an offer to its user


def offer_parts(envelope: Envelope, notice: OfferNotice, person: ResolvedUser, services: Services) -> Sequence[MessageBody]:
    """Return the messages that show an offer: its words, the platform's own buttons, and the code for those who rather type it."""
    ends_in = notice.expires_at - services.clock.now()
    how = reply(ReplyKind.OFFER_HOW, person.language, code=notice.code, retry_in=ends_in)
    text = f"{reply(ReplyKind.OFFER, person.language)}\n\n{notice.text}\n({notice.tool})\n\n{how}"
    buttons = [
        Button(choice_of(notice.code, is_approved=True), reply(ReplyKind.OFFER_APPROVE_BUTTON, person.language)),
        Button(choice_of(notice.code, is_approved=False), reply(ReplyKind.OFFER_REFUSE_BUTTON, person.language)),
    ]
    if not is_sent(envelope):
        shown = {"code": notice.code, "tool": notice.tool, "text": notice.text, "expires_at": notice.expires_at.isoformat()}
        return [{"text": f"\n{text}", "offer": {**shown, "buttons": [{"id": each.id, "label": each.label} for each in buttons]}}]
    channel: object = services.channels.get(envelope.event.platform, envelope.account)
    if isinstance(channel, SupportsButtons):
        return channel.with_buttons(text, buttons)
    # Markdown in the words of an offer could hide a part of it: its marks are shown as they are.
    return render_text(envelope, MARKDOWN_MARKS.sub(r"\\\g<0>", text), services.channels)


async def private_chat(tx: Transaction, claim: Claim, services: Services) -> InboxMessage | None:
    """The newest message of the user in a private chat with the same account: only there Hermes shows them what a room must not read."""
    return await services.inbox.last_private(tx, claim.user_id, claim.envelope.account)


async def put_private_offers(
    tx: Transaction, claim: Claim, notices: Sequence[OfferNotice], person: ResolvedUser, services: Services
) -> None:
    """Put the offers that were made in a room into their user's private chat, as part of the turn's last transaction."""
    origin = await private_chat(tx, claim, services)
    for notice in notices if origin is not None else ():
        assert origin is not None  # noqa: S101  # the loop has no round without one
        parts = offer_parts(origin.envelope, notice, person, services)
        await services.outbox.put_proactive(tx, origin, f"{OFFER_PREFIX}{notice.code}", parts, first_state(origin.envelope))
        await services.note_private(tx, origin)
