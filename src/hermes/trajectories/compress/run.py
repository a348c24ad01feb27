"""One run of `hermes compress`: which rows it reads, what it does with them, where it writes them, and how far it came.

    run = CompressRun(inputs, work, places)
    compress_files(run, engine)         # begins the run, or resumes it; then run.metrics says what it did

This process reads chunks and writes them in their order; the workers of the engine compress them. Memory does not grow with the input. If
the process is killed at any point, the same call resumes the run and pays for nothing twice. The checkpoint file says which run it is and
how far it came. It has one JSON object a line; lines are only added:

    {"run": …}     first: the input and the settings; a run with others is refused
    {"paid": …}    a model's answer and the row it is for, on disk before the run uses it
    {"done": …}    the drafts, up to these lengths, hold every row before this position
    {"end": …}     the drafts are complete

After a `kill -9` the last line may be half a line: the reader cuts it off."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from hermes.graph import CallRecord
from hermes.trajectories.compress.chunks import (
    DEFAULT_CHUNK_BYTES,
    INPUT_START,
    Chunk,
    InputFile,
    InputPosition,
    fingerprint,
    read_chunks,
)
from hermes.trajectories.compress.metrics import Totals, metrics_of
from hermes.trajectories.compress.output import OutputDrafts, OutputPaths
from hermes.trajectories.compress.worker import ChunkOutcome, CompressWork, compress_chunk
from hermes.trajectories.engines import ChunkEngine
from hermes.trajectories.errors import TrajectorySettingsError
from hermes.trajectories.private_files import make_private_folder, open_private, write_private
from hermes.trajectories.sampling_model import SampledMessage

VERSION = 1
CHECKPOINT_FILE = "checkpoint.jsonl"
MAX_PROBLEMS = 20
"""A run lists so many problems; the metrics of the trajectories name every rejected or failed row."""


class CompressRun:
    """A run and its progress."""

    def __init__(
        self,
        inputs: Sequence[InputFile],
        work: CompressWork,
        places: OutputPaths,
        *,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        checkpoint_every_s: float = 1.0,
    ) -> None:
        """`chunk_bytes`: about how many bytes are read, compressed and written at once. `checkpoint_every_s`: how many seconds of work the
        run repeats after a `kill -9`. It never pays twice: paid answers are on disk at once."""
        self.inputs, self.work, self.places = inputs, work, places
        self.chunk_bytes, self._checkpoint_every_s = chunk_bytes, checkpoint_every_s
        self._begin()

    def _begin(self) -> None:
        self.place: InputPosition = INPUT_START
        """Where the run reads next."""
        self.totals = Totals()
        self.problems: list[str] = []
        """The first ones; the metrics say how many there are."""
        self.metrics: Mapping[str, Any] = {}
        """What the run did; empty until the drafts are complete."""
        self.is_resumed = False
        """Whether an earlier process did a part of this run."""
        self.paid: dict[str, list[SampledMessage]] = {}
        """Answers that an earlier process paid for and this one will need again, by request key."""
        self.micro_usd = 0
        """What all answers cost, also those from before an interruption."""
        self.highest_micro_usd = 0
        """What the most expensive answer cost."""
        self._started, self._seconds_before, self._begun_at = "", 0.0, time.monotonic()
        self._checkpoint_at = self._begun_at

    @property
    def input_bytes(self) -> int:
        return sum(each.path.stat().st_size for each in self.inputs)

    @property
    def bytes_read(self) -> int:
        return sum(each.path.stat().st_size for each in self.inputs[: self.place.file]) + self.place.offset

    @property
    def is_clean(self) -> bool:
        """Whether every row could be read, and every row that was too long could be compressed."""
        return not self.totals.rejected and not self.totals.failed

    @contextmanager
    def open(self, *, restarts: bool = False) -> Iterator[None]:
        """Begin the run, or resume it if it is unfinished. Raises TrajectorySettingsError if the output exists, or if the unfinished run
        has another input or other settings.

        If the caller leaves the block early, everything that was written stays, and the next call resumes from there."""
        places = self.places
        path = places.folder / CHECKPOINT_FILE
        if places.out.exists() and (restarts or not path.exists()):
            raise TrajectorySettingsError(f"{places.out} exists; name another with --out, or remove it")
        about = {"input": fingerprint(self.inputs), "settings": self.work.decisive}
        with lock_run_folder(places, restarts=restarts) as self._file:
            self._begin()
            lengths, has_rows = self._read_checkpoints(path, about)
            with closing(OutputDrafts(self.places, self.inputs, lengths, has_rows=has_rows)) as self._drafts:
                yield

    def map_chunks(self, engine: ChunkEngine, chunk_bytes: int) -> Generator[tuple[Chunk, ChunkOutcome]]:
        """Have the workers compress the rest of the input; yield the chunks in their order."""
        return engine.map(partial(compress_chunk, work=self.work), read_chunks(self.inputs, self.place, chunk_bytes))

    def write(self, chunk: Chunk, done: ChunkOutcome) -> None:
        """Write the rows of the next chunk to the drafts, and save a checkpoint every `checkpoint_every_s` seconds."""
        self._drafts.write(chunk, done.outcomes)
        self.totals.merge(done.totals)
        problems = [*done.problems, *([f"{chunk.name}: its last {len(chunk.broken):,} bytes are not JSON"] if chunk.broken else [])]
        self.totals.rejected += bool(chunk.broken)
        self.problems += problems[: MAX_PROBLEMS - len(self.problems)]
        self.place = chunk.end
        if time.monotonic() - self._checkpoint_at >= self._checkpoint_every_s:
            self.save_checkpoint()

    def record_payment(self, key: str, file: int, row: int, sampled: SampledMessage, message: Mapping[str, Any]) -> None:
        """Write a paid answer to disk, and count what it cost."""
        self.micro_usd += sampled.micro_usd
        self.highest_micro_usd = max(self.highest_micro_usd, sampled.micro_usd)
        entry = {"key": key, "file": file, "row": row, "micro_usd": sampled.micro_usd, "message": message, "call": sampled.call.to_dict()}
        self._file.append("paid", entry)

    def save_checkpoint(self) -> None:
        """Write to disk how far the run came."""
        self._drafts.flush()
        checkpoint = {
            "place": asdict(self.place),
            "lengths": self._drafts.lengths,
            "has_rows": self._drafts.has_rows,
            "totals": asdict(self.totals),
            "problems": self.problems,
            "seconds": self._seconds,
        }
        self._file.append("done", checkpoint)
        self._checkpoint_at = time.monotonic()

    def finish(self) -> None:
        """Make the metrics, and move all drafts to their final paths. Safe to repeat: after a `kill -9` in the middle, the next process
        moves the rest."""
        if not self.metrics:
            self.save_checkpoint()
            self.metrics = metrics_of(self.totals, micro_usd=self.micro_usd, start=self._started, seconds=self._seconds)
            self._file.append("end", self.metrics)
        self._drafts.publish()
        if self.work.settings.metrics.enabled:
            draft = self.places.folder / "metrics.json"
            write_private(draft, json.dumps(self.metrics, indent=2) + "\n")
            draft.replace(self.places.metrics)
        empty_folder(self.places.folder)
        shutil.rmtree(
            self.places.folder
        )  # the checkpoint last: a process that is killed before then finishes the run when it is started again

    @property
    def _seconds(self) -> float:
        """How long the run has worked so far."""
        return self._seconds_before + time.monotonic() - self._begun_at

    def _read_checkpoints(self, path: Path, about: Mapping[str, Any]) -> tuple[Mapping[str, int], bool]:
        """Restore the run from its checkpoint file, or begin the file. Returns how many bytes of each draft are valid, and whether the
        draft of the current file has a row already."""
        known: Mapping[str, Any] | None = None
        paid: list[Mapping[str, Any]] = []
        lengths: Mapping[str, int] = {}
        has_rows = False
        for kind, value in _read_entries(path):
            match kind:
                case "run":
                    known = value
                case "paid":
                    self.micro_usd += value["micro_usd"]
                    self.highest_micro_usd = max(self.highest_micro_usd, value["micro_usd"])
                    paid.append(value)
                case "done":
                    self.place, self.totals, self.problems = InputPosition(**value["place"]), Totals(**value["totals"]), value["problems"]
                    lengths, has_rows, self._seconds_before = value["lengths"], value["has_rows"], value["seconds"]
                    self.is_resumed = True
                    paid = [each for each in paid if (each["file"], each["row"]) >= (self.place.file, self.place.row)]
                case "end":
                    self.metrics = value
        if known is None:
            started = datetime.now(UTC).isoformat(timespec="seconds")
            known = {"version": VERSION, "started": started, "metrics": str(self.places.metrics), **about}
            self._file.append("run", known)
        advice = f"resume it unchanged, start over with --restart, or name another output than {self.places.out} with --out"
        _check_same_run(known, about, advice)
        for each in paid:
            sampled = SampledMessage(each["message"], CallRecord.from_dict(each["call"]), each["micro_usd"])
            self.paid.setdefault(each["key"], []).append(sampled)
        self.is_resumed = self.is_resumed or bool(paid)
        self.places, self._started = replace(self.places, metrics=Path(known["metrics"])), known["started"]
        return lengths, has_rows


def compress_files(
    run: CompressRun, engine: ChunkEngine, *, restarts: bool = False, on_step: Callable[[CompressRun], None] = lambda _: None
) -> None:
    """Compress all files of a run without a model; `compress_files_with_model` asks one.

    The output appears whole or not at all. The same call resumes an interrupted run. Raises TrajectorySettingsError as `open` does."""
    with run.open(restarts=restarts):
        if not run.metrics:
            with closing(run.map_chunks(engine, run.chunk_bytes)) as results:
                for chunk, done in results:
                    run.write(chunk, done)
                    on_step(run)
        run.finish()


class CheckpointFile:
    """A file to which one process at a time adds lines. When `append` returns, the line is on disk, even after a `kill -9`."""

    def __init__(self, path: Path) -> None:
        self._file = open_private(path, "ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel gives the lock up when the process ends, however it ends
        except BlockingIOError:
            self._file.close()
            raise TrajectorySettingsError(
                f"another process works in {path.parent}; wait for it, or name another output with --out"
            ) from None

    def append(self, kind: str, value: Mapping[str, Any]) -> None:
        self._file.write(json.dumps({kind: value}, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def clear(self) -> None:
        """Remove all lines, and keep the lock."""
        self._file.truncate(0)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def empty_folder(folder: Path) -> None:
    """Remove everything in the folder of a run but its checkpoint file, on which this process holds a lock."""
    for each in folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each.name != CHECKPOINT_FILE:
            each.unlink()


@contextmanager
def lock_run_folder(places: OutputPaths, *, restarts: bool = False) -> Iterator[CheckpointFile]:
    """Lock the folder of a run for this process. Makes the folder if there is none; with `restarts`, empties it.

    Raises TrajectorySettingsError if another process holds the lock."""
    folder = places.folder
    make_private_folder(folder)
    with closing(CheckpointFile(folder / CHECKPOINT_FILE)) as checkpoint_file:
        if restarts:
            empty_folder(folder)
            checkpoint_file.clear()  # last: missing drafts are noticed, but drafts of another run would be taken for our own
        yield checkpoint_file


def _read_entries(path: Path) -> Iterator[tuple[str, Any]]:
    held = 0
    with path.open("rb") as lines:
        for line in lines:
            try:
                [(kind, value)] = json.loads(line).items() if line.endswith(b"\n") else {}.items()
            except (ValueError, AttributeError):
                break
            held += len(line)
            yield kind, value
    os.truncate(path, held)


def _check_same_run(known: Mapping[str, Any], run: Mapping[str, Any], advice: str) -> None:
    """Raise TrajectorySettingsError, which names the first difference, if the checkpoint file is of another run."""
    for key in sorted({*known["settings"], *run["settings"]}):
        before, now = known["settings"].get(key), run["settings"].get(key)
        if before != now:
            raise TrajectorySettingsError(f"an unfinished run has {key} {json.dumps(before)}, and now it is {json.dumps(now)}; {advice}")
    before, now = ({each["name"]: each for each in one["input"]} for one in (known, run))
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if changed:
        others = f" and {len(changed) - 1} more files" if len(changed) > 1 else ""
        raise TrajectorySettingsError(f"the input of an unfinished run changed since: {changed[0]}{others}; {advice}")
