"""The files of an export as plain values, in the order in which they stand: rows, lines, documents, samples of slime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from hermes.trajectories.verify.exported_rows import UnreadableFile, json_lines, table_rows
from hermes.trajectories.verify.ledger import strict_json
from hermes.trajectories.verify.trainer_readers import load_plain


def read_values(path: Path, schemas: Mapping[str, pa.Schema]) -> Iterator[Any]:
    """Yield the values of one file; raise UnreadableFile where its form is not the one that its name says."""
    if path.suffix == ".parquet":
        yield from table_rows(path, schemas[path.name])
    elif path.suffix == ".jsonl":
        yield from (value for _, value in json_lines(path))
    elif path.suffix == ".pt":
        yield from _samples(path)
    else:
        try:
            yield strict_json(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise UnreadableFile(path.name, f"cannot be read ({error})") from None


def _samples(path: Path) -> Iterator[Any]:
    data = load_plain(path)
    number = path.stem.removeprefix("rollout_")
    if not isinstance(data, dict) or data.keys() != {"rollout_id", "samples"} or repr(data["rollout_id"]) != number:
        raise UnreadableFile(path.name, f"is not the samples of rollout {number} alone")
    if not isinstance(data["samples"], list):
        raise UnreadableFile(path.name, "has no list of samples")
    yield from data["samples"]
