"""When Hermes stops sending through a channel account, and when it tries again. Values in, values out: a store keeps them.

                 ten failures within five minutes                        any send succeeds
    ┌────────┐ ─────────────────────────────────────▶ ┌──────┐       ┌────────────────────────────▶ closed
    │ closed │                                        │ open │ ─────▶ half open: one probe, the others wait
    └────────┘ ◀───────────────────────────────────── └──────┘  2 min └────────────────────────────▶ open again
                 any send succeeds                                       the probe fails

Only failures in a row count: a success resets the count. A send that was under way when the breaker opened changes nothing if it fails. If
a probe does not report how it ended, another send becomes the probe after 30 s."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hermes.ports.outbox import Admission, BreakerChange, BreakerTransition


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimits:
    """When a breaker opens, and for how long."""

    failures: int = 10
    within_s: float = 300.0
    open_s: float = 120.0
    probe_s: float = 30.0
    """How long a probe may take before another send becomes the probe. Longer than one try takes."""
    unauthorized_s: float = 300.0
    """How long nothing is sent through an account whose credentials the platform rejects."""

    @property
    def keep_s(self) -> float:
        """How long a store must keep a state."""
        return self.within_s + max(self.open_s, self.unauthorized_s) + self.probe_s


DEFAULT_LIMITS = BreakerLimits()


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of one channel account's breaker. Times are seconds of one clock."""

    failed_at: tuple[float, ...] = ()
    """The times of the failures since the last success, at most as many as open the breaker."""
    open_until: float | None = None
    """None: closed."""
    probe_until: float | None = None
    """Half open, and a probe is under way until then."""

    @property
    def is_open(self) -> bool:
        return self.open_until is not None


CLOSED = Breaker()


def admit(breaker: Breaker, now: float, limits: BreakerLimits) -> tuple[Breaker, Admission]:
    """Return whether a message may be sent now, and the new state."""
    if breaker.open_until is None:
        return breaker, Admission()
    if now < breaker.open_until:
        return breaker, Admission(wait_s=breaker.open_until - now)
    if breaker.probe_until is not None and now < breaker.probe_until:
        return breaker, Admission(wait_s=breaker.probe_until - now)
    return replace(breaker, probe_until=now + limits.probe_s), Admission(is_probe=True)


def record_success(breaker: Breaker) -> tuple[Breaker, BreakerChange | None]:
    """Close the breaker after a message was sent."""
    return CLOSED, BreakerChange(BreakerTransition.CLOSED) if breaker.is_open else None


def record_failure(breaker: Breaker, now: float, limits: BreakerLimits, *, is_probe: bool) -> tuple[Breaker, BreakerChange | None]:
    """Count a failed send, and open the breaker if there are too many."""
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
    """Let another send be the probe, after a send that ended in a way that says nothing about the account."""
    return replace(breaker, probe_until=None) if is_probe else breaker


def record_unauthorized(breaker: Breaker, now: float, limits: BreakerLimits) -> tuple[Breaker, BreakerChange | None]:
    """Open the breaker after the platform rejected the account's credentials."""
    change = BreakerTransition.STAYED_OPEN if breaker.is_open else BreakerTransition.OPENED
    return open_breaker(breaker, now, limits.unauthorized_s), BreakerChange(change, len(breaker.failed_at), limits.unauthorized_s)


def open_breaker(breaker: Breaker, now: float, for_s: float) -> Breaker:
    return replace(breaker, open_until=now + for_s, probe_until=None)
