"""Instagram's people, the state of the account that they write to, and the payloads of its webhooks.

Ids of people are scoped: the same person has another id at another account."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.channels.meta_fake import WebhookEvent, WebhookQueue
from hermes.testing.platforms.message_log import PersonMessage, inspect_image
from hermes.testing.platforms.platform import FakePerson, FakePlatform

SPREAD_CHANCE = 0.3
"""How likely the next event of a batch begins a new entry."""
ASSET_PATH = "/ig_messaging_cdn/"


@dataclass(slots=True)
class FakeInstagramState:
    """The state that the people and the calls of one account share."""

    platform: FakePlatform
    account_id: str
    media_url: str
    """The host in links to files."""
    posts: WebhookQueue = field(init=False)
    is_standby: bool = False
    """Another app answers the conversations: the account gets events for information only."""
    assets: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    """Files that people sent, by the query of their URL. The URL alone is enough to fetch a file."""
    message_count: int = 0

    def message_id(self) -> str:
        self.message_count += 1
        return f"aWdfZAG1faXRlbToxOk{self.platform.world.random.letters(60, 'mid', self.platform.name, self.message_count)}ZD"

    def record_message(self, sent: PersonMessage, lane: str, message: Mapping[str, Any]) -> str:
        """Record a person's message in the message log, and send it to the receiver."""
        self.platform.message_log.add_person_message(sent)
        self.post_event(lane, sent.sender, {"message": {"mid": sent.message_id, **message}})
        return sent.message_id

    def post_event(self, lane: str, sender: str, what: Mapping[str, Any]) -> None:
        """Send an event of a person to the receiver."""
        self.posts.add(lane, {"sender": {"id": sender}, "recipient": {"id": self.account_id}, "timestamp": unix_millis(), **what})

    def asset(self, data: bytes, mime_type: str) -> str:
        """Store a file, and return its URL."""
        number = self.platform.world.random.digits(16, "asset", self.platform.name, len(self.assets))
        query = f"asset_id={number}&signature={self.platform.world.random.letters(40, 'asset', self.platform.name, len(self.assets))}"
        self.assets[query] = (data, mime_type)
        return f"{self.media_url}{ASSET_PATH}?{query}"

    def compose(self, events: Sequence[WebhookEvent]) -> dict[str, Any]:
        """Several events as one payload, spread over both of its levels."""
        random, into = self.platform.world.random, "standby" if self.is_standby else "messaging"
        entries: list[dict[str, Any]] = []
        for place, event in enumerate(events):
            if not entries or random.happens(SPREAD_CHANCE, "entry", event.lane, event.place, place):
                entries.append({"time": unix_millis(), "id": self.account_id, into: []})
            entries[-1][into].append(event.part)
        return {"object": "instagram", "entry": entries}


def unix_millis() -> int:
    """The time as Instagram writes it."""
    return int(time.time() * 1000)


REACTIONS = {"❤": "love", "❤️": "love", "😂": "haha", "😮": "wow", "😢": "sad", "😡": "angry", "👍": "like"}


class InstagramPerson(FakePerson):
    """A person on Instagram."""

    def __init__(self, state: FakeInstagramState, name: str, username: str, number: int) -> None:
        super().__init__(name)
        self._state, self.username = state, username
        self._id = state.platform.world.random.digits(16, state.platform.name, "person", number)

    @property
    def id(self) -> str:
        return self._id

    @property
    def platform(self) -> FakePlatform:
        return self._state.platform

    def silent_s(self) -> float:
        """How long ago they last wrote; infinite if they never did."""
        return float("inf") if self.last_wrote_at is None else self.platform.world.clock.now() - self.last_wrote_at

    def say(self, text: str, *, reply_to: str | None = None) -> str:
        return self._send("text", text, {"text": text, **({"reply_to": {"mid": reply_to}} if reply_to else {})})

    def send_picture(self, picture: bytes | None = None, caption: str = "") -> str:
        """Instagram has no captions: the caption is a separate message after the image."""
        image = inspect_image(picture)
        sent = self._send_file("image", image.data, image.mime_type)
        if caption:
            self.say(caption)
        return sent

    def send_album(self, pictures: Sequence[bytes | None], caption: str = "") -> list[str]:
        """Send several images in one message, and the caption as another."""
        images = [inspect_image(picture) for picture in pictures]
        attachments = [{"type": "image", "payload": {"url": self._state.asset(one.data, one.mime_type)}} for one in images]
        sent = [self._send("image", "", {"attachments": attachments})]
        return [*sent, self.say(caption)] if caption else sent

    def send_voice(self, sound: bytes = b"OggS") -> str:
        return self._send_file("audio", sound, "audio/mp4")

    def send_document(self, data: bytes, name: str = "menu.pdf", mime_type: str = "application/pdf", caption: str = "") -> str:  # noqa: ARG002  # Instagram has neither name nor caption
        return self._send_file("file", data, mime_type)

    def send_location(self, latitude: float, longitude: float) -> str:
        """Instagram cannot send locations: sends a link to a map."""
        return self.say(f"https://maps.google.com/?q={latitude},{longitude}")

    def mention_in_story(self) -> str:
        """Mention the account in one of their stories."""
        image = inspect_image(None)
        attachment = {"type": "story_mention", "payload": {"url": self._state.asset(image.data, image.mime_type)}}
        return self._send("story_mention", "", {"attachments": [attachment]})

    def send_unsupported(self) -> str:
        """Send something that the API does not support."""
        return self._send("unsupported", "", {"is_unsupported": True})

    def press(self, title: str, payload: str) -> str:
        """Press a button: an ice breaker, or a button of a template."""
        mid = self._state.message_id()
        self.last_wrote_at = self.platform.world.clock.now()
        self._state.platform.message_log.add_person_message(self._person_message(mid, "postback", title))
        self._state.post_event(self.id, self.id, {"postback": {"mid": mid, "title": title, "payload": payload}})
        return mid

    def unsend(self, message_id: str) -> None:
        """Delete one of their messages for all."""
        self._state.post_event(self.id, self.id, {"message": {"mid": message_id, "is_deleted": True}})

    def react(self, message_id: str, emoji: str) -> None:
        sign: dict[str, Any] = {"mid": message_id, "action": "react" if emoji else "unreact"}
        if emoji:
            sign |= {"reaction": REACTIONS.get(emoji, "other"), "emoji": emoji}
        self._state.post_event(self.id, self.id, {"reaction": sign})

    def read(self, message_id: str) -> None:
        """Read a message of the account."""
        self._state.post_event(self.id, self.id, {"read": {"mid": message_id}})

    def _send_file(self, kind: str, data: bytes, mime_type: str) -> str:
        return self._send(kind, "", {"attachments": [{"type": kind, "payload": {"url": self._state.asset(data, mime_type)}}]})

    def _send(self, kind: str, text: str, message: Mapping[str, Any]) -> str:
        self.last_wrote_at = self.platform.world.clock.now()
        return self._state.record_message(self._person_message(self._state.message_id(), kind, text), self.id, message)

    def _person_message(self, mid: str, kind: str, text: str) -> PersonMessage:
        return PersonMessage(chat=self.id, sender=self.id, message_id=mid, text=text, kind=kind, at=self.platform.world.clock.now())
