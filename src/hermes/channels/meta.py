"""What WhatsApp and Instagram have in common: check a webhook, classify a response. Pure.

    check_signature    X-Hub-Signature-256 over the raw bytes; several secrets may be valid at once
    answer_challenge   proves to Meta that Hermes owns the webhook's URL
    classify           by HTTP 429, `error_subcode`, `error.code`, `is_transient` or HTTP 5xx, the error's text, at last other HTTP statuses

The HTTP status says little: Meta reports rate limits as 400, 403 or 429, and 360dialog its own limits as a 400 with a text. One table holds
the codes of both platforms, because no code means two things."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from hermes.channels.webhook_values import as_int, as_object, as_text, check_secret, header_bytes, objects_in, parse_object
from hermes.ports.channels import (
    PlatformResponse,
    SendOutcome,
    SendResult,
    Webhook,
    WebhookNotAuthentic,
)

GRAPH_API_VERSION = "v23.0"
"""The version of the Graph API that Hermes uses if the settings name none. Meta supports each for about two years."""

# --- is a webhook authentic


def check_signature(webhook: Webhook, app_secrets: Sequence[str]) -> None:
    """Raise WebhookNotAuthentic unless Meta signed exactly these bytes with one of the secrets."""
    signatures = [f"sha256={hmac.new(header_bytes(secret), webhook.body, 'sha256').hexdigest()}" for secret in app_secrets if secret]
    check_secret(webhook.headers.get("x-hub-signature-256"), signatures)


def answer_challenge(query: Mapping[str, str], verify_tokens: Sequence[str]) -> str:
    """The plain text with which to answer Meta's GET: its challenge, if it sent the right token. Raises WebhookNotAuthentic."""
    check_secret(query.get("hub.verify_token"), verify_tokens)
    if query.get("hub.mode") != "subscribe" or not query.get("hub.challenge"):
        raise WebhookNotAuthentic
    return query["hub.challenge"]


# --- classify a response

RATE_LIMITED, SERVICE_UNAVAILABLE, UNAUTHORIZED = SendOutcome.RATE_LIMITED, SendOutcome.SERVICE_UNAVAILABLE, SendOutcome.UNAUTHORIZED
INVALID_RECIPIENT, WINDOW_CLOSED, REJECTED = SendOutcome.INVALID_RECIPIENT, SendOutcome.WINDOW_CLOSED, SendOutcome.REJECTED

OUTCOME_BY_CODE: Mapping[int, SendOutcome] = {
    # the Graph API: both platforms
    -1: SERVICE_UNAVAILABLE,
    0: UNAUTHORIZED,  # the token could not be read
    1: SERVICE_UNAVAILABLE,
    2: SERVICE_UNAVAILABLE,
    3: UNAUTHORIZED,  # no permission for this method
    4: RATE_LIMITED,  # the app
    10: UNAUTHORIZED,  # no permission; with some subcodes the window is closed: see OUTCOME_BY_SUBCODE
    17: RATE_LIMITED,  # the user
    32: RATE_LIMITED,  # the page
    33: UNAUTHORIZED,  # the number was deleted
    100: REJECTED,  # a wrong parameter
    190: UNAUTHORIZED,  # the token is invalid or has expired
    **dict.fromkeys(range(200, 300), UNAUTHORIZED),  # each is a missing permission
    341: RATE_LIMITED,
    368: UNAUTHORIZED,  # blocked for a while, for breaking the rules
    551: INVALID_RECIPIENT,
    613: RATE_LIMITED,
    1200: SERVICE_UNAVAILABLE,
    **dict.fromkeys(range(80000, 80015), RATE_LIMITED),  # each is one business use case: 80002 Instagram, 80007 WhatsApp
    # WhatsApp's limits
    130429: RATE_LIMITED,  # the number's throughput
    131048: RATE_LIMITED,  # users reported too many messages as spam
    131056: RATE_LIMITED,  # too many messages to one user
    133016: RATE_LIMITED,
    # the WhatsApp account
    131005: UNAUTHORIZED,
    131031: UNAUTHORIZED,  # locked
    131037: UNAUTHORIZED,  # the display name is not approved
    131042: UNAUTHORIZED,  # not paid
    131045: UNAUTHORIZED,  # the number is not registered
    133010: UNAUTHORIZED,  # the number is not registered
    # the WhatsApp service
    131000: SERVICE_UNAVAILABLE,
    131016: SERVICE_UNAVAILABLE,
    131057: SERVICE_UNAVAILABLE,  # maintenance
    133004: SERVICE_UNAVAILABLE,
    # the recipient at WhatsApp
    130497: INVALID_RECIPIENT,  # the account may not write to this country
    131021: INVALID_RECIPIENT,  # the account itself
    131026: INVALID_RECIPIENT,  # the recipient has no WhatsApp, or cannot receive this message
    131030: INVALID_RECIPIENT,  # not on the list of a test number
    131047: WINDOW_CLOSED,
    # the WhatsApp message
    130472: REJECTED,  # Meta's experiment in which marketing does not arrive
    131008: REJECTED,
    131009: REJECTED,
    131049: REJECTED,  # Meta allows the user no more marketing messages
    131050: REJECTED,  # the user wants no marketing
    131051: REJECTED,
    131052: REJECTED,
    131053: REJECTED,
    131062: REJECTED,  # not allowed for a user without a number
    **dict.fromkeys(range(132000, 133000), REJECTED),  # the template
    135000: REJECTED,
}
PAIR_LIMIT_CODE, PAIR_WAIT_S = 131056, 6.0
"""WhatsApp allows one message to a user every six seconds. Its response does not say how long to wait."""

