"""What a webhook of WhatsApp holds."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.whatsapp import CloudApi, Dialog360, WhatsAppChannel
from hermes.ports.channels import DeliveryReceipt, IdChanged, Ignored, InboundMessage, Media, Reaction, ReceiptRank, SendOutcome
from hermes.turn import Envelope, MessageEvent, Platform
from tests.unit.channels.meta.shaken import ANYTHING, shaken
from tests.unit.channels.whatsapp.payloads import (
    GROUP_ID,
    MINA,
    MINA_ID,
    NOW,
    NUMBER_ID,
    OWN,
    SENT_AT,
    STAMP,
    WHATSAPP,
    change,
    happened,
    heard,
    message,
    payload,
    text,
    value,
    webhook,
)

CLOUD = WhatsAppChannel(account="berlin", provider=CloudApi(access_token=NUMBER_ID, phone_number_id=NUMBER_ID, app_secrets=("s",)))
HELLO = InboundMessage(
    envelope=Envelope(
        event=MessageEvent(platform=Platform.WHATSAPP, sender_id=MINA, text="hello"),
        account="berlin",
        channel_id=MINA,
        event_key=f"{NUMBER_ID}:wamid.M1",
        sent_at=SENT_AT,
    ),
    message_id="wamid.M1",
    name="Mina",
)


def hello(**event: Any) -> InboundMessage:
    """Mina's message with another content."""
    return replace(HELLO, envelope=replace(HELLO.envelope, event=replace(HELLO.envelope.event, **event)))


TEA = {"product_retailer_id": "tea", "quantity": 2, "item_price": 3.5, "currency": "EUR"}


def status(state: str, **more: Any) -> dict[str, Any]:
    return {"id": "wamid.OURS", "status": state, "timestamp": STAMP, "recipient_id": MINA} | more


def test_a_status_repeats_what_we_called_the_message() -> None:
    [found] = happened(payload(change(statuses=[status("sent", biz_opaque_callback_data="turn/0/")])))
    assert isinstance(found, DeliveryReceipt)
    assert found.reference == "turn/0/"


@pytest.mark.parametrize(("channel", "channel_id"), [(WHATSAPP, MINA), (CLOUD, None)])
def test_at_meta_a_status_without_a_name_of_ours_is_of_another_apps_message(channel: WhatsAppChannel, channel_id: str | None) -> None:
    """It says nothing of a message whose id was lost. 360dialog repeats no name, so there it may."""
    [found] = happened(payload(change(statuses=[status("delivered")])), channel)
    assert isinstance(found, DeliveryReceipt)
    assert found.channel_id == channel_id


# --- messages


def test_a_text_is_heard() -> None:
    assert heard(text()) == [HELLO]


def test_every_level_is_walked() -> None:
    content = payload(
        change(messages=[text(id="wamid.1"), text(id="wamid.2")], statuses=[status("sent"), status("read")], errors=[{"code": 130429}]),
        change(messages=[text(id="wamid.3")]),
        change("account_update"),
    )
    content["entry"] += payload(change(messages=[text(id="wamid.4")], errors=[{"code": 1}, {"code": 2}]))["entry"]
    found = happened(content)
    assert [happening.message_id for happening in found if isinstance(happening, InboundMessage)] == [
        "wamid.1",
        "wamid.2",
        "wamid.3",
        "wamid.4",
    ]
    assert [happening.rank for happening in found if isinstance(happening, DeliveryReceipt)] == [ReceiptRank.SENT, ReceiptRank.READ]
    assert [happening.reason for happening in found if isinstance(happening, Ignored)] == ["error", "other_field", "error", "error"]


def test_the_same_message_twice_in_one_post_is_heard_once() -> None:
    assert heard(text(), text()) == [HELLO, Ignored(reason="duplicate")]
    assert happened(payload(change(messages=[text()]), change(messages=[text()]))) == [HELLO, Ignored(reason="duplicate")]


