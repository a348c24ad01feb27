"""Breakers in memory, for one process."""

from __future__ import annotations

from dataclasses import dataclass, field

from hermes.delivery import breaker as rules
from hermes.delivery.breaker import CLOSED, DEFAULT_LIMITS, Breaker, BreakerLimits
from hermes.ports.outbox import Admission, BreakerChange, BreakerTransition, ChannelName
from hermes.ports.runtime import Clock


@dataclass(slots=True)
class MemoryBreakers:
    """The port Breakers."""

    clock: Clock
    limits: BreakerLimits = DEFAULT_LIMITS
    states: dict[ChannelName, Breaker] = field(default_factory=dict)

    async def admit(self, channel_name: ChannelName) -> Admission:
        self.states[channel_name], admission = rules.admit(self._of(channel_name), self._now, self.limits)
        return admission

    async def record_success(self, channel_name: ChannelName) -> BreakerChange | None:
        self.states[channel_name], changed = rules.record_success(self._of(channel_name))
        return changed

    async def record_failure(self, channel_name: ChannelName, admission: Admission) -> BreakerChange | None:
        self.states[channel_name], changed = rules.record_failure(
            self._of(channel_name), self._now, self.limits, is_probe=admission.is_probe
        )
        return changed

    async def release_probe(self, channel_name: ChannelName, admission: Admission) -> None:
        self.states[channel_name] = rules.release_probe(self._of(channel_name), is_probe=admission.is_probe)

    async def stop(self, channel_name: ChannelName) -> BreakerChange | None:
        self.states[channel_name], changed = rules.record_unauthorized(self._of(channel_name), self._now, self.limits)
        return changed if changed is not None and changed.change is BreakerTransition.OPENED else None

    def _of(self, channel_name: ChannelName) -> Breaker:
        return self.states.get(channel_name, CLOSED)

    @property
    def _now(self) -> float:
        return self.clock.now().timestamp()
