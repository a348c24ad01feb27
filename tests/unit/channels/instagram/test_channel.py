"""One Instagram account: whose webhooks it takes, which calls it makes, what it makes of the answers."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.instagram import InstagramChannel, InstagramLogin
from hermes.ports.channels import Destination, PlatformRequest, PlatformResponse, SendOutcome, SendResult, Webhook, WebhookNotAuthentic
from hermes.turn import Platform
from tests.unit.channels.instagram.account import INSTAGRAM, NOOR, OURS, TOKEN

VERIFY = "verify-hush"
BY_PAGE = InstagramChannel(
    account="shop",
    instagram_id=OURS,
    login=InstagramLogin.PAGE,
    access_token=TOKEN,
    app_secrets=("app-hush", "other-hush"),
    verify_tokens=(VERIFY,),
    version="v26.0",
)


def replied(status: int, body: Any) -> PlatformResponse:
    return PlatformResponse(status=status, headers={}, body=body if isinstance(body, bytes) else json.dumps(body).encode())


# --- whose webhooks it takes


@pytest.mark.parametrize("secret", ["app-hush", "other-hush"])
def test_meta_signs_with_either_app(secret: str) -> None:
    body = '{"text": "¿Envían a Córdoba?"}'.encode()
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    BY_PAGE.verify(Webhook(headers={"x-hub-signature-256": f"sha256={signature}"}, body=body))
    with pytest.raises(WebhookNotAuthentic):
        BY_PAGE.verify(Webhook(headers={"x-hub-signature-256": f"sha256={signature}"}, body=json.dumps(json.loads(body)).encode()))


def test_the_challenge_is_for_who_knows_the_token() -> None:
    query = {"hub.mode": "subscribe", "hub.verify_token": VERIFY, "hub.challenge": "42"}
    assert BY_PAGE.challenge(query) == "42"
    with pytest.raises(WebhookNotAuthentic):
        INSTAGRAM.challenge(query)


# --- which calls it makes


@pytest.mark.parametrize(
    ("channel", "url"),
    [(BY_PAGE, "https://graph.facebook.com/v26.0/me/messages"), (INSTAGRAM, "https://graph.instagram.com/v23.0/me/messages")],
)
def test_each_login_has_its_own_place_and_the_token_is_in_a_header(channel: InstagramChannel, url: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert channel.encode({"text": "Hi"}, Destination(channel_id=NOOR)) == PlatformRequest(
        method="POST", url=url, headers=headers, json={"recipient": {"id": NOOR}, "message": {"text": "Hi"}}
    )
    assert channel.typing(Destination(channel_id=NOOR), message_id=None) == PlatformRequest(
        method="POST", url=url, headers=headers, json={"recipient": {"id": NOOR}, "sender_action": "typing_on"}
    )


def test_it_can_be_pointed_elsewhere() -> None:
    local = InstagramChannel(
        account="shop",
        instagram_id=OURS,
        login=InstagramLogin.PAGE,
        access_token=TOKEN,
        app_secrets=("s",),
        base_url="http://127.0.0.1:9",
    )
    assert local.encode({"text": "Hi"}, Destination(channel_id=NOOR)).url == "http://127.0.0.1:9/v23.0/me/messages"


# --- what it renders


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# Head\n\n**bold** *it* `code`", "Head\n\nbold it code"),
        ("- one\n- two", "• one\n• two"),
        ("see [the map](https://m.example/a)", "see the map (https://m.example/a)"),
        ("> said", "> said"),
        ("```py\nx = 1\n```", "x = 1"),
        ("2 * 3 * 4 and snake_case", "2 * 3 * 4 and snake_case"),
    ],
)
def test_there_is_no_markup(markdown: str, text: str) -> None:
    assert INSTAGRAM.render(markdown) == [{"text": text}]


def test_an_empty_answer_has_no_parts() -> None:
    assert INSTAGRAM.render(" \n") == []


def test_plain_is_what_it_is_already() -> None:
    assert INSTAGRAM.plain({"text": "Hi"}) == {"text": "Hi"}


@pytest.mark.parametrize("text", ["สวัสดีครับ " * 200, "🧑\u200d🍳" * 300, "Grüße " * 400, "x" * 5_000, "**bold** " * 500])
def test_a_part_has_at_most_a_thousand_bytes(text: str) -> None:
    bodies = INSTAGRAM.render(text)
    assert len(bodies) > 1
    assert all(0 < len(body["text"].encode()) <= 1000 for body in bodies)
    written = "".join("".join(body["text"] for body in bodies).split())
    assert written == "".join(text.replace("*", "").split())
    assert not any(body["text"].startswith("\u200d") or body["text"].endswith("\u200d") for body in bodies)


@given(markdown=st.text(max_size=3_000))
def test_whatever_is_written_fits(markdown: str) -> None:
    assert all(0 < len(body["text"].encode()) <= 1000 for body in INSTAGRAM.render(markdown))


# --- what it makes of the answers


def test_what_was_taken_has_an_id_and_typing_has_none() -> None:
    assert INSTAGRAM.classify(replied(200, {"recipient_id": NOOR, "message_id": "mid.OURS"})) == SendResult(
        outcome=SendOutcome.SENT, message_id="mid.OURS"
    )
    assert INSTAGRAM.classify(replied(200, {"recipient_id": NOOR})) == SendResult(outcome=SendOutcome.SENT)
    assert INSTAGRAM.classify(replied(200, {})).outcome is SendOutcome.AMBIGUOUS


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [
        (400, {"code": 10, "error_subcode": 2534022}, SendOutcome.WINDOW_CLOSED),
        (400, {"code": 10, "error_subcode": 2018278}, SendOutcome.WINDOW_CLOSED),
        (400, {"code": 10}, SendOutcome.UNAUTHORIZED),
        (403, {"code": 10, "error_subcode": 2018300}, SendOutcome.REJECTED),
        (403, {"code": 10, "error_subcode": 2018321}, SendOutcome.REJECTED),
        (403, {"code": 200, "error_subcode": 2018028}, SendOutcome.REJECTED),
        (400, {"code": 551, "error_subcode": 1545041}, SendOutcome.INVALID_RECIPIENT),
        (400, {"code": 100, "error_subcode": 2534014}, SendOutcome.INVALID_RECIPIENT),
        (400, {"code": 100, "error_subcode": 2018001}, SendOutcome.INVALID_RECIPIENT),
        (403, {"code": 200, "error_subcode": 2018108}, SendOutcome.INVALID_RECIPIENT),
        (400, {"code": 100, "error_subcode": 33}, SendOutcome.REJECTED),
        (400, {"code": 100}, SendOutcome.REJECTED),
        (403, {"code": 4}, SendOutcome.RATE_LIMITED),
        (400, {"code": 17}, SendOutcome.RATE_LIMITED),
        (400, {"code": 32}, SendOutcome.RATE_LIMITED),
        (400, {"code": 613}, SendOutcome.RATE_LIMITED),
        (429, {}, SendOutcome.RATE_LIMITED),
        (400, {"code": 190, "error_subcode": 463}, SendOutcome.UNAUTHORIZED),
        (403, {"code": 230}, SendOutcome.UNAUTHORIZED),
        (400, {"code": 3}, SendOutcome.UNAUTHORIZED),
        (500, {"code": 1}, SendOutcome.SERVICE_UNAVAILABLE),
        (400, {"code": 2, "is_transient": True}, SendOutcome.SERVICE_UNAVAILABLE),
        (400, {"code": 1200}, SendOutcome.SERVICE_UNAVAILABLE),
        (400, {"code": 9_999, "is_transient": True}, SendOutcome.SERVICE_UNAVAILABLE),
    ],
)
def test_errors_of_instagram(status: int, error: dict[str, Any], outcome: SendOutcome) -> None:
    assert INSTAGRAM.classify(replied(status, {"error": error})).outcome is outcome


@given(status=st.integers(100, 599), body=st.binary())
def test_no_answer_raises(status: int, body: bytes) -> None:
    assert INSTAGRAM.classify(replied(status, body)).outcome is not SendOutcome.SENT


def test_no_secret_is_shown() -> None:
    call = BY_PAGE.encode({"text": "Hi"}, Destination(channel_id=NOOR))
    verdict = BY_PAGE.classify(replied(401, {"error": {"code": 190, "message": f"Bad {TOKEN} app-hush {VERIFY}"}}))
    assert verdict.detail == "190: Bad *** *** ***"
    for secret in (TOKEN, "app-hush", "other-hush", VERIFY):
        assert secret not in repr(BY_PAGE) + repr(call) + call.url + verdict.detail


def test_it_is_a_channel() -> None:
    assert (INSTAGRAM.platform, INSTAGRAM.account) == (Platform.INSTAGRAM, "shop")
