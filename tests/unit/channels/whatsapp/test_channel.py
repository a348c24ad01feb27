"""One number at WhatsApp: whose webhooks it takes, which calls it makes, what it makes of the answers."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.whatsapp import CloudApi, Dialog360, WhatsAppChannel, WhatsAppFile, file_in, look_up, template_body
from hermes.ports.channels import (
    Destination,
    PlatformRequest,
    PlatformResponse,
    SendOutcome,
    SendResult,
    SupportsTemplates,
    Webhook,
    WebhookNotAuthentic,
)
from hermes.turn import Platform
from tests.unit.channels.whatsapp.payloads import GROUP_ID, MINA, MINA_ID, NUMBER_ID, THROUGH_360DIALOG, WHATSAPP

OLD, GUESS, TOKEN, APP, HEADER = "old", "guess", "EAA-hush", "app-hush", "X-Hermes-Secret"
BY_HEADER = Dialog360(api_key="d360-hush", webhook_secrets=(OLD, "new"), secret_header=HEADER)
DIRECTLY = CloudApi(access_token=TOKEN, phone_number_id=NUMBER_ID, app_secrets=("app-hush",), verify_tokens=("verify-hush",))
CLOUD = WhatsAppChannel(account="berlin", provider=DIRECTLY)

SENT_360DIALOG = {"D360-API-KEY": "d360-hush"}
SENT_CLOUD = {"Authorization": "Bearer EAA-hush"}


def through(provider: Dialog360 | CloudApi) -> WhatsAppChannel:
    return WhatsAppChannel(account="berlin", provider=provider)


def replied(status: int, body: Any) -> PlatformResponse:
    return PlatformResponse(status=status, headers={}, body=body if isinstance(body, bytes) else json.dumps(body).encode())


# --- whose webhooks it takes


@pytest.mark.parametrize("secret", ["old", "new"])
def test_360dialog_proves_itself_by_a_secret_in_the_path_or_in_a_header(secret: str) -> None:
    through(THROUGH_360DIALOG).verify(Webhook(headers={}, body=b"", path_secret=secret))
    through(BY_HEADER).verify(Webhook(headers={"x-hermes-secret": secret}, body=b""))


@pytest.mark.parametrize(
    "webhook",
    [
        Webhook(headers={}, body=b""),
        Webhook(headers={"x-hermes-secret": "", "d360-api-key": "old"}, body=b"", path_secret=""),
        Webhook(headers={"x-hermes-secret": "guess"}, body=b"", path_secret=GUESS),
        Webhook(headers={}, body=b"", query={"key": "old"}),
    ],
)
def test_nobody_else_does(webhook: Webhook) -> None:
    for provider in (THROUGH_360DIALOG, BY_HEADER):
        with pytest.raises(WebhookNotAuthentic):
            through(provider).verify(webhook)


def test_where_the_secret_is_in_a_header_the_path_is_not_asked_and_the_other_way_round() -> None:
    with pytest.raises(WebhookNotAuthentic):
        through(BY_HEADER).verify(Webhook(headers={}, body=b"", path_secret=OLD))
    with pytest.raises(WebhookNotAuthentic):
        through(THROUGH_360DIALOG).verify(Webhook(headers={"x-hermes-secret": "old"}, body=b""))


def test_meta_signs() -> None:
    signature = hmac.new(b"app-hush", b"{}", hashlib.sha256).hexdigest()
    CLOUD.verify(Webhook(headers={"x-hub-signature-256": f"sha256={signature}"}, body=b"{}"))
    with pytest.raises(WebhookNotAuthentic):
        CLOUD.verify(Webhook(headers={"x-hub-signature-256": f"sha256={signature}"}, body=b"{ }", path_secret=APP))


def test_meta_asks_and_360dialog_does_not() -> None:
    query = {"hub.mode": "subscribe", "hub.verify_token": "verify-hush", "hub.challenge": "42"}
    assert CLOUD.challenge(query) == "42"
    with pytest.raises(WebhookNotAuthentic):
        WHATSAPP.challenge(query | {"hub.verify_token": "old"})


# --- which calls it makes


def test_through_360dialog_the_key_is_in_a_header_and_the_number_nowhere() -> None:
    call = WHATSAPP.encode({"text": "*Hi*", "plain": "Hi"}, Destination(channel_id=MINA))
    assert call == PlatformRequest(
        method="POST",
        url="https://waba-v2.360dialog.io/messages",
        headers=SENT_360DIALOG,
        json={
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": MINA,
            "type": "text",
            "text": {"body": "*Hi*", "preview_url": False},
        },
    )


def test_at_meta_the_number_is_in_the_path_and_the_version_a_setting() -> None:
    provider = CloudApi(access_token=TOKEN, phone_number_id=NUMBER_ID, app_secrets=("s",), version="v26.0")
    call = through(provider).encode({"text": "Hi"}, Destination(channel_id=MINA))
    assert call.url == f"https://graph.facebook.com/v26.0/{NUMBER_ID}/messages"
    assert call.headers == SENT_CLOUD
    assert call.json == WHATSAPP.encode({"text": "Hi"}, Destination(channel_id=MINA)).json


@pytest.mark.parametrize(
    ("channel_id", "recipient"),
    [
        (MINA, {"recipient_type": "individual", "to": MINA}),
        (MINA_ID, {"recipient_type": "individual", "recipient": MINA_ID}),
        ("US.ENT.70010", {"recipient_type": "individual", "recipient": "US.ENT.70010"}),
        (f"group:{GROUP_ID}", {"recipient_type": "group", "to": GROUP_ID}),
        ("group:123", {"recipient_type": "group", "to": "123"}),
    ],
)
def test_a_channel_id_says_how_it_is_reached(channel_id: str, recipient: dict[str, str]) -> None:
    message = WHATSAPP.encode({"text": "Hi"}, Destination(channel_id=channel_id)).json
    assert message == {"messaging_product": "whatsapp", "type": "text", "text": {"body": "Hi", "preview_url": False}} | recipient


def test_an_answer_names_what_it_answers() -> None:
    message = WHATSAPP.encode({"text": "Hi"}, Destination(channel_id=MINA, reply_to="wamid.M1")).json
    assert message is not None
    assert message["context"] == {"message_id": "wamid.M1"}


def test_meta_is_told_what_we_call_a_message_and_360dialog_is_not() -> None:
    to = Destination(channel_id=MINA, reference="turn/0/")
    directly, through_360dialog = CLOUD.encode({"text": "Hi"}, to).json, WHATSAPP.encode({"text": "Hi"}, to).json
    assert directly is not None
    assert through_360dialog is not None
    assert directly == {**through_360dialog, "biz_opaque_callback_data": "turn/0/"}


def test_typing_marks_as_read_and_needs_a_message() -> None:
    call = WHATSAPP.typing(Destination(channel_id=MINA), message_id="wamid.M1")
    assert call is not None
    assert (call.url, call.headers) == ("https://waba-v2.360dialog.io/messages", SENT_360DIALOG)
    assert call.json == {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": "wamid.M1",
        "typing_indicator": {"type": "text"},
    }
    assert WHATSAPP.typing(Destination(channel_id=MINA), message_id=None) is None
    assert WHATSAPP.typing(Destination(channel_id=f"group:{GROUP_ID}"), message_id="wamid.M1") is None


def test_a_template_is_sent_as_one() -> None:
    body = template_body("order_ready", "de", ["Mina", "12"], components=[{"type": "header", "parameters": []}], text="Dear Mina …")
    message = WHATSAPP.encode(body, Destination(channel_id=MINA)).json
    assert message == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": MINA,
        "type": "template",
        "template": {
            "name": "order_ready",
            "language": {"code": "de"},
            "components": [
                {"type": "header", "parameters": []},
                {"type": "body", "parameters": [{"type": "text", "text": "Mina"}, {"type": "text", "text": "12"}]},
            ],
        },
    }
    assert template_body("hello", "en_US") == {"text": "", "template": {"name": "hello", "language": {"code": "en_US"}}}


def test_an_answer_becomes_the_one_value_of_a_template_if_it_fits() -> None:
    assert isinstance(WHATSAPP, SupportsTemplates)
    assert WHATSAPP.template("news", "en", "two\nlines\t and    more ") == template_body(
        "news", "en", ["two lines and more"], text="two\nlines\t and    more "
    )
    assert WHATSAPP.template("news", "en", "x" * 900) is not None
    assert WHATSAPP.template("news", "en", "x" * 901) is None
    assert WHATSAPP.template("news", "en", " \n ") is None


# --- files


def found(url: str) -> PlatformResponse:
    return replied(200, {"url": url, "mime_type": "image/jpeg", "file_size": "512", "sha256": "x", "id": "601"})


LOOKASIDE = "https://lookaside.fbsbx.com/whatsapp_business/attachments/?mid=601&ext=17&hash=AT%2Bx_y-z"


def test_a_file_is_looked_up_by_its_id() -> None:
    assert look_up(THROUGH_360DIALOG, "whatsapp:601") == PlatformRequest(
        method="GET", url="https://waba-v2.360dialog.io/601", headers=SENT_360DIALOG
    )
    assert look_up(DIRECTLY, "whatsapp:601") == PlatformRequest(
        method="GET", url=f"https://graph.facebook.com/v23.0/601?phone_number_id={NUMBER_ID}", headers=SENT_CLOUD
    )


def test_an_id_cannot_leave_its_place_in_the_path() -> None:
    call = look_up(THROUGH_360DIALOG, "whatsapp:../v1/configs?x#y@evil.example")
    assert call is not None
    assert call.url == "https://waba-v2.360dialog.io/..%2Fv1%2Fconfigs%3Fx%23y%40evil.example"


@pytest.mark.parametrize("reference", ["", "whatsapp:", "whatsapp:..", "whatsapp:./", "telegram:601", "https://m.example/601", "601"])
def test_what_is_no_file_of_whatsapp_is_not_looked_up(reference: str) -> None:
    assert look_up(THROUGH_360DIALOG, reference) is None


def test_through_360dialog_the_host_is_replaced_and_the_rest_stays_word_for_word() -> None:
    call = PlatformRequest(method="GET", url=LOOKASIDE.replace("lookaside.fbsbx.com", "waba-v2.360dialog.io"), headers=SENT_360DIALOG)
    assert file_in(THROUGH_360DIALOG, found(LOOKASIDE)) == WhatsAppFile(call=call, mime_type="image/jpeg", bytes=512)
    assert file_in(THROUGH_360DIALOG, found(call.url)) == WhatsAppFile(call=call, mime_type="image/jpeg", bytes=512)


def test_at_meta_the_token_goes_to_meta() -> None:
    call = PlatformRequest(method="GET", url=LOOKASIDE, headers=SENT_CLOUD)
    assert file_in(DIRECTLY, found(LOOKASIDE)) == WhatsAppFile(call=call, mime_type="image/jpeg", bytes=512)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/whatsapp_business/attachments/?mid=601",
        "http://lookaside.fbsbx.com/x",
        "https://lookaside.fbsbx.com.evil.example/x",
        "https://evil.example/lookaside.fbsbx.com/x",
        "https://lookaside.fbsbx.com@evil.example/x",
        "https://evil.example#@lookaside.fbsbx.com/x",
        "https://evil.example\\@lookaside.fbsbx.com/x",
        "https://lookaside.fbsbx.com\\.evil.example/x",
        "https://lookaside.fbsbx.com:8443/x",
        "https://lookaside.fbsbx.com?x=/y",
        "https://lookaside.fbsbx.com",
        "https://lookaside.fbsbx.com/\r\nHost: evil.example",
        "https://lookaside.fbsbx.com /x",
        "https://lookaside.fbsbx.com/x y",
        "https://lookaside.fbsbx.com/\\evil.example",
        "https://lookaside.fbsbx.com/x#y",
        "https://\u217bookaside.fbsbx.com/x",
        "https:lookaside.fbsbx.com/x",
        "//lookaside.fbsbx.com/x",
        "file:///etc/passwd",
        "",
    ],
)
def test_no_key_goes_anywhere_else(url: str) -> None:
    assert file_in(THROUGH_360DIALOG, found(url)) is None
    assert file_in(DIRECTLY, found(url)) is None


@pytest.mark.parametrize(
    "reply", [replied(404, {"url": LOOKASIDE}), replied(200, b""), replied(200, []), replied(200, {}), replied(200, {"url": 5})]
)
def test_an_answer_that_names_no_file_is_none(reply: PlatformResponse) -> None:
    assert file_in(THROUGH_360DIALOG, reply) is None


@given(host=st.from_regex(r"[a-z.@:/\\?#]{0,30}", fullmatch=True))
def test_whatever_the_address_the_key_goes_to_360dialog_or_nowhere(host: str) -> None:
    file = file_in(THROUGH_360DIALOG, found(f"https://{host}/x"))
    assert file is None or file.call.url.startswith("https://waba-v2.360dialog.io/")


# --- what it makes of the answers


def test_what_was_taken_has_an_id() -> None:
    body = {"contacts": [{"input": MINA, "wa_id": MINA}], "messages": [{"id": "wamid.OURS", "message_status": "accepted"}]}
    assert WHATSAPP.classify(replied(200, body)) == SendResult(outcome=SendOutcome.SENT, message_id="wamid.OURS")
    assert WHATSAPP.classify(replied(200, {"success": True})) == SendResult(outcome=SendOutcome.SENT)
    assert WHATSAPP.classify(replied(200, {"success": False})).outcome is SendOutcome.AMBIGUOUS
    assert WHATSAPP.classify(replied(200, {"messages": [{"id": ""}]})).outcome is SendOutcome.AMBIGUOUS


def test_a_number_in_the_path_that_is_not_ours_stops_the_channel() -> None:
    error = {"code": 100, "error_subcode": 33, "message": "Unsupported post request. Object with ID '1' does not exist"}
    assert CLOUD.classify(replied(400, {"error": error})).outcome is SendOutcome.UNAUTHORIZED


@given(status=st.integers(100, 599), body=st.binary())
def test_no_answer_raises(status: int, body: bytes) -> None:
    assert WHATSAPP.classify(replied(status, body)).outcome is not SendOutcome.SENT


# --- secrets


def test_no_secret_is_shown() -> None:
    for channel in (WHATSAPP, through(BY_HEADER), CLOUD):
        call = channel.encode({"text": "Hi"}, Destination(channel_id=MINA))
        error = {"code": 190, "message": "Bad token d360-hush EAA-hush app-hush verify-hush"}
        verdict = channel.classify(replied(401, {"error": error}))
        assert verdict.detail.startswith("190: Bad token")
        for secret in channel.provider.secrets:
            assert secret not in repr(channel)
            assert secret not in repr(call)
            assert secret not in call.url
            assert secret not in verdict.detail


def test_it_is_a_channel() -> None:
    assert (WHATSAPP.platform, WHATSAPP.account) == (Platform.WHATSAPP, "berlin")