def test_what_it_answers_is_known_and_what_was_forwarded_answers_nothing() -> None:
    assert heard(text(context={"from": OWN, "id": "wamid.OURS"})) == [replace(HELLO, reply_to="wamid.OURS")]
    assert heard(text(context={"forwarded": True})) == [HELLO]


def test_an_advertisement_or_a_product_beside_the_text_changes_nothing() -> None:
    assert heard(text(referral={"source_type": "ad", "body": "Buy"}, context={"referred_product": {"catalog_id": "1"}})) == [HELLO]


@pytest.mark.parametrize("stamp", [int(STAMP), f"{STAMP}000", int(STAMP) * 1000])
def test_a_time_is_read_in_whatever_form(stamp: Any) -> None:
    assert heard(text(timestamp=stamp)) == [HELLO]


def test_a_time_that_is_none_is_left_out() -> None:
    assert heard(text(timestamp="soon")) == [replace(HELLO, envelope=replace(HELLO.envelope, sent_at=None))]


# --- who, and where


def test_who_has_a_number_and_a_user_id_goes_by_the_number_and_is_known_by_both() -> None:
    assert heard(text(from_user_id=MINA_ID)) == [replace(HELLO, alias=MINA_ID)]
    contacts = [{"profile": {"name": "Mina"}, "wa_id": MINA, "user_id": MINA_ID}]
    assert happened(payload(change(messages=[text()], contacts=contacts))) == [replace(HELLO, alias=MINA_ID)]


def test_who_shows_no_number_goes_by_the_user_id() -> None:
    nameless = {key: item for key, item in text(from_user_id=MINA_ID).items() if key != "from"}
    contacts = [{"profile": {"username": "@mina"}, "user_id": MINA_ID}]
    [found] = happened(payload(change(messages=[nameless], contacts=contacts)))
    envelope = replace(HELLO.envelope, event=replace(HELLO.envelope.event, sender_id=MINA_ID), channel_id=MINA_ID)
    assert found == replace(HELLO, envelope=envelope, name="@mina")


def test_in_a_group_the_channel_is_the_group_and_the_sender_the_person() -> None:
    [found] = heard(text(group_id=GROUP_ID))
    assert found == replace(HELLO, envelope=replace(HELLO.envelope, channel_id=f"group:{GROUP_ID}", is_shared=True))


def test_everybody_in_a_batch_has_their_own_name() -> None:
    contacts = [{"profile": {"name": "Mina"}, "wa_id": MINA}, {"profile": {"name": "Tom"}, "wa_id": "4915700000002"}, {"wa_id": "3"}]
    messages = [text(id=f"wamid.{sender}", **{"from": sender}) for sender in ("4915700000002", MINA, "3", "4")]
    found = happened(payload(change(messages=messages, contacts=contacts)))
    assert [happening.name for happening in found if isinstance(happening, InboundMessage)] == ["Tom", "Mina", None, None]


def test_a_message_to_another_number_is_not_ours() -> None:
    other = value(messages=[text()]) | {"metadata": {"display_phone_number": "1", "phone_number_id": "999"}}
    found = happened(payload({"field": "messages", "value": other}, change(messages=[text()])))
    assert found == [Ignored(reason="other_account", meant_for="999"), HELLO]


def test_of_a_webhook_of_the_whole_app_a_number_takes_only_what_names_it() -> None:
    other = value(messages=[text(id="wamid.2")]) | {"metadata": {"display_phone_number": "1", "phone_number_id": "999"}}
    bare = {key: item for key, item in value(messages=[text(id="wamid.3")]).items() if key != "metadata"}
    content = payload(
        {"field": "messages", "value": other},
        change(messages=[text()], statuses=[status("read")]),
        {"field": "messages", "value": bare},
        change("account_update"),
    )
    heard_here, receipt, passed = CLOUD.parse_shared(webhook(content), now=NOW)
    assert (heard_here, type(receipt), passed) == (HELLO, DeliveryReceipt, Ignored(reason="other_field"))
    assert (CLOUD.webhook_id, WHATSAPP.webhook_id) == (NUMBER_ID, None)
    assert WHATSAPP.parse_shared(webhook(content), now=NOW) == [Ignored(reason="empty")], "at 360dialog every number has its own URL"


