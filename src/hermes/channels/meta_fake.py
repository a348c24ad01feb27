"""What the fakes of WhatsApp and Instagram have in common, because both are Meta's: the shape of errors, and webhooks.

Meta's webhooks are signed over their raw bytes, retried for more than a day, and without a guaranteed order.

Without any disorder, Meta posts the events of one conversation one after the other, each as a webhook of its own. Unlike Telegram's, a
failed webhook blocks no other: Meta retries it at once, then after 1, 2, 4 … minutes up to an hour, until it gives up. Later webhooks
overtake it.

An app has one callback URL for all of its accounts: one webhook may hold events of several accounts, with an entry for each."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import aiohttp

from hermes.testing.platforms.exchanges import WebhookAttempt
from hermes.testing.platforms.faults import PlatformRefusal, VerificationFailed
from hermes.testing.platforms.platform import FakePlatform
from hermes.testing.platforms.world import SeededRandom


class FakeMetaError(NamedTuple):
    """The error that Meta sends for a code. The code says what happened, the HTTP status says much less."""

    status: int
    title: str
    details: str = ""


def error_body(refusal: PlatformRefusal, kind: str, random: SeededRandom, number: int, **further: Any) -> dict[str, Any]:
    """A refusal in the shape of the Graph API; `number` is the call's number, for its trace id."""
    error: dict[str, Any] = {"message": refusal.message, "type": kind, "code": refusal.code if refusal.code is not None else 1}
    if refusal.subcode is not None:
        error["error_subcode"] = refusal.subcode
    return {"error": {**error, **further, **refusal.parameters, "fbtrace_id": f"A{random.letters(22, 'trace', number)}"}}


FIRST_DELAY_S = 60.0
MAX_DELAY_S = 3_600.0


@dataclass(frozen=True, slots=True)
class WebhookReceiver:
    """The receiver of the webhooks, and what proves to it that they are authentic."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent as they are: the only proof that 360dialog offers."""
    app_secret: str | None = None
    """The secret that signs the bodies; None: bodies are not signed."""

    def headers_for(self, body: bytes) -> dict[str, str]:
        if self.app_secret is None:
            return dict(self.headers)
        signed = hmac.new(self.app_secret.encode(), body, hashlib.sha256).hexdigest()
        return {"User-Agent": "facebookexternalua", **self.headers, "X-Hub-Signature-256": f"sha256={signed}"}


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """One event on its way to the receiver."""

    lane: str
    """The conversation of the event."""
    place: int
    """Its number in the conversation, from 0; its random draws depend on it."""
    part: Any
    compose: ComposePayload
    """Makes one payload of several events of the same account."""


ComposePayload = Callable[[Sequence[WebhookEvent]], Mapping[str, Any]]


