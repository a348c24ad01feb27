"""What goes wrong on cue: with which call, how often, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Refuse, in the platform's own shape. Nothing arrives."""

    status: int
    code: int | None = None
    """The platform's own code, where it has one."""
    subcode: int | None = None
    message: str = ""
    """By default what the platform says for this code."""
    retry_after: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Telegram's `parameters` beside `retry_after`; Meta's further fields of the error (`is_transient`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailLater:
    """Accept, and say by webhook a while later that it failed. Nothing arrives. WhatsApp only."""

    code: int = 131026


@dataclass(frozen=True, slots=True, kw_only=True)
class Html:
    """Answer with a page, as a proxy in between does. Nothing arrives."""

    status: int = 502


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """Answer with exactly this; the message arrives or does not."""

    status: int = 200
    body: str = ""
    content_type: str = "application/json"
    arrives: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Read the call, and never answer it."""

    arrives: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Read the call, and drop the connection instead of answering."""

    arrives: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """Answer rightly, but take so many real seconds for the body."""

    over_s: float


Fault = Refuse | FailLater | Html | Raw | Hang | Reset | Slow

KINDS: Mapping[str, type[Fault]] = {
    "refuse": Refuse,
    "fail_later": FailLater,
    "html": Html,
    "raw": Raw,
    "hang": Hang,
    "reset": Reset,
    "slow": Slow,
}
"""By the name that the control endpoints use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """A fault, and when it strikes."""

    fault: Fault
    method: str | None = None
    """Only this method (`sendMessage`, `messages`, `typing`, `media`, …); all of them if None."""
    to: str | None = None
    """Only calls about this person or group; all of them if None."""
    times: int | None = 1
    """How often at most; None: until it is over."""
    until: float | None = None
    """Not after this moment, in the platform's seconds."""


class Script:
    """The faults that are still to come. The oldest that fits a call strikes."""

    def __init__(self) -> None:
        self.cues: list[Cue] = []

    def add(self, cue: Cue) -> None:
        self.cues.append(cue)

    def clear(self) -> None:
        self.cues.clear()

    def take(self, method: str, to: str | None, now: float) -> Fault | None:
        """The fault for this call, if there is one; it is used up by that."""
        self.cues = [cue for cue in self.cues if cue.until is None or now < cue.until]
        for place, cue in enumerate(self.cues):
            if cue.method in {None, method} and cue.to in {None, to}:
                if cue.times is not None and cue.times <= 1:
                    del self.cues[place]
                elif cue.times is not None:
                    self.cues[place] = replace(cue, times=cue.times - 1)
                return cue.fault
        return None
