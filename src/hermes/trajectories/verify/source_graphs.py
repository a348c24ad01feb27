"""Read the graphs that an export was made from, and the names that `hermes export` gives to sessions in files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes.graph import CodecError, MessageGraph
from hermes.trajectories.verify.report import ProblemList


@dataclass(frozen=True, slots=True)
class SourceGraph:
    """One graph of the source."""

    graph: MessageGraph
    name: str
    """The session's name, if these files were exported: the path below the folder of all files, and the line in JSONL."""


def read_graphs(paths: Sequence[Path], problems: ProblemList) -> Iterator[SourceGraph]:
    """Yield the graphs in their order; note each that cannot be read or was altered: the exporter leaves those out too."""
    files = [Path(os.path.abspath(file)) for file in _files(paths)]  # noqa: PTH100  # also removes `..`
    root = os.path.commonpath([file.parent for file in files]) if files else ""
    for file in files:
        name = os.path.relpath(file, root).encode("utf-8", "backslashreplace").decode()
        try:
            for number, text in _documents(file):
                try:
                    graph = MessageGraph.from_json(text)
                except CodecError as error:
                    problems.add(f"cannot be read, so its samples cannot be checked ({error})", file=str(file), line=number)
                    continue
                report = graph.verify()
                for problem in report.problems:
                    problems.add(f"the source itself was altered: {problem}", file=str(file), line=number)
                if report:
                    yield SourceGraph(graph, name if number is None else f"{name}:{number}")
        except OSError as error:
            problems.add(f"cannot be read, so its samples cannot be checked ({error})", file=str(file))


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        inside = sorted(file for file in path.rglob("*") if file.suffix in (".json", ".jsonl") and file.is_file())
        yield from inside if path.is_dir() else [path]


def _documents(file: Path) -> Iterator[tuple[int | None, bytes]]:
    """Yield the graphs of a file as text: one, or in a JSONL file one for each line, with the line's number."""
    if file.suffix != ".jsonl":
        yield None, file.read_bytes()
        return
    with file.open("rb") as lines:
        yield from ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
