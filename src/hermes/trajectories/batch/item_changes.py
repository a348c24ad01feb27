"""What became of the prompts since a run was last worked on: an edited file is noticed before anything is paid for twice, or mixed up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hermes.trajectories.batch.run_files import DATASET
from hermes.trajectories.batch.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class ItemChanges:
    """Items by name."""

    new: tuple[str, ...] = ()
    """Not there the last time."""
    changed: tuple[str, ...] = ()
    """They have rollouts, made of another row."""
    removed: tuple[str, ...] = ()
    """They have rollouts, and are not in the file any more."""

    @property
    def stale(self) -> frozenset[str]:
        """The items whose rollouts were made of what is no longer in the file."""
        return frozenset((*self.changed, *self.removed))


def changes_since(folder: RunFolder, items: Mapping[str, str]) -> ItemChanges:
    """Compare the items of a file, by name and digest, with what the run was last given and with what it made."""
    before = _read_names(folder.file(DATASET))
    return ItemChanges(
        new=() if before is None else tuple(name for name in items if name not in before),
        changed=tuple(name for name, digest in folder.digests.items() if name in items and items[name] != digest),
        removed=tuple(name for name in folder.digests if name not in items),
    )


def record_items(folder: RunFolder, items: Mapping[str, str]) -> None:
    """Note what the run is given now."""
    folder.write(DATASET, (json.dumps([name, digest]) + "\n" for name, digest in items.items()))


def list_some(names: Iterable[str], most: int = 3) -> str:
    """A few names, and how many more."""
    known = list(names)
    more = f" and {len(known) - most:,} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def _read_names(file: Path) -> frozenset[str] | None:
    if not file.exists():
        return None
    with file.open("rb") as lines:
        return frozenset(json.loads(line)[0] for line in lines)
