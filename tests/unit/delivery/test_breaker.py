"""The breaker: ten failures in a row within five minutes, two minutes of rest, one probe."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes.delivery.breaker import (
    CLOSED,
    Breaker,
    BreakerLimits,
    admit,
    record_failure,
    record_success,
    record_unauthorized,
    release_probe,
)
from hermes.ports.outbox import Admission, BreakerChange, BreakerTransition

LIMITS = BreakerLimits()


def fail(breaker: Breaker, *times: float, is_probe: bool = False) -> tuple[Breaker, BreakerChange | None]:
    changed = None
    for now in times:
        breaker, changed = record_failure(breaker, now, LIMITS, is_probe=is_probe)
    return breaker, changed


def test_the_tenth_failure_in_a_row_opens_it_for_two_minutes() -> None:
    breaker, changed = fail(CLOSED, *range(9))
    assert (changed, admit(breaker, 9, LIMITS)) == (None, (breaker, Admission()))
    breaker, changed = fail(breaker, 9)
    assert changed == BreakerChange(BreakerTransition.OPENED, failures=10, wait_s=120.0)
    assert admit(breaker, 10, LIMITS)[1] == Admission(wait_s=119.0)


def test_a_success_in_between_begins_the_count_again() -> None:
    breaker, _ = fail(CLOSED, *range(9))
    breaker, changed = record_success(breaker)
    assert (breaker, changed) == (CLOSED, None)
    assert fail(breaker, *range(9, 18))[1] is None


def test_failures_that_lie_further_apart_than_five_minutes_do_not_open_it() -> None:
    assert fail(CLOSED, *range(9), 300)[1] is None, "the first is five minutes old"
    assert fail(CLOSED, *range(9), 299)[1] is not None
    assert fail(CLOSED, *range(0, 3_000, 40))[1] is None


def test_after_two_minutes_one_probe_goes_and_all_others_wait_for_it() -> None:
    breaker, _ = fail(CLOSED, *[0.0] * 10)
    breaker, first = admit(breaker, 120.0, LIMITS)
    breaker, second = admit(breaker, 121.0, LIMITS)
    assert (first, second) == (Admission(is_probe=True), Admission(wait_s=29.0))
    assert record_success(breaker) == (CLOSED, BreakerChange(BreakerTransition.CLOSED))


def test_a_probe_that_fails_leaves_it_open_for_two_more_minutes() -> None:
    breaker, _ = fail(CLOSED, *[0.0] * 10)
    breaker, _ = admit(breaker, 120.0, LIMITS)
    breaker, changed = fail(breaker, 125.0, is_probe=True)
    assert changed == BreakerChange(BreakerTransition.STAYED_OPEN, failures=10, wait_s=120.0)
    assert admit(breaker, 244.0, LIMITS)[1] == Admission(wait_s=1.0)
    assert admit(breaker, 245.0, LIMITS)[1] == Admission(is_probe=True)


def test_what_was_under_way_when_it_opened_changes_nothing_unless_it_succeeds() -> None:
    breaker, _ = fail(CLOSED, *[0.0] * 10)
    assert fail(breaker, 5.0, 6.0) == (breaker, None)
    assert record_success(breaker) == (CLOSED, BreakerChange(BreakerTransition.CLOSED))


def test_a_probe_that_says_nothing_about_the_line_makes_room_for_another() -> None:
    breaker, _ = fail(CLOSED, *[0.0] * 10)
    breaker, _ = admit(breaker, 120.0, LIMITS)
    breaker = release_probe(breaker, is_probe=True)
    assert admit(breaker, 121.0, LIMITS)[1] == Admission(is_probe=True)


def test_a_probe_whose_process_died_is_anothers_after_half_a_minute() -> None:
    breaker, _ = fail(CLOSED, *[0.0] * 10)
    breaker, _ = admit(breaker, 120.0, LIMITS)
    assert admit(breaker, 150.0, LIMITS)[1] == Admission(is_probe=True)


def test_a_line_that_is_stopped_rests_for_five_minutes_and_is_probed_then() -> None:
    breaker, changed = record_unauthorized(CLOSED, 0.0, LIMITS)
    assert changed == BreakerChange(BreakerTransition.OPENED, failures=0, wait_s=300.0)
    assert admit(breaker, 299.0, LIMITS)[1] == Admission(wait_s=1.0)
    breaker, admission = admit(breaker, 300.0, LIMITS)
    assert admission == Admission(is_probe=True)
    assert record_unauthorized(breaker, 301.0, LIMITS)[1] == BreakerChange(BreakerTransition.STAYED_OPEN, failures=0, wait_s=300.0)


class Machine(RuleBasedStateMachine):
    """Sends of many processes on one line: each is admitted, and ends some time later, in any order. Held against a model that knows
    every end there ever was."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.breaker = CLOSED
        self.under_way: list[Admission] = []
        self.probes: list[float] = []
        """When each probe under way was admitted."""
        self.failures: list[float] = []
        """Since the last success, while it was closed."""
        self.open_until: float | None = None

    @rule(seconds=st.floats(0.0, 400.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def somebody_wants_to_send(self) -> None:
        self.breaker, admission = admit(self.breaker, self.now, LIMITS)
        if self.open_until is None:
            assert admission == Admission()
        elif self.now < self.open_until:
            assert admission.wait_s is not None
            assert abs(admission.wait_s - (self.open_until - self.now)) < 1e-6
        else:
            busy = [at for at in self.probes if self.now < at + LIMITS.probe_s]
            assert admission.is_probe == (not busy)
            assert (admission.wait_s is None) == (not busy)
        if admission.is_probe:
            self.probes = [self.now]
        if admission.wait_s is None:
            self.under_way.append(admission)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def a_send_succeeds(self, data: st.DataObject) -> None:
        self.under_way.remove(data.draw(st.sampled_from(self.under_way)))
        self.breaker, changed = record_success(self.breaker)
        assert (changed is not None) == (self.open_until is not None)
        self.failures, self.open_until, self.probes = [], None, []

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def a_send_fails(self, data: st.DataObject) -> None:
        admission = data.draw(st.sampled_from(self.under_way))
        self.under_way.remove(admission)
        self.breaker, changed = record_failure(self.breaker, self.now, LIMITS, is_probe=admission.is_probe)
        if self.open_until is not None:
            assert (changed is not None) == admission.is_probe
            if admission.is_probe:
                self.open_until, self.probes = self.now + LIMITS.open_s, []
            return
        self.failures.append(self.now)
        is_due = len([at for at in self.failures if at > self.now - LIMITS.within_s]) >= LIMITS.failures
        assert (changed is not None) == is_due
        if is_due:
            self.open_until, self.probes = self.now + LIMITS.open_s, []

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def a_recipient_has_left(self, data: st.DataObject) -> None:
        admission = data.draw(st.sampled_from(self.under_way))
        self.under_way.remove(admission)
        self.breaker = release_probe(self.breaker, is_probe=admission.is_probe)
        if admission.is_probe:
            self.probes = []

    @rule()
    def ten_fail_at_once(self) -> None:
        for _ in range(LIMITS.failures):
            self.breaker, admission = admit(self.breaker, self.now, LIMITS)
            if admission != Admission():
                if admission.is_probe:
                    self.probes = [self.now]
                    self.under_way.append(admission)
                return
            self.under_way.append(admission)
        for _ in range(LIMITS.failures):
            self.under_way.pop()
            self.breaker, _ = record_failure(self.breaker, self.now, LIMITS, is_probe=False)
        self.open_until, self.probes = self.now + LIMITS.open_s, []

    @invariant()
    def it_is_open_exactly_when_the_model_says_so(self) -> None:
        assert self.breaker.is_open == (self.open_until is not None)
        assert len(self.breaker.failed_at) <= LIMITS.failures


Machine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestMachine = Machine.TestCase
