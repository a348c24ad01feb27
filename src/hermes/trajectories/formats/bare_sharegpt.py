"""The founding ShareGPT row and nothing else: `conversations`, `tools` and `source`; a turn is `from` and `value`.

What a row says besides stands in `sharegpt.rows.jsonl`, line by line: the marks of its turns, its id, `on_policy` and its origin. Both
lines together are the usual row, so the ledger is that of the usual rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.trajectories.formats.files import spaced_json

FOUNDING_KEYS = ("conversations", "tools", "source")
ROWS_FILE_NAME = "sharegpt.rows.jsonl"


def bare_lines(line: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return the founding row of a usual row, and the line of everything else."""
    turns = line["conversations"]
    bare = {key: line[key] for key in FOUNDING_KEYS} | {"conversations": [{"from": turn["from"], "value": turn["value"]} for turn in turns]}
    rest = {"train": [turn["train"] for turn in turns]} | {key: value for key, value in line.items() if key not in FOUNDING_KEYS}
    return spaced_json(bare).encode("ascii") + b"\n", spaced_json(rest).encode("ascii") + b"\n"
