"""What several graphs of one document hold, written once: a chat that is a fork of its graph has most of it.

    messages     {"same": [first, count]}: messages of earlier graphs, counted over all messages of the document
    overlays     {"same": n}: overlay n of those that are written whole
    responses    {"at", "same": n}: the sample of response n, counted over all responses of the document, at another place
    prompts      as `prompt_deltas` writes them, by the same numbers of responses

Knows how parts are named, not how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes.graph.call import CallRecord
from hermes.graph.context import Overlay
from hermes.graph.errors import CodecError
from hermes.graph.history import Sample
from hermes.graph.message import compact_json
from hermes.graph.node import Node
from hermes.graph.prompt_deltas import PromptReader, PromptWriter


class SharedPartsWriter:
    """Remembers what the graphs written so far hold. Parts are given in the order of the document."""

    def __init__(self, *, are_messages_shared: bool) -> None:
        self._are_messages_shared = are_messages_shared
        """False for a document of one graph: then there is nothing to compare messages with."""
        self._messages: dict[str, int] = {}
        self._message_count = 0
        self._overlays: dict[str, int] = {}
        self._responses: dict[str, list[tuple[int, Sample]]] = {}
        self._response_count = 0
        self._prompts = PromptWriter()

    def messages(self, nodes: Sequence[Node], written: Sequence[Any]) -> list[Any]:
        """Return the messages of a graph as they stand in the document; `written` is each of them in full."""
        if not self._are_messages_shared:
            return list(written)
        texts = [compact_json(each) for each in written]
        out: list[Any] = []
        end = -1
        for text, each in zip(texts, written, strict=True):
            known = self._messages.get(text)
            if known is None:
                out.append(each)
            elif known == end:
                out[-1]["same"][1] += 1
            else:
                out.append({"same": [known, 1]})
            end = known + 1 if known is not None else -1
        for number, text in enumerate(texts, self._message_count):
            self._messages.setdefault(text, number)
        self._message_count += len(nodes)
        return out

    def overlay(self, text: str, written: dict[str, Any]) -> dict[str, Any]:
        """Return an overlay as it stands in the document; `text` is its JSON."""
        known = self._overlays.get(text)
        if known is not None:
            return {"same": known}
        self._overlays[text] = len(self._overlays)
        return written

    def response(self, sample: Sample) -> int | None:
        """Return the number of an earlier response with the same sample, if there is one. Call it once for every response."""
        number = self._response_count
        self._response_count += 1
        same_name = self._responses.setdefault(sample.sample_id, [])
        for known, other in same_name:
            if _is_same_sample(sample, other):
                return known
        same_name.append((number, sample))
        return None

    def call(self, record: CallRecord) -> dict[str, Any]:
        """Return the call of the response that was given last."""
        call = record.without_prompt()
        if record.prompt_token_ids is not None:
            number = self._response_count - 1
            call["prompt_token_ids"] = self._prompts.write(number, record.prompt_token_ids, record.token_ids)
        return call


class SharedPartsReader:
    """Finds the parts that a document names by number. The caller notes every part in the order of the document."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._used: set[int] = set()
        """The ids of the shared nodes in the graph that is being read."""
        self._overlays: list[Overlay] = []
        self._samples: list[Sample] = []
        self._prompts = PromptReader()

    def nodes(self, value: Any, path: str) -> list[Node]:
        """Return messages of earlier graphs. Within one graph, every slot has a node object of its own."""
        if not isinstance(value, list) or len(value) != 2:
            raise CodecError(path, "expected [first, count]")
        first = check_number(value[0], path, len(self._nodes))
        count = check_number(value[1], path, len(self._nodes) - first + 1)
        found = self._nodes[first : first + count]
        for at, node in enumerate(found):
            if id(node) in self._used:
                found[at] = node.twin()
            self._used.add(id(node))
        return found

    def note_nodes(self, nodes: Sequence[Node]) -> None:
        """Note all messages of a graph."""
        self._nodes += nodes
        self._used.clear()

    def overlay(self, value: Any, path: str) -> Overlay:
        return self._overlays[check_number(value, path, len(self._overlays))]

    def note_overlay(self, overlay: Overlay) -> None:
        self._overlays.append(overlay)

    def response(self, value: Any, place: int, index: int, path: str) -> Sample:
        """Return an earlier response's sample at another place."""
        sample = self._samples[check_number(value, path, len(self._samples))]
        return replace(sample, head=place, index=index)

    def note_response(self, sample: Sample) -> None:
        if sample.call is not None:
            self._prompts.note(len(self._samples), sample.call.prompt_token_ids, sample.call.token_ids)
        self._samples.append(sample)

    def call(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a call with its whole prompt; raise CallError if the prompt refers to tokens that the document does not have."""
        if "prompt_token_ids" not in value:
            return value
        return {**value, "prompt_token_ids": self._prompts.read(value["prompt_token_ids"], "call.prompt_token_ids")}


def _is_same_sample(one: Sample, other: Sample) -> bool:
    if one.overlay != other.overlay or one.is_recorded != other.is_recorded or (one.is_recorded and one.sealed != other.sealed):
        return False
    return one.call is other.call or one.call == other.call


def check_number(value: Any, path: str, limit: int) -> int:
    """Return `value` if it is a whole number under `limit`; raise CodecError if it is not."""
    if type(value) is not int or not 0 <= value < limit:
        raise CodecError(path, f"expected a whole number under {limit}, got {value!r:.40}")
    return value
