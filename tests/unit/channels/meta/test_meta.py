"""What WhatsApp and Instagram share: signatures, challenges, times, and what an answer means."""

import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.meta import OUTCOME_BY_CODE, MetaErrorDetails, answer_challenge, check_signature, classify, describe_error
from hermes.channels.webhook_values import as_text, as_time, check_secret, parse_object
from hermes.ports.channels import PlatformResponse, SendOutcome, SendResult, Webhook, WebhookNotAuthentic
from tests.unit.channels.meta.shaken import ANYTHING

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
BODY = '{"text": "Grüße aus Köln"}'.encode()
SUBCODES = {2534022: SendOutcome.WINDOW_CLOSED}


def signed(body: bytes, secret: str) -> Webhook:
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return Webhook(headers={"x-hub-signature-256": f"sha256={signature}"}, body=body)


def taken(body: Any) -> str | None:
    return as_text(body.get("id")) or None


def answered(status: int, body: Any, headers: dict[str, str] | None = None) -> SendResult:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return classify(PlatformResponse(status=status, headers=headers or {}, body=content), taken, SUBCODES, ("hush",))


# --- whose webhook it is


@pytest.mark.parametrize("secret", ["old", "new"])
def test_any_live_secret_signs(secret: str) -> None:
    check_signature(signed(BODY, secret), ["old", "new"])


@pytest.mark.parametrize(
    "webhook",
    [
        signed(BODY, "another"),
        Webhook(headers=signed(BODY, "old").headers, body=BODY[:-1]),
        Webhook(headers=signed(BODY, "old").headers, body=json.dumps(json.loads(BODY)).encode()),
        Webhook(headers=signed(BODY, "").headers, body=BODY),
        Webhook(headers={}, body=BODY),
        Webhook(headers={"x-hub-signature-256": ""}, body=BODY),
        Webhook(headers={"x-hub-signature-256": "sha256="}, body=BODY),
        Webhook(headers={"x-hub-signature-256": signed(BODY, "old").headers["x-hub-signature-256"].removeprefix("sha256=")}, body=BODY),
        Webhook(headers={"x-hub-signature-256": "sha256=é\ud800"}, body=BODY),
        Webhook(headers={"x-hub-signature": signed(BODY, "old").headers["x-hub-signature-256"]}, body=BODY),
    ],
    ids=["other secret", "cut", "written anew", "empty secret", "none", "empty", "no digest", "no prefix", "no ASCII", "other header"],
)
def test_what_is_not_signed_as_it_is_is_not_authentic(webhook: Webhook) -> None:
    with pytest.raises(WebhookNotAuthentic):
        check_signature(webhook, ["old", "", "new"])


def test_nothing_is_authentic_where_no_secret_is_set() -> None:
    with pytest.raises(WebhookNotAuthentic):
        check_signature(signed(BODY, ""), [])
    for given_secret in (None, "", "x"):
        with pytest.raises(WebhookNotAuthentic):
            check_secret(given_secret, ["", ""])


def test_says_nothing_of_what_was_expected() -> None:
    with pytest.raises(WebhookNotAuthentic) as caught:
        check_secret("guess", ["hush"])
    assert "hush" not in str(caught.value)
    assert "guess" not in str(caught.value)


def test_gives_a_challenge_back_to_who_knows_the_token() -> None:
    query = {"hub.mode": "subscribe", "hub.verify_token": "mine", "hub.challenge": "1158201444"}
    assert answer_challenge(query, ["other", "mine"]) == "1158201444"


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"hub.mode": "subscribe", "hub.verify_token": "guess", "hub.challenge": "1"},
        {"hub.mode": "subscribe", "hub.verify_token": "", "hub.challenge": "1"},
        {"hub.mode": "unsubscribe", "hub.verify_token": "mine", "hub.challenge": "1"},
        {"hub.mode": "subscribe", "hub.verify_token": "mine"},
        {"hub.mode": "subscribe", "hub.challenge": "1"},
    ],
)
def test_gives_no_challenge_back_to_anybody_else(query: dict[str, str]) -> None:
    with pytest.raises(WebhookNotAuthentic):
        answer_challenge(query, ["mine", ""])


# --- reading


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("1749416383", datetime(2025, 6, 8, 20, 59, 43, tzinfo=UTC)),
        (1749416383, datetime(2025, 6, 8, 20, 59, 43, tzinfo=UTC)),
        (1749416383500, datetime(2025, 6, 8, 20, 59, 43, 500000, tzinfo=UTC)),
        ("1749416383500", datetime(2025, 6, 8, 20, 59, 43, 500000, tzinfo=UTC)),
        (int((NOW + timedelta(days=9)).timestamp()), NOW),
        (10**17, NOW),
        ("9" * 400, None),
        (0, None),
        (-5, None),
        ("soon", None),
        (True, None),
        (None, None),
        ({}, None),
        (float("nan"), None),
    ],
)
def test_reads_a_time_in_whatever_unit_and_never_a_later_one_than_now(value: Any, at: datetime | None) -> None:
    assert as_time(value, now=NOW) == at


