"""What a webhook of Instagram holds."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.instagram import InstagramChannel, InstagramLogin
from hermes.ports.channels import DeliveryReceipt, Ignored, InboundEvent, InboundMessage, Media, Reaction, ReceiptRank, Webhook
from hermes.turn import Envelope, MessageEvent, Platform
from tests.unit.channels.instagram.account import INSTAGRAM, NOOR, OURS, TOKEN
from tests.unit.channels.meta.shaken import ANYTHING, shaken

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
SENT_AT = datetime(2026, 5, 4, 11, 59, 30, 250000, tzinfo=UTC)
STAMP = int(SENT_AT.timestamp() * 1000)

HELLO = InboundMessage(
    envelope=Envelope(
        event=MessageEvent(platform=Platform.INSTAGRAM, sender_id=NOOR, text="hello"),
        account="shop",
        channel_id=NOOR,
        event_key=f"{OURS}:mid.1",
        sent_at=SENT_AT,
    ),
    message_id="mid.1",
)


def hello(*media: Media, attachments: tuple[str, ...] = (), reply_to: str | None = None, **event: Any) -> InboundMessage:
    """Noor's message with another content."""
    envelope = replace(HELLO.envelope, event=replace(HELLO.envelope.event, **event), attachments=attachments)
    return replace(HELLO, envelope=envelope, media=media, reply_to=reply_to)


def item(**more: Any) -> dict[str, Any]:
    return {"sender": {"id": NOOR}, "recipient": {"id": OURS}, "timestamp": STAMP} | more


def message(**more: Any) -> dict[str, Any]:
    return item(message={"mid": "mid.1"} | more)


def attached(kind: str, **payload: Any) -> dict[str, Any]:
    return {"type": kind, "payload": payload}


def payload(*items: dict[str, Any], key: str = "messaging", account: str = OURS) -> dict[str, Any]:
    return {"object": "instagram", "entry": [{"id": account, "time": STAMP, key: list(items)}]}


def happened(content: Any) -> list[InboundEvent]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return list(INSTAGRAM.parse(Webhook(headers={}, body=body), now=NOW))


def heard(*items: dict[str, Any]) -> list[InboundEvent]:
    return happened(payload(*items))


# --- messages


def test_a_text_is_heard() -> None:
    assert heard(message(text="hello")) == [HELLO]


def test_every_level_is_walked() -> None:
    content = payload(message(mid="mid.1", text="1"), item(read={"mid": "mid.OURS"}), message(mid="mid.2", text="2"))
    content["entry"] += payload(message(mid="mid.3", text="3"))["entry"] + payload(message(mid="mid.4", text="4"), account="other")["entry"]
    found = happened(content)
    assert [happening.message_id for happening in found if isinstance(happening, InboundMessage)] == ["mid.1", "mid.2", "mid.3"]
    assert [type(happening) for happening in found] == [InboundMessage, DeliveryReceipt, InboundMessage, InboundMessage, Ignored]


def test_the_same_message_twice_in_one_post_is_heard_once() -> None:
    assert heard(message(text="hello"), message(text="hello")) == [HELLO, Ignored(reason="duplicate")]


def test_the_same_person_at_another_account_is_another_conversation() -> None:
    other = InstagramChannel(account="bar", instagram_id="1784", login=InstagramLogin.PAGE, access_token=TOKEN, app_secrets=("a",))
    body = json.dumps(payload(message(text="hello"), account="1784")).encode()
    [found] = other.parse(Webhook(headers={}, body=body), now=NOW)
    assert isinstance(found, InboundMessage)
    assert found.envelope.conversation_key == f"instagram:channel:bar/{NOOR}"
    assert found.envelope.event_key == "1784:mid.1"
    assert HELLO.envelope.conversation_key == f"instagram:channel:shop/{NOOR}"


@pytest.mark.parametrize(
    ("written", "said", "choice"),
    [
        (message(text="Yes", quick_reply={"payload": "CONFIRM"}), "Yes", "CONFIRM"),
        (message(quick_reply={"payload": "CONFIRM"}), "CONFIRM", "CONFIRM"),
        (message(attachments=[{"type": "like_heart"}]), "❤️", ""),
        (message(text="thanks", attachments=[{"type": "like_heart"}]), "thanks", ""),
        (item(postback={"mid": "mid.1", "title": "Track order", "payload": "TRACK"}), "Track order", "TRACK"),
        (item(postback={"mid": "mid.1", "payload": "TRACK"}), "TRACK", "TRACK"),
    ],
)
def test_what_is_said_without_typing_is_text_too(written: dict[str, Any], said: str, choice: str) -> None:
    expected = hello(text=said)
    assert heard(written) == [replace(expected, envelope=replace(expected.envelope, choice=choice))]


def test_a_postback_without_an_id_is_known_by_who_and_when() -> None:
    [found] = heard(item(postback={"title": "Start"}))
    assert isinstance(found, InboundMessage)
    assert found.envelope.event_key == f"{OURS}:{NOOR}/{STAMP}"


