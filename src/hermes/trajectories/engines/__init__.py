"""Engines: where chunks are worked on. In this process and others of this machine (`local`), or on Daft and a Ray cluster (`daft`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Protocol, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


class WorkerDied(Exception):
    """A process that worked on a chunk is gone, killed most likely; nobody knows what it had done."""


class ChunkEngine(Protocol):
    """Somebody who does the same thing with many chunks."""

    def map(self, work: Callable[[In], Out], chunks: Iterable[In]) -> Generator[Out]:
        """Yield what became of each chunk, in their order. Takes chunks as it needs them, and holds a bounded number.

        `work`, chunks and results can be pickled. Closing the generator ends what is under way.
        Raises what `work` raises, and WorkerDied."""
        ...
