"""The engine of one machine: processes, as many as there are cores to run them on, or none at all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import chain, islice
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")

AHEAD = 2
"""Chunks that wait for each process, so that none waits for a chunk."""
FEW = 8
"""So many chunks are done before a process would have started."""


class Local:
    """Works in processes of its own; with one worker, or little to do, in this one."""

    def __init__(self, workers: int) -> None:
        # More processes than cores take turns, and their memory does not.
        self.workers = max(1, min(workers, len(os.sched_getaffinity(0))))

    def map(self, work: Callable[[In], Out], chunks: Iterable[In]) -> Generator[Out]:
        waiting = iter(chunks)
        first = list(islice(waiting, FEW if self.workers > 1 else 0))
        if self.workers == 1 or len(first) < FEW:
            yield from map(work, chain(first, waiting))
            return
        # Spawned: a fork of a process with threads (a tokenizer's, an event loop's) may never wake up.
        pool = ProcessPoolExecutor(self.workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)
        try:
            yield from _in_order(pool, work, chain(first, waiting), AHEAD * self.workers)
        finally:
            pool.shutdown(cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, work: Callable[[In], Out], chunks: Iterable[In], most: int) -> Generator[Out]:
    begun: deque[Future[Out]] = deque()
    for chunk in chunks:
        begun.append(pool.submit(work, chunk))
        if len(begun) > most:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()


def _begin() -> None:
    """Let the parent decide about Ctrl-C, and end with it: a parent that was killed cannot say so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)
