"""Engines: where workers process chunks. In processes of this machine (`local`), or with Daft on a Ray cluster (`daft`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Protocol, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


class WorkerDied(Exception):
    """A worker process died before it returned its chunk; most likely it was killed."""


class ChunkEngine(Protocol):
    """Applies one function to many chunks, in workers."""

    def map(self, work: Callable[[In], Out], chunks: Iterable[In]) -> Generator[Out]:
        """Yield the result of each chunk, in the order of the chunks. Takes chunks as it needs them, and holds a bounded number.

        `work`, chunks and results can be pickled. Closing the generator ends the work that is still running.
        Raises what `work` raises, and WorkerDied."""
        ...
