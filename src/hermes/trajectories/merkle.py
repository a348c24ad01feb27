"""The Merkle root over all samples of an export, in memory that does not grow with their number.

Leaves come in the order of the export, and the root is over their order by sample id. So they are gathered and sorted in runs; finished
runs wait in a file, and are merged at the end."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

Leaf = tuple[str, bytes]
"""A sample id, and the hash of what is known of the sample."""

RUN_LEAVES = 20_000
"""So many leaves are kept in memory."""
BLOCK_LEAVES = 500
"""So many leaves of each run are read at once."""


@dataclass(slots=True)
class SampleLeaves:
    """The leaves of an export or of a part of it; iterating yields them in the order of their sample ids."""

    folder: Path | None = None
    """Where runs wait. Without a folder, all leaves are kept in memory."""
    gathered: list[Leaf] = field(default_factory=list)
    _runs: list[IO[bytes]] = field(default_factory=list)

    def add(self, leaf: Leaf) -> None:
        self.gathered.append(leaf)
        if len(self.gathered) >= RUN_LEAVES and self.folder is not None:
            self._runs.append(_write_run(sorted(self.gathered), self.folder))
            self.gathered = []

    def take(self, part: SampleLeaves) -> None:
        """Add the leaves of a part, which has no folder."""
        for leaf in part.gathered:
            self.add(leaf)

    def close(self) -> None:
        """Delete the runs; a second time does nothing."""
        for run in self._runs:
            run.close()

    def __iter__(self) -> Iterator[Leaf]:
        return heapq.merge(*map(_read_run, self._runs), sorted(self.gathered))


def _write_run(leaves: list[Leaf], folder: Path) -> IO[bytes]:
    run: IO[bytes] = TemporaryFile(dir=folder)  # noqa: SIM115  # has no name, so it is gone with the process however that ends
    for start in range(0, len(leaves), BLOCK_LEAVES):
        pickle.dump(leaves[start : start + BLOCK_LEAVES], run)
    return run


def _read_run(run: IO[bytes]) -> Iterator[Leaf]:
    end = run.tell()
    run.seek(0)
    while run.tell() < end:
        block: list[Any] = pickle.load(run)  # noqa: S301  # written by this process
        yield from block


def merkle_root(leaves: Iterable[bytes]) -> str:
    """Return the root over the leaves in their order: pairs are hashed level by level, an odd leaf moves up unhashed.

    Whole subtrees wait with their sizes, the largest first, as the digits of a binary number do: [A B C D E] waits as (4, ABCD), (1, E)."""
    waiting: list[tuple[int, bytes]] = []
    for leaf in leaves:
        size, node = 1, leaf
        while waiting and waiting[-1][0] == size:
            node = _hash_pair(waiting.pop()[1], node)
            size *= 2
        waiting.append((size, node))
    if not waiting:
        return sha256(b"").hexdigest()
    _, root = waiting.pop()
    while waiting:
        root = _hash_pair(waiting.pop()[1], root)
    return root.hex()


def _hash_pair(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()
