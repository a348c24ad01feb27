"""Which error an answer is: one table for all vendors, from the status, the headers and the vendor's text.

The error quotes the vendor's text in one short line, without the keys that were sent. Knows no connection."""

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
    """A vendor's explanation why it did not answer a request."""

    message: str = ""
    codes: str = ""
    """The error's type and code, if it has them, in one text."""


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """The backend and model of a request, and the secrets that an error must not quote."""

    backend: str
    model: str
    secrets: Sequence[str] = ()


def classify_error(status: int, headers: Mapping[str, str], details: VendorErrorDetails, failed: FailedRequest) -> BackendError:
    """Choose the error by the status, its headers and the vendor's text."""
    quote = quote_error(details, status, failed.secrets)
    fields: dict[str, Any] = {"backend": failed.backend, "model": failed.model, "status": status}
    text = f"{details.codes} {details.message}"
    if status == 429:
        is_exhausted = QUOTA_USED_UP.search(text) is not None
        wait_s = None if is_exhausted else retry_after_s(headers)
        return RateLimited(quote, **fields, retry_after_s=wait_s, is_exhausted=is_exhausted)
    if status in (401, 402, 403, 404):
        return Unauthorized(quote, **fields)
    if status in (408, 409) or status >= 500:
        return Overloaded(quote, **fields)
    if 400 <= status < 500:
        return classify_bad_request(text)(quote, **fields)
    return Garbled(f"{quote}; is the address right?" if 300 <= status < 400 else quote, **fields)


def classify_bad_request(text: str) -> type[BackendError]:
    """What a 400 means. Most such requests are wrong for every vendor; four kinds are wrong for this one only. The text tells which."""
    if CONTEXT_TOO_LONG.search(text):
        return ContextTooLong
    if NO_SUCH_MODEL.search(text) or NOT_PAID.search(text):
        return Unauthorized
    return Unsupported if NOT_SUPPORTED.search(text) else BadRequest


def quote_error(details: VendorErrorDetails, status: int, secrets: Sequence[str]) -> str:
    """The vendor's text in one short line, without the keys."""
    text = " ".join(details.message.split())
    for secret in secrets:
        text = text.replace(secret, "***")
    short = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"
    return f"HTTP {status}: {short}" if short else f"HTTP {status}"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the vendor asks to wait. It says so in milliseconds, in seconds, or as a date, which counts from the answer's own date: no
    clock is read."""
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