def test_a_message_that_names_no_number_came_to_ours() -> None:
    bare = {key: item for key, item in value(messages=[text()]).items() if key != "metadata"}
    assert happened(payload({"field": "messages", "value": bare})) == [HELLO]


def test_without_a_number_in_the_settings_all_are_taken_and_kept_apart() -> None:
    channel = WhatsAppChannel(account="berlin", provider=Dialog360(api_key="k", webhook_secrets=("s",)))
    assert happened(payload(change(messages=[text()])), channel) == [HELLO]
    other = value(messages=[text()]) | {"metadata": {"phone_number_id": "999"}}
    [found] = happened(payload({"field": "messages", "value": other}), channel)
    assert isinstance(found, InboundMessage)
    assert found.envelope.event_key == "999:wamid.M1"


# --- what a message says


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (message("button", {"payload": "STOP", "text": "Please stop"}), "Please stop"),
        (message("button", {"payload": "STOP"}), "STOP"),
        (message("interactive", {"type": "button_reply", "button_reply": {"id": "no", "title": "Cancel"}}), "Cancel"),
        (message("interactive", {"type": "list_reply", "list_reply": {"id": "x", "title": "Express", "description": "a day"}}), "Express"),
        (
            message(
                "interactive",
                {"type": "nfm_reply", "nfm_reply": {"body": "S", "response_json": '{"flow_token": "t", "day": "Mo", "n": [1]}'}},
            ),
            "day: Mo\nn: [1]",
        ),
        (message("interactive", {"type": "nfm_reply", "nfm_reply": {"body": "Sent", "response_json": "{"}}), "Sent"),
        (message("location", {"latitude": -8.65, "longitude": 115.13}), "📍 -8.65, 115.13"),
        (
            message("location", {"latitude": 1, "longitude": 2.5, "name": "Echo Bar", "address": "Beach 1", "url": "https://e.example"}),
            "📍 Echo Bar, Beach 1 (1, 2.5)\nhttps://e.example",
        ),
        (
            message(
                "contacts",
                [
                    {
                        "name": {"formatted_name": "Ida Berg"},
                        "org": {"company": "Berg AG"},
                        "phones": [{"phone": "+49 1"}, {"phone": "+49 2"}],
                    },
                    {"name": {"first_name": "Bo"}, "emails": [{"email": "bo@e.example"}]},
                ],
            ),
            "👤 Ida Berg, Berg AG, +49 1, +49 2\n👤 Bo, bo@e.example",
        ),
        (
            message(
                "order",
                {"text": "quick", "product_items": [TEA]},
            ),
            "quick\n🛒 2 \N{MULTIPLICATION SIGN} tea (3.5 EUR)",
        ),
        (message("order", {"product_items": [{"product_retailer_id": "tea"}]}), "🛒 1 \N{MULTIPLICATION SIGN} tea"),
    ],
)
def test_what_is_said_without_typing_is_text_too(written: dict[str, Any], said: str) -> None:
    pressed = written.get("interactive", {}).get("button_reply", {}).get("id", "")
    expected = hello(text=said)
    assert heard(written) == [replace(expected, envelope=replace(expected.envelope, choice=pressed))]


@pytest.mark.parametrize(
    ("kind", "part", "media_type"),
    [
        ("image", {"mime_type": "image/jpeg", "sha256": "x", "url": "https://lookaside.fbsbx.com/x?hash=y"}, "image/jpeg"),
        ("image", {}, "image/*"),
        ("video", {"mime_type": "video/mp4"}, "video/mp4"),
        ("audio", {"mime_type": "audio/ogg; codecs=opus", "voice": True}, "audio/ogg; codecs=opus"),
        ("sticker", {"animated": True}, "image/webp"),
        ("document", {}, "application/octet-stream"),
    ],
)
def test_a_file_is_heard_by_its_id_and_its_address_is_forgotten(kind: str, part: dict[str, Any], media_type: str) -> None:
    media = Media(reference="whatsapp:601", kind=kind, mime_type=part.get("mime_type"))
    expected = replace(hello(text="", media_url="whatsapp:berlin/601", media_type=media_type), media=(media,))
    assert heard(message(kind, {"id": "601"} | part)) == [expected]


