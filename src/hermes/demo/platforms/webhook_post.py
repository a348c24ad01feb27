"""Post one webhook once. Each platform decides by itself what follows from the response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAttempt:
    """One attempt to deliver a webhook, and the receiver's response."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    status: int | None
    """None: the receiver did not answer."""
    answer: bytes = b""
    retry_after_s: int = 0
    error: str = ""
    at: float = 0.0
    """In the platform's seconds."""

    @property
    def is_accepted(self) -> bool:
        return self.status is not None and 200 <= self.status <= 299


@dataclass(frozen=True, slots=True)
class Disorder:
    """How disordered webhooks arrive. The seed decides every case, so a run can be repeated."""

    duplicates: float = 0.0
    """The share of events that arrive twice, as if the receiver's 200 had been lost."""
    held_back: float = 0.0
    """The share of events that arrive late, so that later ones overtake them. Telegram keeps the order of a chat whatever this says."""
    held_back_s: float = 5.0
    """The longest delay of such an event, in the platform's seconds."""
    batch_s: float = 0.0
    """Gather events for so many seconds, and post them as one payload, spread over all of its levels. Telegram never does."""
    early_echoes: float = 0.0
    """The share of Instagram's echoes that arrive before the call that sends the message returns."""


async def post_webhook(
    client: aiohttp.ClientSession, url: str, body: bytes, headers: Mapping[str, str], *, patience_s: float, at: float
) -> WebhookAttempt:
    """Post a webhook. Follows no redirect; waits at most `patience_s` real seconds for the response."""
    sent = {"Content-Type": "application/json", **headers}
    status, answer, retry_after, error = None, b"", 0, ""
    try:
        async with asyncio.timeout(patience_s), client.post(url, data=body, headers=sent, allow_redirects=False) as response:
            status, answer = response.status, await response.read()
            stated = response.headers.get("Retry-After", "")
            retry_after = int(stated) if stated.isdecimal() else 0
    except TimeoutError:
        status, error = None, "no answer in time"
    except (aiohttp.ClientError, OSError, ValueError) as failure:
        status, error = None, f"{type(failure).__name__}: {failure}"
    return WebhookAttempt(url=url, body=body, headers=sent, status=status, answer=answer, retry_after_s=retry_after, error=error, at=at)
