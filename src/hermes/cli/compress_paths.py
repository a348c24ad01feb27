"""The inputs and outputs of `hermes compress`: one file, a folder, several files, or sessions from the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes.cli.commands import LazyParts
from hermes.cli.output import fail
from hermes.trajectories.compress.chunks import InputFile, find_inputs
from hermes.trajectories.compress.output import OutputPaths, output_stem
from hermes.trajectories.compress.run import CHECKPOINT_FILE, lock_run_folder
from hermes.trajectories.compress.settings import CompressionSettings

NOT_TRAJECTORIES = ("ledger.jsonl", ".rejected.jsonl", ".over_limit.jsonl")
"""Files that lie beside trajectories and are not trajectories: whole names, or endings if they begin with a dot."""
SPOOL_FILE = "stored.jsonl"


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """Which sessions to read from the store. False if no option names any."""

    names: tuple[str, ...]
    since: str | None
    account: str | None
    is_everything: bool
    settings_file: Path | None

    def __bool__(self) -> bool:
        return bool(self.names) or self.since is not None or self.account is not None or self.is_everything


def find_paths(
    files: Sequence[Path], wanted: StoredQuery, out: Path | None, settings: CompressionSettings
) -> tuple[OutputPaths, list[InputFile]]:
    """Return the output paths and the input files. For sessions from the store there are no input files yet: they are read later."""
    if files and wanted:
        fail("read trajectories either from files or from the store: leave out FILES, or --conversation, --since, --account and --stored")
    if not files and not wanted:
        fail("which trajectories? Name a file or a folder, or read the store with --conversation, --since, --account or --stored")
    if wanted:
        if out is None:
            fail("name the output file for the graphs from the store, for instance --out compressed.jsonl")
        return output_paths(out, settings, is_folder=False), []
    metrics = Path(settings.metrics.output_file)
    leave_out = (*NOT_TRAJECTORIES, *(each for name in (metrics.name, metrics.with_suffix(".jsonl").name) for each in (name, f".{name}")))
    inputs = [each for file in files for each in find_inputs(file, leave_out)]
    is_folder = len(files) > 1 or files[0].is_dir()
    if len(files) > 1 and out is None:
        fail("several inputs need an output folder: --out FOLDER")
    twice = [name for name, number in Counter(each.name for each in inputs).items() if number > 1]
    if twice:
        fail(f"there are two inputs with the name {twice[0]}; compress them one after the other")
    suffix = settings.output.output_suffix
    place = out or (files[0].with_name(f"{files[0].name}{suffix}") if is_folder else files[0].with_stem(f"{files[0].stem}{suffix}"))
    if any(folder.is_dir() and folder.resolve() in (place.resolve(), *place.resolve().parents) for folder in files):
        fail(f"{place} lies inside the input folder; name another place with --out")
    return output_paths(place, settings, is_folder=is_folder), inputs


def output_paths(out: Path, settings: CompressionSettings, *, is_folder: bool) -> OutputPaths:
    """Return the output paths. Metrics of another run are not overwritten: the new file's name then begins with that of the output."""
    metrics = out.parent / settings.metrics.output_file
    if metrics.exists() or metrics.with_suffix(".jsonl").exists():
        metrics = metrics.with_name(f"{output_stem(out)}.{metrics.name}")
    return OutputPaths(out, metrics, is_folder)


def spool_sessions(places: OutputPaths, wanted: StoredQuery, parts: LazyParts, *, restarts: bool) -> tuple[list[InputFile], int]:
    """Write the sessions of the store to a file beside the draft. Return that file, and how many sessions could not be read.

    An unfinished run continues with the sessions that it began with."""
    file = places.folder / SPOOL_FILE
    if places.out.exists() and (restarts or not file.exists()):
        fail(f"{places.out} exists; name another file with --out, or remove it")
    broken = 0
    with lock_run_folder(places, restarts=restarts):
        if not file.exists() or not (places.folder / CHECKPOINT_FILE).stat().st_size:
            broken = parts.load_compress_service("sessions from the store need").save_sessions(wanted, file)
    return [InputFile(file, SPOOL_FILE)], broken
