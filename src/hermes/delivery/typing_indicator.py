"""Show `typing…` on the user's phone while their answer is made.

    0.7 s without an answer  →  shown  →  again, before the platform hides it  →  … until the block ends

It is only a courtesy: it never raises, delays no answer, counts as no failure of its account, and takes only a small share of the
platform's rate limit, so that the answers keep the rest. If the platform refuses it, or the connection fails, it ends for this turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from hermes.ports.channels import Channel, Channels, Destination, MaybeSent, NotSent, PlatformClient, SendOutcome, SendResult
from hermes.ports.outbox import ChannelName
from hermes.tasks import stop_if_cancelled
from hermes.turn import Envelope, Platform

log = structlog.get_logger()

FIRST_WAIT_S = 0.7
"""Many answers are ready by then, and the user has not begun to wonder."""
TIMEOUT_S = 3.0
MAX_CALLS = 8
"""Requests under way in this process. If a platform hangs, typing requests must not hold all of its connections."""
MAX_KNOWN_CHATS = 10_000


@dataclass(frozen=True, slots=True)
class TypingRhythm:
    """How often `typing…` is shown."""

    every_s: float
    """Within a turn: a little less than the platform shows it, or as long as the platform's limits ask for."""
    apart_s: float
    """In one chat, over all of its turns: never sooner than this."""
    account_apart_s: float
    """In one account, over all of its chats: a quarter, or less, of the platform's rate limit."""


RHYTHMS: Mapping[Platform, TypingRhythm] = {
    Platform.TELEGRAM: TypingRhythm(4.0, 1.0, 1 / 7),  # shown for 5 s; limit 30 calls a second
    Platform.WHATSAPP: TypingRhythm(25.0, 6.0, 1 / 20),  # shown for 25 s; limit one message in 6 s to one person, 80 a second
    Platform.INSTAGRAM: TypingRhythm(15.0, 1.0, 1 / 75),  # shown for 20 s; limit 300 a second
}
TELEGRAM_GROUP_RHYTHM = TypingRhythm(15.0, 15.0, 1 / 7)
"""Telegram's limit in a group is twenty calls a minute for everything, so it is shown only now and then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypingIndicator:
    """Shows `typing…` on every platform that has it. One for each process: it knows how often this process has shown it."""

    channels: Channels
    post: PlatformClient
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    timer: Callable[[], float] = time.monotonic
    rests: dict[tuple[ChannelName, str], float] = field(default_factory=dict)
    """Until when no request is sent for each chat, and for each account under the empty chat id."""
    showing: set[asyncio.Task[None]] = field(default_factory=set)
    calling: set[object] = field(default_factory=set)

    @asynccontextmanager
    async def show_during(self, envelope: Envelope) -> AsyncIterator[None]:
        """Show it to the sender of this message as long as the block lasts. The end of the block waits for nothing."""
        channel = self.channels.get(envelope.event.platform, envelope.account)
        rhythm = rhythm_of(envelope)
        if channel is None or rhythm is None:
            yield
            return
        task = asyncio.create_task(self._show(channel, rhythm, envelope), name="typing")
        self.showing.add(task)
        task.add_done_callback(self._ended)
        try:
            yield
        finally:
            task.cancel()

    async def _show(self, channel: Channel, rhythm: TypingRhythm, envelope: Envelope) -> None:
        channel_name = ChannelName(channel.platform, channel.account)
        to = Destination(channel_id=envelope.channel_id, thread=envelope.thread)
        wait_s = FIRST_WAIT_S
        while True:
            await self.pause(wait_s)
            wait_s = rhythm.every_s
            if not self._may_show(channel_name, to.channel_id, rhythm):
                continue
            send_result = await self._call(channel, to, envelope.message_id or None)
            stop_if_cancelled()
            if send_result is None:
                return
            if send_result.outcome is not SendOutcome.SENT:
                log.info(
                    "typing_stopped", platform=str(channel_name.platform), account=channel_name.account, outcome=str(send_result.outcome)
                )
                self.rests[channel_name, to.channel_id] = self.timer() + (send_result.retry_after_s or 0.0)
                return

    def _may_show(self, channel_name: ChannelName, channel_id: str, rhythm: TypingRhythm) -> bool:
        """Whether a request may be sent now. If so, it is counted at once."""
        now = self.timer()
        if len(self.calling) >= MAX_CALLS or any(self.rests.get((channel_name, name), now) > now for name in (channel_id, "")):
            return False
        if len(self.rests) > MAX_KNOWN_CHATS:
            for key in [key for key, until in self.rests.items() if until <= now]:
                del self.rests[key]
        self.rests[channel_name, channel_id], self.rests[channel_name, ""] = now + rhythm.apart_s, now + rhythm.account_apart_s
        return True

    async def _call(self, channel: Channel, to: Destination, message_id: str | None) -> SendResult | None:
        """Show it once; None if the channel cannot show it here."""
        call, mark = channel.typing(to, message_id=message_id), object()
        if call is None:
            return None
        self.calling.add(mark)
        try:
            return channel.classify(await self.post.send(call, timeout_s=TIMEOUT_S))
        except (NotSent, MaybeSent) as error:
            return SendResult(outcome=SendOutcome.NETWORK_TIMEOUT, detail=str(error))
        finally:
            self.calling.discard(mark)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.showing.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("typing_failed", exc_info=error)


def rhythm_of(envelope: Envelope) -> TypingRhythm | None:
    """Return how often it is shown there; None for platforms that cannot show it."""
    platform = envelope.event.platform
    return TELEGRAM_GROUP_RHYTHM if platform is Platform.TELEGRAM and envelope.channel_id.startswith("-") else RHYTHMS.get(platform)
