"""The files that writers write into: lines, numbered documents, and Parquet in row groups. Without a folder they keep in memory what they
are given, as the part of an export that a worker makes.

Parquet rows are gathered until a group is full, so memory stays bounded. A group for each row would cost kilobytes of footer and a
millisecond each; one group for all rows would hold all of them in memory. Groups end where they would end if one process had added row
after row, so the bytes do not depend on the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hermes.graph.message import json_encoder
from hermes.trajectories.ledger import renumber_rows

spaced_json = json_encoder(sort_keys=False, separators=(", ", ": "))
"""Writes what `json.dumps` writes, for the lines of a `LineFile`."""


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


class FixedFile:
    """A file that is the same in every export; a part of an export has none."""

    def __init__(self, folder: Path | None, name: str, content: bytes) -> None:
        if folder is not None:
            (folder / name).write_bytes(content)

    def part(self) -> None:
        """Return nothing: the file is whole."""

    def take(self, part: None, first_row: int) -> None:
        """Do nothing: the file is whole."""


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


MAX_TOKENS = 1_000_000
MAX_ROWS = 5_000


class GatheredRows(NamedTuple):
    """Rows that a worker gathered, in Arrow's stream format, and the number of tokens in each."""

    data: bytes
    tokens: list[int]


class RowGroups:
    """A Parquet file that grows row by row, or part by part; without a folder, the rows are kept in memory."""

    def __init__(
        self,
        folder: Path | None,
        name: str,
        schema: Any,
        numbers: Sequence[str] = ("row",),
        table_of: Callable[[Sequence[Any]], Any] | None = None,
    ) -> None:
        """`numbers` are the columns that hold row numbers; a value below 0 means no row.

        A row is a dict of columns, or anything of which `table_of` makes a table."""
        self._file = pq.ParquetWriter(folder / name, schema, compression="zstd") if folder is not None else None
        self._schema = schema
        self._numbers = numbers
        self._table_of = table_of or partial(pa.Table.from_pylist, schema=schema)
        self._rows: list[Any] = []
        self._tables: list[Any] = []
        self._tokens: list[int] = []
        self._filled = 0
        """How many tokens are in the group so far."""

    def add(self, row: Any, tokens: int) -> None:
        """Add a row that holds `tokens` tokens."""
        self._rows.append(row)
        if self._is_full(tokens):
            self._flush()

    def part(self) -> GatheredRows:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as stream:
            stream.write_table(self._table_of(self._rows))
        return GatheredRows(sink.getvalue().to_pybytes(), self._tokens)

    def take(self, part: GatheredRows, first_row: int) -> None:
        table = self._renumber(pa.ipc.open_stream(part.data).read_all(), first_row)
        start = 0
        for end, tokens in enumerate(part.tokens, start=1):
            if self._is_full(tokens):
                self._tables.append(table.slice(start, end - start))
                self._flush()
                start = end
        self._tables.append(table.slice(start))

    def close(self) -> None:
        self._flush()
        if self._file is not None:
            self._file.close()

    def _is_full(self, tokens: int) -> bool:
        """Count a row; return whether the group ends after it. A part in memory is one group: the file that takes it divides it."""
        self._tokens.append(tokens)
        self._filled += tokens
        return self._file is not None and (self._filled >= MAX_TOKENS or len(self._tokens) >= MAX_ROWS)

    def _renumber(self, table: Any, first_row: int) -> Any:
        for name in self._numbers:
            column = table[name]
            moved = pc.if_else(pc.less(column, 0), column, pc.add(column, pa.scalar(first_row, column.type)))
            table = table.set_column(table.schema.get_field_index(name), self._schema.field(name), moved)
        return table

    def _flush(self) -> None:
        if self._file is not None and self._tokens:
            gathered = self._table_of(self._rows)
            # In one piece: Parquet would end a page where two pieces meet.
            self._file.write_table(pa.concat_tables([gathered, *self._tables]).combine_chunks())
        self._rows, self._tables, self._tokens, self._filled = [], [], [], 0
