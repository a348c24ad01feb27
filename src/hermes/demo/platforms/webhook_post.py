"""One webhook, posted once. What follows from the answer is each platform's own affair."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAttempt:
    """One try to deliver a webhook, and what the receiver said to it."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    status: int | None
    """None: there was no answer."""
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
    """How untidy webhooks come. All of it is drawn from the seed, so a run can be repeated."""

    duplicates: float = 0.0
    """The share of events that come twice, as if the receiver's 200 had been lost."""
    held_back: float = 0.0
    """The share of events that are held back, so that later ones overtake them. Telegram keeps the order of a chat whatever this says."""
    held_back_s: float = 5.0
    """How long at most, in the platform's seconds."""
    batch_s: float = 0.0
    """Gather events for so long, and post them together over all levels of the payload. Telegram never does."""
    early_echoes: float = 0.0
    """The share of Instagram's echoes that come before the call that sends the message returns."""


async def post_webhook(
    client: aiohttp.ClientSession, url: str, body: bytes, headers: Mapping[str, str], *, patience_s: float, at: float
) -> WebhookAttempt:
    """Post it. Redirects are not followed; no answer within `patience_s` real seconds is none."""
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
