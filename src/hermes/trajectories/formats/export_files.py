"""What writers write into: one file of lines, or one document for each row. With a folder they write files there. Without a folder they
keep the data in memory, as a part of an export that several workers make (see `hermes.trajectories.chunk_worker`)."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import IO

from hermes.trajectories.ledger import renumber_rows


class LineFile:
    """A file that grows line by line."""

    def __init__(self, folder: Path | None, name: str, *, has_rows: bool = False) -> None:
        """`has_rows`: `dump` wrote the lines, Hermes chose all their keys, and `row` is the number of the row."""
        self._file: IO[bytes] = (folder / name).open("wb") if folder is not None else BytesIO()
        self._has_rows = has_rows

    def write(self, line: bytes) -> None:
        self._file.write(line)

    def part(self) -> bytes:
        self._file.seek(0)
        return self._file.read()

    def take(self, part: bytes, first_row: int) -> None:
        self._file.write(renumber_rows(part, first_row) if self._has_rows else part)

    def close(self) -> None:
        self._file.close()


class DocumentFiles:
    """A file for each row, with the row's number in its name."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._folder = folder
        self._name = name
        self._kept: list[tuple[int, bytes]] = []

    def write(self, row: int, document: bytes) -> None:
        if self._folder is None:
            self._kept.append((row, document))
        else:
            (self._folder / self._name.format(row=row)).write_bytes(document)

    def part(self) -> list[tuple[int, bytes]]:
        return self._kept

    def take(self, part: list[tuple[int, bytes]], first_row: int) -> None:
        for row, document in part:
            self.write(first_row + row, document)

    def close(self) -> None:
        """Do nothing: each document is closed when it is written."""
