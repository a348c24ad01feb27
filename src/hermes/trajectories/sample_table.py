"""What an export remembers of every sample until its end, in memory that does not grow with their number.

The latest samples are in a dict. Whenever there are many, all of them move into an SQLite table, sorted by name, so that a table of any
size is written almost in one go. Its file has no name: it is gone with the process, however that ends."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hermes.graph.message import compact_json

RECENT_SAMPLES = 20_000
"""So many samples are kept in memory."""
CACHE_KIB = 4_096

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA cache_size = -{cache};
CREATE TABLE samples (name BLOB PRIMARY KEY, identity BLOB NOT NULL, said TEXT) WITHOUT ROWID;
"""


class KnownSample(NamedTuple):
    """What is remembered of a sample: its identity, and what is said about it, if anything."""

    identity: bytes
    refused: str = ""
    notes: Mapping[str, Any] = {}


@dataclass(slots=True)
class SampleTable:
    """Samples by name. Without a folder, all of them stay in memory."""

    folder: Path | None = None
    _recent: dict[bytes, KnownSample | bytes] = field(default_factory=dict)
    """A sample about which nothing is said is its identity alone."""
    _stored: sqlite3.Connection | None = None

    def get(self, name: bytes) -> KnownSample | None:
        """Return the sample with that name, if there is one."""
        known = self._recent.get(name)
        if known is not None:
            return known if isinstance(known, KnownSample) else KnownSample(known)
        if self._stored is None:
            return None
        found = self._stored.execute("SELECT identity, said FROM samples WHERE name = ?", (name,)).fetchone()
        return None if found is None else KnownSample(found[0], *(json.loads(found[1]) if found[1] is not None else ()))

    def put(self, name: bytes, sample: KnownSample) -> None:
        """Add a sample, or replace the one with that name."""
        self._recent[name] = sample if sample.refused or sample.notes else sample.identity
        if len(self._recent) >= RECENT_SAMPLES and self.folder is not None:
            self._store(self.folder)

    def close(self) -> None:
        """Delete the table; a second time does nothing."""
        if self._stored is not None:
            self._stored.close()
            self._stored = None

    def _store(self, folder: Path) -> None:
        if self._stored is None:
            file = folder / ".samples"
            self._stored = sqlite3.connect(file, isolation_level=None)
            self._stored.executescript(_SCHEMA.format(cache=CACHE_KIB))
            file.unlink()
        self._stored.execute("BEGIN")
        self._stored.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?, ?)", self._sorted_rows())
        self._stored.execute("COMMIT")
        self._recent = {}

    def _sorted_rows(self) -> Iterator[tuple[bytes, bytes, str | None]]:
        for name in sorted(self._recent):
            known = self._recent[name]
            if isinstance(known, KnownSample):
                yield name, known.identity, compact_json([known.refused, known.notes])
            else:
                yield name, known, None
