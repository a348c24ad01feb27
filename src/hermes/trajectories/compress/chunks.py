"""Read trajectory files in chunks: consecutive rows, as they stand in the file. Streams, and parses no more than it must.

A row of a JSONL file is a line with its end. A row of a JSON file is one element of its list, or one document of the file. The bytes
between rows are kept with them, so a file whose rows all stay as they are is written byte for byte. A position in the files can be
saved, and a later reader continues there. Knows nothing about what rows mean."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from hermes.trajectories.errors import SourceError

SUFFIXES = (".json", ".jsonl")
DEFAULT_CHUNK_BYTES = 1 << 20
"""About how many bytes of rows are in a chunk."""
READ_BLOCK_BYTES = 1 << 16

_SPACE = re.compile(r"[\s\ufeff]*")
_CLOSE = re.compile(r"[\s\ufeff]*\][\s\ufeff]*")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to read."""

    path: Path
    name: str
    """The path below the folder that holds all inputs; rows are named by it."""


@dataclass(frozen=True, slots=True)
class InputPosition:
    """Where the reader continues: a byte of a file, and the number of the row that begins there."""

    file: int = 0
    offset: int = 0
    row: int = 1


INPUT_START = InputPosition()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of one file."""

    file: int
    """The file's place among the inputs."""
    name: str
    first: int
    """The number of the first row, counted from 1: its line, or its place in the list."""
    rows: Sequence[bytes]
    leads: Sequence[bytes] = ()
    """The bytes before each row, in a JSON file."""
    tail: bytes = b""
    """The bytes after the last row."""
    end: InputPosition = INPUT_START
    """Where the next chunk begins."""
    broken: bytes = b""
    """The rest of a JSON file that ends too early or is not JSON."""

    @property
    def size(self) -> int:
        """Bytes of the input, for progress."""
        return sum(map(len, self.rows)) + len(self.broken)

    def without_rows(self) -> Chunk:
        """Return the chunk with its position only."""
        return replace(self, rows=(), leads=())


def find_inputs(path: Path, leave_out: Iterable[str] = ()) -> list[InputFile]:
    """Return the file, or the trajectory files below the folder, in the order of their names; raise SourceError if there are none.

    Leaves out hidden files and the names in `leave_out`. A name in `leave_out` that begins with a dot is a suffix."""
    if path.is_file():
        return [InputFile(path, _printable_name(path.name))]
    if not path.is_dir():
        raise SourceError(str(path), "no such file or folder")
    found = []
    for place, folders, names in os.walk(path, onerror=_raise_source_error):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        found += [Path(place, name) for name in names if name.endswith(SUFFIXES) and not name.startswith(".")]
    names_left_out = frozenset(leave_out)
    endings = tuple(name for name in names_left_out if name.startswith("."))
    wanted = [file for file in sorted(found) if file.name not in names_left_out and not file.name.endswith(endings)]
    if not wanted:
        raise SourceError(str(path), f"no {' or '.join(SUFFIXES)} file in this folder")
    return [InputFile(file, _printable_name(str(file.relative_to(path)))) for file in wanted]


def fingerprint(inputs: Sequence[InputFile]) -> list[dict[str, Any]]:
    """Return name, size and SHA-256 of each file; a resumed run compares them to see whether a file changed."""
    prints = []
    for each in inputs:
        with each.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            prints.append({"name": each.name, "bytes": file.tell(), "sha256": digest})
    return prints


def read_chunks(inputs: Sequence[InputFile], begin: InputPosition = INPUT_START, size: int = DEFAULT_CHUNK_BYTES) -> Iterator[Chunk]:
    """Yield all rows from a position on, file by file. Every file has at least one chunk, even if it is empty."""
    for number, each in enumerate(inputs):
        if number < begin.file:
            continue
        start = begin if number == begin.file else InputPosition(number)
        with each.path.open("rb") as file:
            last = None
            for chunk in (_read_jsonl if each.path.suffix == ".jsonl" else _read_json)(file, each.name, start, size):
                if last is not None:
                    yield last
                last = chunk
            if last is not None:
                yield replace(last, end=InputPosition(number + 1))


def _read_jsonl(file: IO[bytes], name: str, place: InputPosition, size: int) -> Iterator[Chunk]:
    file.seek(place.offset)
    while True:
        rows = file.readlines(size)
        after = InputPosition(place.file, place.offset + sum(map(len, rows)), place.row + len(rows))
        if rows or not place.offset:
            yield Chunk(place.file, name, place.row, rows, end=after)
        if not rows:
            return
        place = after


