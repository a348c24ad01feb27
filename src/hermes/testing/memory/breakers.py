"""Breakers in memory, for one process."""

from __future__ import annotations

from dataclasses import dataclass, field

from hermes.delivery import breaker as rules
from hermes.delivery.breaker import CLOSED, DEFAULT_LIMITS, Breaker, BreakerLimits
from hermes.ports.breakers import Admission, BreakerChange, BreakerTransition, ChannelName
from hermes.ports.clock import Clock


@dataclass(slots=True)
class MemoryBreakers:
    """The port Breakers."""

    clock: Clock
    limits: BreakerLimits = DEFAULT_LIMITS
    states: dict[ChannelName, Breaker] = field(default_factory=dict)

    async def admit(self, line: ChannelName) -> Admission:
        self.states[line], admission = rules.admit(self._of(line), self._now, self.limits)
        return admission

    async def succeeded(self, line: ChannelName) -> BreakerChange | None:
        self.states[line], changed = rules.record_success(self._of(line))
        return changed

    async def failed(self, line: ChannelName, admission: Admission) -> BreakerChange | None:
        self.states[line], changed = rules.record_failure(self._of(line), self._now, self.limits, is_probe=admission.is_probe)
        return changed

    async def release_probe(self, line: ChannelName, admission: Admission) -> None:
        self.states[line] = rules.release_probe(self._of(line), is_probe=admission.is_probe)

    async def stop(self, line: ChannelName) -> BreakerChange | None:
        self.states[line], changed = rules.record_unauthorized(self._of(line), self._now, self.limits)
        return changed if changed is not None and changed.change is BreakerTransition.OPENED else None

    def _of(self, line: ChannelName) -> Breaker:
        return self.states.get(line, CLOSED)

    @property
    def _now(self) -> float:
        return self.clock.now().timestamp()
