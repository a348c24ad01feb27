"""Errors of `/v1/chat/completions`, in the shape that OpenAI's client libraries know.

the request            400 invalid_request_error     404 for an unknown model
the key                401 authentication_error
the key's limits       429 insufficient_quota or rate_limit_exceeded, with Retry-After; 403 permission_error for a model or a user
the budget             429 insufficient_quota; the client should not retry before the budget is renewed
the models' limits     429 with Retry-After, as the vendor says
no slot, kill switch   503 server_error, with Retry-After where it is known
the models themselves  502, 503, 504 server_error; also for a wrong vendor key of this server, which is not the client's fault"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hermes.gateway.chat_request import InvalidChatRequest
from hermes.gateway.completions import UnknownModel
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
from hermes.ports.credits import BudgetSpent, CallsPaused
from hermes.ports.errors import NotFound, StoreUnavailable, UserErased
from hermes.ports.key_use import KeyForbids, KeyQuotaSpent, KeyRateReached
from hermes.ports.models import ChainFailed, NoCapacity, UnknownPrice
from hermes.web.errors import ApiError
from hermes.web.key_errors import LIMIT_CODES, NO_RETRY, key_api_error, retry_after_header

TYPE_BY_STATUS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@contextmanager
def raise_openai_errors() -> Iterator[None]:
    """Turn the errors of the block into those of OpenAI's API."""
    try:
        yield
    except Exception as error:
        api_error = openai_api_error(error)
        if api_error is None:
            raise
        raise api_error from error


def openai_error(error: Exception) -> dict[str, Any]:
    """Return the same error as the last event of a stream."""
    api_error = openai_api_error(error) or ApiError(500, "internal_error", "Something went wrong on our side.", kind="server_error")
    return {"error": {"message": api_error.message, "type": api_error.kind, "param": api_error.param, "code": api_error.code}}


def openai_api_error(error: Exception) -> ApiError | None:  # noqa: C901, PLR0911, PLR0912  # a table, a line for each case
    """Return the error for the client; None for an unexpected one."""
    match error:
        case ApiError():
            return make_api_error(error.status, error.code, error.message, param=error.param, headers=dict(error.headers or {}))
        case InvalidChatRequest():
            return make_api_error(400, "invalid_request", str(error), param=error.param)
        case UnknownModel():
            return make_api_error(404, "model_not_found", str(error), param="model")
        case KeyQuotaSpent() | KeyRateReached() | KeyForbids():
            return openai_api_error(key_api_error(error))
        case BudgetSpent():
            return make_api_error(
                429,
                "insufficient_quota",
                f"This user's tokens are used up: {error}.",
                headers={**retry_after_header(error.resets_at), **NO_RETRY},
            )
        case CallsPaused():
            return make_api_error(
                503, "paused", f"Hermes calls no models at the moment: {error}.", headers={**retry_after_header(error.until), **NO_RETRY}
            )
        case NoCapacity():
            return make_api_error(503, "overloaded", "Too many calls at the same time; try again.", headers={"Retry-After": "1"})
        case StoreUnavailable():
            return make_api_error(503, "store_unavailable", "The call could not be admitted; try again.", headers={"Retry-After": "1"})
        case NotFound():  # the key's tier is not in the settings any more
            return make_api_error(503, "unknown_tier", sentence(str(error)), headers=NO_RETRY)
        case UserErased():
            return make_api_error(410, "user_erased", "This user was deleted.")
        case UnknownPrice():
            return make_api_error(500, "unknown_price", sentence(str(error)))
        case CutShort():
            return make_api_error(502, "cut_short", sentence(with_capital(str(error))))
        case ChainFailed():
            return chain_api_error(error)
    return None


def chain_api_error(error: ChainFailed) -> ApiError:  # noqa: PLR0911  # as above
    """Return the error after no model answered: the last model's error decides, and the message names all attempts."""
    match error.last:
        case BadRequest() | Unsupported():
            return make_api_error(400, "invalid_request", chain_message(error))
        case ContextTooLong():
            return make_api_error(400, "context_length_exceeded", chain_message(error), param="messages")
        case RateLimited(retry_after_s=None, is_exhausted=True):
            return make_api_error(429, "insufficient_quota", chain_message(error), headers=NO_RETRY)
        case RateLimited(retry_after_s=wait_s):
            return make_api_error(429, "rate_limit_exceeded", chain_message(error), headers={"Retry-After": str(math.ceil(wait_s or 1))})
        case Unauthorized():
            return make_api_error(502, "upstream_refused_us", "The model's vendor refused our key or has no such model.", headers=NO_RETRY)
        case Unreachable():
            return make_api_error(504, "upstream_unreachable", chain_message(error))
        case Garbled():
            return make_api_error(502, "upstream_garbled", chain_message(error))
        case BackendError():
            return make_api_error(503, "upstream_overloaded", chain_message(error), headers={"Retry-After": "1"})
    skipped = ", ".join(f"{attempt.name}: {attempt.outcome}" for attempt in error.attempts)
    if skipped:
        return make_api_error(400, "not_supported", f"No model of this tier can take the request ({skipped}).")
    return make_api_error(503, "no_model", "No model of this tier is set up here.", headers=NO_RETRY)


def chain_message(error: ChainFailed) -> str:
    return sentence(str(error)[:2_000])


def sentence(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if text.endswith(".") else f"{text}."


def with_capital(text: str) -> str:
    """A text that begins with a capital letter; all others stay as they are: names of models may hold some."""
    return text[:1].upper() + text[1:]


def make_api_error(status: int, code: str, message: str, *, param: str | None = None, headers: dict[str, str] | None = None) -> ApiError:
    usual = TYPE_BY_STATUS.get(status, "invalid_request_error" if status < 500 else "server_error")
    kind = code if code in LIMIT_CODES else usual
    return ApiError(status, code, message, param=param, headers=headers, kind=kind)
