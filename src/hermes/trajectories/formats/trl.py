"""TRL's SFTTrainer, pre-tokenised: `rows.parquet` with `input_ids` and `labels`; TRL does not read the other columns.

The ledger's `row` is a row of the file: its tokens are `input_ids`, trained where `labels` is not -100. TRL has no weights, so tokens
shared by several samples come in several rows (see `unweighted_rows`). The model shifts labels
by one, so a reply to an empty prompt would be trained from its second token on.

Set `max_length=None`: by default TRL cuts rows at 1,024 tokens and drops rows left without a label. Hermes cuts nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hermes.trajectories.formats.files import RowGroups
from hermes.trajectories.formats.parquet import FILE_NAME, IGNORED_LABEL, arrays, policy_spans
from hermes.trajectories.formats.unweighted_rows import unweighted_rows
from hermes.trajectories.ledger import Placement
from hermes.trajectories.plan import ExportSettings, RolloutPlan, SessionPlan
from hermes.trajectories.rows import Row

# No column may be called seq_lengths: TRL uses that name for packing.
SCHEMA = pa.schema(
    [
        ("input_ids", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int64())),
        ("session", pa.string()),
        ("rollout", pa.string()),
        ("row", pa.int32()),
        ("tokenizer", pa.string()),
        ("logprobs", pa.list_(pa.float32())),
        ("weight", pa.list_(pa.float32())),
        ("advantages", pa.list_(pa.float32())),
        ("reward", pa.float64()),
        ("loss_scale", pa.float64()),
        ("on_policy", pa.bool_()),
        ("samples", pa.list_(pa.string())),
        ("policy_spans", pa.list_(pa.struct([("version", pa.string()), ("start", pa.int32()), ("end", pa.int32())]))),
    ]
)


class TrlWriter:
    """Streams rows into one file."""

    untrained = "not written by this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:  # noqa: ARG002  # every writer takes the settings
        self._file = RowGroups(folder, FILE_NAME, SCHEMA)
        self.files = (self._file,)
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        for rollout in plan.rollouts:
            for row in unweighted_rows(rollout):
                self._file.add(record(self.rows, row, rollout), row.length)
                for call in row.calls:
                    yield Placement(call, {"row": self.rows, "start": call.start, "end": call.end})
                self.rows += 1

    def close(self) -> None:
        self._file.close()


def record(number: int, row: Row, rollout: RolloutPlan) -> dict[str, Any]:
    """Return one row as a dict of columns."""
    tokens = np.frombuffer(row.tokens, np.int32)
    columns = arrays(row)
    return {
        "input_ids": tokens,
        "labels": np.where(columns["mask"], tokens, IGNORED_LABEL).astype(np.int64),
        "session": row.session,
        "rollout": row.rollout,
        "row": number,
        "tokenizer": row.tokenizer,
        "logprobs": columns["logprobs"],
        "weight": columns["weight"],
        "advantages": columns["advantages"],
        "reward": row.calls[0].rollout_reward,
        "loss_scale": rollout.loss_scale,
        "on_policy": all(call.on_policy for call in row.calls),
        "samples": [call.sample_id for call in row.calls],
        "policy_spans": [span for call in row.calls for span in policy_spans(call)],
    }