class WebhookQueue:
    """The events of one account on their way to the receiver. The accounts of one app share a receiver."""

    def __init__(self, platform: FakePlatform, compose: ComposePayload, give_up_after_s: float, app: WebhookQueue | None = None) -> None:
        """`compose` makes one payload of several events. `app` is the queue of the app's first account; None: this is the first."""
        self._platform, self._compose, self._give_up_after_s, self._app = platform, compose, give_up_after_s, app
        self._receiver: WebhookReceiver | None = None
        self.missed = 0
        """Events without a receiver: Meta keeps nothing for a receiver that connects later."""
        self._event_count: dict[str, int] = defaultdict(int)
        self._lanes: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._gathered: list[WebhookEvent] = []
        self._under_way = 0

    @property
    def receiver(self) -> WebhookReceiver | None:
        """The receiver of the webhooks of all accounts of this app."""
        return self._receiver if self._app is None else self._app.receiver

    @receiver.setter
    def receiver(self, receiver: WebhookReceiver | None) -> None:
        if self._app is None:
            self._receiver = receiver
        else:
            self._app.receiver = receiver

    def add(self, lane: str, part: Any) -> asyncio.Task[None] | None:
        """Add an event. The task ends when it was posted for the first time; None without a receiver."""
        event = WebhookEvent(lane, self._event_count[lane], part, self._compose)
        self._event_count[lane] += 1
        return (self._app or self).take(event)

    def take(self, event: WebhookEvent) -> asyncio.Task[None] | None:
        """Start to bring an event of any account of this app to the receiver."""
        if self.receiver is None:
            self.missed += 1
            return None
        self._under_way += 1
        return self._platform.start(self._post_with_disorder(event, self.receiver))

    async def post(self, payload: Mapping[str, Any]) -> WebhookAttempt | None:
        """Post any payload once, as Meta would; None without a receiver."""
        if self.receiver is None:
            return None
        body = encode_payload(payload)
        return await self._platform.attempt(self.receiver.url, body, self.receiver.headers_for(body))

    def is_quiet(self) -> bool:
        return self._under_way == 0 and (self._app is None or self._app.is_quiet())

    async def _post_with_disorder(self, event: WebhookEvent, receiver: WebhookReceiver) -> None:
        """Delay an event, gather it with others, or post it at once, as the disorder demands."""
        random, disorder, clock = self._platform.world.random, self._platform.disorder, self._platform.world.clock
        try:
            if random.happens(disorder.held_back, "held back", event.lane, event.place):
                await clock.sleep(disorder.held_back_s * (0.2 + 0.8 * random.fraction("how long", event.lane, event.place)))
            if disorder.batch_s > 0:
                self._gathered.append(event)
                if len(self._gathered) > 1:
                    return
                await clock.sleep(disorder.batch_s)
                events, self._gathered = self._gathered, []
            else:
                events = [event]
            again = [event for event in events if random.happens(disorder.duplicates, "again", event.lane, event.place)]
            together = [event for event in again if len(events) > 1 and random.happens(0.5, "together", event.lane, event.place)]
            await self._deliver([*events, *together], receiver)
            if later := [event for event in again if event not in together]:
                await self._deliver(later, receiver)
        finally:
            self._under_way -= 1

    async def _deliver(self, events: Sequence[WebhookEvent], receiver: WebhookReceiver) -> None:
        """Post several events together, and retry them if the receiver fails."""
        body = encode_payload(compose_payload(events))
        headers = receiver.headers_for(body)
        lane = events[0].lane if len(events) == 1 else ""
        async with self._lanes[lane]:
            done = await self._platform.attempt(receiver.url, body, headers)
        if done.status != 200:
            self._under_way += 1
            self._platform.start(self._retry(receiver.url, body, headers))

    async def _retry(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        clock = self._platform.world.clock
        until, delay_s = clock.now() + self._give_up_after_s, 0.0
        try:
            while clock.now() + delay_s < until:
                await clock.sleep(delay_s)
                if (await self._platform.attempt(url, body, headers)).status == 200:
                    return
                delay_s = min(max(delay_s * 2, FIRST_DELAY_S), MAX_DELAY_S)
        finally:
            self._under_way -= 1


def compose_payload(events: Sequence[WebhookEvent]) -> Mapping[str, Any]:
    """Several events as one payload, in their order; each account has its own entries."""
    payloads = [compose(list(run)) for compose, run in groupby(events, key=lambda event: event.compose)]
    return {**payloads[0], "entry": [entry for payload in payloads for entry in payload["entry"]]}


def encode_payload(payload: Mapping[str, Any]) -> bytes:
    """A payload as Meta writes it: only ASCII, and every slash escaped. A receiver that parses and encodes it again gets other bytes."""
    return json.dumps(payload, separators=(",", ":")).replace("/", "\\/").encode()


async def verify_receiver(client: aiohttp.ClientSession, url: str, verify_token: str, challenge: str) -> None:
    """Send a challenge to a receiver, as Meta does before it subscribes one. Raises VerificationFailed."""
    query = {"hub.mode": "subscribe", "hub.verify_token": verify_token, "hub.challenge": challenge}
    try:
        async with client.get(url, params=query, allow_redirects=False) as response:
            status, text = response.status, (await response.text()).strip()
    except (aiohttp.ClientError, OSError) as error:
        raise VerificationFailed(f"{url}: {error}") from error
    if (status, text) != (200, challenge):
        raise VerificationFailed(f"{url} answered {status} {text[:80]!r} instead of the challenge")
