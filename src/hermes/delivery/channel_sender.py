"""Send one outbox message to its platform: check, wait a little, send, read the response, and return how the delivery ended.

    may it be sent  →  pace  →  breaker  →  send  →  retry policy  →  (again)

A wait of more than a few seconds is left to the outbox. `retry_policy` decides what follows from an outcome."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import structlog

from hermes.delivery.platform_limits import MessageTemplate, Pacer, is_window_open
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
from hermes.ports.models import PlatformMeter
from hermes.ports.outbox import (
    Admission,
    BreakerChange,
    Breakers,
    BreakerTransition,
    ChannelName,
    DeliveryResult,
    OutboxMessage,
    OutboxState,
)
from hermes.ports.runtime import Alerts, Clock
from hermes.turn import Platform

log = structlog.get_logger()

JournalEvents = list[tuple[str, Mapping[str, Any]]]


def add_jitter(wait_s: float) -> float:
    """Jitter, upwards only: after an outage all workers retry at once, and none may retry before the time that the platform stated."""
    return wait_s * random.uniform(1.0, 1.25)  # noqa: S311  # no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSender:
    """Sends outbox messages to all platforms that have channels. One for each process: it knows how fast this process writes."""

    channels: Channels
    post: PlatformClient
    breakers: Breakers
    alerts: Alerts
    meter: PlatformMeter
    clock: Clock
    timeout_s: float = 10.0
    """How long one try may take."""
    max_s: float = MAX_CALL_S
    """How long all tries of one call may take."""
    queue_s: Sequence[float] = QUEUE_WAITS_S
    """How long a message waits in the queue, after its first, second, … failure."""
    receipt_s: float = RECEIPT_WAIT_S
    """How long to wait for a receipt of a message that was in doubt twice, before it is given up."""
    templates: Mapping[Platform, MessageTemplate] = field(default_factory=dict)
    """The template to send when the window for free text is closed. Without a template such a message is given up."""
    pacer: Pacer = field(default_factory=Pacer)
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    timer: Callable[[], float] = time.monotonic
    jitter: Callable[[float], float] = add_jitter

    async def send(self, message: OutboxMessage) -> DeliveryResult:
        """Send a message and return how that went. Never raises for what a platform or a network does; takes less than two minutes."""
        channel_name = ChannelName(message.platform, message.account)
        channel = self.channels.get(message.platform, message.account)
        if channel is None:
            self.alerts.alert("channel_missing", platform=str(channel_name.platform), account=channel_name.account)
            return self._not_set_up(message)
        result = result_without_sending(message)
        if result is not None:
            return result
        body = self._body(message, channel)
        if isinstance(body, DeliveryResult):
            return body
        return await SendRound(self, channel_name, channel, message).run(body)

    def _not_set_up(self, message: OutboxMessage) -> DeliveryResult:
        """Put the message back as long as it has tries: the account may be missing only in this process, or until the operator adds it."""
        send_result = SendResult(outcome=SendOutcome.UNAUTHORIZED, detail="no channel is set up for this account")
        if message.failures < len(self.queue_s):
            return retry_result(send_result, self.queue_s[message.failures], is_failure=True)
        return final_result(OutboxState.DEAD, send_result)

    def _body(self, message: OutboxMessage, channel: Channel) -> Mapping[str, Any] | DeliveryResult:
        """Return the body to send now; or how the delivery ends, if nothing can be sent."""
        body = message.body
        if isinstance(body, str):  # it was put into the outbox by a process in which the account was not set up
            rendered = channel.render(body)
            if len(rendered) != 1:
                return final_result(
                    OutboxState.DEAD, SendResult(outcome=SendOutcome.REJECTED, detail=f"the text needs {len(rendered)} messages, not one")
                )
            body = rendered[0]
        if is_window_open(message.platform, message.last_inbound_at, self.clock.now()):
            return body
        closed = SendResult(outcome=SendOutcome.WINDOW_CLOSED, detail="the user has not written for a day")
        return self.as_template(message, channel, body) or final_result(OutboxState.DEAD, closed)

    def as_template(self, message: OutboxMessage, channel: Channel, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the body that may be sent after the window has closed; None if there is no template, or no text to fill into it."""
        template, text = self.templates.get(message.platform), str(body.get("text", ""))
        if template is None or not text or not isinstance(channel, SupportsTemplates):
            return None
        return channel.template(template.name, template.language, text)


