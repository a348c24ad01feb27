"""The customer service window: some platforms take free text only within a day of the user's last message.

A reply that waited in the queue may be too late for it. The platform's own answer decides: its clock is not ours, and the user's message
may have reached Hermes late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hermes.turn import Platform

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
