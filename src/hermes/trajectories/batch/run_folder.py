"""A run on disk: finished rollouts stay finished, even if the process is killed.

An item is one prompt. A run makes several rollouts of each item, numbered from 0. A rollout that is made again has the next attempt number.

    run.json         the run's random id, and what may not change when the run is resumed
    recipe.toml      the recipe as the run was last started with it
    dataset.jsonl    the items that the run last read, by name and digest
    graphs.jsonl     every rollout's message graph, one a line: `hermes export` reads it
    rollouts.jsonl   the index: an entry for each rollout, with the place of its graph; so a resumed run need not read the graphs
    aside.jsonl      rollouts that were interrupted, or made again: kept, and not counted as rollouts of the run
    statistics.json  the statistics of the run
    items.jsonl      the statistics of each item

A rollout is finished when its graph, and after that its entry, is on disk; both are synced before `put` returns. After `kill -9` only the
end of a file can be torn: a complete graph without an entry gets one, a torn line is cut off. One process at a time works in a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from hermes.trajectories.batch.rollout import Rollout, RolloutEntry, read_entry
from hermes.trajectories.batch.run_files import (
    ASIDE,
    DATASET,
    GRAPHS,
    INDEX,
    NEW_SUFFIX,
    find_or_begin_run,
    finish_moving,
    lock_folder,
    sync,
    sync_folder,
)
from hermes.trajectories.errors import SourceError, TrajectorySettingsError
from hermes.trajectories.private_files import PRIVATE_FILE, make_private_folder, open_private


@dataclass(frozen=True, slots=True)
class IndexedRollout:
    """An entry of the index, and the place of its graph in graphs.jsonl, in bytes."""

    entry: RolloutEntry
    start: int
    size: int

    @property
    def key(self) -> tuple[str, int]:
        return self.entry.item, self.entry.rollout

    def to_line(self) -> bytes:
        return (json.dumps({**self.entry.to_dict(), "start": self.start, "size": self.size}, separators=(",", ":")) + "\n").encode()

    @classmethod
    def from_line(cls, line: bytes) -> IndexedRollout:
        """Read what `to_line` returned; raise ValueError, TypeError or KeyError."""
        data = json.loads(line)
        return cls(RolloutEntry.from_dict(data), int(data["start"]), int(data["size"]))


@dataclass(slots=True)
class RunFolder:
    """The folder of a run, locked by this process."""

    path: Path
    run_id: str
    done: dict[tuple[str, int], int] = field(default_factory=dict)
    """The finished rollouts, by item and number, with the number of the attempt."""
    aside: dict[tuple[str, int], int] = field(default_factory=dict)
    """The rollouts that are aside, with their last attempt."""
    digests: dict[str, str] = field(default_factory=dict)
    """For each item with finished rollouts, the digest of the row that they were made from."""
    recovered: int = 0
    """How many finished rollouts had no entry, because the process was killed before it wrote it."""
    torn: int = 0
    """How many of graphs.jsonl and rollouts.jsonl (not aside.jsonl) had a torn end, because the process was killed while it wrote."""
    _lock: BinaryIO | None = None
    _size: int = 0

    def file(self, name: str) -> Path:
        return self.path / name

    # --- opening

    @classmethod
    def open(cls, path: Path, recipe: Mapping[str, Any], *, may_go_on: bool) -> RunFolder:
        """Begin a run, or resume one. Raises TrajectorySettingsError if the run exists and `may_go_on` is false, if its recipe is another
        one, or if another process works on it."""
        make_private_folder(path)
        lock = lock_folder(path)
        try:
            run_id = find_or_begin_run(path, recipe, may_go_on=may_go_on)
            folder = cls(path, run_id, _lock=lock)
            folder._recover()
        except BaseException:
            lock.close()
            raise
        return folder

    @classmethod
    def peek(cls, path: Path) -> RunFolder:
        """Read a run, if there is one, without a lock or a change: for a dry run."""
        folder = cls(path, "")
        with suppress(ValueError, TypeError, KeyError):  # only the last line can be torn
            for each in folder.read_index():
                folder._register(each)
        return folder

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()  # this gives the lock up

    # --- reading

    def read_index(self) -> Iterator[IndexedRollout]:
        """Yield the index, in the order in which rollouts ended."""
        with suppress(FileNotFoundError), self.file(INDEX).open("rb") as lines:
            for line in lines:
                yield IndexedRollout.from_line(line)

    def entries_aside(self) -> Iterator[RolloutEntry]:
        """Yield the entries of the rollouts that are aside."""
        with suppress(FileNotFoundError), self.file(ASIDE).open("rb") as lines:
            for line in lines:
                yield read_entry(line, str(self.file(ASIDE)))

    def graph_line(self, placed: IndexedRollout) -> bytes:
        """Return the JSON of a rollout's graph."""
        with self.file(GRAPHS).open("rb") as file:
            file.seek(placed.start)
            return file.read(placed.size)

    def attempts(self, item: str, rollout: int) -> int:
        """Return how often a rollout was made before. Attempts that are aside count too: no two samples may have the same id."""
        return max(self.done.get((item, rollout), -1), self.aside.get((item, rollout), -1)) + 1

    # --- writing

    def put(self, rollouts: Iterable[tuple[Rollout, bytes]]) -> None:
        """Store finished rollouts, each with its graph's JSON. They are on disk when this returns."""
        placed = []
        with open_private(self.file(GRAPHS), "ab") as file:
            for rollout, text in rollouts:
                file.write(text + b"\n")
                placed.append(IndexedRollout(rollout.entry, self._size, len(text) + 1))
                self._size += len(text) + 1
            sync(file)
        self.add_to_index(placed)

    def add_to_index(self, placed: Iterable[IndexedRollout]) -> None:
        """Add entries for rollouts whose graphs are stored."""
        known = list(placed)
        lines = [each.to_line() for each in known]
        with open_private(self.file(INDEX), "ab") as file:
            file.writelines(lines)
            sync(file)
        for each in known:
            self._register(each)

    def put_aside(self, rollouts: Iterable[tuple[RolloutEntry, bytes]]) -> None:
        """Store rollouts that the run does not count, each with its graph's JSON."""
        with open_private(self.file(ASIDE), "ab") as file:
            for entry, text in rollouts:
                file.write(text.rstrip(b"\n") + b"\n")  # a line of graphs.jsonl ends with one already
                self._register_aside(entry)
            sync(file)

    def set_aside(self, is_selected: Callable[[IndexedRollout], bool]) -> int:
        """Move the selected rollouts aside; return how many. They will be made again, with the next attempt number."""
        index = list(self.read_index())
        gone = [each for each in index if is_selected(each)]
        if not gone:
            return 0
        self.put_aside((each.entry, self.graph_line(each)) for each in gone)
        with open_private(self.file(GRAPHS + NEW_SUFFIX), "wb") as file, open_private(self.file(INDEX + NEW_SUFFIX), "wb") as notes:
            for each in index:
                if not is_selected(each):
                    notes.write(IndexedRollout(each.entry, file.tell(), each.size).to_line())
                    file.write(self.graph_line(each))
            sync(file)
            sync(notes)
        finish_moving(self.path, is_recovery=False)  # the two new files take the places of the old ones
        for each in gone:
            del self.done[each.key]
        still = {item for item, _ in self.done}
        self.digests = {item: digest for item, digest in self.digests.items() if item in still}
        self._size = self.file(GRAPHS).stat().st_size
        return len(gone)

    def write(self, name: str, lines: Iterable[str]) -> None:
        """Write a file whole or not at all."""
        draft = self.file(name + NEW_SUFFIX)
        with open_private(draft, "wb") as file:
            file.writelines(line.encode() for line in lines)
            sync(file)
        draft.replace(self.file(name))

    # --- after a crash

    def _recover(self) -> None:
        finish_moving(self.path, is_recovery=True)
        self._cut_index()
        self._read_aside()
        graphs = self.file(GRAPHS)
        self._size = 0
        for each in self.read_index():
            self._register(each)
            self._size = max(self._size, each.start + each.size)
        if not graphs.exists():
            graphs.touch(mode=PRIVATE_FILE)
            sync_folder(self.path)
        if graphs.stat().st_size < self._size:
            raise TrajectorySettingsError(
                f"{graphs} is shorter than {INDEX} says: something else cut it; restore it, or take another --run-name"
            )
        self._index_missing()
        self._drop_copies()

    def _cut_index(self) -> None:
        """Cut the index off at the first line that is torn or cannot be read. `_index_missing` adds its entries again, from the graphs."""
        path, good = self.file(INDEX), 0
        if not path.exists():
            return
        with path.open("rb") as lines:
            for line in lines:
                try:
                    IndexedRollout.from_line(line if line.endswith(b"\n") else b"")
                except (ValueError, TypeError, KeyError):
                    break
                good += len(line)
        if good < path.stat().st_size:
            self.torn += 1
            os.truncate(path, good)

    def _index_missing(self) -> None:
        """Add entries for the graphs after the last indexed one, and cut off a torn line."""
        path, found = self.file(GRAPHS), []
        with path.open("rb") as lines:
            lines.seek(self._size)
            for line in lines:
                try:
                    entry = read_entry(line if line.endswith(b"\n") else b"", str(path))
                except SourceError:
                    break
                found.append(IndexedRollout(entry, self._size, len(line)))
                self._size += len(line)
        if self._size < path.stat().st_size:
            self.torn += 1
            os.truncate(path, self._size)
        self.recovered = len(found)
        if found:
            self.add_to_index(found)

    def _read_aside(self) -> None:
        path, good = self.file(ASIDE), 0
        if not path.exists():
            return
        with path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                good += len(line)
                self._register_aside(read_entry(line, str(path)))
        os.truncate(path, good)

    def _drop_copies(self) -> None:
        """Remove attempts from aside.jsonl that are still in the run: the process was killed while it moved them."""
        if not any(self.aside.get(key) == attempt for key, attempt in self.done.items()):
            return
        lines = self.file(ASIDE).read_bytes().splitlines(keepends=True)
        entries = [read_entry(line, str(self.file(ASIDE))) for line in lines]
        kept = [at for at, entry in enumerate(entries) if self.done.get((entry.item, entry.rollout)) != entry.attempt]
        self.write(ASIDE, [lines[at].decode() for at in kept])
        self.aside = {}
        for at in kept:
            self._register_aside(entries[at])

    def _register_aside(self, entry: RolloutEntry) -> None:
        self.aside[entry.item, entry.rollout] = max(entry.attempt, self.aside.get((entry.item, entry.rollout), 0))

    def _register(self, placed: IndexedRollout) -> None:
        self.done[placed.key] = placed.entry.attempt
        self.digests[placed.entry.item] = placed.entry.digest


