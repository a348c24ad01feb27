"""How soon `hermes up` starts a process again: at once the first time, later with each failure in a row, slowly in a crash loop."""

from hermes.cli.supervisor import CRASH_LOOP_PAUSE_S, RESTART_WINDOW_S, RestartPolicy


def test_each_failure_in_a_row_doubles_the_pause_until_it_is_a_crash_loop() -> None:
    policy = RestartPolicy()
    pauses = [policy.note(ran_s=1.0, now=float(at)) for at in range(7)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, CRASH_LOOP_PAUSE_S, CRASH_LOOP_PAUSE_S, CRASH_LOOP_PAUSE_S]
    assert policy.is_crash_loop


def test_a_process_that_ran_well_for_a_while_is_started_again_at_once() -> None:
    policy = RestartPolicy()
    assert [policy.note(ran_s=100.0, now=100.0 * at) for at in range(5)] == [0.5] * 5
    assert not policy.is_crash_loop


def test_a_process_that_runs_a_little_and_dies_is_in_a_crash_loop_too() -> None:
    policy = RestartPolicy()
    assert [policy.note(ran_s=30.0, now=30.0 * at) for at in range(6)] == [0.5] * 4 + [CRASH_LOOP_PAUSE_S] * 2


def test_a_crash_loop_ends_when_the_restarts_are_long_ago() -> None:
    policy = RestartPolicy()
    for at in range(5):
        policy.note(ran_s=1.0, now=float(at))
    assert policy.note(ran_s=RESTART_WINDOW_S, now=2 * RESTART_WINDOW_S) == 0.5
    assert not policy.is_crash_loop


def test_in_an_hour_a_process_that_dies_at_once_is_started_a_hundred_and_thirty_times_at_most() -> None:
    policy, now, starts = RestartPolicy(), 0.0, 0
    while now < 3_600:
        now += policy.note(ran_s=0.0, now=now)
        starts += 1
    assert starts <= 130
