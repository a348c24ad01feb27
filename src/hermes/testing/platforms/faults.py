"""What goes wrong at a platform: calls that it refuses, faults that a test or an operator schedules, and disordered webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


class PlatformRefusal(Exception):
    """The platform refuses a call. Each platform writes that in its own shape."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int | None = None,
        subcode: int | None = None,
        retry_after: int | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.subcode = status, message, code, subcode
        self.retry_after, self.parameters = retry_after, dict(parameters or {})


def is_integer(value: object) -> bool:
    """Whether a value is a whole number. True and False are not, although Python's bool is an int."""
    return isinstance(value, int) and not isinstance(value, bool)


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


@dataclass(frozen=True, slots=True)
class Disorder:
    """How disordered webhooks arrive. The seed decides every case, so a run can be repeated."""

    duplicates: float = 0.0
    """The share of events that arrive twice, as if the receiver's 200 had been lost."""
    held_back: float = 0.0
    """The share of events that arrive late, so that later ones overtake them. Telegram keeps the order of a chat whatever this says."""
    held_back_s: float = 5.0
    """The longest delay of such an event, in the platform's seconds."""
    batch_s: float = 0.0
    """Gather events for so many seconds, and post them as one payload, spread over all of its levels. Telegram never does."""
    early_echoes: float = 0.0
    """The share of Instagram's echoes that arrive before the call that sends the message returns."""


class VerificationFailed(Exception):
    """The receiver did not return Meta's challenge."""
