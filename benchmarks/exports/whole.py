"""Whole exports, commit against commit: small rows to ShareGPT, short sessions and a long one to Parquet and trees, each beside its floors.

CPU time, not time on the clock, so that other work on the machine matters less; the fastest of several runs. An older commit writes the
sessions itself, because it may not read the newer documents; they hold the same conversations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exports.floors import bare_tokens, duckdb, fastest, plain_python

ROOT = Path(__file__).parents[2]
REPEATS = 3
COUNTS = {"small": 20_000, "short": 2_000, "long": 1}
EXPORTS = (("small", "sharegpt"), ("short", "parquet"), ("short", "tree"), ("long", "parquet"), ("long", "tree"))
MAX_TIMES = {"plain Python": 8, "decode, SHA-256, Parquet": 3}
"""How many times a floor an export may take."""
MANY_ROWS = 200_000
MAX_BYTES_PER_ROW = 100


@dataclass(frozen=True, slots=True)
class Hermes:
    """The source of one commit."""

    name: str
    source: Path

    def run(self, *words: str) -> str:
        """Run `one_export.py` with this source; return what it printed."""
        path = os.pathsep.join([str(self.source), str(ROOT / "benchmarks")])
        command = [sys.executable, str(ROOT / "benchmarks/exports/one_export.py"), *words]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})  # noqa: S603  # ourselves
        return done.stdout.decode()


@contextmanager
def commit(name: str) -> Iterator[Hermes]:
    """Yield the source of another commit, in a folder that is deleted at the end."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(["git", "archive", name, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603, S607
        subprocess.run(["tar", "x", "-C", folder], input=packed, check=True)  # noqa: S603, S607
        yield Hermes(name, Path(folder, "src"))


@dataclass(frozen=True, slots=True)
class Measured:
    """One export, its file of rows and its input."""

    cpu_s: float
    peak_mb: float
    rows: int
    input: Path
    out: Path


def measure(hermes: Hermes, sessions: str, kind: str, folder: Path, *, count: int | None = None, repeats: int = REPEATS) -> Measured:
    file = folder / f"{hermes.name} {sessions} {count or COUNTS[sessions]}.jsonl"
    if not file.exists():
        hermes.run("write", sessions, str(count or COUNTS[sessions]), str(file))
    out = folder / f"{hermes.name} {sessions} {kind}"
    found = json.loads(hermes.run("export", kind, str(file), str(out), str(repeats)))
    return Measured(found["cpu_s"], found["peak_mb"], found["rows"], file, out)


def floor_of(measured: Measured, kind: str, folder: Path) -> dict[str, float]:
    """Return the CPU seconds of each floor beside an export."""
    if kind == "sharegpt":
        floors = {"plain Python": fastest(lambda: plain_python(measured.input, folder / "plain"), REPEATS)}
        query = duckdb(measured.input, folder / "duckdb")
        return floors if query is None else {**floors, "DuckDB": fastest(query, REPEATS)}
    exported = next(measured.out.glob("*.parquet"))
    return {"decode, SHA-256, Parquet": fastest(bare_tokens(measured.input, exported, folder / "bare"), REPEATS)}


def whole(against: str | None) -> tuple[list[list[str]], dict[str, bool]]:
    """Measure all exports; return the rows of the table, and the promises and whether they were kept."""
    ours = Hermes("this tree", ROOT / "src")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if against is None:
            return _measure_all([ours], folder)
        with commit(against) as other:
            return _measure_all([ours, other], folder)


def _measure_all(sources: Sequence[Hermes], folder: Path) -> tuple[list[list[str]], dict[str, bool]]:
    rows: list[list[str]] = []
    promises: dict[str, bool] = {}
    for sessions, kind in EXPORTS:
        title = f"{COUNTS[sessions]:,} {sessions} to {kind}"
        for hermes in sources:
            measured = measure(hermes, sessions, kind, folder)
            rows.append([f"{title}, {hermes.name}", f"{measured.cpu_s:,.2f} s", f"{measured.peak_mb:,.0f} MB", ""])
            for floor, took in floor_of(measured, kind, folder).items():
                rows.append([f"  {floor}", f"{took:,.2f} s", "", f"{measured.cpu_s / took:,.1f}"])
                if hermes is sources[0] and floor in MAX_TIMES:
                    promises[f"{title}: at most {MAX_TIMES[floor]} times {floor} alone"] = measured.cpu_s <= MAX_TIMES[floor] * took
    few = measure(sources[0], "small", "sharegpt", folder, repeats=1)
    many = measure(sources[0], "small", "sharegpt", folder, count=MANY_ROWS, repeats=1)
    growth = (many.peak_mb - few.peak_mb) * 2**20 / (many.rows - few.rows)
    rows.append([f"{many.rows:,} rows to sharegpt", f"{many.cpu_s:,.2f} s", f"{many.peak_mb:,.0f} MB", f"{growth:,.0f} bytes a row more"])
    promises[f"memory of {many.rows:,} rows grows by at most {MAX_BYTES_PER_ROW} bytes a row"] = growth <= MAX_BYTES_PER_ROW
    return rows, promises
