"""The state of an Instagram account, and the payloads of its webhooks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.demo.platforms.message_log import PersonMessage
from hermes.demo.platforms.meta import WebhookEvent, WebhookQueue
from hermes.demo.platforms.platform import FakePlatform

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