@pytest.mark.parametrize(
    ("kind", "named", "media_type"),
    [
        ("image", "image", "image/*"),
        ("video", "video", "video/*"),
        ("audio", "audio", "audio/*"),
        ("file", "document", "application/octet-stream"),
        ("ig_reel", "video", "video/*"),
        ("reel", "video", "video/*"),
        ("share", "share", None),
        ("ig_post", "ig_post", None),
        ("story_mention", "story_mention", None),
        ("of_the_future", "of_the_future", None),
    ],
)
def test_a_file_is_heard_by_its_public_address(kind: str, named: str, media_type: str | None) -> None:
    media = Media(reference="https://cdn.example/1", kind=named)
    expected = hello(media, text="", media_url="https://cdn.example/1", media_type=media_type)
    assert heard(message(attachments=[attached(kind, url="https://cdn.example/1")])) == [expected]


def test_a_story_has_its_address_elsewhere_and_a_reel_has_a_title() -> None:
    story = Media(reference="https://cdn.example/s", kind="ig_story")
    assert heard(message(attachments=[attached("ig_story", story_media_url="https://cdn.example/s")])) == [
        hello(story, text="", media_url="https://cdn.example/s")
    ]
    reel = Media(reference="https://cdn.example/r", kind="video", name="Sunset")
    assert heard(message(attachments=[attached("ig_reel", url="https://cdn.example/r", title="Sunset", reel_video_id=5)])) == [
        hello(reel, text="", media_url="https://cdn.example/r", media_type="video/*")
    ]


def test_several_files_are_one_turn() -> None:
    first, second = (Media(reference=f"https://cdn.example/{number}", kind="image") for number in (1, 2))
    written = message(text="look", attachments=[attached("image", url=first.reference), attached("image", url=second.reference)])
    expected = hello(first, second, attachments=(second.reference,), text="look", media_url=first.reference, media_type="image/*")
    assert heard(written) == [expected]


def test_an_answer_to_a_story_is_its_text_with_the_story_beside_it() -> None:
    story = Media(reference="https://cdn.example/story", kind="story")
    written = message(text="Is this available?", reply_to={"story": {"id": "18", "url": "https://cdn.example/story"}})
    assert heard(written) == [hello(story, attachments=("https://cdn.example/story",), text="Is this available?")]


def test_an_answer_to_a_message_names_it() -> None:
    assert heard(message(text="hello", reply_to={"mid": "mid.0"})) == [hello(reply_to="mid.0")]


@pytest.mark.parametrize(
    "written",
    [
        message(is_unsupported=True),
        message(attachments=[{"type": "ephemeral"}]),
        message(attachments=[attached("image", url="http://cdn.example/1")]),
        message(attachments=[attached("image", url="file:///etc/passwd")]),
    ],
)
def test_what_nobody_can_read_is_heard_so_that_the_user_is_told(written: dict[str, Any]) -> None:
    assert heard(written) == [hello(text="", media_type="unsupported")]


# --- what starts no turn


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (message(is_deleted=True), "deleted"),
        (message(), "empty"),
        (message(text=" "), "empty"),
        (item(message={"text": "no id"}), "incomplete"),
        ({"message": {"mid": "mid.1", "text": "who?"}}, "incomplete"),
        (item(message_edit={"mid": "mid.1", "text": "new", "num_edit": 1}), "edit"),
        (item(referral={"ref": "x"}), "unknown_kind"),
        (item(pass_thread_control={"new_owner_app_id": "1"}), "unknown_kind"),
        (item(of_the_future={}), "unknown_kind"),
        (item(postback={"mid": "mid.1"}), "incomplete"),
        (item(reaction={"action": "react", "emoji": "❤"}), "incomplete"),
        (item(read={"watermark": STAMP}), "status"),
        (item(sender={"id": OURS}, reaction={"mid": "mid.1", "emoji": "❤"}), "echo"),
    ],
)
def test_nothing_else_starts_a_turn(written: dict[str, Any], reason: str) -> None:
    assert heard(written) == [Ignored(reason=reason)]


def test_what_another_app_answers_is_not_ours_to_answer() -> None:
    assert happened(payload(message(text="hello"), message(text="hi"), key="standby")) == [Ignored(reason="standby")] * 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not_json"),
        (b"[]", "not_json"),
        ({}, "other_object"),
        ({"object": "page", "entry": []}, "other_object"),
        ({"object": "instagram"}, "empty"),
        (payload({"field": "comments", "value": {"id": "5", "text": "nice"}}, key="changes"), "other_field"),
    ],
)
def test_what_is_not_for_us_is_passed_over(content: Any, reason: str) -> None:
    assert happened(content) == [Ignored(reason=reason)]


def test_what_names_another_account_is_passed_over_with_its_id() -> None:
    content = payload(message(text="hello"), account="17841499999999999")
    assert happened(content) == [Ignored(reason="other_account", meant_for="17841499999999999")]


