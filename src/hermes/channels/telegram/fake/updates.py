"""The updates that the bot has not received yet, and their delivery.

By webhook: one queue for each chat (and one for each user's button presses). Telegram posts the next update of a queue only after the
receiver has answered the one before with 2xx, so a stuck receiver blocks that chat and no other. Telegram retries a failed update at once,
then after 2, 4, 8 … seconds, at most a random 60 to 120; it honours the receiver's `Retry-After`. It gives up when the message is a day
old, a button press after 150 s. A receiver that answers 410 for 23 h loses the webhook.

By long polling: `getUpdates`, one caller at a time, and not beside a webhook."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.tasks import end_tasks
from hermes.testing.platforms.faults import PlatformRefusal
from hermes.testing.platforms.platform import FakePlatform
from hermes.testing.platforms.world import unix_seconds

DAY_S = 86_400.0
PRESS_LIFETIME_S = 150.0
MAX_GONE_S = 23 * 3_600.0
WEEK_S = 7 * DAY_S
MAX_DELAY_S = 60
MAX_RETRY_AFTER_S = 3_600
OPT_IN_KINDS = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
"""Kinds that Telegram sends only to a bot that asks for them by name."""


@dataclass(frozen=True, slots=True)
class TelegramWebhook:
    """Where updates are posted."""

    url: str
    secret: str | None = None
    max_connections: int = 40
    allowed: Sequence[str] | None = None
    """The kinds that the bot asked for; None: all kinds but OPT_IN_KINDS."""
    ip_address: str | None = None


@dataclass(slots=True)
class PendingUpdate:
    """An update that the bot has not received yet."""

    update: Mapping[str, Any]
    queue: str
    place: int
    """Its number in its queue, from 0; its random draws depend on it."""
    expires_at: float
    fails: int = 0
    delay_s: int = 1

    @property
    def id(self) -> int:
        number: int = self.update["update_id"]
        return number


@dataclass(slots=True)
class UpdateQueue:
    """The updates of one chat, and the task that posts them."""

    waiting: deque[int] = field(default_factory=deque)
    update_count: int = 0
    poster: asyncio.Task[None] | None = None


class BotUpdates:
    """All updates on their way to the bot."""

    def __init__(self, platform: FakePlatform, run_answer: Callable[[Mapping[str, Any]], Coroutine[Any, Any, None]]) -> None:
        """`run_answer` runs the call in the body of the receiver's 2xx."""
        self._platform, self._run_answer = platform, run_answer
        self.webhook: TelegramWebhook | None = None
        self.allowed: Sequence[str] | None = None
        self.pending: dict[int, PendingUpdate] = {}
        self.last_error: tuple[int, str] | None = None
        self._queues: dict[str, UpdateQueue] = {}
        self._slots = asyncio.Semaphore(40)
        # Over 32 bits from the start: a bot that stores these in a small integer fails here.
        self._next_id = 5_000_000_000 + int(platform.world.random.digits(6, "update"))
        self._update_count = 0
        self._last_update_at: float | None = None
        self._gone_since: float | None = None
        self._poll: asyncio.Future[None] | None = None

    # --- in

    def add(self, kind: str, content: Mapping[str, Any], queue: str) -> None:
        """Add an update of a chat. Dropped if the bot did not ask for its kind."""
        if not (kind in self.allowed if self.allowed else kind not in OPT_IN_KINDS):
            return
        now = self._platform.world.clock.now()
        if self._last_update_at is not None and now - self._last_update_at > WEEK_S:
            self._next_id = 4_000_000_000 + int(self._platform.world.random.digits(9, "update after a week", self._update_count))
        self._update_count, self._last_update_at = self._update_count + 1, now
        lane = self._queues.setdefault(queue, UpdateQueue())
        life_s = PRESS_LIFETIME_S if kind == "callback_query" else DAY_S
        pending = PendingUpdate({"update_id": self._next_id, kind: content}, queue, lane.update_count, now + life_s)
        self._next_id += 1
        lane.update_count += 1
        lane.waiting.append(pending.id)
        self.pending[pending.id] = pending
        self._platform.world.changes.notify()
        self._start_posting(queue)

    def is_quiet(self) -> bool:
        return self.webhook is None or not any(lane.poster or lane.waiting for lane in self._queues.values())

    # --- by webhook

    def connect(self, webhook: TelegramWebhook | None) -> None:
        """Post updates to this webhook from now on, also those that wait; None: post no more."""
        for lane in self._queues.values():
            if lane.poster:
                lane.poster.cancel()
                lane.poster = None
        self.webhook, self._gone_since, self.last_error = webhook, None, None
        if webhook:
            self.allowed = webhook.allowed
            self._slots = asyncio.Semaphore(webhook.max_connections)
            if self._poll and not self._poll.done():
                self._poll.set_exception(PlatformRefusal(409, "Conflict: terminated by setWebhook request"))
            for queue in self._queues:
                self._start_posting(queue)
        self._platform.world.changes.notify()

    def drop_all(self) -> None:
        self.pending.clear()
        for lane in self._queues.values():
            lane.waiting.clear()

    def _start_posting(self, queue: str) -> None:
        lane = self._queues[queue]
        if self.webhook and lane.waiting and (lane.poster is None or lane.poster.done()):
            lane.poster = self._platform.start(self._post_all(self.webhook, queue, lane))

    async def _post_all(self, webhook: TelegramWebhook, queue: str, lane: UpdateQueue) -> None:
        while lane.waiting and self.webhook is webhook:
            pending = self.pending[lane.waiting[0]]
            if await self._post(webhook, pending) and pending.id in self.pending:
                self.take(pending.id)
        if self._queues.get(queue) is lane:
            lane.poster = None

    async def _post(self, webhook: TelegramWebhook, pending: PendingUpdate) -> bool:
        """Post one update once; after a failure, wait as long as Telegram would before the next attempt. Returns whether the update is
        delivered or given up."""
        clock = self._platform.world.clock
        body = json.dumps(pending.update).encode()
        headers = {"Accept-Encoding": "gzip, deflate"}
        if webhook.secret:
            headers["X-Telegram-Bot-Api-Secret-Token"] = webhook.secret
        async with self._slots:
            done = await self._platform.attempt(webhook.url, body, headers)
        if done.is_accepted:
            self._gone_since = None
            if self._platform.world.random.happens(self._platform.disorder.duplicates, "again", pending.queue, pending.place):
                await self._platform.attempt(webhook.url, body, headers)
            await self._run_call_in(done.answer)
            return True
        self.last_error = (unix_seconds(), done.error or f"Wrong response from the webhook: {done.status}")
        if self._is_gone(done.status):
            self.connect(None)
            return False
        wait_s = min(done.retry_after_s, MAX_RETRY_AFTER_S)
        if wait_s == 0 and pending.fails > 0:
            fraction = self._platform.world.random.fraction("delay", pending.queue, pending.place, pending.fails)
            pending.delay_s = min(MAX_DELAY_S + int(fraction * (MAX_DELAY_S + 1)), pending.delay_s * 2)
            wait_s = pending.delay_s
        if clock.now() + wait_s > pending.expires_at:
            return True
        pending.fails += 1
        await clock.sleep(wait_s)
        return False

    async def _run_call_in(self, answer: bytes) -> None:
        """Run the call that the body of a 2xx may hold. The receiver gets no result."""
        try:
            call = json.loads(answer)
        except ValueError:
            return
        if isinstance(call, dict) and isinstance(call.get("method"), str):
            await self._run_answer(call)

    def _is_gone(self, status: int | None) -> bool:
        now = self._platform.world.clock.now()
        if status != 410:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        else:
            return now > self._gone_since + MAX_GONE_S
        return False

    # --- by long polling

    async def poll(self, offset: int, limit: int, timeout_s: float, allowed: Sequence[str] | None) -> list[Mapping[str, Any]]:
        """The updates from `offset` on; removes all before it. A negative offset counts from the end."""
        if self.webhook:
            words = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
            raise PlatformRefusal(409, f"Conflict: {words}")
        if allowed is not None:
            self.allowed = allowed or None
        if self._poll and not self._poll.done():
            words = "terminated by other getUpdates request; make sure that only one bot instance is running"
            self._poll.set_exception(PlatformRefusal(409, f"Conflict: {words}"))
        if offset < 0:
            offset = min(list(self.pending)[offset:], default=0)
        for number in [number for number in self.pending if number < offset]:
            self.take(number)
        ended = self._poll = asyncio.get_running_loop().create_future()
        try:
            if not self._due() and timeout_s > 0:
                await self._wait(ended, timeout_s)
        except asyncio.CancelledError:
            ended.cancel()
            raise
        if ended.done():
            ended.result()
        else:
            ended.set_result(None)
        return [self.pending[number].update for number in self._due()[:limit]]

    def _due(self) -> list[int]:
        now = self._platform.world.clock.now()
        for number in [number for number, pending in self.pending.items() if pending.expires_at < now]:
            self.take(number)
        return sorted(self.pending)

    def take(self, number: int) -> None:
        """Remove an update that is delivered or given up."""
        pending = self.pending.pop(number)
        self._queues[pending.queue].waiting.remove(number)

    async def _wait(self, ended: asyncio.Future[None], timeout_s: float) -> None:
        world = self._platform.world
        arrival = asyncio.ensure_future(world.changes.wait_until(lambda: bool(self.pending), timeout_s / world.clock.speed))
        try:
            await asyncio.wait({arrival, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(arrival)
