"""The ledger of erasures: a file beside the database that says who was erased and when, so that a restored backup erases them again.

A backup cannot know what was erased after it was made. The file has ids and times, no names and no words. It only grows, one JSON object a
line; a line may be there twice."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from hermes.ports.errors import CopyRefused

if sys.platform != "win32":
    import fcntl

LEDGER_NAME = "erasures.log"
TAIL_BYTES = 256 * 1024
"""How much of the end is read to see what is already there."""


class LedgerDamaged(CopyRefused):
    """A line of the ledger cannot be read."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """A user who was erased; with an account, only there; with a fact, only that fact."""

    user_id: UUID
    account: str | None
    fact_id: UUID | None
    at: datetime

    @property
    def line(self) -> str:
        fact = str(self.fact_id) if self.fact_id else None
        return json.dumps({"user": str(self.user_id), "account": self.account, "fact": fact, "at": self.at.isoformat()})


@dataclass(frozen=True, slots=True)
class ErasureLedger:
    """The ledger of one folder. Several processes may write to it."""

    file: Path

    def newest(self) -> datetime | None:
        """The time of the newest erasure in it; None if it is empty."""
        lines = self._tail()
        return max((read_erasure(line).at for line in lines), default=None)

    def add(self, erasures: Iterable[Erasure]) -> int:
        """Write down those that are not among the newest already, durably; return how many. Raises OSError."""
        lines = [erasure.line for erasure in erasures]
        if not lines:
            return 0
        with os.fdopen(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "ab") as ledger:
            if sys.platform != "win32":  # without a lock, a line may be there twice
                fcntl.flock(ledger.fileno(), fcntl.LOCK_EX)  # released with the file
            there = set(self._tail())
            fresh = [line for line in lines if line not in there]
            ledger.write("".join(f"{line}\n" for line in fresh).encode())
            ledger.flush()
            os.fsync(ledger.fileno())
        return len(fresh)

    def read(self) -> list[Erasure]:
        """All erasures in it; none if there is no file. Raises LedgerDamaged, and OSError."""
        try:
            text = self.file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [read_erasure(line) for line in whole_lines(text)]

    def _tail(self) -> Sequence[str]:
        try:
            with self.file.open("rb") as ledger:
                start = max(0, ledger.seek(0, os.SEEK_END) - TAIL_BYTES)
                ledger.seek(start)
                text = ledger.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        return whole_lines(text.partition("\n")[2] if start else text)


def whole_lines(text: str) -> list[str]:
    """The lines that end with a line feed: a machine that lost power may have written a part of the last one, and writes it again."""
    return [line for line in text.split("\n")[:-1] if line]


def read_erasure(line: str) -> Erasure:
    try:
        found: dict[str, Any] = json.loads(line)
        fact = UUID(found["fact"]) if found["fact"] else None
        return Erasure(UUID(found["user"]), found["account"], fact, datetime.fromisoformat(found["at"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerDamaged(f"a line of the ledger of erasures cannot be read: {line[:80]!r}") from error
