"""A blocked event loop is noticed by a thread that is not on it. These tests really block it."""

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from structlog.testing import capture_logs

from hermes.ops.event_loop import watch_event_loop
from hermes.ops.metrics import Metrics


@dataclass
class Heard:
    """Alerts that are kept, with the thread that called."""

    alerts: list[tuple[str, Mapping[str, object], str]] = field(default_factory=list)

    def alert(self, event: str, **facts: object) -> None:
        self.alerts.append((event, facts, threading.current_thread().name))

    def end(self, event: str, **facts: object) -> None:
        """No test here asks."""


def compute_for(seconds: float) -> None:
    said = "what somebody said"  # noqa: F841  # no report may show it
    time.sleep(seconds)


async def breathe(seconds: float = 0.2) -> None:
    """Let the loop beat and the watcher look."""
    await asyncio.sleep(seconds)


async def test_a_blocked_loop_is_reported_once_with_the_place_and_its_recovery_with_the_time() -> None:
    heard, metrics = Heard(), Metrics()
    with capture_logs() as logs:
        async with watch_event_loop(heard, metrics, blocked_after_s=0.2, interval_s=0.02):
            await breathe()
            compute_for(0.8)
            await breathe()
    [(event, facts, thread)] = heard.alerts
    assert (event, thread, sorted(facts)) == ("event_loop_blocked", "hermes-loop-watch", ["blocked_for_s", "stack"])
    blocked_for_s, stack = facts["blocked_for_s"], facts["stack"]
    assert isinstance(blocked_for_s, float)
    assert 0.2 < blocked_for_s < 0.7, "while it is still blocked"
    assert isinstance(stack, list)
    assert stack[-1].startswith("ops/test_event_loop.py:")
    assert stack[-1].endswith(" compute_for")
    assert stack[-2].endswith(" test_a_blocked_loop_is_reported_once_with_the_place_and_its_recovery_with_the_time")
    assert "what somebody said" not in str(facts)
    [recovered] = logs
    assert (recovered["event"], recovered["log_level"]) == ("event_loop_recovered", "info")
    assert 0.8 <= recovered["blocked_for_s"] < 1.5
    assert metrics.registry.get_sample_value("hermes_loop_blocked_total") == 1


async def test_each_block_is_reported_by_itself() -> None:
    heard, metrics = Heard(), Metrics()
    async with watch_event_loop(heard, metrics, blocked_after_s=0.1, interval_s=0.02):
        for _ in range(3):
            await breathe()
            compute_for(0.4)
        await breathe()
    assert [event for event, _, _ in heard.alerts] == ["event_loop_blocked"] * 3


async def test_a_loop_that_breathes_is_left_alone() -> None:
    heard, metrics = Heard(), Metrics()
    async with watch_event_loop(heard, metrics, blocked_after_s=0.5, interval_s=0.02):
        for _ in range(20):
            compute_for(0.03)
            await asyncio.sleep(0)
        await breathe()
    assert heard.alerts == []
    assert metrics.registry.get_sample_value("hermes_loop_blocked_total") == 0


async def test_the_worst_lag_of_the_last_minute_is_a_number_for_prometheus() -> None:
    metrics = Metrics()
    async with watch_event_loop(Heard(), metrics, blocked_after_s=10, interval_s=0.02):
        await breathe()
        compute_for(0.3)
        await breathe()
        lag = metrics.registry.get_sample_value("hermes_loop_lag_seconds")
    assert lag is not None
    assert 0.2 < lag < 1.0


async def test_nothing_is_left_running() -> None:
    async with watch_event_loop(Heard(), Metrics(), blocked_after_s=1.0, interval_s=0.02):
        assert "hermes-loop-watch" in {thread.name for thread in threading.enumerate()}
    await breathe()
    assert "hermes-loop-watch" not in {thread.name for thread in threading.enumerate()}
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "heartbeat"] == []


# --- the garbage collector, which stops the loop too

FROZEN_START = """
    import gc, weakref
    from hermes.ops.event_loop import collect_and_freeze

    class Ring:
        def __init__(self):
            self.self = self

    early, late = Ring(), None
    left_over = weakref.ref(Ring())
    collect_and_freeze()
    assert left_over() is None, "what was garbage before is set aside with the rest"
    assert gc.get_freeze_count() > 1000
    assert not any(one is early for one in gc.get_objects())
    late = weakref.ref(Ring())
    gc.collect()
    assert late() is None
    print("ok")
"""


def test_a_later_collection_looks_only_at_what_came_later() -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(FROZEN_START)], check=False, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("ok\n", "")