@dataclass(slots=True)
class SendRound:
    """One call of `send`: up to four tries, and its state."""

    sender: ChannelSender
    channel_name: ChannelName
    channel: Channel
    message: OutboxMessage
    events: JournalEvents = field(default_factory=list)

    async def run(self, body: Mapping[str, Any]) -> DeliveryResult:
        sender, message = self.sender, self.message
        began = sender.timer()
        to = Destination(channel_id=message.channel_id, thread=message.thread, reply_to=message.reply_to, reference=message.reference)
        limits = {"timeout_s": sender.timeout_s, "max_s": sender.max_s}
        receipt_s = sender.receipt_s if self.channel.has_receipts else 0.0
        template = sender.as_template(message, self.channel, body)
        tries = TriesSoFar(in_call=0, failures=message.failures, doubts=message.doubts, has_template=template is not None)
        while True:
            admission = await self._admission(to)
            if isinstance(admission, DeliveryResult):
                return self._with_events(admission, to)
            send_result = await self._try(body, to)
            await self._report_to_breaker(send_result, admission)
            tries = replace(tries, in_call=tries.in_call + 1, spent_s=sender.timer() - began)
            plan = plan_retry(send_result, tries, **limits, queue_s=sender.queue_s, receipt_s=receipt_s)
            match plan.then:
                case RetryAction.AGAIN:
                    await sender.pause(sender.jitter(plan.wait_s))
                case RetryAction.AS_PLAIN_TEXT:
                    body, tries = self.channel.plain(body), replace(tries, is_plain=True)
                case RetryAction.AS_TEMPLATE:
                    body, tries = template or body, replace(tries, has_template=False)
                case RetryAction.ELSEWHERE:
                    to, tries = replace(to, channel_id=send_result.moved_to or to.channel_id), replace(tries, has_moved=True)
                case _:
                    return self._with_events(result_of_round(send_result, plan), to)

    async def _admission(self, to: Destination) -> Admission | DeliveryResult:
        """Wait for this chat's pace, and ask the breaker; or put the message back if that takes too long. Neither uses up a try."""
        sender = self.sender
        wait_s = sender.pacer.turn(self.channel_name, to.channel_id, sender.timer(), max_s=MAX_WAIT_S)
        if wait_s > MAX_WAIT_S:
            # No outcome: nothing was tried, so it does not count as a failed send.
            return DeliveryResult(state=OutboxState.PENDING, reason="the pace limit of the chat or account is reached", retry_in_s=wait_s)
        if wait_s:
            await sender.pause(wait_s)
        admission = await sender.breakers.admit(self.channel_name)
        if admission.wait_s is None:
            return admission
        sender.meter.show_breaker(str(self.channel_name.platform), self.channel_name.account, admission.wait_s)
        waiting = SendResult(outcome=SendOutcome.SERVICE_UNAVAILABLE, detail="the breaker is open")
        return retry_result(waiting, sender.jitter(admission.wait_s))

    async def _try(self, body: Mapping[str, Any], to: Destination) -> SendResult:
        sender = self.sender
        try:
            reply = await sender.post.send(self.channel.encode(body, to), timeout_s=sender.timeout_s)
        except NotSent as error:
            send_result = SendResult(outcome=SendOutcome.NETWORK_TIMEOUT, detail=str(error))
        except MaybeSent as error:
            send_result = SendResult(outcome=SendOutcome.AMBIGUOUS, detail=str(error))
        else:
            send_result = self.channel.classify(reply)
        sender.meter.count_send(str(self.channel_name.platform), str(send_result.outcome))
        return send_result

    async def _report_to_breaker(self, send_result: SendResult, admission: Admission) -> None:
        """Report to the breaker how a try ended, and to the operator how the breaker changed."""
        breakers, channel_name = self.sender.breakers, self.channel_name
        if send_result.outcome is SendOutcome.SENT:
            changed = await breakers.record_success(channel_name)
        elif send_result.outcome is SendOutcome.UNAUTHORIZED:
            changed = await breakers.stop(channel_name)
        elif RETRY_RULES[send_result.outcome].counts:
            changed = await breakers.record_failure(channel_name, admission)
        else:
            await breakers.release_probe(channel_name, admission)
            changed = None
        if changed is not None:
            self._announce(changed, send_result)

    def _announce(self, changed: BreakerChange, send_result: SendResult) -> None:
        sender, where = self.sender, {"platform": str(self.channel_name.platform), "account": self.channel_name.account}
        sender.meter.show_breaker(where["platform"], where["account"], changed.wait_s)
        if changed.change is BreakerTransition.CLOSED:
            log.info("breaker_closed", **where)
            sender.alerts.end("breaker_opened", **where)
            sender.alerts.end("channel_unauthorized", **where)
            return
        resets_at = sender.clock.now() + timedelta(seconds=changed.wait_s)
        facts = {**where, "failures": changed.failures, "retries_in_s": round(changed.wait_s), "resets_at": resets_at.isoformat()}
        event = "channel_unauthorized" if send_result.outcome is SendOutcome.UNAUTHORIZED else "breaker_opened"
        # Also if it stays open: the alert goes on, and a token may be rejected while the breaker is open for another reason.
        sender.alerts.alert(event, **facts)
        if changed.change is BreakerTransition.OPENED:
            self.events.append((event, facts))

    def _with_events(self, result: DeliveryResult, to: Destination) -> DeliveryResult:
        moved_to = to.channel_id if to.channel_id != self.message.channel_id else None
        return replace(result, moved_to=moved_to, events=tuple(self.events))