@dataclass(frozen=True, slots=True)
class ItemChanges:
    """The names of the items that changed since the run last read the prompt file."""

    new: tuple[str, ...] = ()
    """Items that were not in the file the last time."""
    changed: tuple[str, ...] = ()
    """Items with rollouts whose row was different then."""
    removed: tuple[str, ...] = ()
    """Items with rollouts that are not in the file any more."""

    @property
    def stale(self) -> frozenset[str]:
        """The items whose rollouts were made from a row that is no longer in the file."""
        return frozenset((*self.changed, *self.removed))


def changes_since(folder: RunFolder, items: Mapping[str, str]) -> ItemChanges:
    """Compare the items of a file (digest by name) with the items that the run last read, and with its rollouts."""
    before = _read_names(folder.file(DATASET))
    return ItemChanges(
        new=() if before is None else tuple(name for name in items if name not in before),
        changed=tuple(name for name, digest in folder.digests.items() if name in items and items[name] != digest),
        removed=tuple(name for name in folder.digests if name not in items),
    )


def record_items(folder: RunFolder, items: Mapping[str, str]) -> None:
    """Record which items the run has now."""
    folder.write(DATASET, (json.dumps([name, digest]) + "\n" for name, digest in items.items()))


def list_some(names: Iterable[str], max_names: int = 3) -> str:
    """Return a few names, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - max_names:,} more" if len(known) > max_names else ""
    return ", ".join(known[:max_names]) + more


def _read_names(file: Path) -> frozenset[str] | None:
    if not file.exists():
        return None
    with file.open("rb") as lines:
        return frozenset(json.loads(line)[0] for line in lines)