OUTSIDE_WINDOW = re.compile(r"outside (of )?(the )?allowed window", re.IGNORECASE)
OUTCOME_BY_WORDS = (
    (re.compile(r"rate limit|too many requests|throttl", re.IGNORECASE), RATE_LIMITED),
    (re.compile(r"payment|overdue|insufficient (funds|balance|credit)|has been disabled|is blocked", re.IGNORECASE), UNAUTHORIZED),
    (re.compile(r"(invalid|missing|wrong) api[ _-]?(key|token)|unauthori[sz]ed", re.IGNORECASE), UNAUTHORIZED),
)
"""Texts of 360dialog's errors that have no code."""


@dataclass(frozen=True, slots=True)
class MetaErrorDetails:
    """The error in a platform's response or webhook."""

    code: int | None = None
    subcode: int | None = None
    is_transient: bool = False
    words: str = ""


MessageIdReader = Callable[[Mapping[str, Any]], str | None]
"""Reads the id of the accepted message from a response: empty if the platform accepted it without an id, None if it did not accept it."""


def classify(
    reply: PlatformResponse, message_id_of: MessageIdReader, subcodes: Mapping[int, SendOutcome], secrets: Sequence[str]
) -> SendResult:
    """What a response means. Never raises, whatever the body is. A 2xx that names neither an error nor a message is AMBIGUOUS."""
    body = parse_object(reply.body)
    error = find_error(body) if body is not None else MetaErrorDetails(words=plain_body(reply.body))
    if 200 <= reply.status < 300 and (body is None or error is None):
        message_id = message_id_of(body) if body is not None else None
        if message_id is None:
            return SendResult(outcome=SendOutcome.AMBIGUOUS, detail=f"HTTP {reply.status}: an answer that does not say whether it was sent")
        return SendResult(outcome=SendOutcome.SENT, message_id=message_id or None)
    error = error or MetaErrorDetails(words=error_text(body or {}))
    outcome = outcome_of(error, reply.status, subcodes, is_json=body is not None)
    waits = outcome in {SendOutcome.RATE_LIMITED, SendOutcome.SERVICE_UNAVAILABLE}
    return SendResult(
        outcome=outcome,
        retry_after_s=wait_s(reply.headers, error) if waits else None,
        detail=describe_error(error, reply.status, secrets),
    )


def outcome_of(error: MetaErrorDetails, status: int, subcodes: Mapping[int, SendOutcome], *, is_json: bool = True) -> SendOutcome:
    """The outcome of an error. `subcodes` are the subcodes that decide at this platform."""
    if status == 429:
        return RATE_LIMITED
    if (known := outcome_by_code(error, subcodes)) is not None:
        return known
    if error.is_transient or status >= 500:
        return SERVICE_UNAVAILABLE
    if error.code is not None:
        return REJECTED
    by_words = (outcome for pattern, outcome in OUTCOME_BY_WORDS if pattern.search(error.words))
    return next(by_words, None) or outcome_by_status(status, is_json=is_json)


