"""When Hermes stops asking a model, and when it asks again. Values in, values out: a store keeps them.

             a failure that the next call would share, or three others in a row within 30 s
    ┌────────┐ ─────────────────────────────────────────────────────▶ ┌──────┐        ┌─────────────────────▶ closed
    │ closed │                                                        │ open │ ─────▶ one call is the probe
    └────────┘ ◀───────────────────────────────────────────────────── └──────┘  30 s  └─────────────────────▶ open for twice as long
                              any call is answered                                     the probe fails

A wrong key, a full rate limit, a refused connection and a time-out open the breaker at once. The vendor's `Retry-After` decides how long;
without it no breaker stays open longer than `max_open_s`. If a probe does not report how it ended, another call becomes the probe."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hermes.ports.backends import BackendError, Garbled, Overloaded, RateLimited, Unauthorized, Unreachable
from hermes.ports.models import ModelCondition, ModelFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBreakerLimits:
    """When the breaker of a model opens, and for how long."""

    failures: int = 3
    within_s: float = 30.0
    open_s: float = 30.0
    max_open_s: float = 300.0
    max_stated_s: float = 3_600.0
    """The longest time that a vendor's `Retry-After` counts."""
    probe_s: float = 60.0
    """How long a probe may take before another call becomes the probe. Longer than most answers take."""

    @property
    def keep_s(self) -> float:
        """How long a store must keep a state."""
        return max(self.max_open_s, self.max_stated_s) + self.within_s + self.probe_s


DEFAULT_MODEL_LIMITS = ModelBreakerLimits()


@dataclass(frozen=True, slots=True)
class ModelBreaker:
    """The state of one model's breaker. Times are seconds of one clock."""

    failed_at: tuple[float, ...] = ()
    """The times of the failures since the last answer, at most as many as open the breaker."""
    error: str = ""
    """The name of the last error."""
    open_until: float | None = None
    """None: closed."""
    open_s: float = 0.0
    """For how long it was opened the last time, where the vendor did not say it."""
    is_stated: bool = False
    probe_until: float | None = None
    """A probe is under way until then."""
    since: float | None = None
    """When the first of the failures since the last answer was; it stays while probes fail."""


WELL = ModelBreaker()


def condition_of(breaker: ModelBreaker, now: float) -> ModelCondition | None:
    """Return what a call must know of a model; None if its last call was answered."""
    if breaker == WELL:
        return None
    if breaker.open_until is None:
        return ModelCondition(breaker.error, None)
    until = max(breaker.open_until, breaker.probe_until or 0.0)
    return ModelCondition(breaker.error, max(0.0, until - now), breaker.is_stated and now < breaker.open_until)


def claim_probe(breaker: ModelBreaker, now: float, limits: ModelBreakerLimits) -> tuple[ModelBreaker, bool]:
    """Return whether a call is the probe of an open breaker, and the new state."""
    if breaker.open_until is None:
        return breaker, True  # another process closed it meanwhile
    if now < max(breaker.open_until, breaker.probe_until or 0.0):
        return breaker, False
    return replace(breaker, probe_until=now + limits.probe_s), True


def record_failure(
    breaker: ModelBreaker, failure: ModelFailure, now: float, limits: ModelBreakerLimits
) -> tuple[ModelBreaker, ModelCondition | None]:
    """Count a failure; open the breaker if it is one too many, and keep it open longer if it was the probe's."""
    was_probe = breaker.open_until is not None and now >= breaker.open_until
    if breaker.open_until is not None and not was_probe and failure.retry_after_s is None:
        return breaker, None  # the call was under way when the breaker opened
    recent = tuple(at for at in (*breaker.failed_at, now)[-limits.failures :] if at > now - limits.within_s)
    counted = replace(breaker, failed_at=recent, error=failure.error, since=now if breaker.since is None else breaker.since)
    if not (was_probe or failure.opens_at_once or len(recent) >= limits.failures):
        return counted, None
    stated = None if failure.retry_after_s is None else min(failure.retry_after_s, limits.max_stated_s)
    own = min(limits.max_open_s, 2 * breaker.open_s if was_probe and breaker.open_s else limits.open_s)
    for_s = own if stated is None else stated
    opened = replace(counted, open_until=now + for_s, open_s=own, is_stated=stated is not None, probe_until=None)
    return opened, ModelCondition(failure.error, for_s, stated is not None)


def failure_of(error: BackendError, *, is_short: bool) -> ModelFailure | None:
    """Return how an error counts; None for an error that says nothing about the model, such as a prompt that is too long.

    `is_short`: the caller gave the model less time than any model needs, so a time-out says little."""
    name = type(error).__name__
    match error:
        case RateLimited():
            return ModelFailure(name, opens_at_once=True, retry_after_s=error.retry_after_s)
        case Unauthorized():
            return ModelFailure(name, opens_at_once=True)
        case Unreachable():
            return ModelFailure(name, opens_at_once=not is_short)
        case Overloaded() | Garbled():
            return ModelFailure(name)
    return None