def test_a_file_has_its_caption_and_its_name() -> None:
    part = {"id": 601, "caption": "the bill", "filename": "bill.pdf", "mime_type": "application/pdf", "file_size": 512}
    media = Media(reference="whatsapp:601", kind="document", mime_type="application/pdf", name="bill.pdf", bytes=512)
    expected = replace(hello(text="the bill", media_url="whatsapp:berlin/601", media_type="application/pdf"), media=(media,))
    assert heard(message("document", part)) == [expected]


@pytest.mark.parametrize(
    ("written", "caption"),
    [
        (message("unsupported", errors=[{"code": 131051, "title": "Message type unknown"}]), ""),
        (message("image", {"caption": "look"}, errors=[{"code": 131052}]), "look"),
        (message("audio"), ""),
    ],
)
def test_what_nobody_can_read_is_heard_so_that_the_user_is_told(written: dict[str, Any], caption: str) -> None:
    assert heard(written) == [hello(text=caption, media_type="unsupported")]


# --- what starts no turn


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (message("edit", {"original_message_id": "wamid.M0", "message": {"type": "text", "text": {"body": "new"}}}), "edit"),
        (message("revoke", {"original_message_id": "wamid.M0"}), "revoke"),
        (message("poll_of_the_future", {"question": "?"}), "unknown_kind"),
        (message("interactive", {"type": "call_permission_reply", "call_permission_reply": {"response": "accept"}}), "unknown_kind"),
        (message("text", {"body": "  "}), "unknown_kind"),
        (message("order", {}), "unknown_kind"),
        (message("system", {"type": "customer_identity_changed", "body": "…"}), "system"),
        (message("system", {"type": "user_changed_number"}), "system"),
        (message("reaction", {"emoji": "👍"}), "incomplete"),
        (text(id=""), "incomplete"),
        ({"id": "wamid.1", "type": "text", "text": {"body": "who?"}}, "incomplete"),
        (text(**{"from": OWN}), "echo"),
    ],
)
def test_nothing_else_starts_a_turn(written: dict[str, Any], reason: str) -> None:
    assert heard(written) == [Ignored(reason=reason)]


@pytest.mark.parametrize(
    ("field", "more", "reasons"),
    [
        ("smb_message_echoes", {"message_echoes": [{"from": OWN, "to": MINA, "id": "wamid.E", "type": "text"}] * 2}, ["echo", "echo"]),
        ("smb_message_echoes", {}, ["echo"]),
        ("standby", {"standby": {"messages": [text()]}}, ["standby"]),
        ("group_lifecycle_update", {"groups": [{"group_id": GROUP_ID, "type": "group_create"}]}, ["other_field"]),
        ("message_template_status_update", {}, ["other_field"]),
        ("history", {"messages": [text()]}, ["other_field"]),
        ("messages", {}, []),
    ],
)
def test_other_news_start_none_either(field: str, more: dict[str, Any], reasons: list[str]) -> None:
    assert happened(payload(change(field, **more))) == [Ignored(reason=reason) for reason in reasons or ["empty"]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"[]", "not_json"),
        ({}, "empty"),
        ({"object": "page", "entry": []}, "other_object"),
        ({"object": "whatsapp_business_account", "entry": "none"}, "empty"),
    ],
)
def test_what_is_no_webhook_of_whatsapp_is_passed_over(content: Any, reason: str) -> None:
    assert happened(content) == [Ignored(reason=reason)]


# --- reactions, receipts, new names


