"""One run of `hermes compress`: begin or resume it, write to it, finish it. Its checkpoint file says which run it is and how far it came.

with open_run(job) as run:
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
"""A report lists so many problems; the metrics of the trajectories name every rejected or failed row."""


@dataclass(frozen=True, slots=True)
class CompressJob:
    """Which rows a run reads, what it does with them, and where it writes them."""

    inputs: Sequence[InputFile]
    work: CompressWork
    places: OutputPaths
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    """About how many bytes are read, compressed and written at once."""
    checkpoint_every_s: float = 1.0
    """How many seconds of work a run repeats after a `kill -9`. It never pays twice: paid answers are on disk at once."""


class CompressRun:
    """An open run."""

    def __init__(self, job: CompressJob, checkpoint_file: CheckpointFile, found: CheckpointContents) -> None:
        self.job, self.checkpoint_file, self.found = job, checkpoint_file, found
        checkpoint = found.checkpoint or CompressCheckpoint(INPUT_START, {}, has_rows=False, totals=Totals(), problems=[])
        self._drafts = OutputDrafts(job.places, job.inputs, checkpoint.lengths, has_rows=checkpoint.has_rows)
        self.place: InputPosition = checkpoint.place
        self.totals, self.problems = checkpoint.totals, checkpoint.problems
        self._seconds_before, self._begun_at = checkpoint.seconds, time.monotonic()
        self._checkpoint_at = self._begun_at

    @property
    def is_resumed(self) -> bool:
        """Whether an earlier process did a part of this run."""
        return self.found.checkpoint is not None or bool(self.found.paid)

    @property
    def seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._begun_at

    def write(self, chunk: Chunk, done: ChunkOutcome) -> None:
        """Write the rows of the next chunk to the drafts, and save a checkpoint every `checkpoint_every_s` seconds."""
        self._drafts.write(chunk, done.outcomes)
        self.totals.merge(done.totals)
        problems = [*done.problems, *([f"{chunk.name}: its last {len(chunk.broken):,} bytes are not JSON"] if chunk.broken else [])]
        self.totals.rejected += bool(chunk.broken)
        self.problems += problems[: MAX_PROBLEMS - len(self.problems)]
        self.place = chunk.end
        if time.monotonic() - self._checkpoint_at >= self.job.checkpoint_every_s:
            self.save_checkpoint()

    def save_checkpoint(self) -> None:
        """Write to disk how far the run came."""
        self._drafts.flush()
        checkpoint = CompressCheckpoint(self.place, self._drafts.lengths, self._drafts.has_rows, self.totals, self.problems, self.seconds)
        self.checkpoint_file.append("done", checkpoint.to_dict())
        self._checkpoint_at = time.monotonic()

    def finish(self, micro_usd: int = 0) -> dict[str, Any]:
        """Move all drafts to their final paths; return the metrics."""
        self.save_checkpoint()
        metrics = metrics_of(self.totals, micro_usd=micro_usd, start=self.found.run["started"], seconds=self.seconds)
        self.checkpoint_file.append("end", metrics)
        self.publish(metrics)
        return metrics

    def publish(self, metrics: Mapping[str, Any]) -> None:
        """Move the complete drafts to their final paths. Safe to repeat: after a `kill -9` in the middle, the next run repeats it."""
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
    """Begin a run, or resume an unfinished one. Raises TrajectorySettingsError if the unfinished run has another input or other settings.

    If the caller leaves the block early, everything that was written stays, and the next call resumes from there."""
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
        advice = f"resume it unchanged, start over with --restart, or name another output than {places.out} with --out"
        check_same_run(found.run, about, advice)
        job = replace(job, places=replace(places, metrics=Path(found.run["metrics"])))
        with closing(CompressRun(job, checkpoint_file, found)) as run:
            yield run


@contextmanager
def lock_run_folder(places: OutputPaths, *, restarts: bool = False) -> Iterator[CheckpointFile]:
    """Lock the folder of a run for this process. Makes the folder if there is none; with `restarts`, empties it.

    Raises TrajectorySettingsError if another process holds the lock."""
    folder = places.folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700 if places.is_private else 0o777)
    with closing(CheckpointFile(folder / CHECKPOINT_FILE)) as checkpoint_file:
        if restarts:
            for each in folder.iterdir():
                if each.is_dir():
                    shutil.rmtree(each)
                elif each.name != CHECKPOINT_FILE:  # this process holds the lock on it
                    each.unlink()
            checkpoint_file.clear()  # last: missing drafts are noticed, but drafts of another run would be taken for our own
        yield checkpoint_file


def describe_job(job: CompressJob) -> dict[str, Any]:
    """Return the input and the settings that make this run different from others."""
    return {"input": fingerprint(job.inputs), "settings": job.work.decisive}
