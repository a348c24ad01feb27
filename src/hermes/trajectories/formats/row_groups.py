"""Parquet in row groups of a sensible size: rows are gathered until there are enough of them, so memory stays bounded.

A group for each row would cost kilobytes of footer and a millisecond each; one group for all would cost all the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MAX_TOKENS = 1_000_000
MAX_ROWS = 5_000


class RowGroups:
    """A Parquet file that grows row by row."""

    def __init__(self, path: Path, schema: Any) -> None:
        self._file = pq.ParquetWriter(path, schema, compression="zstd")
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._tokens = 0

    def add(self, row: dict[str, Any], tokens: int) -> None:
        """Add a row that holds so many tokens."""
        self._rows.append(row)
        self._tokens += tokens
        if self._tokens >= MAX_TOKENS or len(self._rows) >= MAX_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows, self._tokens = [], 0
