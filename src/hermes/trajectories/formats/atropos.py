"""Atropos: `groups.jsonl`, one `ScoredDataGroup` a line, ready to be posted to `/scored_data`.

A group is all rows of one session in one tokenizer. The ledger's `row` counts the rows of all groups, in order: a row's tokens are
`tokens[i]`, trained where `masks[i]` is not -100. Atropos has no weights, so tokens shared by several samples come in several rows
(see `unweighted_rows`).

`scores` are the rollout's rewards, 0.0 if none was annotated (Atropos takes no null; `overrides[i].hermes.reward` is null then).
`advantages` are per token, 0.0 where the token is not trained; `inference_logprobs` are 1.0 there, as Atropos writes them. Hermes cuts
nothing: register a trainer with `max_token_len` at the longest row. Atropos' server batches groups of different sizes only if several of
one size add up to the largest; if they do not, post each row as a group of its own (docs/how-to/atropos.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hermes.trajectories.formats.files import LineFile
from hermes.trajectories.formats.parquet import IGNORED_LABEL, arrays
from hermes.trajectories.formats.unweighted_rows import provenance, unweighted_rows
from hermes.trajectories.ledger import Placement, dump
from hermes.trajectories.plan import ExportSettings, RolloutPlan, SessionPlan
from hermes.trajectories.rows import Row

FILE_NAME = "groups.jsonl"
UNTRAINED_LOGPROB = 1.0
"""Marks a token that is not trained: no logprob can be 1."""


class AtroposWriter:
    """Streams groups into one file."""

    untrained = "not written by this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:  # noqa: ARG002  # every writer takes the settings
        self._file = LineFile(folder, FILE_NAME)
        self.files = (self._file,)
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        for tokenizer in dict.fromkeys(rollout.tokenizer for rollout in plan.rollouts):
            rows = [(row, rollout) for rollout in plan.rollouts if rollout.tokenizer == tokenizer for row in unweighted_rows(rollout)]
            if rows:
                self._file.write(dump(group(plan.session.name, tokenizer, rows)))
            for row, _ in rows:
                for call in row.calls:
                    yield Placement(call, {"row": self.rows, "start": call.start, "end": call.end})
                self.rows += 1

    def close(self) -> None:
        self._file.close()


def group(session: str, tokenizer: str, rows: list[tuple[Row, RolloutPlan]]) -> dict[str, Any]:
    """Return one ScoredDataGroup as JSON values."""
    out: dict[str, Any] = {
        "tokens": [],
        "masks": [],
        "scores": [],
        "advantages": [],
        "inference_logprobs": [],
        "overrides": [],
        "group_overrides": {"hermes": {"session": session, "tokenizer": tokenizer}},
    }
    for row, rollout in rows:
        tokens = np.frombuffer(row.tokens, np.int32)
        columns = arrays(row)
        mask = columns["mask"]
        out["tokens"].append(tokens.tolist())
        out["masks"].append(np.where(mask, tokens, IGNORED_LABEL).tolist())
        out["scores"].append(row.calls[0].rollout_reward or 0.0)
        out["advantages"].append(columns["advantages"].tolist())
        out["inference_logprobs"].append(np.where(mask, columns["logprobs"], np.float32(UNTRAINED_LOGPROB)).tolist())
        out["overrides"].append({"hermes": provenance(row, rollout)})
    return out