def result_without_sending(message: OutboxMessage) -> DeliveryResult | None:
    """Return how the delivery ends of a message that need not, or must not, be sent; None for all others."""
    if message.confirmed_by is not None:
        arrived = SendResult(outcome=SendOutcome.SENT, message_id=message.confirmed_by, detail="a receipt confirms that it arrived")
        return final_result(OutboxState.SENT, arrived)
    if message.doubts > MAX_DOUBTS:
        detail = f"{message.doubts} tries may have arrived, and no receipt confirms any of them"
        return final_result(OutboxState.DEAD, SendResult(outcome=SendOutcome.AMBIGUOUS, detail=detail))
    if not message.is_reachable:
        left = SendResult(outcome=SendOutcome.INVALID_RECIPIENT, detail="the user left, and has not written since")
        return final_result(OutboxState.DEAD, left)
    return None


def result_of_round(send_result: SendResult, plan: RetryPlan) -> DeliveryResult:
    """Return the delivery result after the last try of a round."""
    is_doubtful = send_result.outcome is SendOutcome.AMBIGUOUS
    if plan.then is RetryAction.LATER:
        return retry_result(send_result, plan.wait_s, is_failure=not is_doubtful, is_doubtful=is_doubtful)
    ends = {RetryAction.DONE: OutboxState.SENT, RetryAction.GIVE_UP: OutboxState.DEAD}
    return replace(final_result(ends[plan.then], send_result), is_doubtful=is_doubtful)


def retry_result(send_result: SendResult, retry_in_s: float, *, is_failure: bool = False, is_doubtful: bool = False) -> DeliveryResult:
    return DeliveryResult(
        state=OutboxState.PENDING,
        outcome=send_result.outcome,
        reason=send_result.detail,
        retry_in_s=retry_in_s,
        is_failure=is_failure,
        is_doubtful=is_doubtful,
    )


def final_result(state: OutboxState, send_result: SendResult) -> DeliveryResult:
    return DeliveryResult(state=state, outcome=send_result.outcome, reason=send_result.detail, message_id=send_result.message_id)
