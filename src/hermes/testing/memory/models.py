"""What calls of models stand on, in memory: the breakers of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hermes.gateway import model_breaker as rules
from hermes.gateway.model_breaker import DEFAULT_MODEL_LIMITS, WELL, ModelBreaker, ModelBreakerLimits
from hermes.ports.models import ModelAddress, ModelCondition, ModelFailure
from hermes.ports.runtime import Clock
from hermes.testing.memory.runtime import WallClock


@dataclass(slots=True)
class MemoryModelBreakers:
    """The port ModelBreakers."""

    clock: Clock = field(default_factory=WallClock)
    limits: ModelBreakerLimits = DEFAULT_MODEL_LIMITS
    states: dict[ModelAddress, ModelBreaker] = field(default_factory=dict)

    async def find_unwell(self, models: Sequence[ModelAddress]) -> Mapping[ModelAddress, ModelCondition]:
        found = ((model, rules.condition_of(self._of(model), self._now)) for model in models)
        return {model: condition for model, condition in found if condition is not None}

    async def claim_probe(self, model: ModelAddress) -> bool:
        self.states[model], is_probe = rules.claim_probe(self._of(model), self._now, self.limits)
        return is_probe

    async def record_success(self, model: ModelAddress) -> bool:
        return self.states.pop(model, WELL).open_until is not None

    async def record_failure(self, model: ModelAddress, failure: ModelFailure) -> ModelCondition | None:
        self.states[model], opened = rules.record_failure(self._of(model), failure, self._now, self.limits)
        return opened

    def _of(self, model: ModelAddress) -> ModelBreaker:
        return self.states.get(model, WELL)

    @property
    def _now(self) -> float:
        return self.clock.now().timestamp()
