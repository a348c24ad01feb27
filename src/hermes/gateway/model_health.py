"""Whether any model can be asked: what calls have shown lately, and else a check of each backend that costs nothing.

A backend that answered a call in the last minute is well. The others are asked for their list of models, at most once a minute. The answer
that `/ready` and the alert `no_usable_model` give is the last one known: no request waits for a check."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

from hermes.gateway.catalogue import ModelCatalogue
from hermes.ports.backends import Backend, FindingLevel
from hermes.ports.models import CallMeter, CallOutcome, ModelCall
from hermes.ports.runtime import Alerts
from hermes.tasks import stop_if_cancelled

CHECK_TIMEOUT_S = 10.0


class NoUsableModel(Exception):
    """No model of any tier can be asked."""


class ModelHealth:
    """The health of the backends that the tiers use. Also a CallMeter: it learns from calls, and passes them on."""

    def __init__(
        self,
        catalogue: ModelCatalogue,
        backends: Mapping[str, Backend],
        alerts: Alerts,
        meter: CallMeter,
        *,
        checkable: Collection[str],
        fresh_s: float = 60.0,
        timer: Callable[[], float] = time.monotonic,
        used: Callable[[], Collection[str]] | None = None,
    ) -> None:
        """`checkable` are the backends whose check is one cheap request: others count as well, because their check would start a program
        or load a model. `fresh_s` is how long an answer proves that its backend is well. `used` names the models in use; without it, those
        of the tiers."""
        self._backends, self._alerts, self._meter = backends, alerts, meter
        self._checkable, self._fresh_s, self._timer = frozenset(checkable), fresh_s, timer
        in_tiers = [name for tier in catalogue.tiers.values() for name in tier.chain]
        self._models, self._names = catalogue.models, used or (lambda: in_tiers)
        self._answered_at: dict[str, float] = {}
        self._faults: dict[str, str] = {}
        self._is_checked = self._is_raised = False

    def count(self, call: ModelCall) -> None:
        """The port CallMeter."""
        if call.outcome is CallOutcome.ANSWERED and call.backend and not call.cache_hit:
            self._answered_at[call.backend] = self._timer()
        self._meter.count(call)

    @property
    def _used(self) -> list[str]:
        return sorted({self._models[name].backend for name in self._names()})

    def count_saved(self, call: ModelCall, micro_usd: int) -> None:
        """The port CallMeter."""
        self._meter.count_saved(call, micro_usd)

    async def probe(self) -> None:
        """Raise NoUsableModel if the last look found no backend that can be asked. Never waits for one."""
        if self._is_checked and not self._usable():
            raise NoUsableModel(self._finding())

    async def look(self) -> None:
        """Check the backends that have not answered lately; raise the alert, or end it."""
        stale = [name for name in self._used if name in self._checkable and name in self._backends and not self._has_answered(name)]
        found = await asyncio.gather(*(self._check(name) for name in stale))
        self._faults = {name: fault for name, fault in zip(stale, found, strict=True) if fault}
        self._is_checked = True
        if not self._usable():
            self._is_raised = True
            self._alerts.alert("no_usable_model", backends=", ".join(self._used), finding=self._finding())
        elif self._is_raised:
            self._is_raised = False
            self._alerts.end("no_usable_model")

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            stop_if_cancelled()
            await asyncio.sleep(self._fresh_s)

    async def _check(self, name: str) -> str:
        """Return what is wrong with a backend, in its own words, which hold no secret; "" if it can be asked."""
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                findings = await self._backends[name].health_check(timeout_s=CHECK_TIMEOUT_S)
        except TimeoutError:
            return f"{name} did not report its health in time"
        return next((finding.message for finding in findings if finding.level is FindingLevel.ERROR), "")

    def _usable(self) -> bool:
        return any(name in self._backends and (name not in self._faults or self._has_answered(name)) for name in self._used)

    def _has_answered(self, name: str) -> bool:
        return self._timer() - self._answered_at.get(name, float("-inf")) < self._fresh_s

    def _finding(self) -> str:
        return next(iter(self._faults.values()), "no backend has a key")
