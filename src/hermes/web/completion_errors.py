"""What a client of the OpenAI door is told when something is wrong, in the words that its library knows.

the request            400 invalid_request_error     404 for an unknown model
the key                401 authentication_error
the budget             429 rate_limit_error, insufficient_quota; not to be tried again before it is full again
the models' limits     429 with Retry-After, as the vendor says
no room, a pause       503 server_error, with Retry-After where it is known
the models themselves  502, 503, 504 server_error; a wrong key of ours too, which is not the client's fault"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from hermes.gateway.client_chats import InvalidChatRequest as RequestRefused
from hermes.gateway.client_chats import UnknownModel
from hermes.ports.backends import (
    BackendError,
    BadRequest,
    ContextTooLong,
    CutShort,
    Garbled,
    RateLimited,
    Unauthorized,
    Unreachable,
    Unsupported,
)
from hermes.ports.budgets import BudgetSpent, CallsPaused
from hermes.ports.errors import NotFound, StoreUnavailable, UserErased
from hermes.ports.models import ChainFailed, NoCapacity, UnknownPrice
from hermes.web.errors import Refused

KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients try again by themselves, unless they are told that there is no point."""
LONGEST_WAIT_S = 24 * 3600


@contextmanager
def in_openai_words() -> Iterator[None]:
    """Have whatever fails in the block answered as OpenAI's API would."""
    try:
        yield
    except Exception as error:
        told = refusal_of(error)
        if told is None:
            raise
        raise told from error


def openai_error(error: Exception) -> dict[str, Any]:
    """The same as the last event of a stream."""
    told = refusal_of(error) or Refused(500, "internal_error", "Something went wrong on our side.", kind="server_error")
    return {"error": {"message": told.message, "type": told.kind, "param": told.param, "code": told.code}}


def refusal_of(error: Exception) -> Refused | None:  # noqa: C901, PLR0911  # a table, a line for each case
    """What to tell a client about an error; None for one that nobody expected."""
    match error:
        case Refused():
            return refused(error.status, error.code, error.message, param=error.param, headers=dict(error.headers or {}))
        case RequestRefused():
            return refused(400, "invalid_request", str(error), param=error.param)
        case UnknownModel():
            return refused(404, "model_not_found", str(error), param="model")
        case BudgetSpent():
            return refused(
                429, "insufficient_quota", f"This user's tokens are used up: {error}.", headers={**until(error.resets_at), **NO_RETRY}
            )
        case CallsPaused():
            return refused(503, "paused", f"No model is called at the moment: {error}.", headers={**until(error.until), **NO_RETRY})
        case NoCapacity():
            return refused(503, "overloaded", "Too many calls at once; try again.", headers={"Retry-After": "1"})
        case StoreUnavailable():
            return refused(503, "store_unavailable", "The call could not be admitted; try again.", headers={"Retry-After": "1"})
        case NotFound():  # the key's tier is not in the settings any more
            return refused(503, "unknown_tier", sentence(str(error)), headers=NO_RETRY)
        case UserErased():
            return refused(410, "forgotten", "This user was deleted.")
        case UnknownPrice():
            return refused(500, "unknown_price", sentence(str(error)))
        case CutShort():
            return refused(502, "cut_short", sentence(str(error).capitalize()))
        case ChainFailed():
            return chain_refusal(error)
    return None


def chain_refusal(error: ChainFailed) -> Refused:  # noqa: PLR0911  # as above
    """No model answered: the last one's reason decides, and all attempts are named."""
    match error.last:
        case BadRequest() | Unsupported():
            return refused(400, "invalid_request", said_by(error))
        case ContextTooLong():
            return refused(400, "context_length_exceeded", said_by(error), param="messages")
        case RateLimited(retry_after_s=None, is_exhausted=True):
            return refused(429, "insufficient_quota", said_by(error), headers=NO_RETRY)
        case RateLimited(retry_after_s=wait_s):
            return refused(429, "rate_limit_exceeded", said_by(error), headers={"Retry-After": str(math.ceil(wait_s or 1))})
        case Unauthorized():
            return refused(502, "upstream_refused_us", "The model's vendor refused our key or has no such model.", headers=NO_RETRY)
        case Unreachable():
            return refused(504, "upstream_unreachable", said_by(error))
        case Garbled():
            return refused(502, "upstream_garbled", said_by(error))
        case BackendError():
            return refused(503, "upstream_overloaded", said_by(error), headers={"Retry-After": "1"})
    skipped = ", ".join(f"{attempt.name}: {attempt.outcome}" for attempt in error.attempts)
    if skipped:
        return refused(400, "not_supported", f"No model of this tier can take the request ({skipped}).")
    return refused(503, "no_model", "No model of this tier is set up here.", headers=NO_RETRY)


def said_by(error: ChainFailed) -> str:
    return sentence(str(error)[:2_000])


def sentence(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if text.endswith(".") else f"{text}."


def refused(status: int, code: str, message: str, *, param: str | None = None, headers: dict[str, str] | None = None) -> Refused:
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return Refused(status, code, message, param=param, headers=headers, kind=kind)


def until(when: datetime | None) -> dict[str, str]:
    if when is None:
        return {}
    wait_s = math.ceil((when - datetime.now(UTC)).total_seconds())
    return {"Retry-After": str(min(LONGEST_WAIT_S, max(1, wait_s)))}
