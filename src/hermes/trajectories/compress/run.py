"""A run: opened or gone on with, written to, and finished. What it is a run of, and how far it came, is in its journal.

with opened(job) as run:
    for chunk in read_chunks(job.inputs, run.place): …
        run.write(chunk, done)
    run.finish()
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes.trajectories.compress.checkpoint import (
    CheckpointContents,
    CheckpointFile,
    CompressCheckpoint,
    check_same_run,
    read_checkpoint_file,
)
from hermes.trajectories.compress.chunks import DEFAULT_CHUNK_BYTES, INPUT_START, Chunk, InputFile, InputPosition, fingerprint
from hermes.trajectories.compress.metrics import Totals, metrics_of
from hermes.trajectories.compress.output import OutputDrafts, OutputPaths
from hermes.trajectories.compress.worker import ChunkOutcome, CompressWork
from hermes.trajectories.errors import TrajectorySettingsError

VERSION = 1
CHECKPOINT_FILE = "checkpoint.jsonl"
MAX_PROBLEMS = 20
"""So many are told; all of them are in the metrics of the trajectories."""


@dataclass(frozen=True, slots=True)
class CompressJob:
    """Which rows, what is done with them, and where they go."""

    inputs: Sequence[InputFile]
    work: CompressWork
    places: OutputPaths
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    """How much is read, worked on and written at once."""
    mark_every_s: float = 1.0
    """How much work is done again after a `kill -9`. What was paid for is not: that is on disk at once."""


class CompressRun:
    """A run on its way."""

    def __init__(self, job: CompressJob, checkpoint_file: CheckpointFile, found: CheckpointContents) -> None:
        self.job, self.checkpoint_file, self.found = job, checkpoint_file, found
        mark = found.mark or CompressCheckpoint(INPUT_START, {}, has_rows=False, totals=Totals(), problems=[])
        self._drafts = OutputDrafts(job.places, job.inputs, mark.lengths, has_rows=mark.has_rows)
        self.place: InputPosition = mark.place
        self.totals, self.problems = mark.totals, mark.problems
        self._before, self._begun = mark.seconds, time.monotonic()
        self._marked = self._begun

    @property
    def is_resumed(self) -> bool:
        """Whether an earlier run left something to go on from."""
        return self.found.mark is not None or bool(self.found.paid)

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._begun

    def write(self, chunk: Chunk, done: ChunkOutcome) -> None:
        """Write what became of the next chunk."""
        self._drafts.write(chunk, done.outcomes)
        self.totals.merge(done.totals)
        problems = [*done.problems, *([f"{chunk.name}: its last {len(chunk.broken):,} bytes are no JSON"] if chunk.broken else [])]
        self.totals.rejected += bool(chunk.broken)
        self.problems += problems[: MAX_PROBLEMS - len(self.problems)]
        self.place = chunk.end
        if time.monotonic() - self._marked >= self.job.mark_every_s:
            self.mark()

    def mark(self) -> None:
        """Write down how far it came."""
        self._drafts.flush()
        mark = CompressCheckpoint(self.place, self._drafts.lengths, self._drafts.has_rows, self.totals, self.problems, self.seconds)
        self.checkpoint_file.append("done", mark.to_dict())
        self._marked = time.monotonic()

    def finish(self, micro_usd: int = 0) -> dict[str, Any]:
        """Move everything to its place; return the metrics."""
        self.mark()
        metrics = metrics_of(self.totals, micro_usd=micro_usd, start=self.found.run["started"], seconds=self.seconds)
        self.checkpoint_file.append("end", metrics)
        self.publish(metrics)
        return metrics

    def publish(self, metrics: Mapping[str, Any]) -> None:
        """Move what is whole to its place. Can be done again: after a `kill -9` in the middle of it, it is."""
        places = self.job.places
        self._drafts.publish()
        if self.job.work.settings.metrics.enabled:
            draft = places.folder / "metrics.json"
            draft.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
            draft.replace(places.metrics)
        shutil.rmtree(places.folder)

    def close(self) -> None:
        self._drafts.close()


@contextmanager
def open_run(job: CompressJob, *, restarts: bool = False) -> Iterator[CompressRun]:
    """Begin a run, or go on with one of the same input and the same settings. Raises SettingsError if there is one of another.

    If the block is left early, whatever was written stays, and the next run goes on from there."""
    places = job.places
    path = places.folder / CHECKPOINT_FILE
    if places.out.exists() and (restarts or not path.exists()):
        raise TrajectorySettingsError(f"{places.out} exists; name another with --out, or remove it")
    about = describe_job(job)
    with lock_run_folder(places, restarts=restarts) as checkpoint_file:
        found = read_checkpoint_file(path)
        if found is None:
            started = datetime.now(UTC).isoformat(timespec="seconds")
            found = CheckpointContents({"version": VERSION, "started": started, "metrics": str(places.metrics), **about})
            checkpoint_file.append("run", found.run)
        advice = f"go on with those, start over with --restart, or name another output than {places.out} with --out"
        check_same_run(found.run, about, advice)
        job = replace(job, places=replace(places, metrics=Path(found.run["metrics"])))
        with closing(CompressRun(job, checkpoint_file, found)) as run:
            yield run


@contextmanager
def lock_run_folder(places: OutputPaths, *, restarts: bool = False) -> Iterator[CheckpointFile]:
    """Hold the folder of a run, alone: it is made if there is none, and emptied to start over. Raises SettingsError if another has it."""
    folder = places.folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700 if places.is_private else 0o777)
    with closing(CheckpointFile(folder / CHECKPOINT_FILE)) as checkpoint_file:
        if restarts:
            for each in folder.iterdir():
                if each.is_dir():
                    shutil.rmtree(each)
                elif each.name != CHECKPOINT_FILE:  # the lock is on it
                    each.unlink()
            checkpoint_file.clear()  # last: drafts that are gone are noticed, and those of another run would be taken for our own
        yield checkpoint_file


def describe_job(job: CompressJob) -> dict[str, Any]:
    """Return what a run is a run of."""
    return {"input": fingerprint(job.inputs), "settings": job.work.decisive}
