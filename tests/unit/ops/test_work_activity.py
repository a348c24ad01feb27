"""When a worker is silent: it could begin turns, turns wait, and none ends. Not when it is busy, paused, or knows nothing."""

from contextlib import ExitStack

from hermes.ops.work_activity import WorkActivity


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def activity(time: Time, concurrency: int = 2) -> WorkActivity:
    return WorkActivity(concurrency=concurrency, silent_after_s=60, max_turn_s=100, clock=time)


def look(worker: WorkActivity, time: Time, waits_s: float | None, times: int = 1, every_s: float = 2.0) -> None:
    for _ in range(times):
        time.now += every_s
        worker.look(waits_s)


def test_a_worker_in_which_no_turn_ends_while_turns_wait_is_silent_after_a_minute() -> None:
    time = Time()
    worker = activity(time)
    look(worker, time, 30.0, times=29)
    assert not worker.is_silent
    look(worker, time, 88.0)
    assert worker.is_silent
    with worker.turn():
        pass
    look(worker, time, 90.0)
    assert not worker.is_silent, "a turn ended"


def test_a_worker_for_which_no_turn_waits_is_idle() -> None:
    time = Time()
    worker = activity(time)
    for waits_s in (None, 0.1, 4.9):
        look(worker, time, waits_s, times=60)
        assert not worker.is_silent


def test_a_worker_that_is_full_of_turns_which_may_still_end_is_busy() -> None:
    time = Time()
    worker = activity(time)
    with worker.turn():
        look(worker, time, 30.0, times=5)
        with worker.turn():
            look(worker, time, 50.0, times=49)
            assert not worker.is_silent, "the second one has run for 98 s"
            look(worker, time, 150.0, times=31)
            assert worker.is_silent, "both hang: they are older than all deadlines of a turn together"


def test_a_worker_with_room_is_not_excused_by_a_long_turn() -> None:
    time = Time()
    worker = activity(time)
    with worker.turn():
        look(worker, time, 30.0, times=30)
        assert worker.is_silent


def test_a_pause_of_the_whole_process_is_not_silence() -> None:
    time = Time()
    worker = activity(time)
    look(worker, time, 3_600.0, every_s=3_600)
    assert not worker.is_silent


def test_an_outage_of_the_store_begins_the_count_anew() -> None:
    time = Time()
    worker = activity(time)
    look(worker, time, 30.0, times=29)
    look(worker, time, None)
    look(worker, time, 100.0, times=29)
    assert not worker.is_silent


def test_what_runs_is_counted_and_the_last_end_of_a_turn_is_known() -> None:
    time = Time()
    worker = activity(time)
    assert (worker.running, worker.turn_ended_s) == (0, None)
    with ExitStack() as stack:
        stack.enter_context(worker.turn())
        stack.enter_context(worker.job())
        assert worker.running == 2
    time.now += 3
    assert (worker.running, worker.turn_ended_s) == (0, 3.0)
