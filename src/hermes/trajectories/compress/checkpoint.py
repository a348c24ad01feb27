"""The checkpoint file of a run: its input and settings, how far it came, and every summary that it paid for.

One JSON object a line; lines are only added:

    {"run": …}     first: the input and the settings; a run with others is refused
    {"paid": …}    a model's answer and the row it is for, on disk before the run uses it
    {"done": …}    the drafts, up to these lengths, hold every row before this position
    {"end": …}     the drafts are complete

After a `kill -9` the last line may be half a line: the reader cuts it off. Knows nothing about rows."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from hermes.graph import CallRecord
from hermes.trajectories.compress.chunks import InputPosition
from hermes.trajectories.compress.metrics import Totals
from hermes.trajectories.errors import TrajectorySettingsError
from hermes.trajectories.sampling_model import SampledMessage


@dataclass(frozen=True, slots=True)
class CompressCheckpoint:
    """How far a run came."""

    place: InputPosition
    """Where the run reads next."""
    lengths: Mapping[str, int]
    """How many bytes of each draft are valid."""
    has_rows: bool
    """Whether the draft of the current file has a row already."""
    totals: Totals
    problems: list[str]
    seconds: float = 0.0
    """How long the run has worked so far."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> Self:
        return cls(**{**known, "place": InputPosition(**known["place"]), "totals": Totals(**known["totals"])})


@dataclass(slots=True)
class CheckpointContents:
    """What the lines of a checkpoint file add up to."""

    run: Mapping[str, Any]
    checkpoint: CompressCheckpoint | None = None
    paid: dict[str, list[SampledMessage]] = field(default_factory=dict)
    """Answers that the run will need again, by request key: those for rows after the checkpoint."""
    micro_usd: int = 0
    """What all answers cost."""
    highest_micro_usd: int = 0
    """What the most expensive answer cost."""
    metrics: Mapping[str, Any] | None = None
    """Of the whole run, if the drafts are complete."""


class CheckpointFile:
    """A file to which one process at a time adds lines. When `append` returns, the line is on disk, even after a `kill -9`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
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


def read_checkpoint_file(path: Path) -> CheckpointContents | None:
    """Return the contents of a checkpoint file, and cut off an incomplete last line; None if no run was begun in it."""
    found: CheckpointContents | None = None
    paid: list[Mapping[str, Any]] = []
    for kind, value in _read_entries(path):
        match kind:
            case "run":
                found = CheckpointContents(value)
            case "paid" if found is not None:
                found.micro_usd += value["micro_usd"]
                found.highest_micro_usd = max(found.highest_micro_usd, value["micro_usd"])
                paid.append(value)
            case "done" if found is not None:
                found.checkpoint = CompressCheckpoint.from_dict(value)
                reached = (found.checkpoint.place.file, found.checkpoint.place.row)
                paid = [each for each in paid if (each["file"], each["row"]) >= reached]
            case "end" if found is not None:
                found.metrics = value
    if found is None:
        return None
    for each in paid:
        sampled = SampledMessage(each["message"], CallRecord.from_dict(each["call"]), each["micro_usd"])
        found.paid.setdefault(each["key"], []).append(sampled)
    return found


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


def check_same_run(known: Mapping[str, Any], run: Mapping[str, Any], advice: str) -> None:
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
