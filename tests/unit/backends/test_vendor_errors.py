"""Statuses, headers and words as errors."""

import pytest

from hermes.backends.vendor_errors import FailedRequest, VendorErrorDetails, classify_error, retry_after_s
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

CALLER = FailedRequest("claude", "haiku", ("sk-1234",))


@pytest.mark.parametrize(
    ("status", "codes", "message", "error"),
    [
        (301, "", "", Garbled),
        (400, "invalid_request_error", "messages: at least one message is required", BadRequest),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", ContextTooLong),
        (400, "", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", ContextTooLong),
        (400, "context_length_exceeded", "", ContextTooLong),
        (400, "exceed_context_size_error", "request (9412 tokens) exceeds the available context size (8192 tokens)", ContextTooLong),
        (400, "", "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens", ContextTooLong),
        (400, "", "The input (9000 tokens) is longer than the model's context length (8192 tokens).", ContextTooLong),
        (400, "", "the input length exceeds the context length", ContextTooLong),
        (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.", Unauthorized),
        (400, "invalid_request_error", "You have reached your specified workspace API usage limits.", Unauthorized),
        (400, "", "foo/bar is not a valid model ID", Unauthorized),
        (400, "", "registry.ollama.ai/library/gemma does not support tools", Unsupported),
        (400, "unsupported_value", "'temperature' does not support 0.2 with this model", Unsupported),
        (401, "", "", Unauthorized),
        (402, "", "", Unauthorized),
        (403, "", "", Unauthorized),
        (404, "model_not_found", "The model `x` does not exist", Unauthorized),
        (408, "", "", Overloaded),
        (409, "", "", Overloaded),
        (413, "request_too_large", "Request exceeds the maximum size", BadRequest),
        (413, "", "the prompt exceeds the context window", ContextTooLong),
        (422, "", "wrong type", BadRequest),
        (429, "", "", RateLimited),
        (500, "", "", Overloaded),
        (503, "", "server busy, maximum pending requests exceeded", Overloaded),
        (504, "", "", Overloaded),
        (529, "overloaded_error", "Overloaded", Overloaded),
    ],
)
def test_which_error_it_is(status: int, codes: str, message: str, error: type[BackendError]) -> None:
    found = classify_error(status, {}, VendorErrorDetails(message, codes), CALLER)
    assert type(found) is error
    assert (found.backend, found.model, found.status) == ("claude", "haiku", status)


def test_a_limit_says_how_long_to_wait() -> None:
    found = classify_error(429, {"retry-after": "7"}, VendorErrorDetails(), CALLER)
    assert isinstance(found, RateLimited)
    assert (found.retry_after_s, found.is_exhausted) == (7.0, False)


@pytest.mark.parametrize("code", ["rate_limit_error enforced_spend_limit_reached", "insufficient_quota"])
def test_a_limit_that_waiting_does_not_lift_is_marked(code: str) -> None:
    found = classify_error(429, {"retry-after": "7"}, VendorErrorDetails("", code), CALLER)
    assert isinstance(found, RateLimited)
    assert (found.retry_after_s, found.is_exhausted) == (None, True)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "3", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT"}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers) == wait_s


def test_the_vendor_is_quoted_in_one_short_line_without_the_key() -> None:
    text = str(classify_error(400, {}, VendorErrorDetails("bad\nkey sk-1234 " + "x" * 1000), CALLER))
    assert text.startswith("HTTP 400: bad key *** xxx")
    assert len(text) < 220
    assert str(classify_error(500, {}, VendorErrorDetails(), CALLER)) == "HTTP 500"
