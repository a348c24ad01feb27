"""Bring one parcel to its platform: check, wait a little, send, look at the answer, and say what has become of it.

    may it go at all  →  its turn to write  →  breaker  →  send  →  what follows  →  (again)

Every wait that is longer than a few seconds is left to the outbox. What follows from an outcome, `schedule` says."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import structlog

from hermes.delivery.pacing import Pacer
from hermes.delivery.retry_policy import (
    MAX_CALL_S,
    MAX_DOUBTS,
    MAX_WAIT_S,
    QUEUE_WAITS_S,
    RECEIPT_WAIT_S,
    RETRY_RULES,
    RetryAction,
    RetryPlan,
    TriesSoFar,
    plan_retry,
)
from hermes.delivery.service_window import MessageTemplate, is_window_open
from hermes.delivery.settlement import SettlementWriter
from hermes.ports.alerts import Alerts
from hermes.ports.breakers import Admission, BreakerChange, Breakers, BreakerTransition, ChannelName
from hermes.ports.channels import (
    Channel,
    Channels,
    Destination,
    MaybeSent,
    NotSent,
    PlatformClient,
    SendOutcome,
    SendResult,
    SupportsTemplates,
)
from hermes.ports.clock import Clock
from hermes.ports.meter import SendMeter
from hermes.ports.outbox import DeliveryResult, MessageBody, OutboxMessage, OutboxState
from hermes.ports.transactions import Transaction
from hermes.turn import Platform

log = structlog.get_logger()

JournalEvents = list[tuple[str, Mapping[str, Any]]]


def add_jitter(wait_s: float) -> float:
    """Jitter, upwards only: after an outage everybody comes back at once, and nobody may come before the time that a platform stated."""
    return wait_s * random.uniform(1.0, 1.25)  # noqa: S311  # no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSender:
    """The Sender of every platform that has channels. One for each process: it knows how fast this one writes."""

    channels: Channels
    post: PlatformClient
    breakers: Breakers
    settlement: SettlementWriter
    alerts: Alerts
    meter: SendMeter
    clock: Clock
    timeout_s: float = 10.0
    """How long one try may take."""
    longest_s: float = MAX_CALL_S
    """How long all tries of one call may take."""
    queue_s: Sequence[float] = QUEUE_WAITS_S
    """How long a parcel waits in the queue, after its first, second, … failure."""
    receipt_s: float = RECEIPT_WAIT_S
    """How long a receipt may take for what was in doubt twice, before that is given up."""
    templates: Mapping[Platform, MessageTemplate] = field(default_factory=dict)
    """What is sent where the window for free text is closed; nothing for a platform without one."""
    pacer: Pacer = field(default_factory=Pacer)
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    timer: Callable[[], float] = time.monotonic
    jitter: Callable[[float], float] = add_jitter

    def render(self, platform: Platform, account: str, text: str) -> Sequence[MessageBody]:
        """The Sender's. A text that nothing is left of once it is rendered is sent as it is."""
        channel = self.channels.get(platform, account)
        if channel is None:
            return [text]
        return channel.render(text) or ([{"text": text}] if text.strip() else [])

    async def send(self, parcel: OutboxMessage) -> DeliveryResult:
        """The Sender's."""
        line = ChannelName(parcel.platform, parcel.account)
        channel = self.channels.get(parcel.platform, parcel.account)
        if channel is None:
            self.alerts.alert("channel_missing", platform=str(line.platform), account=line.account)
            return self._not_set_up(parcel)
        ended = result_without_sending(parcel)
        if ended is not None:
            return ended
        body = self._body(parcel, channel)
        if isinstance(body, DeliveryResult):
            return body
        return await SendRound(self, line, channel, parcel).run(body)

    async def note(self, tx: Transaction, parcel: OutboxMessage, sending: DeliveryResult, became: OutboxState) -> None:
        """The Sender's."""
        await self.settlement.note(tx, parcel, sending, became)

    def _not_set_up(self, parcel: OutboxMessage) -> DeliveryResult:
        """The account may only be missing in this process, or until somebody looks; so it has its tries."""
        ended = SendResult(outcome=SendOutcome.UNAUTHORIZED, detail="no channel is set up for this account")
        if parcel.failures < len(self.queue_s):
            return retry_result(ended, self.queue_s[parcel.failures], is_failure=True)
        return final_result(OutboxState.DEAD, ended)

    def _body(self, parcel: OutboxMessage, channel: Channel) -> Mapping[str, Any] | DeliveryResult:
        """What is sent now; or how it ended, where nothing can be."""
        body = parcel.body
        if isinstance(body, str):  # it was promised where the account was not set up
            rendered = channel.render(body)
            if len(rendered) != 1:
                return final_result(
                    OutboxState.DEAD, SendResult(outcome=SendOutcome.REJECTED, detail=f"it takes {len(rendered)} messages, not one")
                )
            body = rendered[0]
        if is_window_open(parcel.platform, parcel.last_inbound_at, self.clock.now()):
            return body
        closed = SendResult(outcome=SendOutcome.WINDOW_CLOSED, detail="nobody wrote for a day")
        return self.as_template(parcel, channel, body) or final_result(OutboxState.DEAD, closed)

    def as_template(self, parcel: OutboxMessage, channel: Channel, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What may be sent after the window has closed; None where there is no template, or no text to fill into it."""
        template, text = self.templates.get(parcel.platform), str(body.get("text", ""))
        if template is None or not text or not isinstance(channel, SupportsTemplates):
            return None
        return channel.template(template.name, template.language, text)


@dataclass(slots=True)
class SendRound:
    """One call of `send`: up to four tries, and where they are."""

    dispatch: ChannelSender
    line: ChannelName
    channel: Channel
    outbox_message: OutboxMessage
    events: JournalEvents = field(default_factory=list)

    async def run(self, body: Mapping[str, Any]) -> DeliveryResult:
        dispatch, parcel = self.dispatch, self.outbox_message
        began = dispatch.timer()
        to = Destination(channel_id=parcel.channel_id, thread=parcel.thread, reply_to=parcel.reply_to, reference=parcel.reference)
        limits = {"timeout_s": dispatch.timeout_s, "longest_s": dispatch.longest_s}
        receipt_s = dispatch.receipt_s if self.channel.has_receipts else 0.0
        template = dispatch.as_template(parcel, self.channel, body)
        tried = TriesSoFar(in_call=0, failures=parcel.failures, doubts=parcel.doubts, has_template=template is not None)
        while True:
            admission = await self._admission(to)
            if isinstance(admission, DeliveryResult):
                return self._told(admission, to)
            verdict = await self._try(body, to)
            await self._tell(verdict, admission)
            tried = replace(tried, in_call=tried.in_call + 1, spent_s=dispatch.timer() - began)
            following = plan_retry(verdict, tried, **limits, queue_s=dispatch.queue_s, receipt_s=receipt_s)
            match following.then:
                case RetryAction.AGAIN:
                    await dispatch.pause(dispatch.jitter(following.wait_s))
                case RetryAction.AS_PLAIN_TEXT:
                    body, tried = self.channel.plain(body), replace(tried, is_plain=True)
                case RetryAction.AS_TEMPLATE:
                    body, tried = template or body, replace(tried, has_template=False)
                case RetryAction.ELSEWHERE:
                    to, tried = replace(to, channel_id=verdict.moved_to or to.channel_id), replace(tried, has_moved=True)
                case _:
                    return self._told(result_of_round(verdict, following), to)

    async def _admission(self, to: Destination) -> Admission | DeliveryResult:
        """Wait for this chat's turn, and ask the breaker; or say that it takes too long. Neither uses up a try."""
        dispatch = self.dispatch
        wait_s = dispatch.pacer.turn(self.line, to.channel_id, dispatch.timer(), longest_s=MAX_WAIT_S)
        if wait_s > MAX_WAIT_S:
            # No outcome: nothing was tried, so it does not count among those that failed.
            return DeliveryResult(state=OutboxState.PENDING, reason="this chat is written to too fast", retry_in_s=wait_s)
        if wait_s:
            await dispatch.pause(wait_s)
        admission = await dispatch.breakers.admit(self.line)
        if admission.wait_s is None:
            return admission
        dispatch.meter.show_breaker(str(self.line.platform), self.line.account, admission.wait_s)
        waiting = SendResult(outcome=SendOutcome.SERVICE_UNAVAILABLE, detail="the breaker is open")
        return retry_result(waiting, dispatch.jitter(admission.wait_s))

    async def _try(self, body: Mapping[str, Any], to: Destination) -> SendResult:
        dispatch = self.dispatch
        try:
            reply = await dispatch.post.send(self.channel.encode(body, to), timeout_s=dispatch.timeout_s)
        except NotSent as error:
            verdict = SendResult(outcome=SendOutcome.NETWORK_TIMEOUT, detail=str(error))
        except MaybeSent as error:
            verdict = SendResult(outcome=SendOutcome.AMBIGUOUS, detail=str(error))
        else:
            verdict = self.channel.classify(reply)
        dispatch.meter.count_send(str(self.line.platform), str(verdict.outcome))
        return verdict

    async def _tell(self, verdict: SendResult, admission: Admission) -> None:
        """Tell the breaker how a try ended, and people what the breaker does."""
        breakers, line = self.dispatch.breakers, self.line
        if verdict.outcome is SendOutcome.SENT:
            changed = await breakers.succeeded(line)
        elif verdict.outcome is SendOutcome.UNAUTHORIZED:
            changed = await breakers.stop(line)
        elif RETRY_RULES[verdict.outcome].counts:
            changed = await breakers.failed(line, admission)
        else:
            await breakers.release_probe(line, admission)
            changed = None
        if changed is not None:
            self._announce(changed, verdict)

    def _announce(self, changed: BreakerChange, verdict: SendResult) -> None:
        dispatch, where = self.dispatch, {"platform": str(self.line.platform), "account": self.line.account}
        dispatch.meter.show_breaker(where["platform"], where["account"], changed.wait_s)
        if changed.change is BreakerTransition.CLOSED:
            log.info("breaker_closed", **where)
            return
        resets_at = dispatch.clock.now() + timedelta(seconds=changed.wait_s)
        facts = {**where, "failures": changed.failures, "retries_in_s": round(changed.wait_s), "resets_at": resets_at.isoformat()}
        if changed.change is BreakerTransition.STAYED_OPEN:
            log.warning("breaker_stayed_open", **facts)
            return
        event = "channel_unauthorized" if verdict.outcome is SendOutcome.UNAUTHORIZED else "breaker_opened"
        dispatch.alerts.alert(event, **facts)
        self.events.append((event, facts))

    def _told(self, sending: DeliveryResult, to: Destination) -> DeliveryResult:
        moved_to = to.channel_id if to.channel_id != self.outbox_message.channel_id else None
        return replace(sending, moved_to=moved_to, events=tuple(self.events))


def result_without_sending(parcel: OutboxMessage) -> DeliveryResult | None:
    """How a parcel ends that need not, or must not, be sent; None for all others."""
    if parcel.confirmed_by is not None:
        arrived = SendResult(outcome=SendOutcome.SENT, message_id=parcel.confirmed_by, detail="a receipt told that it arrived")
        return final_result(OutboxState.SENT, arrived)
    if parcel.doubts > MAX_DOUBTS:
        detail = f"{parcel.doubts} tries may have arrived, and no receipt told of any"
        return final_result(OutboxState.DEAD, SendResult(outcome=SendOutcome.AMBIGUOUS, detail=detail))
    if not parcel.is_reachable:
        left = SendResult(outcome=SendOutcome.INVALID_RECIPIENT, detail="they left, and have not written since")
        return final_result(OutboxState.DEAD, left)
    return None


def result_of_round(verdict: SendResult, following: RetryPlan) -> DeliveryResult:
    """What the last try of a round comes to."""
    is_doubtful = verdict.outcome is SendOutcome.AMBIGUOUS
    if following.then is RetryAction.LATER:
        return retry_result(verdict, following.wait_s, is_failure=not is_doubtful, is_doubtful=is_doubtful)
    ends = {RetryAction.DONE: OutboxState.SENT, RetryAction.GIVE_UP: OutboxState.DEAD}
    return replace(final_result(ends[following.then], verdict), is_doubtful=is_doubtful)


def retry_result(verdict: SendResult, retry_in_s: float, *, is_failure: bool = False, is_doubtful: bool = False) -> DeliveryResult:
    return DeliveryResult(
        state=OutboxState.PENDING,
        outcome=verdict.outcome,
        reason=verdict.detail,
        retry_in_s=retry_in_s,
        is_failure=is_failure,
        is_doubtful=is_doubtful,
    )


def final_result(state: OutboxState, verdict: SendResult) -> DeliveryResult:
    return DeliveryResult(state=state, outcome=verdict.outcome, reason=verdict.detail, message_id=verdict.message_id)
