"""The engine of one machine: processes, as many as there are cores to run them on, or none at all.

Each process has a pipe of its own, and a thread here that talks to it. (A pool of the standard library has one pipe for all results: a
process that is killed while it writes leaves half a result in it, and everybody waits for the rest for ever.)"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from hermes.trajectories.engines import WorkerDied

In = TypeVar("In")
Out = TypeVar("Out")

CHUNKS_AHEAD = 2
"""Chunks that wait for each process, so that none waits for a chunk."""
MIN_PARALLEL_CHUNKS = 8
"""So many chunks are done before a process would have started."""
PICKLE_PROTOCOL = pickle.HIGHEST_PROTOCOL


class LocalEngine:
    """Works in processes of its own; with one worker, or little to do, in this one."""

    def __init__(self, workers: int) -> None:
        # More processes than cores take turns, and their memory does not.
        self.workers = max(1, min(workers, len(os.sched_getaffinity(0))))

    def map(self, work: Callable[[In], Out], chunks: Iterable[In]) -> Generator[Out]:
        waiting = iter(chunks)
        first = list(islice(waiting, MIN_PARALLEL_CHUNKS if self.workers > 1 else 0))
        if self.workers == 1 or len(first) < MIN_PARALLEL_CHUNKS:
            yield from map(work, chain(first, waiting))
            return
        hands: list[_WorkerProcess[In, Out]] = []
        idle: SimpleQueue[_WorkerProcess[In, Out]] = SimpleQueue()

        def do(chunk: In) -> Out:
            hand = idle.get()
            try:
                return hand.do(chunk)
            finally:
                idle.put(hand)

        threads = ThreadPoolExecutor(self.workers, thread_name_prefix="hermes-engine")
        try:
            for _ in range(self.workers):
                hands.append(_WorkerProcess(work))
                idle.put(hands[-1])
            yield from _in_order(threads, do, chain(first, waiting), CHUNKS_AHEAD * self.workers)
        finally:
            for hand in hands:
                hand.end()
            threads.shutdown(cancel_futures=True)


class _WorkerProcess(Generic[In, Out]):
    """One process, and the pipe to it. Work is without effects, so that it can be ended at any time."""

    def __init__(self, work: Callable[[In], Out]) -> None:
        # Spawned: a fork of a process with threads (a tokenizer's, an event loop's) may never wake up.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run_worker, args=(theirs, work), daemon=True)
        self._process.start()
        theirs.close()  # else a process that died would never end its pipe

    def do(self, chunk: In) -> Out:
        """Have one chunk worked on. Raises what the work raised, or WorkerDied."""
        try:
            self._pipe.send(chunk)
            said = self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise WorkerDied("a worker process died") from None
        result: Out
        result, error = pickle.loads(said)  # noqa: S301  # by a process that we started
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _in_order(threads: ThreadPoolExecutor, do: Callable[[In], Out], chunks: Iterable[In], most: int) -> Generator[Out]:
    begun: deque[Future[Out]] = deque()
    for chunk in chunks:
        begun.append(threads.submit(do, chunk))
        if len(begun) > most:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()


def _run_worker(pipe: Connection, work: Callable[[Any], Any]) -> None:
    """Let the parent decide about Ctrl-C, and end with it: a parent that was killed cannot say so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(multiprocessing.parent_process(),), daemon=True).start()
    while True:
        chunk = pipe.recv()
        try:
            done = pickle.dumps((work(chunk), None), PICKLE_PROTOCOL)
        except Exception as error:  # noqa: BLE001  # it is raised again where the result is wanted
            error.add_note(f"in a worker process:\n{traceback.format_exc()}")
            done = pickle.dumps((None, error), PICKLE_PROTOCOL)
        pipe.send_bytes(done)


def _exit_with_parent(parent: multiprocessing.process.BaseProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)
