"""verl: `rows.jsonl`, one `AgentLoopOutput` a line (read it with `AgentLoopOutput.model_validate_json`).

The ledger's `row` is a line: its tokens are `prompt_ids` + `response_ids`, trained where `response_mask` is 1. The prompt is everything
before the first trained token, including earlier replies that are trained in another line; after it, tokens of tools and users have
mask 0 and logprob 0.0. verl has no weights, so tokens shared by several samples come in several lines (see `unweighted_rows`).

`reward_score` is the rollout's reward, and null if none was annotated. One null makes verl compute the rewards of the whole batch itself,
so do not mix both. Annotations of single responses are in `extra_fields.hermes`. `num_turns` counts the messages up to the last reply.
Hermes cuts nothing: set `data.max_prompt_length` and `data.max_response_length` to the longest prompt and response of the export, because
verl fails on a longer one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hermes.trajectories.formats.files import LineFile
from hermes.trajectories.formats.parquet import arrays
from hermes.trajectories.formats.unweighted_rows import provenance, unweighted_rows
from hermes.trajectories.ledger import Placement, dump
from hermes.trajectories.plan import ExportSettings, RolloutPlan, SessionPlan
from hermes.trajectories.rows import Row

FILE_NAME = "rows.jsonl"


class VerlWriter:
    """Streams lines into one file."""

    untrained = "not written by this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:  # noqa: ARG002  # every writer takes the settings
        self._file = LineFile(folder, FILE_NAME, has_rows=True)
        self.files = (self._file,)
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        for rollout in plan.rollouts:
            for row in unweighted_rows(rollout):
                self._file.write(dump(record(self.rows, row, rollout)))
                for call in row.calls:
                    yield Placement(call, {"row": self.rows, "start": call.start, "end": call.end})
                self.rows += 1

    def close(self) -> None:
        self._file.close()


def record(number: int, row: Row, rollout: RolloutPlan) -> dict[str, Any]:
    """Return one AgentLoopOutput as JSON values."""
    tokens = np.frombuffer(row.tokens, np.int32).tolist()
    columns = arrays(row)
    start = row.calls[0].start
    return {
        "prompt_ids": tokens[:start],
        "response_ids": tokens[start:],
        "response_mask": columns["mask"][start:].astype(int).tolist(),
        "response_logprobs": columns["logprobs"][start:].tolist(),
        "reward_score": row.calls[0].rollout_reward,
        "num_turns": row.calls[-1].response.index + 1,
        "metrics": {},
        "extra_fields": {
            "reward_extra_info": {},  # verl requires it in every row with a reward, with the same keys everywhere
            **_steps(row),
            "hermes": {**provenance(row, rollout), "row": number},
        },
    }


def _steps(row: Row) -> dict[str, int]:
    """Return the first and last training step whose weights sampled here, if all policy versions are numbers."""
    versions = [version for call in row.calls for version, _, _ in call.policy_spans]
    if not all(version.isdecimal() and len(version) < 19 for version in versions):
        return {}
    steps = [int(version) for version in versions]
    return {"min_global_steps": min(steps), "max_global_steps": max(steps)}
