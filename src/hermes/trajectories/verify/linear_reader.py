"""Read canonical rows (`rows.parquet`) and check each row by itself: labels, weights, positions, and what it shares with earlier rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hermes.trajectories.verify.exported_rows import ExportedRow, Ints, lengths_differ, table_rows, unreadable_row

FILE_NAME = "rows.parquet"
IGNORED_LABEL = -100
_LISTS = {
    "input_ids": pa.list_(pa.int32()),
    "loss_mask": pa.list_(pa.bool_()),
    "labels": pa.list_(pa.int64()),
    "logprobs": pa.list_(pa.float32()),
    "weight": pa.list_(pa.float32()),
    "advantages": pa.list_(pa.float32()),
    "position_ids": pa.list_(pa.int32()),
}
_COLUMNS = {
    **_LISTS,
    **dict.fromkeys(("session", "rollout", "tokenizer"), pa.string()),
    **dict.fromkeys(("row", "parent_row", "shared_prefix"), pa.int32()),
    **dict.fromkeys(("reward", "loss_scale"), pa.float64()),
    "on_policy": pa.bool_(),
    **dict.fromkeys(("path", "samples"), pa.list_(pa.string())),
    "policy_spans": pa.list_(pa.struct([("version", pa.string()), ("start", pa.int32()), ("end", pa.int32())])),
}


def _schema(*names: str) -> pa.Schema:
    return pa.schema([(name, _COLUMNS[name]) for name in names])


SCHEMA = _schema(
    *("session", "rollout", "row", "tokenizer", "input_ids", "loss_mask", "labels", "logprobs", "weight", "advantages"),
    *("position_ids", "parent_row", "shared_prefix", "reward", "loss_scale", "on_policy", "path", "policy_spans"),
)
"""The columns of canonical rows, in their order."""
TRL_SCHEMA = _schema(
    *("input_ids", "labels", "session", "rollout", "row", "tokenizer", "logprobs", "weight", "advantages", "reward", "loss_scale"),
    *("on_policy", "samples", "policy_spans"),
)
"""The columns of TRL's rows, in their order."""
PER_TOKEN = [name for name in _LISTS if name in SCHEMA.names]
TRL_PER_TOKEN = [name for name in _LISTS if name in TRL_SCHEMA.names]


def read_rows(folder: Path) -> Iterator[ExportedRow]:
    """Yield every canonical row in the order of the file."""
    before = _PreviousRows()
    for number, row in enumerate(table_rows(folder / FILE_NAME, SCHEMA)):
        fault = lengths_differ(row, PER_TOKEN)
        if fault is not None:
            yield unreadable_row(FILE_NAME, number, fault)
            continue
        faults = [*_row_faults(number, row), *before.faults(number, row)]
        yield ExportedRow(
            FILE_NAME,
            number,
            row["input_ids"],
            row["loss_mask"],
            row["weight"],
            row["logprobs"],
            **{key: row[key] for key in ("session", "rollout", "tokenizer", "on_policy", "loss_scale", "path")},
            faults=faults,
        )


def read_trl(folder: Path) -> Iterator[ExportedRow]:
    """Yield TRL's rows: a `rows.parquet` with fewer columns, trained where the label is not -100, each token for one sample."""
    for number, row in enumerate(table_rows(folder / FILE_NAME, TRL_SCHEMA)):
        fault = lengths_differ(row, TRL_PER_TOKEN)
        if fault is not None:
            yield unreadable_row(FILE_NAME, number, fault)
            continue
        row["loss_mask"] = row["labels"] != IGNORED_LABEL
        yield ExportedRow(
            FILE_NAME,
            number,
            row["input_ids"],
            row["loss_mask"],
            row["weight"],
            row["logprobs"],
            **{key: row[key] for key in ("session", "rollout", "tokenizer", "on_policy", "loss_scale")},
            samples=dict.fromkeys(row["samples"]),
            faults=list(_row_faults(number, row)),
        )


