"""What the two files of bare ShareGPT rows hold: the founding keys of each usual row, and line by line everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes.graph import MessageGraph
from hermes.trajectories.verify.bare_sharegpt import FILE, ROWS_FILE
from hermes.trajectories.verify.expected import ExpectedSession
from hermes.trajectories.verify.expected_sharegpt import ExpectedShareGpt
from hermes.trajectories.verify.source_samples import SourceSample


class ExpectedBareShareGpt(ExpectedShareGpt):
    def files(self) -> Sequence[str]:
        return FILE, ROWS_FILE

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession:
        usual = ExpectedShareGpt.add(self, session, samples, graph)
        usual.values = [part for _, row in usual.values for part in _divide(row)]
        return usual


def _divide(row: dict[str, Any]) -> list[tuple[str, Any]]:
    turns = row["conversations"]
    rest = {key: value for key, value in row.items() if key not in ("conversations", "tools", "source")}
    bare = {
        "conversations": [{"from": turn["from"], "value": turn["value"]} for turn in turns],
        "tools": row["tools"],
        "source": row["source"],
    }
    return [(FILE, bare), (ROWS_FILE, {"train": [turn["train"] for turn in turns], **rest})]