def test_of_a_webhook_of_the_whole_app_an_account_takes_only_what_names_it() -> None:
    content = payload(message(mid="mid.9", text="hi"), account="17841499999999999")
    content["entry"] += payload(message(text="hello"), item(read={"mid": "mid.OURS"}))["entry"] + payload(account="0")["entry"]
    heard_here, receipt = INSTAGRAM.parse_shared(Webhook(headers={}, body=json.dumps(content).encode()), now=NOW)
    assert (heard_here, type(receipt), INSTAGRAM.webhook_id) == (HELLO, DeliveryReceipt, OURS)


def test_the_test_button_is_passed_over() -> None:
    value = {"sender": {"id": "12334"}, "recipient": {"id": "23245"}, "timestamp": "1527459824", "message": {"mid": "m", "text": "t"}}
    assert happened(payload({"field": "messages", "value": value}, key="changes", account="0")) == [Ignored(reason="test")]


def test_a_message_that_comes_as_a_change_is_heard_and_its_time_is_text() -> None:
    value = message(text="hello") | {"timestamp": str(STAMP)}
    assert happened(payload({"field": "messages", "value": value}, key="changes")) == [HELLO]
    seconds = message(text="hello") | {"timestamp": str(STAMP // 1000)}
    [found] = happened(payload({"field": "messages", "value": seconds}, key="changes"))
    assert isinstance(found, InboundMessage)
    assert found.envelope.sent_at == SENT_AT.replace(microsecond=0)


# --- echoes, receipts, reactions


@pytest.mark.parametrize("mark", [{"is_echo": True}, {}])
def test_an_echo_confirms_what_we_sent_and_is_never_answered(mark: dict[str, bool]) -> None:
    echo = item(sender={"id": OURS}, recipient={"id": NOOR}, message={"mid": "mid.OURS", "text": "hi", "app_id": 5} | mark)
    assert heard(echo) == [DeliveryReceipt(message_id="mid.OURS", rank=ReceiptRank.SENT, at=SENT_AT, channel_id=NOOR, text="hi")]


def test_an_echo_without_words_is_of_a_picture_that_we_have_not_sent_and_confirms_nothing() -> None:
    picture = {"type": "image", "payload": {"url": "https://lookaside.example/1"}}
    echo = item(sender={"id": OURS}, recipient={"id": NOOR}, message={"mid": "mid.THEIRS", "attachments": [picture], "is_echo": True})
    assert heard(echo) == [DeliveryReceipt(message_id="mid.THEIRS", rank=ReceiptRank.SENT, at=SENT_AT)]


def test_what_was_seen_and_what_arrived_are_receipts() -> None:
    assert heard(item(read={"mid": "mid.OURS"}), item(delivery={"mids": ["mid.A", "mid.B"], "watermark": 5})) == [
        DeliveryReceipt(message_id="mid.OURS", rank=ReceiptRank.READ, at=SENT_AT),
        DeliveryReceipt(message_id="mid.A", rank=ReceiptRank.DELIVERED, at=SENT_AT),
        DeliveryReceipt(message_id="mid.B", rank=ReceiptRank.DELIVERED, at=SENT_AT),
    ]


@pytest.mark.parametrize(
    ("part", "emoji"),
    [
        ({"action": "react", "reaction": "love", "emoji": "❤️"}, "❤️"),
        ({"action": "react", "reaction": "love"}, "love"),
        ({"action": "react"}, "?"),
        ({"action": "unreact"}, ""),
        ({"action": "unreact", "emoji": "❤️"}, ""),
    ],
)
def test_a_reaction_is_kept_and_one_can_be_taken_back(part: dict[str, str], emoji: str) -> None:
    assert heard(item(reaction={"mid": "mid.OURS"} | part)) == [Reaction(message_id="mid.OURS", sender_id=NOOR, emoji=emoji)]


# --- whatever comes

WHOLE = payload(
    message(text="t", quick_reply={"payload": "p"}, reply_to={"mid": "m", "story": {"url": "https://cdn.example/s"}}),
    message(mid="mid.2", attachments=[attached("image", url="https://cdn.example/1", title="t"), {"type": "like_heart"}]),
    item(postback={"mid": "mid.3", "title": "t", "payload": "p"}),
    item(reaction={"mid": "mid.4", "action": "react", "emoji": "e"}),
    item(read={"mid": "mid.5"}),
    item(delivery={"mids": ["mid.6"]}),
    item(sender={"id": OURS}, message={"mid": "mid.7", "is_echo": True}),
)


@given(content=shaken(WHOLE) | ANYTHING)
def test_nothing_raises_and_all_that_is_heard_can_be_stored(content: Any) -> None:
    found = happened(content)
    assert found
    for happening in found:
        if isinstance(happening, InboundMessage):
            envelope = happening.envelope
            assert envelope.channel_id
            assert envelope.event.text.strip() or envelope.event.media_type or envelope.event.media_url
            "".join((envelope.channel_id, envelope.event_key, envelope.event.text, *envelope.attachments)).encode()


@given(body=st.binary())
def test_no_bytes_raise(body: bytes) -> None:
    assert happened(body)
