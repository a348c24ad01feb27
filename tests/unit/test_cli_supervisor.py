"""How soon `hermes up` starts a process again: at once the first time, later with each failure in a row, slowly in a crash loop. And which
of its children it tells about a restart."""

import asyncio
import json
import socket
from contextlib import AsyncExitStack
from uuid import uuid4

from hermes.cli.supervisor import CRASH_LOOP_PAUSE_S, RESTART_WINDOW_S, ChildLimits, ChildProcess, ProcessTree, RestartPolicy
from hermes.ops.pulse import Pulse
from hermes.ports.processes import ProcessRestart, ProcessRole, RestartReason
from hermes.tasks import end_tasks


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


async def started(tree: ProcessTree) -> None:
    while True:
        if all(child.link.process_id for child in tree.children):
            return
        await asyncio.sleep(0.01)


async def test_a_restart_is_told_to_a_child_that_gives_its_beat_and_not_to_one_that_was_stopped() -> None:
    """The first child may be stopped too, and not yet replaced: what it is told dies with it."""
    tree, limits = ProcessTree(Pulse([])), ChildLimits(replace_after_s=10.0, stop_timeout_s=1.0)
    tree.children = [
        ChildProcess(role, None, tree, asyncio.Event(), asyncio.Event(), limits) for role in (ProcessRole.SERVE, ProcessRole.WORKER)
    ]
    async with AsyncExitStack() as stack:
        ends = []
        for child in tree.children:
            own, other = socket.socketpair()
            stack.push_async_callback(end_tasks, asyncio.create_task(child.link.follow(own, tree)))
            reader, writer = await asyncio.open_unix_connection(sock=other)
            stack.callback(writer.close)
            writer.write(f'{{"id": "{uuid4()}", "silent": false}}\n'.encode())
            ends.append((reader, writer))
        async with asyncio.timeout(10):
            await started(tree)
            tree.untold.append(
                ProcessRestart(
                    process_id=None, role=ProcessRole.WORKER, host="here", pid=42, reason=RestartReason.DIED, code=-9, restarts=1
                )
            )
            [_, (reader, writer)] = ends
            writer.write(f'{{"id": "{uuid4()}", "silent": false}}\n'.encode())
            assert json.loads(await reader.readline())["pid"] == 42