def _row_faults(number: int, row: Mapping[str, Any]) -> Iterator[str]:
    tokens, mask = row["input_ids"], row["loss_mask"]
    if row["row"] != number:
        yield f"says that it is row {row['row']}"
    if not mask.any():
        yield "trains nothing"
    expected = np.where(mask, tokens, IGNORED_LABEL)
    rules = (
        ("labels", row["labels"] == expected, "is not the token where trained and -100 elsewhere"),
        ("weight", (row["weight"] > 0) == mask, "and loss_mask disagree about whether it is trained"),
        ("logprobs", mask | (row["logprobs"] == 0), "is not 0 where nothing is trained"),
        ("advantages", mask | (row["advantages"] == 0), "is not 0 where nothing is trained"),
        ("position_ids", row.get("position_ids", np.arange(len(tokens))) == np.arange(len(tokens)), "does not count from 0"),
    )
    for name, holds, otherwise in rules:
        if not holds.all():
            yield f"token {int(np.argmin(holds))}: {name} {otherwise}"
    if row["on_policy"] is None:
        yield "does not state on_policy"
    yield from _span_faults(row)


def _span_faults(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a fault for each policy span that holds a token which is not trained."""
    for span in row["policy_spans"]:
        start, end = ((span or {}).get(key) for key in ("start", "end"))
        if start is None or end is None or not 0 <= start < end <= len(row["input_ids"]) or not row["loss_mask"][start:end].all():
            yield f"policy_spans [{start}, {end}) holds a token that is not trained"


@dataclass(slots=True)
class _PreviousRows:
    """The earlier rows of a rollout, in the memory of about one row.

    Rows come depth first. So the tokens that a row shares with any earlier row, it shares with the row before too (or, if that one is a
    prefix of an earlier row, with the earlier one): `path` is that row. `firsts` says which row held each of its tokens first. `closed`
    names the branches that rows have left; a row that enters one again breaks the depth-first order."""

    key: tuple[Any, ...] = ()
    path: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    firsts: list[tuple[int, int]] = field(default_factory=list)
    """(end, row): this row was the first to hold the tokens from the end of the entry before up to `end`."""
    closed: set[bytes] = field(default_factory=set)

    def faults(self, number: int, row: Mapping[str, Any]) -> Iterator[str]:
        """Yield the faults of `parent_row` and `shared_prefix`, then remember this row."""
        key = (row["session"], row["rollout"], row["tokenizer"])
        if key != self.key:
            self.key, self.path, self.firsts, self.closed = key, np.empty(0, np.int32), [], set()
        tokens = row["input_ids"]
        shared = _shared_length(self.path, tokens)
        parent = next((first for end, first in self.firsts if end >= shared), -1) if shared else -1
        if (row["parent_row"], row["shared_prefix"]) != (parent, shared):
            claim = f"says that it shares {row['shared_prefix']} tokens with row {row['parent_row']}"
            yield f"{claim}, but it shares {shared} with row {parent}" if shared else f"{claim}, but it shares none with the rows before"
        if shared == len(tokens) < len(self.path):
            return  # a twin: its row is a prefix of the row before
        if shared < len(self.path):
            self.closed.add(_branch(self.path, shared))
        if shared < len(tokens) and _branch(tokens, shared) in self.closed:
            yield f"rows are not in depth-first order: an earlier row has its first {shared + 1} tokens too"
        self.firsts = [(min(end, shared), first) for end, first in self.firsts if min(end, shared)]
        while len(self.firsts) > 1 and self.firsts[-2][0] == self.firsts[-1][0]:
            self.firsts.pop()
        if shared < len(tokens):
            self.firsts.append((len(tokens), number))
        self.path = tokens.copy()


def _shared_length(one: Ints, other: Ints) -> int:
    size = min(len(one), len(other))
    same = one[:size] == other[:size]
    return size if same.all() else int(np.argmin(same))


def _branch(tokens: Ints, at: int) -> bytes:
    return hashlib.blake2b(tokens[: at + 1].tobytes(), digest_size=16).digest()