@pytest.mark.parametrize(("part", "emoji"), [({"emoji": "👍"}, "👍"), ({"emoji": ""}, ""), ({}, "")])
def test_a_reaction_is_kept_and_an_empty_one_takes_it_back(part: dict[str, str], emoji: str) -> None:
    assert heard(message("reaction", {"message_id": "wamid.OURS"} | part)) == [
        Reaction(message_id="wamid.OURS", sender_id=MINA, emoji=emoji)
    ]


@pytest.mark.parametrize(
    ("state", "rank"),
    [("sent", ReceiptRank.SENT), ("delivered", ReceiptRank.DELIVERED), ("read", ReceiptRank.READ), ("played", ReceiptRank.READ)],
)
def test_a_status_is_a_receipt(state: str, rank: ReceiptRank) -> None:
    expected = DeliveryReceipt(message_id="wamid.OURS", rank=rank, at=SENT_AT, channel_id=MINA)
    assert happened(payload(change(statuses=[status(state, conversation={"id": "c"}, pricing={"billable": True})]))) == [expected]


def test_ranks_only_rise() -> None:
    assert ReceiptRank.SENT < ReceiptRank.DELIVERED < ReceiptRank.READ < ReceiptRank.FAILED


@pytest.mark.parametrize(
    ("more", "channel_id"),
    [
        ({"recipient_user_id": MINA_ID}, MINA),
        ({"recipient_id": None, "recipient_user_id": MINA_ID}, MINA_ID),
        ({"recipient_id": GROUP_ID, "recipient_type": "group"}, f"group:{GROUP_ID}"),
        ({"recipient_id": None}, None),
    ],
)
def test_a_receipt_knows_the_channel(more: dict[str, Any], channel_id: str | None) -> None:
    expected = DeliveryReceipt(message_id="wamid.OURS", rank=ReceiptRank.SENT, at=SENT_AT, channel_id=channel_id)
    assert happened(payload(change(statuses=[status("sent", **more)]))) == [expected]


@pytest.mark.parametrize(
    ("errors", "error", "detail"),
    [
        ([{"code": 131047, "title": "Re-engagement message"}], SendOutcome.WINDOW_CLOSED, "131047: Re-engagement message"),
        (
            [{"code": 131026, "message": "Message undeliverable"}, {"code": 4}],
            SendOutcome.INVALID_RECIPIENT,
            "131026: Message undeliverable",
        ),
        ([{"code": 131049, "title": "T", "message": "T", "error_data": {"details": "D"}}], SendOutcome.REJECTED, "131049: T: D"),
        ([{"code": 131000}], SendOutcome.SERVICE_UNAVAILABLE, "131000"),
        ([], SendOutcome.REJECTED, ""),
        (None, SendOutcome.REJECTED, ""),
    ],
)
def test_a_failed_one_says_why(errors: Any, error: SendOutcome, detail: str) -> None:
    expected = DeliveryReceipt(message_id="wamid.OURS", rank=ReceiptRank.FAILED, at=SENT_AT, error=error, detail=detail, channel_id=MINA)
    assert happened(payload(change(statuses=[status("failed", errors=errors)]))) == [expected]


@pytest.mark.parametrize("odd", [status("warning"), status("deleted"), {"status": "sent"}, {}])
def test_a_status_that_says_nothing_of_a_message_is_passed_over(odd: dict[str, Any]) -> None:
    assert happened(payload(change(statuses=[odd]))) == [Ignored(reason="status")]


@pytest.mark.parametrize(
    ("system", "renamed"),
    [
        ({"type": "user_changed_number", "wa_id": "4915799999999", "body": "…"}, [(MINA, "4915799999999")]),
        ({"type": "user_changed_number", "new_wa_id": "4915799999999"}, [(MINA, "4915799999999")]),
        (
            {"type": "user_changed_number", "wa_id": "4915799999999", "user_id": "DE.2", "previous_user_id": MINA_ID},
            [(MINA, "4915799999999"), (MINA_ID, "DE.2")],
        ),
        ({"type": "user_changed_number", "user_id": "DE.2"}, [(MINA, "DE.2")]),
    ],
)
def test_a_new_number_is_a_new_name(system: dict[str, str], renamed: list[tuple[str, str]]) -> None:
    assert heard(message("system", system)) == [IdChanged(old=old, new=new) for old, new in renamed]


