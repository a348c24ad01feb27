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

from hermes.delivery.books import Books
from hermes.delivery.pacing import Pacer
from hermes.delivery.schedule import LONGEST_CALL_S, LONGEST_WAIT_S, MOST_DOUBTS, QUEUE_S, RECEIPT_S, RULES, Next, Then, Tried, what_next
from hermes.delivery.window import Template, is_open
from hermes.ports.alerts import Alerts
from hermes.ports.breakers import Admission, Breakers, Change, Changed, Line
from hermes.ports.channels import Channel, Channels, MaybeSent, NotSent, Outcome, Post, Templated, To, Verdict
from hermes.ports.clock import Clock
from hermes.ports.meter import SendMeter
from hermes.ports.outbox import Body, Parcel, ParcelState, Sending
from hermes.ports.transactions import Transaction
from hermes.turn import Platform

log = structlog.get_logger()

Events = list[tuple[str, Mapping[str, Any]]]


def a_little_more(wait_s: float) -> float:
    """Jitter, upwards only: after an outage everybody comes back at once, and nobody may come before the time that a platform stated."""
    return wait_s * random.uniform(1.0, 1.25)  # noqa: S311  # no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The Sender of every platform that has channels. One for each process: it knows how fast this one writes."""

    channels: Channels
    post: Post
    breakers: Breakers
    books: Books
    alerts: Alerts
    meter: SendMeter
    clock: Clock
    timeout_s: float = 10.0
    """How long one try may take."""
    longest_s: float = LONGEST_CALL_S
    """How long all tries of one call may take."""
    queue_s: Sequence[float] = QUEUE_S
    """How long a parcel waits in the queue, after its first, second, … failure."""
    receipt_s: float = RECEIPT_S
    """How long a receipt may take for what was in doubt twice, before that is given up."""
    templates: Mapping[Platform, Template] = field(default_factory=dict)
    """What is sent where the window for free text is closed; nothing for a platform without one."""
    pacer: Pacer = field(default_factory=Pacer)
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    timer: Callable[[], float] = time.monotonic
    jitter: Callable[[float], float] = a_little_more

    def render(self, platform: Platform, account: str, text: str) -> Sequence[Body]:
        """The Sender's. A text that nothing is left of once it is rendered is sent as it is."""
        channel = self.channels.get(platform, account)
        if channel is None:
            return [text]
        return channel.render(text) or ([{"text": text}] if text.strip() else [])

    async def send(self, parcel: Parcel) -> Sending:
        """The Sender's."""
        line = Line(parcel.platform, parcel.account)
        channel = self.channels.get(parcel.platform, parcel.account)
        if channel is None:
            self.alerts.alert("channel_missing", platform=str(line.platform), account=line.account)
            return self._not_set_up(parcel)
        ended = without_sending(parcel)
        if ended is not None:
            return ended
        body = self._body(parcel, channel)
        if isinstance(body, Sending):
            return body
        return await Round(self, line, channel, parcel).run(body)

    async def note(self, tx: Transaction, parcel: Parcel, sending: Sending, became: ParcelState) -> None:
        """The Sender's."""
        await self.books.note(tx, parcel, sending, became)

    def _not_set_up(self, parcel: Parcel) -> Sending:
        """The account may only be missing in this process, or until somebody looks; so it has its tries."""
        ended = Verdict(outcome=Outcome.UNAUTHORIZED, detail="no channel is set up for this account")
        if parcel.failures < len(self.queue_s):
            return put_back(ended, self.queue_s[parcel.failures], is_failure=True)
        return end(ParcelState.DEAD, ended)

    def _body(self, parcel: Parcel, channel: Channel) -> Mapping[str, Any] | Sending:
        """What is sent now; or how it ended, where nothing can be."""
        body = parcel.body
        if isinstance(body, str):  # it was promised where the account was not set up
            rendered = channel.render(body)
            if len(rendered) != 1:
                return end(ParcelState.DEAD, Verdict(outcome=Outcome.REJECTED, detail=f"it takes {len(rendered)} messages, not one"))
            body = rendered[0]
        if is_open(parcel.platform, parcel.last_inbound_at, self.clock.now()):
            return body
        closed = Verdict(outcome=Outcome.WINDOW_CLOSED, detail="nobody wrote for a day")
        return self.as_template(parcel, channel, body) or end(ParcelState.DEAD, closed)

    def as_template(self, parcel: Parcel, channel: Channel, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What may be sent after the window has closed; None where there is no template, or no text to fill into it."""
        template, text = self.templates.get(parcel.platform), str(body.get("text", ""))
        if template is None or not text or not isinstance(channel, Templated):
            return None
        return channel.template(template.name, template.language, text)


@dataclass(slots=True)
class Round:
    """One call of `send`: up to four tries, and where they are."""

    dispatch: Dispatch
    line: Line
    channel: Channel
    parcel: Parcel
    events: Events = field(default_factory=list)

    async def run(self, body: Mapping[str, Any]) -> Sending:
        dispatch, parcel = self.dispatch, self.parcel
        began = dispatch.timer()
        to = To(channel_id=parcel.channel_id, thread=parcel.thread, reply_to=parcel.reply_to, reference=parcel.reference)
        limits = {"timeout_s": dispatch.timeout_s, "longest_s": dispatch.longest_s}
        receipt_s = dispatch.receipt_s if self.channel.has_receipts else 0.0
        template = dispatch.as_template(parcel, self.channel, body)
        tried = Tried(in_call=0, failures=parcel.failures, doubts=parcel.doubts, has_template=template is not None)
        while True:
            admission = await self._admission(to)
            if isinstance(admission, Sending):
                return self._told(admission, to)
            verdict = await self._try(body, to)
            await self._tell(verdict, admission)
            tried = replace(tried, in_call=tried.in_call + 1, spent_s=dispatch.timer() - began)
            following = what_next(verdict, tried, **limits, queue_s=dispatch.queue_s, receipt_s=receipt_s)
            match following.then:
                case Then.AGAIN:
                    await dispatch.pause(dispatch.jitter(following.wait_s))
                case Then.AS_PLAIN_TEXT:
                    body, tried = self.channel.plain(body), replace(tried, is_plain=True)
                case Then.AS_TEMPLATE:
                    body, tried = template or body, replace(tried, has_template=False)
                case Then.ELSEWHERE:
                    to, tried = replace(to, channel_id=verdict.moved_to or to.channel_id), replace(tried, has_moved=True)
                case _:
                    return self._told(settled(verdict, following), to)

    async def _admission(self, to: To) -> Admission | Sending:
        """Wait for this chat's turn, and ask the breaker; or say that it takes too long. Neither uses up a try."""
        dispatch = self.dispatch
        wait_s = dispatch.pacer.turn(self.line, to.channel_id, dispatch.timer(), longest_s=LONGEST_WAIT_S)
        if wait_s > LONGEST_WAIT_S:
            # No outcome: nothing was tried, so it does not count among those that failed.
            return Sending(state=ParcelState.PENDING, reason="this chat is written to too fast", retry_in_s=wait_s)
        if wait_s:
            await dispatch.pause(wait_s)
        admission = await dispatch.breakers.admit(self.line)
        if admission.wait_s is None:
            return admission
        dispatch.meter.show_breaker(str(self.line.platform), self.line.account, admission.wait_s)
        waiting = Verdict(outcome=Outcome.SERVICE_UNAVAILABLE, detail="the breaker is open")
        return put_back(waiting, dispatch.jitter(admission.wait_s))

    async def _try(self, body: Mapping[str, Any], to: To) -> Verdict:
        dispatch = self.dispatch
        try:
            reply = await dispatch.post.send(self.channel.encode(body, to), timeout_s=dispatch.timeout_s)
        except NotSent as error:
            verdict = Verdict(outcome=Outcome.NETWORK_TIMEOUT, detail=str(error))
        except MaybeSent as error:
            verdict = Verdict(outcome=Outcome.AMBIGUOUS, detail=str(error))
        else:
            verdict = self.channel.classify(reply)
        dispatch.meter.count_send(str(self.line.platform), str(verdict.outcome))
        return verdict

    async def _tell(self, verdict: Verdict, admission: Admission) -> None:
        """Tell the breaker how a try ended, and people what the breaker does."""
        breakers, line = self.dispatch.breakers, self.line
        if verdict.outcome is Outcome.SENT:
            changed = await breakers.succeeded(line)
        elif verdict.outcome is Outcome.UNAUTHORIZED:
            changed = await breakers.stop(line)
        elif RULES[verdict.outcome].counts:
            changed = await breakers.failed(line, admission)
        else:
            await breakers.gave_no_sign(line, admission)
            changed = None
        if changed is not None:
            self._announce(changed, verdict)

    def _announce(self, changed: Changed, verdict: Verdict) -> None:
        dispatch, where = self.dispatch, {"platform": str(self.line.platform), "account": self.line.account}
        dispatch.meter.show_breaker(where["platform"], where["account"], changed.wait_s)
        if changed.change is Change.CLOSED:
            log.info("breaker_closed", **where)
            return
        resets_at = dispatch.clock.now() + timedelta(seconds=changed.wait_s)
        facts = {**where, "failures": changed.failures, "retries_in_s": round(changed.wait_s), "resets_at": resets_at.isoformat()}
        if changed.change is Change.STAYED_OPEN:
            log.warning("breaker_stayed_open", **facts)
            return
        event = "channel_unauthorized" if verdict.outcome is Outcome.UNAUTHORIZED else "breaker_opened"
        dispatch.alerts.alert(event, **facts)
        self.events.append((event, facts))

    def _told(self, sending: Sending, to: To) -> Sending:
        moved_to = to.channel_id if to.channel_id != self.parcel.channel_id else None
        return replace(sending, moved_to=moved_to, events=tuple(self.events))


def without_sending(parcel: Parcel) -> Sending | None:
    """How a parcel ends that need not, or must not, be sent; None for all others."""
    if parcel.confirmed_by is not None:
        arrived = Verdict(outcome=Outcome.SENT, message_id=parcel.confirmed_by, detail="a receipt told that it arrived")
        return end(ParcelState.SENT, arrived)
    if parcel.doubts > MOST_DOUBTS:
        detail = f"{parcel.doubts} tries may have arrived, and no receipt told of any"
        return end(ParcelState.DEAD, Verdict(outcome=Outcome.AMBIGUOUS, detail=detail))
    if not parcel.is_reachable:
        left = Verdict(outcome=Outcome.INVALID_RECIPIENT, detail="they left, and have not written since")
        return end(ParcelState.DEAD, left)
    return None


def settled(verdict: Verdict, following: Next) -> Sending:
    """What the last try of a round comes to."""
    is_doubtful = verdict.outcome is Outcome.AMBIGUOUS
    if following.then is Then.LATER:
        return put_back(verdict, following.wait_s, is_failure=not is_doubtful, is_doubtful=is_doubtful)
    ends = {Then.DONE: ParcelState.SENT, Then.GIVE_UP: ParcelState.DEAD}
    return replace(end(ends[following.then], verdict), is_doubtful=is_doubtful)


def put_back(verdict: Verdict, retry_in_s: float, *, is_failure: bool = False, is_doubtful: bool = False) -> Sending:
    return Sending(
        state=ParcelState.PENDING,
        outcome=verdict.outcome,
        reason=verdict.detail,
        retry_in_s=retry_in_s,
        is_failure=is_failure,
        is_doubtful=is_doubtful,
    )


def end(state: ParcelState, verdict: Verdict) -> Sending:
    return Sending(state=state, outcome=verdict.outcome, reason=verdict.detail, message_id=verdict.message_id)
