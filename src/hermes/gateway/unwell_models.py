"""What one call knows of the breakers of its chain, and what it tells them.

A wrong key (401) is a fault of all models of a backend. It opens the breaker of the backend as a whole, so that the key is tried once, and
not once with each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from hermes.gateway.model_breaker import failure_of
from hermes.ports.backends import BackendError, Unauthorized, Unreachable
from hermes.ports.models import WHOLE_BACKEND, ModelAddress, ModelBreakers, ModelCondition
from hermes.ports.runtime import Alerts

log = structlog.get_logger()

WRONG_KEY = 401
"""The status of a refused key. Other refusals (403, 404) may concern one model alone."""


@dataclass(frozen=True, slots=True)
class ModelWatch:
    """The breakers, and who is told when one opens or closes."""

    breakers: ModelBreakers
    alerts: Alerts

    async def look(self, models: Sequence[ModelAddress]) -> UnwellModels:
        """Read the breakers of a chain, once for each call."""
        found = await self.breakers.find_unwell([*models, *dict.fromkeys(whole_backend(model) for model in models)])
        return UnwellModels(self, dict(found))


@dataclass(slots=True)
class UnwellModels:
    """The models of a chain whose last calls failed. Without a watch, every model is well."""

    watch: ModelWatch | None = None
    conditions: dict[ModelAddress, ModelCondition] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """The backends that refused our key during this call."""

    def to_skip(self, models: Sequence[ModelAddress]) -> Mapping[ModelAddress, ModelCondition]:
        """Return the models that the call does not ask: those whose breaker is open. If all are open, only those whose vendor said how long
        it wants not to be asked: for the caller another failure is no worse than no try."""
        found = {model: condition for model in models if (condition := self._open(model)) is not None and condition.wait_s}
        if len(found) < len({*models}):
            return found
        return {model: condition for model, condition in found.items() if condition.is_stated}

    async def may_ask(self, model: ModelAddress) -> bool:
        """Whether the call may ask a model, of which one call at a time finds out whether it answers again."""
        if self.watch is None:
            return True
        for address in (whole_backend(model), model):
            condition = self.conditions.get(address)
            if condition is not None and condition.wait_s is not None and not await self.watch.breakers.claim_probe(address):
                return False
        return True

    def timed_out(self, model: ModelAddress) -> bool:
        """Whether an open breaker is that of a model that could not be reached, or did not answer in time."""
        condition = self._open(model)
        return condition is not None and condition.wait_s is not None and condition.error == Unreachable.__name__

    async def note_answer(self, model: ModelAddress) -> None:
        if self.watch is None:
            return
        for address in (whole_backend(model), model):
            if address in self.conditions and await self.watch.breakers.record_success(address):
                log.info("model_breaker_closed", backend=address.backend, model=address.model)
                self.watch.alerts.end("model_unwell", backend=address.backend, model=address.model)

    async def note_failure(self, model: ModelAddress, error: BackendError, *, is_short: bool) -> None:
        failure = failure_of(error, is_short=is_short)
        if isinstance(error, Unauthorized) and error.status == WRONG_KEY:
            self.refused.add(model.backend)
            model = whole_backend(model)
        if self.watch is None or failure is None:
            return
        opened = await self.watch.breakers.record_failure(model, failure)
        if opened is not None and not isinstance(error, Unauthorized):  # the gateway raises an alert of its own for a refused key
            self.watch.alerts.alert(
                "model_unwell", backend=model.backend, model=model.model, error=opened.error, retries_in_s=round(opened.wait_s or 0.0)
            )

    def _open(self, model: ModelAddress) -> ModelCondition | None:
        """The condition that keeps a model from being asked: its backend's if that one's breaker is open, else its own."""
        backend = self.conditions.get(whole_backend(model))
        return backend if backend is not None and backend.wait_s else self.conditions.get(model)


def whole_backend(model: ModelAddress) -> ModelAddress:
    """What stands for all models of a backend among the breakers: no model has an empty name."""
    return ModelAddress(model.backend, WHOLE_BACKEND)
