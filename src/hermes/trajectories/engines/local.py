"""The engine of one machine: worker processes, at most one for each core, or none at all.

Each worker has a pipe of its own, and a thread of this process talks to it. (A pool of the standard library has one pipe for all results:
a worker that is killed while it writes leaves half a result in it, and the parent waits for the rest for ever.)"""

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
"""Chunks that wait for each process, so that no process waits for a chunk."""
MIN_PARALLEL_CHUNKS = 8
"""Fewer chunks than this are done in this process: it finishes them before a worker process would have started."""
PICKLE_PROTOCOL = pickle.HIGHEST_PROTOCOL


class LocalEngine:
    """Processes chunks in worker processes; with one worker, or few chunks, in this process."""

    def __init__(self, workers: int) -> None:
        # More processes than cores take turns on the cores, but each needs its memory all the time.
        self.workers = max(1, min(workers, len(os.sched_getaffinity(0))))

    def map(self, work: Callable[[In], Out], chunks: Iterable[In]) -> Generator[Out]:
        waiting = iter(chunks)
        first = list(islice(waiting, MIN_PARALLEL_CHUNKS if self.workers > 1 else 0))
        if self.workers == 1 or len(first) < MIN_PARALLEL_CHUNKS:
            yield from map(work, chain(first, waiting))
            return
        processes: list[_WorkerProcess[In, Out]] = []
        idle: SimpleQueue[_WorkerProcess[In, Out]] = SimpleQueue()

        def do(chunk: In) -> Out:
            process = idle.get()
            try:
                return process.do(chunk)
            finally:
                idle.put(process)

        threads = ThreadPoolExecutor(self.workers, thread_name_prefix="hermes-engine")
        try:
            for _ in range(self.workers):
                processes.append(_WorkerProcess(work))
                idle.put(processes[-1])
            yield from _in_order(threads, do, chain(first, waiting), CHUNKS_AHEAD * self.workers)
        finally:
            for process in processes:
                process.end()
            threads.shutdown(cancel_futures=True)


class _WorkerProcess(Generic[In, Out]):
    """One worker process, and the pipe to it. Work has no side effects, so the process can be killed at any time."""

    def __init__(self, work: Callable[[In], Out]) -> None:
        # Spawned, not forked: a fork of a process with threads (a tokenizer's, an event loop's) may hang for ever.
        context = multiprocessing.get_context("spawn")
        self._pipe, worker_end = context.Pipe()
        self._process = context.Process(target=_run_worker, args=(worker_end, work), daemon=True)
        self._process.start()
        worker_end.close()  # else this process would hold the pipe open after the worker died

    def do(self, chunk: In) -> Out:
        """Have the worker process one chunk. Raises what the work raised, or WorkerDied."""
        try:
            self._pipe.send(chunk)
            reply = self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise WorkerDied("a worker process died") from None
        result: Out
        result, error = pickle.loads(reply)  # noqa: S301  # written by a process that this one started
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _in_order(threads: ThreadPoolExecutor, do: Callable[[In], Out], chunks: Iterable[In], max_pending: int) -> Generator[Out]:
    pending: deque[Future[Out]] = deque()
    for chunk in chunks:
        pending.append(threads.submit(do, chunk))
        if len(pending) > max_pending:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _run_worker(pipe: Connection, work: Callable[[Any], Any]) -> None:
    """Process chunks until the parent kills this worker. Ctrl-C is left to the parent; if the parent is killed, the worker exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(multiprocessing.parent_process(),), daemon=True).start()
    while True:
        chunk = pipe.recv()
        try:
            done = pickle.dumps((work(chunk), None), PICKLE_PROTOCOL)
        except Exception as error:  # noqa: BLE001  # the parent raises it again
            error.add_note(f"in a worker process:\n{traceback.format_exc()}")
            done = pickle.dumps((None, error), PICKLE_PROTOCOL)
        pipe.send_bytes(done)


def _exit_with_parent(parent: multiprocessing.process.BaseProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)
