"""The drafts of a run: every file is written in a hidden folder and moved to its final path at the end, so an output is never incomplete.

    .NAME.unfinished/   checkpoint.jsonl, out/ (a draft for each input), rejected, over_limit, trajectories

The checkpoint file says how many bytes of each draft are valid; a resumed run cuts off the rest. Knows nothing about the input."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hermes.trajectories.compress.chunks import Chunk, InputFile
from hermes.trajectories.compress.worker import RowOutcome, RowStatus
from hermes.trajectories.errors import TrajectorySettingsError
from hermes.trajectories.private_files import PRIVATE_FILE, PRIVATE_FOLDER

SIDE_FILES = {RowStatus.REJECTED: "rejected", RowStatus.OVER_LIMIT: "over_limit"}
"""Rows that go to a file of their own, and the name of its draft."""
TRAJECTORY_METRICS = "trajectories"


@dataclass(frozen=True, slots=True)
class OutputPaths:
    """The final paths of a run's files."""

    out: Path
    """A file; a folder if the input is a folder."""
    metrics: Path
    is_folder: bool

    @property
    def folder(self) -> Path:
        return self.out.with_name(f".{self.out.name}.unfinished")

    def side_path(self, draft: str) -> Path:
        """Return the final path of a draft other than the output itself."""
        return (
            self.metrics.with_suffix(".jsonl")
            if draft == TRAJECTORY_METRICS
            else self.out.with_name(f"{output_stem(self.out)}.{draft}.jsonl")
        )


def output_stem(out: Path) -> str:
    """Return how the names of side files begin: the output's name without `.jsonl`. So side files of x.json and x.jsonl do not clash."""
    return out.name.removesuffix(".jsonl")


class OutputDrafts:
    """Files to which a run adds bytes; a resumed run first cuts them to their valid length."""

    def __init__(self, places: OutputPaths, inputs: Sequence[InputFile], lengths: Mapping[str, int], *, has_rows: bool = False) -> None:
        self._places, self._inputs = places, inputs
        self._files: dict[str, IO[bytes]] = {}
        self._lengths = dict(lengths)
        self._open_file = -1
        self.has_rows = has_rows
        """Whether the current output file has a row already."""

    @property
    def lengths(self) -> dict[str, int]:
        """Bytes of each draft that is not complete yet."""
        return dict(self._lengths)

    def write(self, chunk: Chunk, outcomes: Sequence[RowOutcome]) -> None:
        """Write the rows of a chunk, each to the draft that its status asks for."""
        source = self._inputs[chunk.file]
        name = f"out/{source.name}" if self._places.is_folder else "out/rows"
        if chunk.file != self._open_file:
            self._begin_file(name, chunk)
        for outcome in outcomes:
            if outcome.status is RowStatus.WRITTEN:
                self._add(name, self._lead(outcome) + outcome.line)
                self.has_rows = True
            elif outcome.status in SIDE_FILES:
                self._add(
                    SIDE_FILES[outcome.status], _with_newline(outcome.line) if source.path.suffix == ".jsonl" else _as_json_line(outcome)
                )
            if outcome.metrics:
                self._add(TRAJECTORY_METRICS, outcome.metrics)
        if chunk.tail and not self.has_rows and chunk.tail.lstrip().startswith(b"]"):
            self._add(name, b"[")  # all elements of the list are in other files: the list is empty
        self._add(name, chunk.tail)
        if chunk.broken:
            self._add(SIDE_FILES[RowStatus.REJECTED], _with_newline(chunk.broken))

    def flush(self) -> None:
        """Return when all bytes are on disk."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def publish(self) -> None:
        """Move all drafts to their final paths, the output last. A draft that is missing was moved by an earlier try."""
        self.close()
        for draft in (*SIDE_FILES.values(), TRAJECTORY_METRICS):
            file = self._places.folder / draft
            if file.exists():
                file.replace(self._places.side_path(draft))
        written = self._places.folder / "out"
        source = written if self._places.is_folder else written / "rows"
        if source.exists():
            source.replace(self._places.out)

    def _begin_file(self, name: str, chunk: Chunk) -> None:
        for other in [each for each in self._files if each.startswith("out/")]:
            file = self._files.pop(other)
            file.flush()
            os.fsync(file.fileno())
            file.close()
            del self._lengths[other]  # complete, and never opened again
        is_new = name not in self._lengths
        self._open_file = chunk.file
        self.has_rows = self.has_rows and not is_new
        self._add(name, b"")

    def _add(self, name: str, data: bytes) -> None:
        if name not in self._files:
            path = self._places.folder / name
            path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            path.touch(mode=PRIVATE_FILE)
            if path.stat().st_size < self._lengths.setdefault(name, 0):  # the machine crashed, not only the process
                raise TrajectorySettingsError(f"{path} is shorter than it was; start over with --restart")
            os.truncate(path, self._lengths[name])
            self._files[name] = path.open("ab")
        self._files[name].write(data)
        self._lengths[name] += len(data)

    def _lead(self, outcome: RowOutcome) -> bytes:
        """Return the bytes before a row: the list begins with the first row that is written, which need not be the first that was read."""
        if self.has_rows:
            return outcome.lead.replace(b"[", b",", 1)
        return outcome.lead.replace(b",", b"[", 1)


def _as_json_line(outcome: RowOutcome) -> bytes:
    """Return a list element, or a whole document, as one line."""
    try:
        return json.dumps(json.loads(outcome.line)).encode() + b"\n"
    except (ValueError, RecursionError):
        return _with_newline(outcome.line)


def _with_newline(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"
