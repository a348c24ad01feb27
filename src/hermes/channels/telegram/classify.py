"""What a response of the Bot API means: by `error_code`, then by its description, which alone tells its 400s apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.channels.meta import as_int, as_object, as_text, parse_object
from hermes.ports.channels import PlatformResponse, SendOutcome, SendResult

MAX_QUOTE_CHARS = 200

_UNREACHABLE = re.compile(
    r"chat not found|user not found|peer_id_invalid|chat_write_forbidden|chat_restricted|user_deactivated|user_is_blocked|is deactivated"
    r"|was deactivated|was blocked|was kicked|no rights to send|not enough rights|need administrator rights|chat_admin_required",
    re.IGNORECASE,
)
_UNREADABLE_MARKUP = re.compile(r"entit(y|ies)|wrong http url", re.IGNORECASE)
_ANY_TOKEN = re.compile(r"\d{5,20}(?::|%3A)[A-Za-z0-9_-]{20,}", re.ASCII | re.IGNORECASE)


def classify(reply: PlatformResponse, secrets: Sequence[str]) -> SendResult:
    """What a response means. Never raises, whatever the body is. An HTML page comes from a proxy in between, not from Telegram."""
    body = parse_object(reply.body)
    if body is None or not isinstance(body.get("ok"), bool):
        return _classify_foreign(reply)
    if body["ok"]:
        return SendResult(outcome=SendOutcome.SENT, message_id=as_text(as_object(body.get("result")).get("message_id")) or None)
    code, words, parameters = (
        as_int(body.get("error_code")) or reply.status,
        as_text(body.get("description")),
        as_object(body.get("parameters")),
    )
    outcome = _outcome_of(code, words)
    moved_to = as_text(parameters.get("migrate_to_chat_id")) or None
    if moved_to is not None:
        outcome = SendOutcome.REJECTED  # under the old id only: the chat is reachable under the new one
    return SendResult(
        outcome=outcome,
        retry_after_s=_wait_s(parameters, reply.headers) if outcome in _WAIT_OUTCOMES else None,
        detail=_describe_error(code, words, secrets),
        moved_to=moved_to,
        plain_might_help=outcome is SendOutcome.REJECTED and _UNREADABLE_MARKUP.search(words) is not None,
    )


_WAIT_OUTCOMES = frozenset({SendOutcome.RATE_LIMITED, SendOutcome.SERVICE_UNAVAILABLE})


def _classify_foreign(reply: PlatformResponse) -> SendResult:
    """A response that is not Telegram's. With a 2xx the message may have arrived."""
    if 200 <= reply.status < 300:
        return SendResult(outcome=SendOutcome.AMBIGUOUS, detail=f"HTTP {reply.status}: an answer that does not say whether it was sent")
    outcome = {401: SendOutcome.UNAUTHORIZED, 413: SendOutcome.REJECTED, 429: SendOutcome.RATE_LIMITED}.get(
        reply.status, SendOutcome.SERVICE_UNAVAILABLE
    )
    wait_s = _wait_s({}, reply.headers) if outcome in _WAIT_OUTCOMES else None
    return SendResult(outcome=outcome, retry_after_s=wait_s, detail=f"HTTP {reply.status}: not an answer of the Bot API")


def _outcome_of(code: int, words: str) -> SendOutcome:
    if code in (401, 404):
        return SendOutcome.UNAUTHORIZED  # Telegram answers 404 to a malformed token; an unknown method would be a 404 too
    if code in (420, 429):
        return SendOutcome.RATE_LIMITED
    if code >= 500 or code in (408, 409):
        return SendOutcome.SERVICE_UNAVAILABLE  # 409: another process polls the updates, or a webhook is set; both may pass
    if code == 403 or _UNREACHABLE.search(words):
        return SendOutcome.INVALID_RECIPIENT
    return SendOutcome.REJECTED


def _wait_s(parameters: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    """How long Telegram asks to wait; it says so in the body and in a header."""
    stated = as_int(parameters.get("retry_after"))
    seconds = as_int(headers.get("retry-after", "").strip()) if stated is None else stated
    return float(seconds) if seconds is not None and seconds >= 0 else None


def _describe_error(code: int, words: str, secrets: Sequence[str]) -> str:
    """Code and description of an error in one short line, without any token."""
    text = " ".join(words.split())
    for secret in secrets:
        text = text.replace(secret, "***")
    text = _ANY_TOKEN.sub("***", text)
    short = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"
    return f"{code}: {short}" if short else str(code)
