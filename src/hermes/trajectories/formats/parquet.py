"""Canonical rows as Parquet: `rows.parquet`, one row for each leaf of the token trie, with every column that a trainer may need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hermes.trajectories.calls import SampledCall
from hermes.trajectories.formats.files import RowGroups
from hermes.trajectories.ledger import Placement
from hermes.trajectories.plan import ExportSettings, RolloutPlan, SessionPlan
from hermes.trajectories.rows import Row

FILE_NAME = "rows.parquet"
IGNORED_LABEL = -100
"""The label that trainers skip."""

SCHEMA = pa.schema(
    [
        ("session", pa.string()),
        ("rollout", pa.string()),
        ("row", pa.int32()),
        ("tokenizer", pa.string()),
        ("input_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.bool_())),
        ("labels", pa.list_(pa.int64())),
        ("logprobs", pa.list_(pa.float32())),
        ("weight", pa.list_(pa.float32())),
        ("advantages", pa.list_(pa.float32())),
        ("position_ids", pa.list_(pa.int32())),
        ("parent_row", pa.int32()),
        ("shared_prefix", pa.int32()),
        ("reward", pa.float64()),
        ("loss_scale", pa.float64()),
        ("on_policy", pa.bool_()),
        ("path", pa.list_(pa.string())),
        ("policy_spans", pa.list_(pa.struct([("version", pa.string()), ("start", pa.int32()), ("end", pa.int32())]))),
    ]
)


class ParquetWriter:
    """Streams canonical rows into one file."""

    untrained = "not written by this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:  # noqa: ARG002  # every writer takes the settings
        self._file = RowGroups(folder, FILE_NAME, SCHEMA, ("row", "parent_row"))
        self.files = (self._file,)
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        for rollout in plan.rollouts:
            first_row = self.rows
            for row in rollout.rows:
                self._file.add(record(self.rows, row, rollout, first_row), row.length)
                for call in row.calls:
                    yield Placement(call, {"row": self.rows, "start": call.start, "end": call.end})
                self.rows += 1

    def close(self) -> None:
        self._file.close()


def record(number: int, row: Row, rollout: RolloutPlan, first_row: int) -> dict[str, Any]:
    """Return one canonical row as a dict of columns. `first_row` is the number of the rollout's first row."""
    tokens = np.frombuffer(row.tokens, np.int32)
    columns = arrays(row)
    return {
        "session": row.session,
        "rollout": row.rollout,
        "row": number,
        "tokenizer": row.tokenizer,
        "input_ids": tokens,
        "loss_mask": columns["mask"],
        "labels": np.where(columns["mask"], tokens, np.int64(IGNORED_LABEL)),
        "logprobs": columns["logprobs"],
        "weight": columns["weight"],
        "advantages": columns["advantages"],
        "position_ids": np.arange(row.length, dtype=np.int32),
        "parent_row": first_row + row.parent if row.parent >= 0 else -1,
        "shared_prefix": row.shared,
        "reward": row.calls[0].rollout_reward if row.calls else None,
        "loss_scale": rollout.loss_scale,
        "on_policy": all(call.on_policy for call in row.calls),
        "path": [call.response_id for call in row.path],
        "policy_spans": [span for call in row.calls for span in policy_spans(call)],
    }


def arrays(row: Row) -> dict[str, Any]:
    """Return mask, weight, logprob and advantage of each token of a row; all are 0 where the token is not trained."""
    weight, logprobs, advantages = np.zeros((3, row.length), np.float32)
    for call in row.calls:
        span = slice(call.start, call.end)
        weight[span] += 1
        logprobs[span] = np.frombuffer(call.logprobs, np.float32)[: call.trained]
        advantages[span] = call.effective_advantage
    return {"mask": weight > 0, "weight": weight, "logprobs": logprobs, "advantages": advantages}


def policy_spans(call: SampledCall) -> Iterator[dict[str, Any]]:
    """Yield the policy versions of a call's trained tokens, in tokens of the row."""
    for version, start, end in call.policy_spans:
        if start < min(end, call.trained):
            yield {"version": version, "start": call.start + start, "end": call.start + min(end, call.trained)}
