"""What an attempt at a turn did, step by step, until the journal has it: it is written at the attempt's end, with what is written anyway.

Times are microseconds since the attempt was claimed, by this process's monotonic clock; so they are right whatever the clocks of other
machines say, and each attempt has its own. The store reckons the time of day from how long ago something was."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hermes.ports.sessions import JournalNote


def now_us() -> int:
    return time.monotonic_ns() // 1_000


class LoggedEvent(NamedTuple):
    """An event of the attempt. `began_us` and `ended_us` count from the claim."""

    type: str
    facts: dict[str, Any]
    began_us: int
    ended_us: int


@dataclass(slots=True)
class StepLog:
    """The events of one attempt. Make it as soon as the turn is claimed."""

    claimed_us: int = field(default_factory=now_us)
    at: str = ""
    """The step that the attempt is at; empty before the first."""
    _began_us: int = 0
    _events: list[LoggedEvent] = field(default_factory=list)

    def begin(self, step: str) -> None:
        """Begin a step. The one before has ended."""
        self.at, self._began_us = step, self._elapsed_us()

    @property
    def step_s(self) -> float:
        """How long the current step has taken so far."""
        return (self._elapsed_us() - self._began_us) / 1_000_000

    def end(self, type_: str, **facts: Any) -> None:
        """Log the event of the current step, which ends now or has raised an error: with its beginning and how long it took."""
        ended_us = self._elapsed_us()
        us = ended_us - self._began_us
        times = {"ms": round(us / 1_000), "began_us": self._began_us, "us": us}
        self._events.append(LoggedEvent(type_, {**times, **facts}, self._began_us, ended_us))

    def note(self, type_: str, **facts: Any) -> None:
        """Log an event that has no duration."""
        at = self._elapsed_us()
        self._events.append(LoggedEvent(type_, facts, at, at))

    def fork(self) -> StepLog:
        """A copy to log the end of the turn in. If its transaction rolls back, this log does not say that the turn has ended."""
        return replace(self, _events=[*self._events])

    def notes(self) -> list[JournalNote]:
        """All events so far, for a journal that they are handed to now."""
        now = self._elapsed_us()
        return [JournalNote(event.type, event.facts, now - event.began_us, now - event.ended_us) for event in self._events]

    def _elapsed_us(self) -> int:
        return now_us() - self.claimed_us
