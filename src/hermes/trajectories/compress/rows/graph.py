"""Message graphs: compression edits the graph, so the written graph holds both versions. `hermes export` reads it directly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes.graph import CodecError, MessageGraph
from hermes.trajectories.compress.result import CompactionResult
from hermes.trajectories.compress.rows.change import RewrittenRow, change_of
from hermes.trajectories.foreign_sharegpt import BadRow


class GraphRow:
    """A graph as JSON. Its list is read from the document; the graph is built only if it has to be compressed."""

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