def outcome_by_code(error: MetaErrorDetails, subcodes: Mapping[int, SendOutcome]) -> SendOutcome | None:
    """The outcome that the codes alone decide. None for a code that is REJECTED: the error may still be marked as transient."""
    if error.subcode is not None and error.subcode in subcodes:
        return subcodes[error.subcode]
    if error.code in {None, 10} and OUTSIDE_WINDOW.search(error.words):
        return WINDOW_CLOSED
    known = OUTCOME_BY_CODE.get(error.code) if error.code is not None else None
    return None if known is REJECTED else known


def outcome_by_status(status: int, *, is_json: bool) -> SendOutcome:
    """The outcome by HTTP status alone. A body that is not JSON comes from a proxy in between, not from the platform."""
    if status in {401, 402} or (is_json and status in {403, 404}):
        return UNAUTHORIZED
    is_verdict = is_json or status == 413
    return REJECTED if is_verdict and 400 <= status < 500 and status != 408 else SERVICE_UNAVAILABLE


def find_error(body: Mapping[str, Any]) -> MetaErrorDetails | None:
    """The error in a response; None without one. Reads Meta's shape and 360dialog's two own shapes."""
    error, errors, meta = body.get("error"), objects_in(body.get("errors")), as_object(body.get("meta"))
    if isinstance(error, dict) or errors:
        return read_error(error if isinstance(error, dict) else errors[0])
    if isinstance(error, str) and error:
        return MetaErrorDetails(words=error)
    words = as_text(meta.get("developer_message"))
    return MetaErrorDetails(words=words) if words or meta.get("success") is False else None


def read_error(error: Mapping[str, Any]) -> MetaErrorDetails:
    """Read one error of a response or of a webhook."""
    texts = [error.get("message"), error.get("title"), as_object(error.get("error_data")).get("details"), error.get("details")]
    return MetaErrorDetails(
        code=as_int(error.get("code")),
        subcode=as_int(error.get("error_subcode")),
        is_transient=error.get("is_transient") is True,
        words=": ".join(dict.fromkeys(filter(None, map(as_text, texts)))),
    )


def error_text(body: Mapping[str, Any]) -> str:
    return as_text(body.get("message")) or as_text(body.get("detail")) or as_text(body.get("title"))


def plain_body(body: bytes) -> str:
    """The body as text; empty for an HTML page, which says nothing about the message."""
    text = body[:1000].decode("utf-8", "replace").strip()
    return "" if text.startswith("<") else text


# --- how long to wait, and what operators are told


def wait_s(headers: Mapping[str, str], error: MetaErrorDetails) -> float | None:
    """How long the platform asks to wait: by Retry-After, or by its report of how much quota is used."""
    stated = _retry_after_s(headers) or _regain_access_s(headers)
    return PAIR_WAIT_S if stated is None and error.code == PAIR_LIMIT_CODE else stated


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After is a number of seconds or a date. A date counts from the response's own Date header: no clock is read."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value, re.ASCII):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])).total_seconds())
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return None


def _regain_access_s(headers: Mapping[str, str]) -> float | None:
    """The longest `estimated_time_to_regain_access` of X-Business-Use-Case-Usage, which is in minutes; None if it is 0."""
    usage = parse_object(headers.get("x-business-use-case-usage", "").encode("utf-8", "replace")) or {}
    cases = [case for value in usage.values() for case in (objects_in(value) or [as_object(value)])]
    minutes = max((as_int(case.get("estimated_time_to_regain_access")) or 0 for case in cases), default=0)
    return minutes * 60.0 if minutes > 0 else None


MAX_QUOTE_CHARS = 200
POSSIBLE_SECRET = re.compile(r"[A-Za-z0-9_|-]{24,}|\+?\d{8,}")
"""What may be a token (Meta quotes some of those that it refuses), and what may be a phone number."""


def describe_error(error: MetaErrorDetails, status: int | None, secrets: Sequence[str]) -> str:
    """Code and text of an error in one short line, without tokens and without phone numbers."""
    codes = "/".join(str(code) for code in (error.code, error.subcode) if code is not None)
    named = codes or (f"HTTP {status}" if status is not None else "")
    text = " ".join(as_text(error.words).split())
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    text = POSSIBLE_SECRET.sub("***", text)
    short = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"
    return ": ".join(filter(None, (named, short)))
