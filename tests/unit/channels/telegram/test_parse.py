"""What an update holds."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.telegram import TelegramChannel
from hermes.ports.channels import IdChanged, Ignored, InboundMessage, Media, ReachabilityChanged, Reaction, WebhookNotAuthentic
from hermes.turn import Envelope, MessageEvent, Platform
from tests.unit.channels.meta.shaken import ANYTHING, shaken
from tests.unit.channels.telegram.updates import (
    API,
    BOT,
    GROUP,
    NINA,
    NOW,
    PERSON,
    SAMPLES,
    SECRET,
    SENT_AT,
    STAMP,
    SUPERGROUP,
    TELEGRAM,
    TOKEN,
    UPDATE,
    US,
    entity,
    happened,
    in_group,
    message,
    update,
    webhook,
)

HELLO = InboundMessage(
    envelope=Envelope(
        event=MessageEvent(platform=Platform.TELEGRAM, sender_id=str(NINA), text="hello"),
        account="bali",
        channel_id=str(NINA),
        event_key=f"{BOT}:{UPDATE}",
        sent_at=SENT_AT,
    ),
    message_id="41",
    name="Nina Ray",
)


def hello(*, channel_id: str = str(NINA), **event: Any) -> InboundMessage:
    """Nina's message with another content."""
    envelope = replace(HELLO.envelope, channel_id=channel_id, event=replace(HELLO.envelope.event, **event))
    return replace(HELLO, envelope=envelope)


# --- whose webhook it is


def test_the_secret_makes_it_authentic() -> None:
    TELEGRAM.verify(webhook({}, **{"x-telegram-bot-api-secret-token": SECRET}))


@pytest.mark.parametrize("given", [None, "", "hush_hush-2", "hush_hush", f"{SECRET} ", "\udcff"])
def test_any_other_does_not(given: str | None) -> None:
    headers = {} if given is None else {"x-telegram-bot-api-secret-token": given}
    with pytest.raises(WebhookNotAuthentic) as error:
        TELEGRAM.verify(webhook(update(), **headers))
    assert SECRET not in str(error.value)


def test_a_bot_without_a_webhook_takes_none() -> None:
    with pytest.raises(WebhookNotAuthentic):
        TelegramChannel(account="bali", api=API).verify(webhook(update(), **{"x-telegram-bot-api-secret-token": ""}))


# --- messages


def test_a_text_is_heard() -> None:
    assert happened(SAMPLES["text"]) == [HELLO]


def test_an_old_update_without_types_is_heard_too() -> None:
    old = {
        "message_id": 41,
        "date": STAMP,
        "chat": {"id": NINA, "first_name": "Nina"},
        "from": {"id": NINA, "username": "nray"},
        "text": "/start",
    }
    assert happened(update(part=old)) == [replace(hello(text="/start"), name="nray")]


def test_of_a_photo_the_largest_is_taken_and_its_album_named() -> None:
    media = Media(reference="telegram:large", kind="image", mime_type="image/jpeg", bytes=91000)
    heard = hello(text="this?", media_url="telegram:bali/large", media_type="image/jpeg")
    assert happened(SAMPLES["photo"]) == [replace(heard, media=(media,), album="1370")]


@pytest.mark.parametrize(
    ("field", "file", "media"),
    [
        ("voice", {"mime_type": "audio/ogg", "file_size": 9}, Media(reference="telegram:F", kind="audio", mime_type="audio/ogg", bytes=9)),
        ("audio", {"file_name": "a.mp3"}, Media(reference="telegram:F", kind="audio", mime_type="audio/mpeg", name="a.mp3")),
        ("video", {"mime_type": "video/mp4"}, Media(reference="telegram:F", kind="video", mime_type="video/mp4")),
        ("video_note", {}, Media(reference="telegram:F", kind="video", mime_type="video/mp4")),
        ("live_photo", {}, Media(reference="telegram:F", kind="video", mime_type="video/mp4")),
        ("document", {"mime_type": "application/pdf"}, Media(reference="telegram:F", kind="document", mime_type="application/pdf")),
        ("sticker", {"emoji": "👍"}, Media(reference="telegram:F", kind="sticker", mime_type="image/webp", name="👍")),
        ("sticker", {"is_animated": True}, Media(reference="telegram:F", kind="sticker", mime_type="application/x-tgsticker")),
        ("sticker", {"is_video": True}, Media(reference="telegram:F", kind="sticker", mime_type="video/webm")),
    ],
)
def test_a_file_is_heard_by_its_id(field: str, file: dict[str, Any], media: Media) -> None:
    heard = hello(text="", media_url="telegram:bali/F", media_type=media.mime_type)
    assert happened(update(part=message(**{field: {"file_id": "F"} | file}))) == [replace(heard, media=(media,))]


