"""What a platform allows: how fast Hermes may write, and how long after the user's last message it may write free text.

The pace holds for one chat, and for one account over all its chats. It is counted per process; the platform refuses the rest.

The customer service window: some platforms take free text only within a day of the user's last message. A reply that waited in the queue
may be too late for it. The platform's own answer decides: its clock is not ours, and the user's message may have reached Hermes late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hermes.ports.outbox import ChannelName
from hermes.turn import Platform

MAX_KNOWN_CHATS = 10_000
"""Chats whose pace is remembered. Above this number, chats that have rested fully are dropped."""


@dataclass(frozen=True, slots=True)
class SendPace:
    """One message per interval, and a burst after a rest."""

    every_s: float
    burst: int = 1


CHAT_PACES: Mapping[Platform, SendPace] = {
    Platform.TELEGRAM: SendPace(1.0),
    Platform.WHATSAPP: SendPace(6.0, burst=45),
}
TELEGRAM_GROUP_PACE = SendPace(3.0)
"""Twenty messages a minute."""
ACCOUNT_PACES: Mapping[Platform, SendPace] = {
    Platform.TELEGRAM: SendPace(1 / 30, burst=30),
    Platform.WHATSAPP: SendPace(1 / 80, burst=80),
    Platform.INSTAGRAM: SendPace(1 / 300, burst=300),
}


@dataclass(slots=True)
class Pacer:
    """Decides when the next message to a chat may be sent."""

    known: dict[tuple[ChannelName, str], float] = field(default_factory=dict)
    """When each chat, and each account under the empty chat id, will have rested fully."""

    def turn(self, channel_name: ChannelName, channel_id: str, now: float, *, max_s: float) -> float:
        """Return how long to wait before writing to a chat. Counts the message unless the wait is longer than `max_s`. `now` in seconds."""
        paces = [(key, pace) for key, pace in paces_of(channel_name, channel_id) if pace is not None]
        wait_s = max((self._wait_s(key, pace, now) for key, pace in paces), default=0.0)
        if wait_s <= max_s:
            for key, pace in paces:
                self.known[key] = max(self.known.get(key, now), now) + pace.every_s
            self._forget(now)
        return wait_s

    def _wait_s(self, key: tuple[ChannelName, str], pace: SendPace, now: float) -> float:
        return max(0.0, self.known.get(key, now) - now - (pace.burst - 1) * pace.every_s)

    def _forget(self, now: float) -> None:
        if len(self.known) > MAX_KNOWN_CHATS:
            self.known = {key: rested_at for key, rested_at in self.known.items() if rested_at > now}


def paces_of(channel_name: ChannelName, channel_id: str) -> list[tuple[tuple[ChannelName, str], SendPace | None]]:
    """Return the paces that apply to a chat: its own, and the account's."""
    is_group = channel_name.platform is Platform.TELEGRAM and channel_id.startswith("-")
    chat = TELEGRAM_GROUP_PACE if is_group else CHAT_PACES.get(channel_name.platform)
    return [((channel_name, channel_id), chat), ((channel_name, ""), ACCOUNT_PACES.get(channel_name.platform))]


SERVICE_WINDOWS: Mapping[Platform, timedelta] = {Platform.WHATSAPP: timedelta(hours=24), Platform.INSTAGRAM: timedelta(hours=24)}


@dataclass(frozen=True, slots=True)
class MessageTemplate:
    """An approved message with one variable, for texts outside the window."""

    name: str
    language: str = "en"


def is_window_open(platform: Platform, last_inbound_at: datetime | None, now: datetime) -> bool:
    """Whether free text may be sent now. A platform without a window is always open; a user who never wrote has no open window."""
    window = SERVICE_WINDOWS.get(platform)
    if window is None:
        return True
    return last_inbound_at is not None and now - last_inbound_at < window
