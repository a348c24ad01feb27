"""Exported rows: what a trainer is fed, the same types for every format. A format's reader yields one for each row, with the faults that
show in the row itself; it does not compare rows with the ledger."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from hermes.trajectories.verify.ledger import strict_json

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

BATCH_ROWS = 32
NULLABLE_COLUMNS = frozenset({"reward", "on_policy"})
"""A reward may be unknown. A missing on_policy is reported where rows are checked."""


class UnreadableFile(Exception):
    """A file of the export cannot be read as its format says."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"{file}: {reason}")
        self.file = file
        self.reason = reason


@dataclass(slots=True)
class ExportedRow:
    """One row: tokens, which of them are trained, for how many samples each, and with which logprobs."""

    file: str
    row: int
    tokens: Ints
    mask: Bools
    weight: Floats | None = None
    """None if the format has no weights: then every trained token counts for one sample."""
    logprobs: Floats | None = None
    session: str | None = None
    rollout: str | None = None
    tokenizer: str | None = None
    on_policy: bool | None = None
    loss_scale: float | None = None
    path: Sequence[str] = ()
    """The ids of responses whose prompt and completion the row claims to hold."""
    samples: Mapping[str, tuple[int, int] | None] | None = None
    """The samples that the row claims to train, with their tokens [start, end) if the format states them."""
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ExportedTree:
    """One flattened trie. `entries` are the trained tokens: for each sample the places of its tokens."""

    file: str
    row: int
    tokens: Ints
    parents: Ints
    entries: dict[str, Ints]
    session: str
    rollout: str
    tokenizer: str
    on_policy: bool | None
    loss_scale: float
    faults: list[str] = field(default_factory=list)
    breaks: npt.NDArray[np.int64] = field(init=False)
    """The places of tokens whose parent is not the token before them."""

    def __post_init__(self) -> None:
        self.breaks = np.flatnonzero(self.parents != np.arange(len(self.parents)) - 1)


@dataclass(slots=True)
class ExportedConversation:
    """One conversation as text: the digest of each turn, and which turns are marked as trainable."""

    file: str
    row: int
    digests: Sequence[str]
    marked: Sequence[bool]
    on_policy: bool = True
    """Whether the row, with all conversations in it, says that it is on policy."""
    starts: Sequence[int] = ()
    """For each turn the first turn of its conversation, if a row holds several conversations."""
    session: str | None = None
    rollout: str | None = None
    responses: Sequence[str] | None = None
    """The ids of responses that the row claims to train, in the order of the turns."""
    faults: list[str] = field(default_factory=list)


def table_rows(path: Path, schema: pa.Schema) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, lists as arrays; raise UnreadableFile if it is not Parquet or its columns are not exactly these.

    More columns, or metadata that tells a reader what a column means, would be read by trainers and by nothing here."""
    try:
        with pq.ParquetFile(path) as file:
            for name in schema.names:
                at = file.schema_arrow.get_field_index(name)
                if at < 0 or file.schema_arrow.field(at).type != schema.field(name).type:
                    raise UnreadableFile(path.name, f"no column {name!r} of type {schema.field(name).type}")
            has_metadata = file.schema_arrow.metadata or any(column.metadata for column in file.schema_arrow)
            if file.schema_arrow.names != schema.names or has_metadata:
                raise UnreadableFile(path.name, "has columns, an order of columns or metadata that this format does not have")
            for batch in file.iter_batches(BATCH_ROWS):
                for at in range(batch.num_rows):
                    yield {name: _value(batch.column(name)[at]) for name in schema.names}
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(path.name, f"cannot be read ({error})") from None


def _value(scalar: Any) -> Any:
    if not isinstance(scalar, pa.ListScalar) or not scalar.is_valid:
        return scalar.as_py()
    values = scalar.values
    if pa.types.is_string(values.type) or pa.types.is_struct(values.type) or values.null_count:
        return values.to_pylist()
    return values.to_numpy(zero_copy_only=False)


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSONL file with their places, from 0; raise UnreadableFile at a line that is not an object."""
    number = -1
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                value = strict_json(line)
                if not isinstance(value, dict):
                    raise UnreadableFile(path.name, f"line {number + 1} is not an object")
                yield number, value
                if not line.endswith(b"\n"):
                    raise UnreadableFile(path.name, f"line {number + 1} is cut off")
    except (ValueError, RecursionError):
        raise UnreadableFile(path.name, f"line {number + 1} is not JSON") from None
    except OSError as error:
        raise UnreadableFile(path.name, f"cannot be read ({error.strerror})") from None


def ints(values: Any) -> Ints:
    """Return token ids as an array; raise TypeError, ValueError or OverflowError for anything else."""
    return np.asarray(array("i", _numbers(values)), np.int32)


def floats(values: Any) -> Floats:
    """Return logprobs as an array; raise TypeError or ValueError for anything else."""
    return np.asarray(array("f", _numbers(values)), np.float32)


def _numbers(values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise TypeError(f"expected a list, got {type(values).__name__}")
    return values


def unreadable_row(file: str, row: int, reason: str) -> ExportedRow:
    """Return an empty row with one fault, in the place of a row that could not be read."""
    return ExportedRow(file, row, np.empty(0, np.int32), np.empty(0, np.bool_), faults=[reason])


def lengths_differ(row: Mapping[str, Any], columns: Iterable[str]) -> str | None:
    """Return a fault if a value is missing or one of `columns` is not as long as the first; None if there is no fault."""
    first, *others = columns
    for name, value in row.items():
        if value is None and name not in NULLABLE_COLUMNS:
            return f"{name} is missing"
    for name in (first, *others):
        if not isinstance(row[name], np.ndarray):
            return f"{name} has gaps"
    odd = [f"{len(row[name])} {name}" for name in others if len(row[name]) != len(row[first])]
    return f"{len(row[first])} {first}, but {', '.join(odd)}" if odd else None