def test_a_text_can_be_stored() -> None:
    assert as_text("a\x00b\ud800c") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert [as_text(value) for value in (12, True, None, [], {}, 1.5, float("inf"))] == ["12", "", "", "", "", "1.5", ""]


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"{", b"\xff{}", b"[" * 100_000, b'{"a":' * 100_000, b'{"a": ' + b"9" * 9_000 + b"}"])
def test_what_is_no_object_is_none(body: bytes) -> None:
    assert parse_object(body) is None


# --- what an answer means: the table, row by row

GRAPH = [
    (-1, "service_unavailable"),
    (0, "unauthorized"),
    (1, "service_unavailable"),
    (2, "service_unavailable"),
    (3, "unauthorized"),
    (4, "rate_limited"),
    (10, "unauthorized"),
    (17, "rate_limited"),
    (32, "rate_limited"),
    (33, "unauthorized"),
    (100, "rejected"),
    (190, "unauthorized"),
    (200, "unauthorized"),
    (230, "unauthorized"),
    (299, "unauthorized"),
    (341, "rate_limited"),
    (368, "unauthorized"),
    (551, "invalid_recipient"),
    (613, "rate_limited"),
    (1200, "service_unavailable"),
    (80002, "rate_limited"),
    (80006, "rate_limited"),
    (80007, "rate_limited"),
    (130429, "rate_limited"),
    (130472, "rejected"),
    (130497, "invalid_recipient"),
    (131000, "service_unavailable"),
    (131005, "unauthorized"),
    (131008, "rejected"),
    (131009, "rejected"),
    (131016, "service_unavailable"),
    (131021, "invalid_recipient"),
    (131026, "invalid_recipient"),
    (131030, "invalid_recipient"),
    (131031, "unauthorized"),
    (131037, "unauthorized"),
    (131042, "unauthorized"),
    (131045, "unauthorized"),
    (131047, "window_closed"),
    (131048, "rate_limited"),
    (131049, "rejected"),
    (131050, "rejected"),
    (131051, "rejected"),
    (131052, "rejected"),
    (131053, "rejected"),
    (131056, "rate_limited"),
    (131057, "service_unavailable"),
    (131062, "rejected"),
    (132000, "rejected"),
    (132001, "rejected"),
    (132015, "rejected"),
    (133004, "service_unavailable"),
    (133010, "unauthorized"),
    (133016, "rate_limited"),
    (135000, "rejected"),
    (999_999, "rejected"),
]


@pytest.mark.parametrize(("code", "outcome"), GRAPH)
@pytest.mark.parametrize("status", [400, 403])
def test_the_code_decides_and_not_the_status(code: int, outcome: str, status: int) -> None:
    found = answered(status, {"error": {"message": "(#1) words", "code": code, "fbtrace_id": "A"}})
    assert (found.outcome, found.message_id, found.detail) == (outcome, None, f"{code}: (#1) words")


def test_every_code_of_the_table_is_tried() -> None:
    tried = {code for code, _ in GRAPH}
    assert OUTCOME_BY_CODE.keys() - tried - set(range(200, 300)) - set(range(80000, 80015)) - set(range(132000, 133000)) == set()


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [
        (400, {"code": 10, "error_subcode": 2534022}, "window_closed"),
        (400, {"code": 10, "error_subcode": 1}, "unauthorized"),
        (400, {"code": 10, "message": "(#10) This message is sent outside of allowed window."}, "window_closed"),
        (400, {"code": 100, "is_transient": True}, "service_unavailable"),
        (400, {"code": 999_999, "is_transient": True}, "service_unavailable"),
        (400, {"code": 4, "is_transient": True}, "rate_limited"),
        (400, {"code": 190, "is_transient": True}, "unauthorized"),
        (400, {"code": 100, "is_transient": "yes"}, "rejected"),
        (400, {"code": "131047"}, "window_closed"),
        (400, {"code": {}}, "rejected"),
        (401, {"code": 190}, "unauthorized"),
        (401, {}, "unauthorized"),
        (429, {"code": 131047}, "rate_limited"),
        (500, {"code": 131026}, "invalid_recipient"),
        (500, {"code": 100}, "service_unavailable"),
        (503, {}, "service_unavailable"),
        (200, {"code": 131047}, "window_closed"),
    ],
)
def test_a_subcode_before_the_code_and_what_is_transient_before_what_is_wrong(status: int, error: dict[str, Any], outcome: str) -> None:
    assert answered(status, {"error": error}).outcome == outcome


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (
            400,
            {"meta": {"success": False, "http_code": 400, "developer_message": "You have exceeded the endpoint rate limit."}},
            "rate_limited",
        ),
        (400, {"error": "You have exceeded the endpoint rate limit"}, "rate_limited"),
        (400, {"error": "Could not send message due to lack of payment. Messaging can resume once …"}, "unauthorized"),
        (400, {"error": "Your WhatsApp for Business API has been disabled"}, "unauthorized"),
        (401, {"meta": {"developer_message": "Invalid api_key"}}, "unauthorized"),
        (400, {"error": "Invalid API key"}, "unauthorized"),
        (402, {}, "unauthorized"),
        (403, {"error": "The endpoint is blocked"}, "unauthorized"),
        (404, {"error": "Not found"}, "unauthorized"),
        (400, {"error": "something new"}, "rejected"),
        (400, {"errors": [{"code": 131047, "title": "Re-engagement message"}]}, "window_closed"),
        (422, {"detail": "text is missing"}, "rejected"),
        (400, {}, "rejected"),
        (408, {}, "service_unavailable"),
        (413, b"<html>", "rejected"),
        (502, {"error": "WhatsApp for Business API not available"}, "service_unavailable"),
        (500, b"", "service_unavailable"),
        (503, b"<!doctype html><h1>rate limit</h1>", "service_unavailable"),
        (400, b"<html>", "service_unavailable"),
        (403, b"<html>", "service_unavailable"),
        (400, b"rate limit exceeded", "rate_limited"),
        (401, b"nope", "unauthorized"),
        (429, b"", "rate_limited"),
        (302, b"", "service_unavailable"),
        (0, b"", "service_unavailable"),
    ],
)
def test_answers_without_a_code(status: int, body: Any, outcome: str) -> None:
    assert answered(status, body).outcome == outcome


