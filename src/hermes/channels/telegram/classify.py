"""What an answer of the Bot API means: by `error_code`, then by its words, which are all that tells its 400s apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.channels.meta import a_count, a_text, an_object, parsed
from hermes.ports.channels import PlatformResponse, SendOutcome, SendResult

LONGEST_QUOTE = 200

_UNREACHABLE = re.compile(
    r"chat not found|user not found|peer_id_invalid|chat_write_forbidden|chat_restricted|user_deactivated|user_is_blocked|is deactivated"
    r"|was deactivated|was blocked|was kicked|no rights to send|not enough rights|need administrator rights|chat_admin_required",
    re.IGNORECASE,
)
_UNREADABLE_MARKUP = re.compile(r"entit(y|ies)|wrong http url", re.IGNORECASE)
_ANY_TOKEN = re.compile(r"\d{5,20}(?::|%3A)[A-Za-z0-9_-]{20,}", re.ASCII | re.IGNORECASE)


def classify(reply: PlatformResponse, secrets: Sequence[str]) -> SendResult:
    """What an answer means, whatever it is made of. A page of HTML was not written by Telegram, but by somebody in between."""
    body = parsed(reply.body)
    if body is None or not isinstance(body.get("ok"), bool):
        return _foreign(reply)
    if body["ok"]:
        return SendResult(outcome=SendOutcome.SENT, message_id=a_text(an_object(body.get("result")).get("message_id")) or None)
    code, words, parameters = (
        a_count(body.get("error_code")) or reply.status,
        a_text(body.get("description")),
        an_object(body.get("parameters")),
    )
    outcome = _outcome(code, words)
    moved_to = a_text(parameters.get("migrate_to_chat_id")) or None
    if moved_to is not None:
        outcome = SendOutcome.REJECTED  # here; nobody is unreachable
    return SendResult(
        outcome=outcome,
        retry_after_s=_wait_s(parameters, reply.headers) if outcome in _WAIT else None,
        detail=_described(code, words, secrets),
        moved_to=moved_to,
        plain_might_help=outcome is SendOutcome.REJECTED and _UNREADABLE_MARKUP.search(words) is not None,
    )


_WAIT = frozenset({SendOutcome.RATE_LIMITED, SendOutcome.SERVICE_UNAVAILABLE})


def _foreign(reply: PlatformResponse) -> SendResult:
    """An answer that is not Telegram's. Behind a 2xx the message may have arrived."""
    if 200 <= reply.status < 300:
        return SendResult(outcome=SendOutcome.AMBIGUOUS, detail=f"HTTP {reply.status}: an answer that does not say whether it was sent")
    outcome = {401: SendOutcome.UNAUTHORIZED, 413: SendOutcome.REJECTED, 429: SendOutcome.RATE_LIMITED}.get(
        reply.status, SendOutcome.SERVICE_UNAVAILABLE
    )
    wait_s = _wait_s({}, reply.headers) if outcome in _WAIT else None
    return SendResult(outcome=outcome, retry_after_s=wait_s, detail=f"HTTP {reply.status}: not an answer of the Bot API")


def _outcome(code: int, words: str) -> SendOutcome:
    if code in (401, 404):
        return SendOutcome.UNAUTHORIZED  # an unknown method would also be a 404, and a token that is none looks like one
    if code in (420, 429):
        return SendOutcome.RATE_LIMITED
    if code >= 500 or code in (408, 409):
        return SendOutcome.SERVICE_UNAVAILABLE  # 409: somebody else asks for the updates, or a webhook is set, for now
    if code == 403 or _UNREACHABLE.search(words):
        return SendOutcome.INVALID_RECIPIENT
    return SendOutcome.REJECTED


def _wait_s(parameters: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    """How long Telegram asks to wait; it says so in both places."""
    stated = a_count(parameters.get("retry_after"))
    seconds = a_count(headers.get("retry-after", "").strip()) if stated is None else stated
    return float(seconds) if seconds is not None and seconds >= 0 else None


def _described(code: int, words: str, secrets: Sequence[str]) -> str:
    """Code and words in one short line, without any token."""
    text = " ".join(words.split())
    for secret in secrets:
        text = text.replace(secret, "***")
    text = _ANY_TOKEN.sub("***", text)
    short = text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
    return f"{code}: {short}" if short else str(code)
