"""Rows: read one trajectory of a file into messages, and write it in the same shape after compression.

Shapes: ShareGPT (the common one, hermes-agent's, our own), OpenAI fine-tuning, and message graphs. A row that is not compressed keeps
its bytes. Read it in this order: change, sharegpt, openai, graph."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hermes.graph import MessageGraph
from hermes.graph.codec import FORMAT
from hermes.trajectories.compress.result import CompactionResult
from hermes.trajectories.compress.rows.change import RewrittenRow
from hermes.trajectories.compress.rows.graph import GraphRow
from hermes.trajectories.compress.rows.openai import OpenAiRow
from hermes.trajectories.compress.rows.sharegpt import read_sharegpt
from hermes.trajectories.foreign_sharegpt import BadRow


class TrajectoryRow(Protocol):
    """One trajectory of a file."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages to count. Needs no graph: most rows are short enough and are not compressed."""
        ...

    @property
    def tools(self) -> Sequence[Any]: ...

    def chat(self) -> MessageGraph:
        """Return the graph to compress; raise BadRow if the row cannot be one."""
        ...

    def rewrite(self, chat: MessageGraph, result: CompactionResult, metrics: Mapping[str, Any] | None) -> RewrittenRow:
        """Return the row after its graph was compressed; with `metrics` in it, if the shape has room for them."""
        ...


def parse_row(raw: bytes) -> dict[str, Any]:
    """Return the JSON object of a row; raise BadRow if it is none."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise BadRow(f"expected an object, got {type(value).__name__}")
    return value


def read_row(raw: bytes, value: dict[str, Any]) -> TrajectoryRow:
    """Read a row of any shape; `value` is its parsed JSON. Raises BadRow, which says why, if no shape fits."""
    if value.get("format") == FORMAT:
        return GraphRow(raw, value)
    if "messages" in value:
        return OpenAiRow(raw, value)
    return read_sharegpt(raw, value)
