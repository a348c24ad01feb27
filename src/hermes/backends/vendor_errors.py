"""Which error an answer is: one table for all vendors, from status, headers and what the vendor says about it.

The vendor's words are quoted in one short line, without the keys that were sent. Knows no connection."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from hermes.ports.backends import (
    BackendError,
    BadRequest,
    ContextTooLong,
    Garbled,
    Overloaded,
    RateLimited,
    Unauthorized,
    Unsupported,
)

MAX_QUOTE_CHARS = 200

CONTEXT_TOO_LONG = re.compile(
    r"context[ _]?(length|window|size|limit)|prompt is too long|input is too long|too many (input )?tokens"
    r"|maximum (context|number of tokens|sequence)|exceeds? the (model's )?max(imum)? (model )?len|exceed_context_size|reduce the length",
    re.IGNORECASE,
)
NO_SUCH_MODEL = re.compile(
    r"model_not_found|not a valid model|model\b.{0,200}\b(not found|does not exist|not exist)|unknown model", re.IGNORECASE
)
NOT_PAID = re.compile(r"credit balance|billing_?(error|hard)|payment required|spend(ing)? limit|usage limits", re.IGNORECASE)
QUOTA_USED_UP = re.compile(r"enforced_spend_limit_reached|insufficient_quota|billing_hard_limit_reached", re.IGNORECASE)
NOT_SUPPORTED = re.compile(r"does not support|not supported (by|with|for) (this|the) model|unsupported_(parameter|value)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class VendorErrorDetails:
    """What a vendor says about a request that it did not answer."""

    message: str = ""
    codes: str = ""
    """Its type and code, if it has them, in one text."""


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """Whose request it was, and what must not be quoted from the answer."""

    backend: str
    model: str
    secrets: Sequence[str] = ()


def classify_error(status: int, headers: Mapping[str, str], complaint: VendorErrorDetails, caller: FailedRequest) -> BackendError:
    """The error that a status, its headers and the vendor's words amount to."""
    text = quote_error(complaint, status, caller.secrets)
    whose: dict[str, Any] = {"backend": caller.backend, "model": caller.model, "status": status}
    said = f"{complaint.codes} {complaint.message}"
    if status == 429:
        is_exhausted = QUOTA_USED_UP.search(said) is not None
        wait_s = None if is_exhausted else retry_after_s(headers)
        return RateLimited(text, **whose, retry_after_s=wait_s, is_exhausted=is_exhausted)
    if status in (401, 402, 403, 404):
        return Unauthorized(text, **whose)
    if status in (408, 409) or status >= 500:
        return Overloaded(text, **whose)
    if 400 <= status < 500:
        return classify_bad_request(said)(text, **whose)
    return Garbled(f"{text}; is the address right?" if 300 <= status < 400 else text, **whose)


def classify_bad_request(said: str) -> type[BackendError]:
    """What a 400 means. Most are wrong everywhere; four kinds are only wrong here, and only the words tell them apart."""
    if CONTEXT_TOO_LONG.search(said):
        return ContextTooLong
    if NO_SUCH_MODEL.search(said) or NOT_PAID.search(said):
        return Unauthorized
    return Unsupported if NOT_SUPPORTED.search(said) else BadRequest


def quote_error(complaint: VendorErrorDetails, status: int, secrets: Sequence[str]) -> str:
    """The vendor's words in one short line, without the keys."""
    text = " ".join(complaint.message.split())
    for secret in secrets:
        text = text.replace(secret, "***")
    short = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"
    return f"HTTP {status}: {short}" if short else f"HTTP {status}"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the vendor asks to wait, in milliseconds, seconds or as a date. A date counts from the answer's own: no clock is read."""
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _parse_number(value)
    if seconds is not None or not value:
        return seconds
    try:
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])).total_seconds())
    except (KeyError, TypeError, ValueError):
        return None


def _parse_number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
