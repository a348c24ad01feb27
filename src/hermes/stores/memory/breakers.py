"""Breakers in memory, for one process."""

from __future__ import annotations

from dataclasses import dataclass, field

from hermes.delivery import breaker as rules
from hermes.delivery.breaker import CLOSED, USUAL, Breaker, BreakerLimits
from hermes.ports.breakers import Admission, Change, Changed, Line
from hermes.ports.clock import Clock


@dataclass(slots=True)
class MemoryBreakers:
    """The port Breakers."""

    clock: Clock
    limits: BreakerLimits = USUAL
    states: dict[Line, Breaker] = field(default_factory=dict)

    async def admit(self, line: Line) -> Admission:
        self.states[line], admission = rules.admit(self._of(line), self._now, self.limits)
        return admission

    async def succeeded(self, line: Line) -> Changed | None:
        self.states[line], changed = rules.succeeded(self._of(line))
        return changed

    async def failed(self, line: Line, admission: Admission) -> Changed | None:
        self.states[line], changed = rules.failed(self._of(line), self._now, self.limits, is_probe=admission.is_probe)
        return changed

    async def gave_no_sign(self, line: Line, admission: Admission) -> None:
        self.states[line] = rules.gave_no_sign(self._of(line), is_probe=admission.is_probe)

    async def stop(self, line: Line) -> Changed | None:
        self.states[line], changed = rules.stopped(self._of(line), self._now, self.limits)
        return changed if changed is not None and changed.change is Change.OPENED else None

    def _of(self, line: Line) -> Breaker:
        return self.states.get(line, CLOSED)

    @property
    def _now(self) -> float:
        return self.clock.now().timestamp()