def _read_json(file: IO[bytes], name: str, place: InputPosition, size: int) -> Iterator[Chunk]:
    """Yield the elements of a list, or documents that follow each other. A number is complete only when something follows it."""
    reader = _JsonReader(file)
    is_list = reader.skip(_SPACE)[1].startswith("[")
    reader.seek(place.offset)
    rows: list[bytes] = []
    leads: list[bytes] = []
    number, filled = place.row, 0
    while True:
        found = reader.element(is_list=is_list, is_first=number == 1)
        if found is None:
            break
        leads.append(found[0])
        rows.append(found[1])
        number += 1
        filled += len(found[1])
        if filled >= size:
            after = InputPosition(place.file, reader.offset, number)
            yield Chunk(place.file, name, place.row, rows, leads, end=after)
            place, rows, leads, filled = after, [], [], 0
    tail, broken = reader.rest(is_list=is_list, is_empty=number == 1)
    yield Chunk(place.file, name, place.row, rows, leads, tail, InputPosition(place.file, reader.offset, number), broken)


class _JsonReader:
    """Holds the next part of a file's text; elements are cut off its front."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = json.JSONDecoder()
        self.seek(0)

    def seek(self, offset: int) -> None:
        self._file.seek(offset)
        self.offset = offset
        """The byte of the file at which the text begins."""
        self._text, self._is_all, self._bad = "", False, b""
        self._bytes = codecs.getincrementaldecoder("utf-8")()

    def skip(self, pattern: re.Pattern[str]) -> tuple[int, str]:
        """Return where a match of the pattern ends, and the text after it: at least one character, if the file has one."""
        while True:
            found = pattern.match(self._text)
            if (found is not None and found.end() < len(self._text)) or self._is_all:
                end = found.end() if found is not None else 0
                return end, self._text[end:]
            if found is None and self._text:
                return 0, self._text
            self._more(READ_BLOCK_BYTES)

    def element(self, *, is_list: bool, is_first: bool) -> tuple[bytes, bytes] | None:
        """Cut off the next element, and return the bytes before it and the element; None if there is none."""
        at = self.skip(_SPACE)[0]
        if is_list:
            at = self._behind("[" if is_first else ",", at)
        if at < 0 or self._text[at : at + 1] in ("", "]"):
            return None
        step = READ_BLOCK_BYTES
        while True:
            try:
                end = self._decoder.raw_decode(self._text, at)[1]
                if self._text[at] in '{["' or self._text[end : end + 1].strip() in (",", "]") or self._is_all:
                    return self._cut(at), self._cut(end - at)
            except (ValueError, RecursionError):
                if self._is_all:
                    return None
            self._more(step)
            step *= 2  # so a long element is tried again a few times, not after every block

    def rest(self, *, is_list: bool, is_empty: bool) -> tuple[bytes, bytes]:
        """Return the bytes that end the file, and the bytes that are not JSON."""
        pattern = re.compile(r"[\s\ufeff]*\[[\s\ufeff]*\][\s\ufeff]*") if is_empty else _CLOSE
        while not self._is_all:
            self._more(READ_BLOCK_BYTES)
        found = (pattern if is_list else _SPACE).fullmatch(self._text)
        if found is not None and not self._bad:
            return self._cut(len(self._text)), b""
        broken = self._cut(len(self._text)) + self._bad
        self.offset += len(self._bad)
        return b"[]\n" if is_list and is_empty else b"\n]\n" if is_list else b"", broken

    def _behind(self, mark: str, at: int) -> int:
        """Return where the next element begins after a mark; -1 if the mark is not there."""
        if self._text[at : at + 1] != mark:
            return -1
        return self.skip(re.compile(rf"[\s\ufeff]*\{mark}[\s\ufeff]*"))[0]

    def _cut(self, length: int) -> bytes:
        gone, self._text = self._text[:length].encode(), self._text[length:]
        self.offset += len(gone)
        return gone

    def _more(self, size: int) -> None:
        data = self._file.read(size)
        try:
            self._text += self._bytes.decode(data, final=not data)
            self._is_all = not data
        except UnicodeDecodeError as error:
            self._text += error.object[: error.start].decode()
            self._bad = error.object[error.start :] + self._file.read()
            self._is_all = True


def _printable_name(name: str) -> str:
    """Return a name as text: a file name may hold bytes that are not UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()


def _raise_source_error(error: OSError) -> None:
    raise SourceError(str(error.filename), error.strerror or str(error))
