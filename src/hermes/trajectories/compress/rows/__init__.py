"""Rows: one trajectory as it stands in a file, read into messages and written again in the same shape once they are compressed.

Shapes: ShareGPT (everybody's, hermes-agent's, our own), OpenAI fine-tuning, and message graphs. Whatever is not compressed is never
written anew: its bytes are passed on. Read it in this order: change, sharegpt, openai, graph."""

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
        """What there is to count, without a graph: most rows are short enough, and need none."""
        ...

    @property
    def tools(self) -> Sequence[Any]: ...

    def chat(self) -> MessageGraph:
        """Return the graph to compress; raise BadRow if it is none."""
        ...

    def written(self, chat: MessageGraph, result: CompactionResult, metrics: Mapping[str, Any] | None) -> RewrittenRow:
        """Return the row after its graph was compressed; with `metrics` in it, where the shape has room for them."""
        ...


def parse_row(raw: bytes) -> dict[str, Any]:
    """Return a row as JSON; raise BadRow if it is no object."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise BadRow(f"expected an object, got {type(value).__name__}")
    return value


def read_row(raw: bytes, value: dict[str, Any]) -> TrajectoryRow:
    """Read a row of any shape, of which `value` is what it parses to; raise BadRow, which says why, if it is none."""
    if value.get("format") == FORMAT:
        return GraphRow(raw, value)
    if "messages" in value:
        return OpenAiRow(raw, value)
    return read_sharegpt(raw, value)
