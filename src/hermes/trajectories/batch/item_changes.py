"""Compare the prompt file with the run: an edited file is noticed before rollouts are paid for twice or mixed up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hermes.trajectories.batch.run_files import DATASET
from hermes.trajectories.batch.run_folder import RunFolder


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
