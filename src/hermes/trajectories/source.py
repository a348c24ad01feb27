"""Read graphs from files: one JSON document a file, or one a line. Streams; a broken graph is reported, and the others are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from hermes.graph import CodecError, MessageGraph
from hermes.trajectories.errors import SourceError
from hermes.trajectories.plain_documents import read_plain

SUFFIXES = (".json", ".jsonl")


@dataclass(slots=True, eq=False)  # never changed; `frozen` would make its constructor three times as slow
class ExportSession:
    """One conversation to export: a graph, and its name in rows and ledger."""

    name: str
    graph: MessageGraph
    size: int = 0
    """Its share of the input, for progress: bytes if the input is files, 1 if the input is stored sessions."""
    known_root: str | None = None
    """The graph's root, if reading the graph computed it."""

    @property
    def root(self) -> str:
        """The root of the graph."""
        return self.known_root or self.graph.root


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return these files, and the graph files in these folders in the order of their names; raise SourceError for a path without one."""
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


class ExportSource(Protocol):
    """Where the sessions of an export come from: files, or a store. They can be read more than once."""

    @property
    def size(self) -> int:
        """The total size, in the unit of the sizes of its sessions."""
        ...

    @property
    def erased_sessions(self) -> int:
        """How many sessions were left out because their users were erased."""
        ...

    def __iter__(self) -> Iterator[ExportSession | SourceError]: ...


class FileSessions:
    """The graphs of some files; the caller may read them any number of times."""

    erased_sessions = 0
    """Only a store leaves sessions out; files never do."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = list(files)

    @property
    def size(self) -> int:
        """How many bytes there are to read, for progress."""
        return sum(file.stat().st_size for file in self._files)

    def __iter__(self) -> Iterator[ExportSession | SourceError]:
        return read_sessions(self._files)

    def documents(self) -> Iterator[GraphDocument]:
        """Yield the same graphs, not decoded: a worker process decodes them."""
        return read_documents(self._files)


def read_sessions(files: Iterable[Path]) -> Iterator[ExportSession | SourceError]:
    """Yield every graph of the files in order, and a SourceError in the place of each graph that cannot be read.

    A session's name is the path of its file below the folder that holds all files, with the line number if the file is JSONL."""
    return map(read_session, read_documents(files))


class GraphDocument(NamedTuple):
    """The text of a graph in a file, not decoded."""

    name: str
    """The session's name."""
    where: str
    """File and line, for error messages."""
    text: bytes
    unread: str = ""
    """Why the file could not be read; empty if it was."""


def read_documents(files: Iterable[Path]) -> Iterator[GraphDocument]:
    """Yield the documents that `read_sessions` reads, not decoded."""
    known = [Path(os.path.abspath(file)) for file in files]  # noqa: PTH100  # removes `..` too: names must not depend on the working directory
    root = Path(os.path.commonpath([file.parent for file in known])) if known else Path()
    for file in known:
        name = str(file.relative_to(root))
        name = name.encode("utf-8", "backslashreplace").decode()  # a file name may hold bytes that are not UTF-8
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
            if not line.isspace():  # `strip` would copy a line of many megabytes
                yield GraphDocument(f"{name}:{number}", f"{file}, line {number}", line)


def read_session(document: GraphDocument, *, is_checked: bool = False) -> ExportSession | SourceError:
    """Decode a document and verify its ids; `is_checked` skips the verification if it was done before."""
    if document.unread:
        return SourceError(document.where, document.unread)
    plain = read_plain(document.text)
    if plain is not None:  # its ids and its root were computed, and nothing in it can contradict them
        return ExportSession(document.name, plain, len(document.text), plain.root_read)
    try:
        graph = MessageGraph.from_json(document.text)
    except CodecError as error:
        return SourceError(document.where, f"not a message graph ({error})")
    problem = None if is_checked else graph.find_alteration()
    return _session_or_error(ExportSession(document.name, graph, len(document.text), graph.root_read), document.where, problem)


def check_session(name: str, graph: MessageGraph, where: str, size: int = 0) -> ExportSession | SourceError:
    """Verify a graph; return it as a session to export, or a SourceError if its ids do not match its content. `where` names its file."""
    problems = graph.verify().problems
    return _session_or_error(ExportSession(name, graph, size), where, problems[0] if problems else None)


def _session_or_error(session: ExportSession, where: str, problem: str | None) -> ExportSession | SourceError:
    return session if problem is None else SourceError(where, f"the graph was altered after it was recorded ({problem})")


def _graph_files_in(folder: Path) -> Iterator[Path]:
    """Yield the graph files below a folder. Hidden files are left out: drafts of an unfinished run are hidden.

    Raises SourceError for a folder that cannot be read, instead of skipping it."""

    def refuse(error: OSError) -> None:
        raise SourceError(str(error.filename), error.strerror or str(error))

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            file = Path(place, name)
            if file.suffix in SUFFIXES and not name.startswith(".") and not _is_exported(file) and not _is_beside_a_run(file):
                yield file


def _is_exported(file: Path) -> bool:
    """Whether a file belongs to an export that was written into the same folder."""
    return (file.parent / "ledger.jsonl").exists()


def _is_beside_a_run(file: Path) -> bool:
    """Whether a file is one that a batch run keeps beside its `graphs.jsonl`."""
    return file.name != "graphs.jsonl" and (file.parent / "run.json").exists() and (file.parent / "graphs.jsonl").exists()
