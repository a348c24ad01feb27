"""Read tree rows (`tree.parquet`) and check each tree by itself: positions and subtree ends follow from the parents, each prefix occurs
once, and every branch ends in a trained token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hermes.trajectories.verify.exported_rows import ExportedTree, Ints, lengths_differ, table_rows

FILE_NAME = "tree.parquet"
PER_TOKEN = dict.fromkeys(("input_ids", "position_ids", "subtree_end", "parents"), pa.list_(pa.int32()))
PER_ENTRY = {
    **dict.fromkeys(("token_index", "sample"), pa.list_(pa.int32())),
    **dict.fromkeys(("logprob", "advantage", "weight"), pa.list_(pa.float32())),
}
_COLUMNS = {
    **PER_TOKEN,
    **PER_ENTRY,
    **dict.fromkeys(("session", "rollout", "tokenizer"), pa.string()),
    "row": pa.int32(),
    "samples": pa.list_(pa.string()),
    **dict.fromkeys(("reward", "loss_scale"), pa.float64()),
    "on_policy": pa.bool_(),
}
_ORDER = (
    *("session", "rollout", "row", "tokenizer", "input_ids", "position_ids", "subtree_end", "parents", "token_index", "logprob"),
    *("advantage", "weight", "sample", "samples", "reward", "loss_scale", "on_policy"),
)
SCHEMA = pa.schema([(name, _COLUMNS[name]) for name in _ORDER])
"""The columns, in their order."""


def read_trees(folder: Path) -> Iterator[ExportedTree]:
    """Yield every tree in the order of the file. A tree whose shape is broken has no tokens and no entries, only faults."""
    for number, row in enumerate(table_rows(folder / FILE_NAME, SCHEMA)):
        known = {key: row[key] for key in ("session", "rollout", "tokenizer", "on_policy", "loss_scale")}
        faults = list(_tree_faults(number, row))
        if _is_broken(row):
            empty = np.empty(0, np.int32)
            yield ExportedTree(FILE_NAME, number, empty, empty, {}, **known, faults=faults)
            continue
        yield ExportedTree(FILE_NAME, number, row["input_ids"], row["parents"], _entries(row), **known, faults=faults)


def path_to(tree: ExportedTree, place: int) -> Ints:
    """Return the tokens from the root to a place, by the parents alone."""
    pieces = []
    while place >= 0:
        at = int(np.searchsorted(tree.breaks, place, side="right")) - 1
        start = int(tree.breaks[at]) if at >= 0 else 0
        pieces.append(tree.tokens[start : place + 1])
        place = int(tree.parents[start])
    return np.concatenate(pieces[::-1]) if pieces else np.empty(0, np.int32)


def _entries(row: Mapping[str, Any]) -> dict[str, Ints]:
    """Return for each sample the places of its trained tokens, in the order of the entries."""
    order = np.argsort(row["sample"], kind="stable")
    cuts = np.searchsorted(row["sample"][order], np.arange(1, len(row["samples"])))
    return dict(zip(row["samples"], np.split(row["token_index"][order], cuts), strict=True)) if row["samples"] else {}


def _is_broken(row: Mapping[str, Any]) -> bool:
    if lengths_differ(row, PER_TOKEN) or lengths_differ(row, PER_ENTRY):
        return True
    places, parents = np.arange(len(row["parents"])), row["parents"]
    within = (row["token_index"] >= 0) & (row["token_index"] < len(places))
    named = (row["sample"] >= 0) & (row["sample"] < len(row["samples"]))
    return bool((parents < -1).any() or (parents >= places).any() or not within.all() or not named.all())


def _tree_faults(number: int, row: Mapping[str, Any]) -> Iterator[str]:
    fault = lengths_differ(row, PER_TOKEN) or lengths_differ(row, PER_ENTRY)
    if fault is not None:
        yield fault
        return
    if row["row"] != number:
        yield f"says that it is row {row['row']}"
    if row["on_policy"] is None:
        yield "does not state on_policy"
    if len(set(row["samples"])) != len(row["samples"]):
        yield "names a sample twice"
    if not (row["weight"] == 1).all():
        yield f"entry {int(np.argmin(row['weight'] == 1))}: weight is not 1"
    if _is_broken(row):
        yield "parents, token_index or sample points outside the tree"
        return
    yield from _shape_faults(row)
    leaves = np.setdiff1d(np.arange(len(row["parents"])), row["parents"])
    untrained = np.setdiff1d(leaves, row["token_index"])
    if untrained.size:
        yield f"token {int(untrained[0])} ends a branch, but is not trained"


def _shape_faults(row: Mapping[str, Any]) -> Iterator[str]:
    positions, ends, fault = _shape(row["parents"])
    if fault is not None:
        yield fault
        return
    for name, expected in (("position_ids", positions), ("subtree_end", ends)):
        if not np.array_equal(row[name], expected):
            at = int(np.argmin(row[name] == expected))
            yield f"token {at}: {name} is {row[name][at]}, the parents give {expected[at]}"
    order = np.lexsort((row["input_ids"], row["parents"]))
    again = (np.diff(row["parents"][order]) == 0) & (np.diff(row["input_ids"][order]) == 0)
    if again.any():
        at = int(np.argmax(again))
        yield f"tokens {order[at]} and {order[at + 1]} are the same token after the same prefix"


def _shape(parents: Ints) -> tuple[Ints, Ints, str | None]:
    """Compute depth and subtree end of every token from the parents; or return a fault where they are not depth first."""
    size = len(parents)
    starts = np.flatnonzero(parents != np.arange(size) - 1).tolist()
    if size and (not starts or starts[0] != 0):
        starts.insert(0, 0)  # the first run of tokens: its parent is -1, which is also the place before it
    positions, ends = np.zeros(size, np.int32), np.full(size, size, np.int32)
    open_: list[tuple[int, int]] = []  # runs of tokens from the root to the current place
    for start, stop in zip(starts, [*starts[1:], size], strict=True):
        parent = int(parents[start])
        while open_ and open_[-1][0] > parent:
            ends[slice(*open_.pop())] = start
        if parent >= 0:
            if not open_ or parent >= open_[-1][1]:
                return positions, ends, f"token {start} follows token {parent}, whose subtree has ended"
            first, last = open_.pop()
            ends[parent + 1 : last] = start
            open_.append((first, parent + 1))
        depth = int(positions[parent]) + 1 if parent >= 0 else 0
        positions[start:stop] = np.arange(depth, depth + stop - start)
        open_.append((start, stop))
    return positions, ends, None
