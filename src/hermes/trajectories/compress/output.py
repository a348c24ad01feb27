"""The drafts of a run: everything is written beside its place and moved there at the end, so that an output is never half of one.

    .NAME.unfinished/   checkpoint.jsonl, out/ (a draft for each input), rejected, over_limit, trajectories

How far the drafts hold is in the journal; behind that they are cut when a run goes on. Knows nothing about where rows come from."""

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

SIDE_FILES = {RowStatus.REJECTED: "rejected", RowStatus.OVER_LIMIT: "over_limit"}
"""What is not written with the others, and the name of its draft."""
TRAJECTORY_METRICS = "trajectories"


@dataclass(frozen=True, slots=True)
class OutputPaths:
    """Where the files of a run end up."""

    out: Path
    """A file, or a folder where the input is one."""
    metrics: Path
    is_folder: bool
    is_private: bool = False
    """Readable for its owner alone: what was sealed in a store."""

    @property
    def folder(self) -> Path:
        return self.out.with_name(f".{self.out.name}.unfinished")

    def beside(self, draft: str) -> Path:
        """Return where a draft ends up that is not the output."""
        return (
            self.metrics.with_suffix(".jsonl")
            if draft == TRAJECTORY_METRICS
            else self.out.with_name(f"{output_stem(self.out)}.{draft}.jsonl")
        )


def output_stem(out: Path) -> str:
    """Return what files beside an output are called by: its name, without the usual suffix only, so that x.json has others than x.jsonl."""
    return out.name.removesuffix(".jsonl")


class OutputDrafts:
    """Files that are only added to, and cut back to where they hold."""

    def __init__(self, places: OutputPaths, inputs: Sequence[InputFile], lengths: Mapping[str, int], *, has_rows: bool = False) -> None:
        self._places, self._inputs = places, inputs
        self._files: dict[str, IO[bytes]] = {}
        self._lengths = dict(lengths)
        self._open = -1
        self.has_rows = has_rows
        """Whether the file that is being written has a row already."""

    @property
    def lengths(self) -> dict[str, int]:
        """Bytes of each draft that is still written to."""
        return dict(self._lengths)

    def write(self, chunk: Chunk, outcomes: Sequence[RowOutcome]) -> None:
        """Write what became of the rows of a chunk."""
        source = self._inputs[chunk.file]
        name = f"out/{source.name}" if self._places.is_folder else "out/rows"
        if chunk.file != self._open:
            self._turn_to(name, chunk)
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
            self._add(name, b"[")  # a list all of whose elements are elsewhere is an empty one
        self._add(name, chunk.tail)
        if chunk.broken:
            self._add(SIDE_FILES[RowStatus.REJECTED], _with_newline(chunk.broken))

    def flush(self) -> None:
        """Return when everything is on disk."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def publish(self) -> None:
        """Move everything to its place, the output last. Whatever is in its place already was moved by an earlier try."""
        self.close()
        for draft in (*SIDE_FILES.values(), TRAJECTORY_METRICS):
            file = self._places.folder / draft
            if file.exists():
                file.replace(self._places.beside(draft))
        written = self._places.folder / "out"
        source = written if self._places.is_folder else written / "rows"
        if source.exists():
            source.replace(self._places.out)

    def _turn_to(self, name: str, chunk: Chunk) -> None:
        for other in [each for each in self._files if each.startswith("out/")]:
            file = self._files.pop(other)
            file.flush()
            os.fsync(file.fileno())
            file.close()
            del self._lengths[other]  # whole, and never opened again
        is_new = name not in self._lengths
        self._open = chunk.file
        self.has_rows = self.has_rows and not is_new
        self._add(name, b"")

    def _add(self, name: str, data: bytes) -> None:
        if name not in self._files:
            path = self._places.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600 if self._places.is_private else 0o666)
            if path.stat().st_size < self._lengths.setdefault(name, 0):  # the machine went down, not only the process
                raise TrajectorySettingsError(f"{path} is shorter than it was; start over with --restart")
            os.truncate(path, self._lengths[name])
            self._files[name] = path.open("ab")
        self._files[name].write(data)
        self._lengths[name] += len(data)

    def _lead(self, outcome: RowOutcome) -> bytes:
        """Return what stands before a row: a list begins with the first row that is written, whichever was the first that was read."""
        if self.has_rows:
            return outcome.lead.replace(b"[", b",", 1)
        return outcome.lead.replace(b",", b"[", 1)


def _as_json_line(outcome: RowOutcome) -> bytes:
    """Return an element of a list, or a document, as a line of its own."""
    try:
        return json.dumps(json.loads(outcome.line)).encode() + b"\n"
    except (ValueError, RecursionError):
        return _with_newline(outcome.line)


def _with_newline(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"
