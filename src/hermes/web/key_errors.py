"""Errors of API keys that have reached a limit, the same at every door.

a day's or a month's quota    429 insufficient_quota, with Retry-After; a retry before that is useless
requests or tokens a minute   429 rate_limit_exceeded, with Retry-After
calls at once                 429 rate_limit_exceeded, with Retry-After
a model, a user               403 model_not_allowed, wrong_user"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from hermes.ports.key_use import KeyForbids, KeyQuotaSpent, KeyRateReached
from hermes.web.errors import ApiError

LIMIT_CODES = frozenset({"insufficient_quota", "rate_limit_exceeded"})
"""Codes that are also the type of the error, as clients of OpenAI's API expect it."""
NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients retry by themselves unless this header says that a retry is useless."""
MAX_RETRY_AFTER_S = 24 * 3600


def key_api_error(error: KeyQuotaSpent | KeyRateReached | KeyForbids) -> ApiError:
    """Return the error for the client."""
    match error:
        case KeyQuotaSpent():
            headers = {**retry_after_header(error.resets_at), **NO_RETRY}
            return ApiError(429, "insufficient_quota", capitalize_first(f"{error}."), headers=headers, kind="insufficient_quota")
        case KeyRateReached(wait_s=None):
            return ApiError(429, "rate_limit_exceeded", capitalize_first(f"{error}."), headers=NO_RETRY, kind="rate_limit_exceeded")
        case KeyRateReached():
            seconds = max(1, math.ceil(error.wait_s or 0))
            message = capitalize_first(f"{error}; try again in {seconds} s.")
            return ApiError(429, "rate_limit_exceeded", message, headers={"Retry-After": str(seconds)}, kind="rate_limit_exceeded")
    if error.param == "model":
        return ApiError(403, "model_not_allowed", str(error), param="model")
    return ApiError(403, "wrong_user", str(error), param="user")


def retry_after_header(when: datetime | None) -> dict[str, str]:
    if when is None:
        return {}
    wait_s = math.ceil((when - datetime.now(UTC)).total_seconds())
    return {"Retry-After": str(min(MAX_RETRY_AFTER_S, max(1, wait_s)))}


def capitalize_first(text: str) -> str:
    return text[:1].upper() + text[1:]