def test_what_was_taken_is_sent() -> None:
    assert answered(200, {"id": "m1"}) == SendResult(outcome=SendOutcome.SENT, message_id="m1")
    assert classify(PlatformResponse(status=201, headers={}, body=b"{}"), lambda _: "", {}, ()) == SendResult(outcome=SendOutcome.SENT)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[]", b'"ok"', b'{"id": ""}'])
def test_a_success_that_names_nothing_may_have_sent_it(body: bytes) -> None:
    assert answered(200, body).outcome is SendOutcome.AMBIGUOUS


@given(
    status=st.integers(-1, 700), body=st.binary() | ANYTHING.map(lambda value: json.dumps(value).encode()), usage=st.text(), after=st.text()
)
def test_no_answer_raises(status: int, body: bytes, usage: str, after: str) -> None:
    headers = {"x-business-use-case-usage": usage, "retry-after": after, "date": after}
    found = answered(status, body, headers)
    assert found.outcome in SendOutcome
    assert found.outcome is not SendOutcome.SENT or found.message_id


@given(error=ANYTHING)
def test_no_error_raises_whatever_it_is_made_of(error: Any) -> None:
    for body in (
        {"error": error},
        {"error": {"code": error, "error_subcode": error, "message": error, "error_data": error}},
        {"meta": error},
    ):
        assert answered(400, body).outcome in SendOutcome


# --- how long to wait, and what people are told


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Mon, 04 May 2026 12:00:10 GMT", "date": "Mon, 04 May 2026 12:00:00 GMT"}, 10.0),
        ({"retry-after": "Mon, 04 May 2026 12:00:10 GMT"}, None),
        ({"x-business-use-case-usage": '{"17": [{"type": "messaging", "call_count": 100, "estimated_time_to_regain_access": 2}]}'}, 120.0),
        ({"x-business-use-case-usage": '{"17": {"estimated_time_to_regain_access": 1}, "18": [{"call_count": 1}]}'}, 60.0),
        ({"x-business-use-case-usage": '{"17": [{"call_count": 27, "estimated_time_to_regain_access": 0}]}'}, None),
        ({"x-business-use-case-usage": "soon"}, None),
        ({"retry-after": "5", "x-business-use-case-usage": '{"17": [{"estimated_time_to_regain_access": 9}]}'}, 5.0),
    ],
)
def test_how_long_a_limit_lasts(headers: dict[str, str], wait_s: float | None) -> None:
    assert answered(400, {"error": {"code": 4}}, headers).retry_after_s == wait_s


def test_one_user_takes_a_message_every_six_seconds() -> None:
    assert answered(400, {"error": {"code": 131056}}).retry_after_s == 6.0
    assert answered(400, {"error": {"code": 131056}}, {"retry-after": "16"}).retry_after_s == 16.0


def test_only_what_passes_is_waited_for() -> None:
    assert answered(400, {"error": {"code": 131026}}, {"retry-after": "5"}).retry_after_s is None
    assert answered(503, {}, {"retry-after": "5"}).retry_after_s == 5.0


def test_words_are_quoted_in_one_short_line_without_tokens_and_numbers() -> None:
    error = {
        "message": "Malformed access\ntoken EAAGm0PX4ZCpsBAKZC1234567890abcdefg and hush",
        "code": 190,
        "error_subcode": 463,
        "error_data": {"details": "to +49 and 4915112345678 " + "very " * 100},
    }
    detail = answered(401, {"error": error}).detail
    assert detail.startswith("190/463: Malformed access token *** and ***: to +49 and *** very")
    assert len(detail) < 220


def test_an_error_without_a_code_goes_by_its_status() -> None:
    assert answered(400, {"error": "hm"}).detail == "HTTP 400: hm"
    assert answered(502, b"<html>").detail == "HTTP 502"
    assert describe_error(MetaErrorDetails(), None, ()) == ""
