"""The journal of a run: what it is a run of, how far it came, and every summary that was paid for. One JSON object a line, only added to.

    {"run": …}     first: the input and the settings, so that nothing else is gone on with
    {"paid": …}    a model's answer and the row it is for, on disk before anybody uses it
    {"done": …}    everything before this place is in the drafts, as far as these lengths
    {"end": …}     the drafts are whole

After a `kill -9` the last line may be half a line: it is cut off. Knows nothing about rows."""

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
    """Where reading goes on."""
    lengths: Mapping[str, int]
    """Bytes of each draft that hold."""
    has_rows: bool
    """Whether the draft of the file that is being read has a row already."""
    totals: Totals
    problems: list[str]
    seconds: float = 0.0
    """How long it took so far."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> Self:
        return cls(**{**known, "place": InputPosition(**known["place"]), "totals": Totals(**known["totals"])})


@dataclass(slots=True)
class CheckpointContents:
    """What a journal says."""

    run: Mapping[str, Any]
    mark: CompressCheckpoint | None = None
    paid: dict[str, list[SampledMessage]] = field(default_factory=dict)
    """Answers that will be needed again, by what was asked: those for rows behind the mark."""
    micro_usd: int = 0
    """All that was paid."""
    highest_micro_usd: int = 0
    """The most that was paid for one answer."""
    metrics: Mapping[str, Any] | None = None
    """Of the whole run, if the drafts are whole."""


class CheckpointFile:
    """A file that is only added to, by one process at a time. What `append` returned from is on disk, whatever happens next."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however that ends
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
        """Forget everything that was added, and keep the lock."""
        self._file.truncate(0)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_checkpoint_file(path: Path) -> CheckpointContents | None:
    """Return what a journal says, and cut off a last line that is not whole; None if it had not begun."""
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
                found.mark = CompressCheckpoint.from_dict(value)
                reached = (found.mark.place.file, found.mark.place.row)
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
    """Raise SettingsError, which names what is different, unless the journal is one of this run."""
    for key in sorted({*known["settings"], *run["settings"]}):
        before, now = known["settings"].get(key), run["settings"].get(key)
        if before != now:
            raise TrajectorySettingsError(f"an unfinished run has {key} {json.dumps(before)}, and now it is {json.dumps(now)}; {advice}")
    before, now = ({each["name"]: each for each in one["input"]} for one in (known, run))
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if changed:
        others = f" and {len(changed) - 1} more files" if len(changed) > 1 else ""
        raise TrajectorySettingsError(f"the input of an unfinished run changed since: {changed[0]}{others}; {advice}")
