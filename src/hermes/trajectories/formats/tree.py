"""Tree rows as Parquet: `tree.parquet`, one flattened trie for each rollout, each unique token once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hermes.trajectories.calls import TOKEN_BYTES
from hermes.trajectories.formats.files import RowGroups
from hermes.trajectories.ledger import Placement
from hermes.trajectories.plan import ExportSettings, RolloutPlan, SessionPlan
from hermes.trajectories.tree import Ints, TreePlan, TreeRun, tree_arrays, tree_plan

FILE_NAME = "tree.parquet"
SCHEMA = pa.schema(
    [
        ("session", pa.string()),
        ("rollout", pa.string()),
        ("row", pa.int32()),
        ("tokenizer", pa.string()),
        ("input_ids", pa.list_(pa.int32())),
        ("position_ids", pa.list_(pa.int32())),
        ("subtree_end", pa.list_(pa.int32())),
        ("parents", pa.list_(pa.int32())),
        ("token_index", pa.list_(pa.int32())),
        ("logprob", pa.list_(pa.float32())),
        ("advantage", pa.list_(pa.float32())),
        ("weight", pa.list_(pa.float32())),
        ("sample", pa.list_(pa.int32())),
        ("samples", pa.list_(pa.string())),
        ("reward", pa.float64()),
        ("loss_scale", pa.float64()),
        ("on_policy", pa.bool_()),
    ]
)


class TreeWriter:
    """Streams trees into one file."""

    untrained = "not written by this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:  # noqa: ARG002  # every writer takes the settings
        self._file = RowGroups(folder, FILE_NAME, SCHEMA, table_of=table_of)
        self.files = (self._file,)
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        for rollout in plan.rollouts:
            tree = tree_plan(rollout.calls)
            if tree is None:
                continue
            self._file.add(record(self.rows, tree, rollout), tree.length)
            for placed in tree.placed:
                yield Placement(placed.call, {"row": self.rows, "segments": [list(segment) for segment in placed.segments]})
            self.rows += 1

    def close(self) -> None:
        self._file.close()


class TreeRecord(NamedTuple):
    """What a row is made of when its group ends. It holds no calls: with them, a group would hold whole graphs in memory."""

    session: str
    rollout: str
    row: int
    tokenizer: str
    tokens: bytes
    runs: Sequence[TreeRun]
    segments: Sequence[tuple[int, int]]
    """The trained tokens, call by call."""
    sizes: Sequence[int]
    """How many tokens of each call are trained."""
    logprobs: bytes
    advantages: Sequence[float]
    samples: Sequence[str]
    reward: float | None
    loss_scale: float
    on_policy: bool


def record(number: int, tree: TreePlan, rollout: RolloutPlan) -> TreeRecord:
    calls = [placed.call for placed in tree.placed]
    return TreeRecord(
        tree.session,
        tree.rollout,
        number,
        tree.tokenizer,
        tree.tokens,
        tree.runs,
        [segment for placed in tree.placed for segment in placed.segments],
        [call.trained for call in calls],
        b"".join([call.logprobs[: call.trained * TOKEN_BYTES] for call in calls]),
        [call.effective_advantage for call in calls],
        [call.sample_id for call in calls],
        calls[0].rollout_reward,
        rollout.loss_scale,
        all(call.on_policy for call in calls),
    )


def table_of(rows: Sequence[TreeRecord]) -> Any:
    """Return trees as a table; the entry arrays hold one value for each trained token of each sample.

    The arrays of all rows are made at once: row by row, those of short sessions cost more than their tokens."""
    arrays = tree_arrays([row.runs for row in rows])
    token_ends = _ends([len(row.tokens) // TOKEN_BYTES for row in rows])
    entry_ends = _ends([len(row.logprobs) // TOKEN_BYTES for row in rows])
    sizes = np.array([size for row in rows for size in row.sizes], np.intp)
    columns = {
        "session": [row.session for row in rows],
        "rollout": [row.rollout for row in rows],
        "row": [row.row for row in rows],
        "tokenizer": [row.tokenizer for row in rows],
        "input_ids": _lists(token_ends, np.frombuffer(b"".join([row.tokens for row in rows]), np.int32)),
        "position_ids": _lists(token_ends, arrays.position_ids),
        "subtree_end": _lists(token_ends, arrays.subtree_end),
        "parents": _lists(token_ends, arrays.parents),
        "token_index": _lists(entry_ends, _places([segment for row in rows for segment in row.segments])),
        "logprob": _lists(entry_ends, np.frombuffer(b"".join([row.logprobs for row in rows]), np.float32)),
        "advantage": _lists(entry_ends, np.array([each for row in rows for each in row.advantages], np.float32).repeat(sizes)),
        "weight": _lists(entry_ends, np.ones(sizes.sum(), np.float32)),
        "sample": _lists(entry_ends, np.array([number for row in rows for number in range(len(row.sizes))], np.int32).repeat(sizes)),
        "samples": [row.samples for row in rows],
        "reward": [row.reward for row in rows],
        "loss_scale": [row.loss_scale for row in rows],
        "on_policy": [row.on_policy for row in rows],
    }
    return pa.Table.from_pydict(columns, schema=SCHEMA)


def _ends(lengths: Sequence[int]) -> Any:
    return pa.array([0, *accumulate(lengths)], pa.int32())


def _lists(ends: Any, values: Any) -> Any:
    return pa.ListArray.from_arrays(ends, pa.array(values))


def _places(segments: Sequence[tuple[int, int]]) -> Ints:
    """Return the places [start, end) of all segments, one after the other."""
    firsts, ends = np.array(segments, np.int32).reshape(-1, 2).T
    lengths = ends - firsts
    starts = lengths.cumsum(dtype=np.int32) - lengths
    places: Ints = (firsts - starts).repeat(lengths)
    places += np.arange(len(places), dtype=np.int32)
    return places
