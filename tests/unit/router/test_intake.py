"""Which messages are one turn together, and what they say then."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.ports.inbox import Claim, InboxMessage
from hermes.router.intake import JoinWindow, join_messages
from hermes.turn import Envelope, MessageEvent, Platform

ADA, BOB, CHAT = uuid4(), uuid4(), uuid4()


def envelope(text: str = "", album: str | None = None, platform: Platform = Platform.TELEGRAM, **more: Any) -> Envelope:
    event = MessageEvent(platform=platform, sender_id="1", text=text, **more)
    return Envelope(event=event, account="bali", channel_id="1", event_key=str(uuid4()), album=album)


def first(said: Envelope) -> Claim:
    return Claim(uuid4(), CHAT, ADA, 1, 1, 1, said, 0.5)


def then(said: Envelope, user: UUID = ADA) -> InboxMessage:
    return InboxMessage(uuid4(), CHAT, user, said, datetime.now(UTC))


@pytest.mark.parametrize(
    ("platform", "album", "burst_s", "waits_s"),
    [
        (Platform.TELEGRAM, None, 0.0, 0.0),
        (Platform.TELEGRAM, "a", 0.0, 1.0),
        (Platform.WHATSAPP, None, 3.0, 3.0),
        (Platform.TELEGRAM, "a", 3.0, 3.0),
        (Platform.REST, None, 3.0, 0.0),
        (Platform.WEB, "a", 3.0, 0.0),
    ],
)
def test_a_message_waits_where_more_of_it_may_come(platform: Platform, album: str | None, burst_s: float, waits_s: float) -> None:
    assert JoinWindow(burst_s=burst_s).wait_s(envelope(album=album, platform=platform)) == waits_s


def test_an_album_takes_its_own_items_whatever_stands_between_them() -> None:
    item, other, item_of_bob, last = (
        then(envelope(album="a")),
        then(envelope("hi")),
        then(envelope(album="a"), BOB),
        then(envelope(album="a")),
    )
    behind = [item, other, item_of_bob, last, then(envelope(album="b"))]
    assert JoinWindow().messages_to_join(first(envelope("look", album="a")), behind) == [item, last]


def test_a_burst_ends_where_somebody_else_speaks() -> None:
    one, two = then(envelope("two")), then(envelope("three"))
    behind = [one, two, then(envelope("me too"), BOB), then(envelope("four"))]
    assert JoinWindow(burst_s=1).messages_to_join(first(envelope("one")), behind) == [one, two]
    assert JoinWindow().messages_to_join(first(envelope("one")), behind) == []


def test_another_thread_of_a_group_is_another_matter() -> None:
    elsewhere = then(replace(envelope("two"), thread="5"))
    assert JoinWindow(burst_s=1).messages_to_join(first(envelope("one")), [elsewhere]) == []


def test_together_they_say_all_words_and_show_all_pictures_in_their_order() -> None:
    words, one, two = envelope("look"), envelope("  ", media_url="p:1", media_type="image/png"), envelope("at this", media_url="p:3")
    one = replace(one, attachments=("p:2",))
    together = join_messages([words, one, two])
    event = replace(words.event, text="look\nat this", media_url="p:1", media_type="image/png")
    assert together == replace(words, event=event, attachments=("p:2", "p:3"))


def test_a_picture_is_shown_also_where_a_video_came_before_it() -> None:
    video, photo = envelope(media_url="v:1", media_type="video/mp4"), envelope("sunset", media_url="p:1", media_type="image/jpeg")
    together = join_messages([video, photo, envelope(media_url="p:2", media_type="image/jpeg")])
    assert (together.event.media_url, together.event.media_type, together.attachments) == ("p:1", "image/jpeg", ("p:2", "v:1"))
    only_videos = join_messages([video, envelope(media_url="v:2", media_type="video/mp4")])
    assert (only_videos.event.media_url, only_videos.event.media_type, only_videos.attachments) == ("v:1", "video/mp4", ("v:2",))


def test_one_alone_stays_what_it_is() -> None:
    alone = replace(envelope("hi", media_url="p:1"), attachments=("p:2",))
    assert join_messages([alone]) is alone
