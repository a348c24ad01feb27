"""The files of a run folder: their names, the recipe, the lock, and replacing two files together."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from hermes.trajectories.errors import TrajectorySettingsError
from hermes.trajectories.private_files import open_private

if sys.platform != "win32":
    import fcntl

GRAPHS, INDEX, ASIDE, RUN, DATASET, LOCK = "graphs.jsonl", "rollouts.jsonl", "aside.jsonl", "run.json", "dataset.jsonl", ".lock"
STATISTICS, ITEMS, GROUPS, RECIPE = "statistics.json", "items.jsonl", "groups.jsonl", "recipe.toml"
NEW_SUFFIX = ".new"


def find_or_begin_run(path: Path, recipe: Mapping[str, Any], *, may_go_on: bool) -> str:
    """Return the id of the run in the folder, if it may be resumed, or of a new run. A run without any rollout is begun again.

    Raises TrajectorySettingsError if the folder is not a run, the run exists and may not be resumed, or its recipe is another one."""
    file = path / RUN
    if not file.exists():
        others = [each.name for each in path.iterdir() if each.name not in (LOCK, RUN + NEW_SUFFIX)]
        if others:
            raise TrajectorySettingsError(
                f"{path} is not a batch run, and not empty; take another --run-name, or another folder for `runs`"
            )
        return _begin_run(path, recipe)
    try:
        known = json.loads(file.read_bytes())
        run_id, before = str(known["id"]), dict(known["recipe"])
    except (ValueError, KeyError, TypeError):
        raise TrajectorySettingsError(f"{file} is not what a batch run wrote; take another --run-name") from None
    if not any((path / name).exists() and (path / name).stat().st_size for name in (INDEX, GRAPHS, ASIDE)):
        return _begin_run(path, recipe)
    if not may_go_on:
        raise TrajectorySettingsError(f"the run {path} exists; resume it with --resume, or take another --run-name")
    for name in recipe:
        now, then = json.loads(json.dumps(recipe[name])), before.get(name)
        if now != then:
            is_plain = len(f"{now}{then}") < 100 and "sha256:" not in f"{now}{then}"
            shown = f": {then!r} then, {now!r} now" if is_plain else ""
            raise TrajectorySettingsError(
                f"the run {path} was begun with another {name}{shown}; give the same again, or take another --run-name"
            )
    return run_id


def _begin_run(path: Path, recipe: Mapping[str, Any]) -> str:
    run_id, draft = uuid4().hex, path / (RUN + NEW_SUFFIX)
    with open_private(draft, "wb") as out:
        out.write(json.dumps({"format": "hermes.batch", "version": 1, "id": run_id, "recipe": recipe}, indent=2).encode() + b"\n")
        sync(out)
    draft.replace(path / RUN)
    sync_folder(path)
    return run_id


def finish_moving(path: Path, *, is_recovery: bool) -> None:
    """Replace graphs and index by their new files. If the process is killed between the two, the next process replaces the second."""
    graphs, index = path / (GRAPHS + NEW_SUFFIX), path / (INDEX + NEW_SUFFIX)
    if is_recovery and graphs.exists():  # nothing was replaced yet, and a new file may be incomplete: drop both
        graphs.unlink()
        index.unlink(missing_ok=True)
        return
    if graphs.exists():
        graphs.replace(path / GRAPHS)
        sync_folder(path)
    if index.exists():
        index.replace(path / INDEX)
        sync_folder(path)


def lock_folder(path: Path) -> BinaryIO:
    """Lock the folder for this process. The kernel gives the lock up, however the process ends."""
    lock = open_private(path / LOCK, "ab")
    if sys.platform != "win32":
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise TrajectorySettingsError(f"another process works on the run {path}; wait for it, or take another --run-name") from None
    return lock


def sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    if sys.platform == "win32":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
