"""Faults that a test or an operator schedules: which fault, for which calls, how often, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseFault:
    """Refuse the call, with an error in the platform's own shape. The message does not arrive."""

    status: int
    code: int | None = None
    """The platform's own error code, if it has one."""
    subcode: int | None = None
    message: str = ""
    """Empty: the platform's own text for this code."""
    retry_after: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Telegram's `parameters` beside `retry_after`; Meta's further fields of the error (`is_transient`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailLaterFault:
    """Accept the message, and report by webhook a while later that it failed. It does not arrive. WhatsApp only."""

    code: int = 131026


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlFault:
    """Answer with an HTML page, as a proxy in between does. The message does not arrive."""

    status: int = 502


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFault:
    """Answer with exactly this body. `arrives` says whether the message arrives."""

    status: int = 200
    body: str = ""
    content_type: str = "application/json"
    arrives: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HangFault:
    """Read the call, and never answer it."""

    arrives: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetFault:
    """Read the call, and drop the connection instead of answering."""

    arrives: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowFault:
    """Answer correctly, but take so many real seconds to send the body."""

    over_s: float


Fault = RefuseFault | FailLaterFault | HtmlFault | RawFault | HangFault | ResetFault | SlowFault

FAULT_KINDS: Mapping[str, type[Fault]] = {
    "refuse": RefuseFault,
    "fail_later": FailLaterFault,
    "html": HtmlFault,
    "raw": RawFault,
    "hang": HangFault,
    "reset": ResetFault,
    "slow": SlowFault,
}
"""By the names that the control endpoints use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFault:
    """A fault, and the calls that it applies to."""

    fault: Fault
    method: str | None = None
    """Only this method (`sendMessage`, `messages`, `typing`, `media`, …); all of them if None."""
    to: str | None = None
    """Only calls about this person or group; all of them if None."""
    times: int | None = 1
    """How often at most; None: no limit."""
    until: float | None = None
    """Not after this time, in the platform's seconds."""


class FaultSchedule:
    """The faults that are still to come. For each call, the oldest that fits applies."""

    def __init__(self) -> None:
        self.faults: list[ScheduledFault] = []

    def add(self, scheduled: ScheduledFault) -> None:
        self.faults.append(scheduled)

    def clear(self) -> None:
        self.faults.clear()

    def take(self, method: str, to: str | None, now: float) -> Fault | None:
        """The fault for this call, if there is one; counts it as used."""
        self.faults = [scheduled for scheduled in self.faults if scheduled.until is None or now < scheduled.until]
        for place, scheduled in enumerate(self.faults):
            if scheduled.method in {None, method} and scheduled.to in {None, to}:
                if scheduled.times is not None and scheduled.times <= 1:
                    del self.faults[place]
                elif scheduled.times is not None:
                    self.faults[place] = replace(scheduled, times=scheduled.times - 1)
                return scheduled.fault
        return None