def test_an_animation_is_one_although_it_comes_as_a_document_too() -> None:
    [heard] = happened(update(part=message(animation={"file_id": "A"}, document={"file_id": "D"})))
    assert isinstance(heard, InboundMessage)
    assert [media.reference for media in heard.media] == ["telegram:A"]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"location": {"latitude": -8.65, "longitude": 115.13}}, "📍 -8.65, 115.13"),
        (
            {
                "location": {"latitude": 1, "longitude": 2},
                "venue": {"title": "Luna", "address": "Beach 1", "location": {"latitude": 1, "longitude": 2}},
            },
            "📍 Luna, Beach 1 (1, 2)",
        ),
        ({"contact": {"phone_number": "+4912", "first_name": "Ida", "last_name": "Bo"}}, "👤 Ida Bo, +4912"),
        ({"dice": {"emoji": "🎯", "value": 4}}, "🎯 4"),
        ({"poll": {"question": "When?", "options": [{"text": "5"}, {"text": "6"}]}}, "📊 When?\n- 5\n- 6"),
        ({"web_app_data": {"data": "table=2", "button_text": "Book"}}, "table=2"),
    ],
)
def test_what_can_be_spelled_is_text(part: dict[str, Any], text: str) -> None:
    assert happened(update(part=message(**part))) == [hello(text=text)]


@pytest.mark.parametrize("part", [{"story": {"id": 1}}, {"game": {}}, {"paid_media": {}}, {"photo": []}, {"document": {}}])
def test_what_cannot_be_read_is_heard_as_such(part: dict[str, Any]) -> None:
    assert happened(update(part=message(**part))) == [hello(text="", media_type="unsupported")]


def test_an_answer_names_what_it_answers() -> None:
    assert happened(SAMPLES["reply"]) == [replace(hello(text="yes"), reply_to="40")]


def test_a_topic_is_kept_and_another_thread_is_not() -> None:
    named = {"text": "/bars", "entities": [entity("/bars", "/bars", "bot_command")], "message_thread_id": 7}
    opened = {"reply_to_message": {"message_id": 7, "forum_topic_created": {"name": "x"}, "from": US}}
    in_topic, in_thread = hello(channel_id=str(GROUP), text="/bars"), hello(channel_id=str(GROUP), text="/bars")
    assert happened(update(part=in_group(is_topic_message=True, **named, **opened))) == [
        replace(in_topic, envelope=replace(in_topic.envelope, thread="7", is_shared=True))
    ]
    assert happened(update(part=in_group(**named))) == [replace(in_thread, envelope=replace(in_thread.envelope, is_shared=True))]


def test_a_business_customer_is_answered_through_the_connection() -> None:
    assert happened(SAMPLES["business"]) == [hello(channel_id=f"{NINA}@Cx_9", text="open today?")]


def test_what_the_business_says_itself_is_passed() -> None:
    owner = message(text="we are", business_connection_id="Cx_9", **{"from": {"id": 99, "is_bot": False, "first_name": "Boss"}})
    assert happened(update("business_message", owner)) == [Ignored(reason="from_business")]


# --- groups


@pytest.mark.parametrize(
    "part",
    [
        {"text": "😀 hey @SunsetBot!", "entities": [entity("😀 hey @SunsetBot!", "@SunsetBot", "mention")]},
        {"text": "@sunsetBOT", "entities": [entity("@sunsetBOT", "@sunsetBOT", "mention")]},
        {"text": "hey bot", "entities": [entity("hey bot", "bot", "text_mention", user=US)]},
        {"text": "/bars", "entities": [entity("/bars", "/bars", "bot_command")]},
        {"text": "/bars@SunsetBot x", "entities": [entity("/bars@SunsetBot x", "/bars@SunsetBot", "bot_command")]},
        {"text": "yes", "reply_to_message": {"message_id": 3, "from": US, "text": "?"}},
        {"caption": "@sunsetbot", "caption_entities": [entity("@sunsetbot", "@sunsetbot", "mention")], "photo": [{"file_id": "F"}]},
    ],
)
def test_in_a_group_it_hears_what_is_for_it(part: dict[str, Any]) -> None:
    [heard] = happened(update(part=in_group(**part)))
    assert isinstance(heard, InboundMessage)
    assert (heard.envelope.channel_id, heard.envelope.event.sender_id) == (str(GROUP), str(NINA))


@pytest.mark.parametrize(
    "part",
    [
        {"text": "hello all"},
        {"text": "@sunsetbot without an entity is a word"},
        {"text": "@sunsetbot2", "entities": [entity("@sunsetbot2", "@sunsetbot2", "mention")]},
        {"text": "/bars@OtherBot", "entities": [entity("/bars@OtherBot", "/bars@OtherBot", "bot_command")]},
        {"text": "yes", "reply_to_message": {"message_id": 3, "from": PERSON, "text": "?"}},
        {"text": "hi", "reply_to_message": {"message_id": 3, "from": US, "forum_topic_created": {}}},
        {"photo": [{"file_id": "F"}]},
    ],
)
def test_and_nothing_else(part: dict[str, Any]) -> None:
    assert happened(update(part=in_group(**part))) == [Ignored(reason="not_addressed")]


def test_without_its_name_a_bot_hears_no_mention() -> None:
    nameless = replace(TELEGRAM, username=None)
    assert nameless.parse(webhook(SAMPLES["mention"]), now=NOW) == [Ignored(reason="not_addressed")]


