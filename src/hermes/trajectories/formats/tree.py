"""Tree rows as Parquet: `tree.parquet`, one flattened trie for each rollout, each unique token once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hermes.trajectories.calls import TOKEN_BYTES
from hermes.trajectories.formats.files import RowGroups
from hermes.trajectories.ledger import Placement
from hermes.trajectories.plan import ExportSettings, RolloutPlan, SessionPlan
from hermes.trajectories.tree import TreeRow, tree_row

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
        self._file = RowGroups(folder, FILE_NAME, SCHEMA)
        self.files = (self._file,)
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        for rollout in plan.rollouts:
            tree = tree_row(rollout.calls)
            if tree is None:
                continue
            self._file.add(record(self.rows, tree, rollout), len(tree.tokens))
            for placed in tree.placed:
                yield Placement(placed.call, {"row": self.rows, "segments": [list(segment) for segment in placed.segments]})
            self.rows += 1

    def close(self) -> None:
        self._file.close()


def record(number: int, tree: TreeRow, rollout: RolloutPlan) -> dict[str, Any]:
    """Return one tree as a dict of columns; the entry arrays hold one value for each trained token of each sample."""
    index = [np.arange(start, end, dtype=np.int32) for placed in tree.placed for start, end in placed.segments]
    calls = [placed.call for placed in tree.placed]
    sizes = [call.trained for call in calls]
    logprobs = b"".join([call.logprobs[: call.trained * TOKEN_BYTES] for call in calls])
    return {
        "session": tree.session,
        "rollout": tree.rollout,
        "row": number,
        "tokenizer": tree.tokenizer,
        "input_ids": tree.tokens,
        "position_ids": tree.position_ids,
        "subtree_end": tree.subtree_end,
        "parents": tree.parents,
        "token_index": np.concatenate(index),
        "logprob": np.frombuffer(logprobs, np.float32),
        "advantage": np.repeat(np.asarray([call.effective_advantage for call in calls], np.float32), sizes),
        "weight": np.ones(sum(sizes), np.float32),
        "sample": np.repeat(np.arange(len(calls), dtype=np.int32), sizes),
        "samples": [call.sample_id for call in calls],
        "reward": calls[0].rollout_reward,
        "loss_scale": rollout.loss_scale,
        "on_policy": all(call.on_policy for call in calls),
    }
