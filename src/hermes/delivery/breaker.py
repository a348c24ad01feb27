"""When a line to a platform is left alone, and when it is asked again. Values in, values out: who keeps them, and where, is a store's.

                 ten failures within five minutes                        a success, of anybody
    ┌────────┐ ─────────────────────────────────────▶ ┌──────┐       ┌────────────────────────────▶ closed
    │ closed │                                        │ open │ ─────▶ half open: one probe, the others wait
    └────────┘ ◀───────────────────────────────────── └──────┘  2 min └────────────────────────────▶ open again
                 a success, of anybody                                   the probe fails

Failures count one after the other: a success in between forgets them. What was under way when the breaker opened tells nothing new, unless
it succeeds. A probe that never tells how it went is another's after a while."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hermes.ports.breakers import Admission, BreakerChange, BreakerTransition


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimits:
    """When a breaker opens, and for how long."""

    failures: int = 10
    within_s: float = 300.0
    open_s: float = 120.0
    probe_s: float = 30.0
    """How long a probe may take before somebody else gets to try. Longer than one try takes."""
    unauthorized_s: float = 300.0
    """How long a line is left alone on which the platform does not know us."""

    @property
    def keep_s(self) -> float:
        """How long a state matters at most."""
        return self.within_s + max(self.open_s, self.unauthorized_s) + self.probe_s


DEFAULT_LIMITS = BreakerLimits()


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of one line. Times are seconds of one clock."""

    failed_at: tuple[float, ...] = ()
    """The failures since the last success, as many as it takes to open."""
    open_until: float | None = None
    """None: closed."""
    probe_until: float | None = None
    """Half open, and a probe is under way until then."""

    @property
    def is_open(self) -> bool:
        return self.open_until is not None


CLOSED = Breaker()


def admit(breaker: Breaker, now: float, limits: BreakerLimits) -> tuple[Breaker, Admission]:
    """Whether somebody may send now."""
    if breaker.open_until is None:
        return breaker, Admission()
    if now < breaker.open_until:
        return breaker, Admission(wait_s=breaker.open_until - now)
    if breaker.probe_until is not None and now < breaker.probe_until:
        return breaker, Admission(wait_s=breaker.probe_until - now)
    return replace(breaker, probe_until=now + limits.probe_s), Admission(is_probe=True)


def record_success(breaker: Breaker) -> tuple[Breaker, BreakerChange | None]:
    """Something was sent."""
    return CLOSED, BreakerChange(BreakerTransition.CLOSED) if breaker.is_open else None


def record_failure(breaker: Breaker, now: float, limits: BreakerLimits, *, is_probe: bool) -> tuple[Breaker, BreakerChange | None]:
    """A send failed in a way that counts."""
    if breaker.is_open:
        if not is_probe:
            return breaker, None
        return open_breaker(breaker, now, limits.open_s), BreakerChange(
            BreakerTransition.STAYED_OPEN, len(breaker.failed_at), limits.open_s
        )
    recent = (*breaker.failed_at, now)[-limits.failures :]
    counted = replace(breaker, failed_at=tuple(at for at in recent if at > now - limits.within_s))
    if len(counted.failed_at) < limits.failures:
        return counted, None
    return open_breaker(counted, now, limits.open_s), BreakerChange(BreakerTransition.OPENED, limits.failures, limits.open_s)


def release_probe(breaker: Breaker, *, is_probe: bool) -> Breaker:
    """A send ended in a way that says nothing about the line: its probe is free again."""
    return replace(breaker, probe_until=None) if is_probe else breaker


def record_unauthorized(breaker: Breaker, now: float, limits: BreakerLimits) -> tuple[Breaker, BreakerChange | None]:
    """The platform does not know us on this line."""
    change = BreakerTransition.STAYED_OPEN if breaker.is_open else BreakerTransition.OPENED
    return open_breaker(breaker, now, limits.unauthorized_s), BreakerChange(change, len(breaker.failed_at), limits.unauthorized_s)


def open_breaker(breaker: Breaker, now: float, for_s: float) -> Breaker:
    return replace(breaker, open_until=now + for_s, probe_until=None)