# --- what starts no turn


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (SAMPLES["edit"], "edited_message"),
        (SAMPLES["channel post"], "channel_post"),
        (update("edited_business_message"), "edited_business_message"),
        (update("guest_message"), "guest_message"),
        (update("inline_query", {"id": "1"}), "inline_query"),
        (update("poll_answer", {}), "poll_answer"),
        (update("telepathy", {"thought": "x"}), "unknown_kind"),
        (update(part=message(text="hi", **{"from": {"id": 8, "is_bot": True, "first_name": "Other"}})), "from_bot"),
        (update(part=in_group(text="hi", sender_chat=SUPERGROUP)), "from_chat"),
        (update(part={"message_id": 1, "chat": {"id": NINA, "type": "private"}, "date": STAMP, "text": "x"}), "from_chat"),
        (update(part=message(chat={"id": -4, "type": "supergroup", "is_direct_messages": True}, text="x")), "to_channel"),
        (update(part=message(new_chat_members=[PERSON])), "service_message"),
        (update(part=message(pinned_message={"message_id": 2})), "service_message"),
        (update(part=message(text="")), "service_message"),
        (update(part={"text": "x", "from": PERSON}), "incomplete"),
        (update("callback_query", {"id": "1", "from": PERSON, "inline_message_id": "x", "data": "y"}), "callback_query"),
        (update("callback_query", {"id": "1", "from": PERSON, "game_short_name": "g", "message": message()}), "callback_query"),
        (update("message_reaction_count", {}), "message_reaction_count"),
        ({"update_id": 5}, "empty"),
        ({"message": message(text="x")}, "not_an_update"),
        (b"[1]", "not_json"),
        (b"{", "not_json"),
        (b"", "not_json"),
        (b"\xff\xfe", "not_json"),
    ],
)
def test_what_is_nothing_to_us_is_passed(payload: Any, reason: str) -> None:
    assert happened(payload) == [Ignored(reason=reason)]


def test_a_pressed_button_says_its_data() -> None:
    pressed = hello(text="book:2")
    undated = replace(pressed, envelope=replace(pressed.envelope, sent_at=None, choice="book:2"))
    assert happened(SAMPLES["button"]) == [replace(undated, message_id="callback:4382", reply_to="40")]


@pytest.mark.parametrize(
    ("shown", "emoji"),
    [
        ([{"type": "emoji", "emoji": "👍"}], "👍"),
        ([{"type": "emoji", "emoji": "👍"}, {"type": "emoji", "emoji": "🔥"}], "🔥"),
        ([{"type": "custom_emoji", "custom_emoji_id": "53"}], "\ufffd"),
        ([{"type": "paid"}], "⭐"),
        ([], ""),
    ],
)
def test_a_reaction_is_a_sign(shown: list[Any], emoji: str) -> None:
    reaction = SAMPLES["reaction"]["message_reaction"] | {"new_reaction": shown}
    found = Reaction(message_id="40", sender_id=str(NINA), emoji=emoji, channel_id=str(NINA))
    assert happened(update("message_reaction", reaction)) == [found]


@pytest.mark.parametrize(
    ("member", "is_reachable"),
    [
        ({"status": "kicked"}, False),
        ({"status": "left"}, False),
        ({"status": "member"}, True),
        ({"status": "administrator"}, True),
        ({"status": "restricted", "is_member": True, "can_send_messages": True}, True),
        ({"status": "restricted", "is_member": True, "can_send_messages": False}, False),
    ],
)
def test_who_blocks_or_unblocks_the_bot_is_noted(member: dict[str, Any], is_reachable: bool) -> None:
    changed = SAMPLES["blocked"]["my_chat_member"] | {"new_chat_member": member}
    assert happened(update("my_chat_member", changed)) == [ReachabilityChanged(sender_id=str(NINA), is_reachable=is_reachable)]


def test_a_group_that_becomes_a_supergroup_has_another_number() -> None:
    moved = IdChanged(old="-555", new=str(GROUP))
    assert happened(SAMPLES["moved"]) == [moved]
    assert happened(update(part=in_group(migrate_from_chat_id=-555))) == [moved]


# --- whatever comes


@given(st.sampled_from(list(SAMPLES.values())).flatmap(shaken))
def test_one_strange_value_is_no_error(payload: Any) -> None:
    for found in happened(payload):
        assert TOKEN not in repr(found)
        json.dumps(found.envelope.event.text if isinstance(found, InboundMessage) else "").encode()


@given(
    ANYTHING
    | st.builds(lambda kind, part: {"update_id": 1, kind: part}, st.sampled_from(["message", "callback_query", "my_chat_member"]), ANYTHING)
)
def test_anything_at_all_is_passed(payload: Any) -> None:
    assert all(isinstance(found, Ignored) for found in happened(payload))


@given(st.binary(max_size=50))
def test_bytes_that_are_no_json_are_passed(body: bytes) -> None:
    assert all(isinstance(found, Ignored) for found in happened(body))