def test_a_new_user_id_is_a_new_name_whichever_way_it_is_told() -> None:
    system = {"type": "user_changed_user_id", "user_id": "DE.2", "previous_user_id": MINA_ID}
    assert heard({"id": "wamid.S", "timestamp": STAMP, "type": "system", "system": system}) == [IdChanged(old=MINA_ID, new="DE.2")]
    update = {"wa_id": MINA, "user_id": {"previous": MINA_ID, "current": "DE.2"}, "parent_user_id": {"previous": "a", "current": "b"}}
    assert happened(payload(change("user_id_update", user_id_update=[update]))) == [IdChanged(old=MINA_ID, new="DE.2")]


@pytest.mark.parametrize("ids", [{}, {"previous": MINA_ID}, {"current": MINA_ID}, {"previous": MINA_ID, "current": MINA_ID}, None])
def test_no_change_is_no_new_name(ids: Any) -> None:
    assert happened(payload(change("user_id_update", user_id_update=[{"user_id": ids}]))) == [Ignored(reason="system")]


# --- whatever comes

WHOLE = payload(
    change(
        messages=[
            text(from_user_id=MINA_ID, group_id=GROUP_ID, context={"id": "wamid.0"}),
            message("image", {"id": "1", "caption": "c", "mime_type": "image/png"}),
            message("interactive", {"type": "nfm_reply", "nfm_reply": {"response_json": '{"a": {}}', "body": "b"}}),
            message("location", {"latitude": 1, "longitude": 2, "name": "n", "address": "a"}),
            message("contacts", [{"name": {"formatted_name": "n"}, "org": {"company": "c"}, "phones": [{"phone": "1"}]}]),
            message("order", {"text": "t", "product_items": [{"product_retailer_id": "p", "quantity": 1, "item_price": 1}]}),
            message("system", {"type": "user_changed_number", "wa_id": "1", "user_id": "2", "previous_user_id": "3"}),
            message("reaction", {"message_id": "wamid.0", "emoji": "👍"}),
            message("button", {"text": "t", "payload": "p"}),
        ],
        statuses=[status("failed", errors=[{"code": 1, "title": "t", "error_data": {"details": "d"}}])],
        errors=[{"code": 1}],
    ),
    change("user_id_update", user_id_update=[{"user_id": {"previous": "1", "current": "2"}}]),
    change("smb_message_echoes", message_echoes=[{}]),
)


@given(content=shaken(WHOLE) | ANYTHING)
def test_nothing_raises_and_all_that_is_heard_can_be_stored(content: Any) -> None:
    found = happened(content)
    assert found
    for happening in found:
        if isinstance(happening, InboundMessage):
            envelope = happening.envelope
            assert envelope.channel_id
            assert envelope.event.text.strip() or envelope.event.media_type
            "".join((envelope.channel_id, envelope.event_key, envelope.event.text, happening.name or "")).encode()


@given(body=st.binary())
def test_no_bytes_raise(body: bytes) -> None:
    assert happened(body)


def test_a_webhook_of_three_megabytes_is_read_once() -> None:
    many = [text(f"message {number} " + "x" * 500, id=f"wamid.{number}") for number in range(5_000)]
    content = json.dumps(payload(change(messages=many))).encode()
    found = WHATSAPP.parse(webhook(content), now=NOW)
    assert len({happening.envelope.event_key for happening in found if isinstance(happening, InboundMessage)}) == 5_000


def test_a_clock_that_is_ahead_does_not_count() -> None:
    ahead = str(int(datetime(2030, 1, 1, tzinfo=UTC).timestamp()))
    assert heard(text(timestamp=ahead)) == [replace(HELLO, envelope=replace(HELLO.envelope, sent_at=NOW))]
