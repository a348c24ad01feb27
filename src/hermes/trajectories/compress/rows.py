"""Rows: read one trajectory of a file into messages, and write it in the same shape after compression.

Shapes: ShareGPT (the common one, hermes-agent's, our own; see `sharegpt_rows`), OpenAI fine-tuning, and message graphs. A row that is not
compressed keeps its bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hermes.graph import CodecError, GraphError, MessageGraph
from hermes.graph.codec import FORMAT
from hermes.trajectories.compress.compaction import CompactionResult
from hermes.trajectories.compress.row_change import RewrittenRow, change_of, replace_members
from hermes.trajectories.compress.sharegpt_rows import read_sharegpt
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


class OpenAiRow:
    """An OpenAI fine-tuning row: a list of messages. All keep their form, except summaries, which are new, and tool results that were cut.

    OpenAI's service refuses keys that it does not know, so nothing is added to the row: the metrics file says what is off-policy."""

    def __init__(self, raw: bytes, value: Mapping[str, Any]) -> None:
        messages = value["messages"]
        if not isinstance(messages, list) or not messages:
            raise BadRow("no messages in it")
        for index, message in enumerate(messages):
            if not isinstance(message, Mapping):
                raise BadRow(f"message {index} is not an object")
        tools = value.get("tools")
        self._raw, self._messages = raw, messages
        self.tools: Sequence[Any] = tools if isinstance(tools, list) else ()

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        return self._messages

    def chat(self) -> MessageGraph:
        try:
            return MessageGraph([_without_weight(message) for message in self._messages], seed="row")
        except GraphError as error:
            raise BadRow(str(error)) from None

    def rewrite(self, chat: MessageGraph, result: CompactionResult, metrics: Mapping[str, Any] | None) -> RewrittenRow:  # noqa: ARG002  # there is no room
        change = change_of([_without_weight(message) for message in self._messages], list(chat.versions[-1]))
        messages: list[Any] = []
        for place, origin in enumerate(change.origins):
            now = change.messages[place]
            if origin is None:
                messages.append({"role": now["role"], "content": now["content"]})
            elif place in change.changed:
                messages.append({**self._messages[origin], "content": now["content"]})
            else:
                messages.append(self._messages[origin])
        return RewrittenRow(replace_members(self._raw, {"messages": messages}), change.off_policy)


def _without_weight(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without its weight, which is not part of the conversation."""
    return {key: value for key, value in message.items() if key != "weight"}


class GraphRow:
    """A graph as JSON. Compression edits it, so the written graph holds both versions, and `hermes export` reads it directly.

    Its list is read from the document; the graph is built only if it has to be compressed."""

    def __init__(self, raw: bytes, value: Mapping[str, Any]) -> None:
        self._raw = raw
        self._messages, self._tools = _read_current_list(value) or _decode_current_list(raw)
        self._before: Sequence[Mapping[str, Any]] = ()

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        return self._messages

    @property
    def tools(self) -> Sequence[Any]:
        return self._tools

    def chat(self) -> MessageGraph:
        chat = _load_graph(self._raw)
        report = chat.verify()
        if not report:
            raise BadRow(f"the graph was altered after it was recorded ({report.problems[0]})")
        self._before = list(chat.versions[-1])
        return chat

    def rewrite(self, chat: MessageGraph, result: CompactionResult, metrics: Mapping[str, Any] | None) -> RewrittenRow:  # noqa: ARG002  # there is no room
        # The answers after the change are not samples of this version: they are trained in the version before, in their own context.
        # The list before is not always a version: if no model saw it, as after an earlier compression, the graph does not keep it.
        now = chat.versions[-1]
        sampled = {response.message.digest for response in chat.responses() if response.is_own}
        off_policy = [place for place in change_of(self._before, now).off_policy if now[place].digest in sampled]
        return RewrittenRow(chat.to_json().encode("ascii") + self._raw[len(self._raw.rstrip()) :], off_policy)


def _load_graph(raw: bytes) -> MessageGraph:
    try:
        return MessageGraph.from_json(raw)
    except CodecError as error:
        raise BadRow(f"not a message graph ({error})") from None


def _read_current_list(document: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], Sequence[Any]] | None:
    """Return the current list and the tools of its last response, read from the document; None if the graph must be decoded for that."""
    last: Mapping[str, Any]
    try:
        graph = document["graphs"][-1]
        messages = graph["messages"][: graph["length"]]
        sampled = [each for each in graph["responses"] if each["at"][0] == len(graph["versions"])]
        last = max(sampled, key=_response_index, default={})
        tools = graph["overlays"][last["overlay"]].get("tools") if "overlay" in last else ()
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    if len(messages) != graph["length"] or not all(isinstance(message, dict) and "role" in message for message in messages):
        return None
    return messages, tools or ()


def _response_index(response: Mapping[str, Any]) -> int:
    index: int = response["at"][1]
    return index


def _decode_current_list(raw: bytes) -> tuple[list[Mapping[str, Any]], Sequence[Any]]:
    chat = _load_graph(raw)
    own = [response for response in chat.responses() if response.is_own and response.version == len(chat.versions) - 1]
    return list(chat), (own[-1].overlay.tools or () if own else ())
