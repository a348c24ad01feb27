"""Read graphs from files: one JSON document a file, or one a line. Streams; a broken one is named and the rest goes on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hermes.graph import CodecError, MessageGraph
from hermes.trajectories.errors import SourceError

SUFFIXES = (".json", ".jsonl")


@dataclass(frozen=True, slots=True)
class ExportSession:
    """One conversation to export: a graph, and the name it goes by in rows and ledger."""

    name: str
    graph: MessageGraph
    size: int = 0
    """How much of the input it was, for progress: bytes of files, or one of so many sessions."""


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return the graph files among these files and folders, folders in the order of their names."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(_graph_files_in(path))
            if not inside:
                raise SourceError(str(path), f"no {' or '.join(SUFFIXES)} file in this folder")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise SourceError(str(path), "no such file or folder")
    return found


class FileSessions:
    """The graphs of some files, to be read as often as one likes."""

    erased_sessions = 0
    """Who was deleted from a store; from a file nobody is."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = list(files)

    @property
    def size(self) -> int:
        """How many bytes there are to read, for progress."""
        return sum(file.stat().st_size for file in self._files)

    def __iter__(self) -> Iterator[ExportSession | SourceError]:
        return read_sessions(self._files)

    def documents(self) -> Iterator[GraphDocument]:
        """Yield the same graphs, to be decoded by somebody else."""
        return read_documents(self._files)


def read_sessions(files: Iterable[Path]) -> Iterator[ExportSession | SourceError]:
    """Yield every graph of the files in order, and a SourceError in the place of each that cannot be read.

    A session is named by its file, as seen from the folder that holds all of them, and by its line where the file has lines."""
    return map(read_session, read_documents(files))


@dataclass(frozen=True, slots=True)
class GraphDocument:
    """A graph as it stands in a file, not decoded."""

    name: str
    """What the session will go by."""
    where: str
    """File and line, for people."""
    text: bytes
    unread: str = ""
    """Why there is no text."""


def read_documents(files: Iterable[Path]) -> Iterator[GraphDocument]:
    """Yield what `read_sessions` reads, without a look inside."""
    known = [Path(os.path.abspath(file)) for file in files]  # noqa: PTH100  # also takes `..` out, so that names do not depend on where one stands
    root = Path(os.path.commonpath([file.parent for file in known])) if known else Path()
    for file in known:
        name = str(file.relative_to(root))
        name = name.encode("utf-8", "backslashreplace").decode()  # a file name need not be text
        try:
            if file.suffix == ".jsonl":
                yield from _read_lines(file, name)
            else:
                yield GraphDocument(name, str(file), file.read_bytes())
        except OSError as error:
            yield GraphDocument(name, str(file), b"", error.strerror or str(error))


def _read_lines(file: Path, name: str) -> Iterator[GraphDocument]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield GraphDocument(f"{name}:{number}", f"{file}, line {number}", line)


def read_session(document: GraphDocument, *, is_checked: bool = False) -> ExportSession | SourceError:
    """Decode a document, and check that its ids hold, unless that was done before."""
    if document.unread:
        return SourceError(document.where, document.unread)
    try:
        graph = MessageGraph.from_json(document.text)
    except CodecError as error:
        return SourceError(document.where, f"not a message graph ({error})")
    size = len(document.text)
    return ExportSession(document.name, graph, size) if is_checked else check_session(document.name, graph, document.where, size)


def check_session(name: str, graph: MessageGraph, where: str, size: int = 0) -> ExportSession | SourceError:
    """Return a graph as a session to export, or, if its ids do not hold any more, what to say instead; `where` says where it was found."""
    report = graph.verify()
    if not report:
        return SourceError(where, f"the graph was altered after it was recorded ({report.problems[0]})")
    return ExportSession(name, graph, size)


def _graph_files_in(folder: Path) -> Iterator[Path]:
    """Yield the graph files below a folder, hidden ones left out: drafts of an unfinished run are among those.

    Raises SourceError for a folder that cannot be read, instead of passing over it."""

    def refuse(error: OSError) -> None:
        raise SourceError(str(error.filename), error.strerror or str(error))

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            file = Path(place, name)
            if file.suffix in SUFFIXES and not name.startswith(".") and not _is_exported(file) and not _is_beside_a_run(file):
                yield file


def _is_exported(file: Path) -> bool:
    """Whether a file is part of an export that lies among the graphs."""
    return (file.parent / "ledger.jsonl").exists()


def _is_beside_a_run(file: Path) -> bool:
    """Whether a file is what a batch run keeps beside its graphs."""
    return file.name != "graphs.jsonl" and (file.parent / "run.json").exists() and (file.parent / "graphs.jsonl").exists()
