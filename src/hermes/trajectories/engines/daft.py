"""The engine of many machines: Daft, in processes of this machine or on a Ray cluster (`ray://host:port`). Needs the extra `batch`.

Chunks are sent to the workers and results come back, so the cluster needs neither the input files nor the output folder. It needs this
package in the same version, and the tokenizer's folder if a tokenizer is set. Chunks are sent in windows, so their number is bounded."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, TypeVar

import daft  # type: ignore[import-not-found]  # comes with the extra `batch`, which is not for development
import ray  # type: ignore[import-not-found]

from hermes.trajectories.errors import TrajectoryError

In = TypeVar("In")
Out = TypeVar("Out")

WINDOW_CHUNKS = 128
"""Chunks that are sent at once. Each window starts new workers, so it should not be small."""


class DaftEngine:
    """Processes chunks with Daft."""

    def __init__(self, address: str | None = None) -> None:
        """`address` is that of a Ray cluster; None works in processes of this machine."""
        self._address = address

    def map(self, work: Callable[[In], Out], chunks: Iterable[In]) -> Generator[Out]:
        workers = self._begin()
        waiting = iter(chunks)
        while window := list(islice(waiting, WINDOW_CHUNKS)):
            frame = daft.from_pydict({"number": list(range(len(window))), "chunk": [pickle.dumps(chunk) for chunk in window]})
            if self._address is not None:
                frame = frame.into_partitions(min(len(window), workers))
            done = _worker_class(min(len(window), workers))(pickle.dumps(work)).do(frame["chunk"])
            yield from _in_order(frame.select(frame["number"], done.alias("done")))

    def _begin(self) -> int:
        """Connect; return how many workers fit. A process can connect Daft once, and to one place only."""
        runner = "native" if self._address is None else "ray"
        try:
            if self._address is None:
                daft.set_runner_native()
            elif not ray.is_initialized():
                daft.set_runner_ray(address=self._address)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if runner == "ray" and not ray.is_initialized():
                raise TrajectoryError(f"no Ray cluster at {self._address} ({str(error).splitlines()[0]})") from None
        if daft.get_or_infer_runner_type() != runner:
            raise TrajectoryError("Daft is already connected to another place in this process; start a new process")
        return len(os.sched_getaffinity(0)) if self._address is None else max(1, int(ray.cluster_resources().get("CPU", 1)))


class _DaftWorker:
    """Processes one chunk after the other, in a process of its own."""

    def __init__(self, work: bytes) -> None:
        self._work: Callable[[Any], Any] = _unpickle(work)

    def do(self, chunks: daft.Series) -> list[bytes]:
        return [pickle.dumps(self._work(_unpickle(chunk))) for chunk in chunks.to_pylist()]


def _worker_class(number: int) -> Any:
    method = daft.method.batch(return_dtype=daft.DataType.binary(), batch_size=1)(_DaftWorker.do)
    return daft.cls(max_concurrency=number, use_process=True)(type("Worker", (_DaftWorker,), {"do": method}))


def _in_order(frame: daft.DataFrame) -> Generator[Any]:
    """Yield results in the order of their numbers: a cluster returns them in any order."""
    early: dict[int, bytes] = {}
    following = 0
    for row in frame.iter_rows():
        early[row["number"]] = row["done"]
        while following in early:
            yield _unpickle(early.pop(following))
            following += 1


def _unpickle(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301  # written by this process or by workers that it started
