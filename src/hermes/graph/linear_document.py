"""Read the commonest graph of a document in one go: one list of messages with its responses, and nothing else.

No versions, attached chats, metadata, overlays, annotations or erased messages. Everything is checked as in `codec.py`, every digest and
id is computed, and so is the root; the result equals that of the whole reader. For any other graph, and for any fault, `read_linear`
returns None: the whole reader then reads the graph, and names the fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes.graph.call import CallRecord
from hermes.graph.errors import CallError, MessageError
from hermes.graph.history import EMPTY_OVERLAY, GraphHistory, Sample, response_id
from hermes.graph.message import METADATA, check_message, is_plain, refuse_change
from hermes.graph.node import Node, extend_ids, root_id
from hermes.graph.prompt_deltas import PromptReader
from hermes.graph.root import root_of_list
from hermes.graph.token_arrays import PromptDigests

_EMPTY: dict[str, Any] = {"versions": [], "edges": [], "overlays": [], "annotations": {}, "erased": []}
_FIELDS = {"seed", "length", "messages", "responses", *_EMPTY}
_RESPONSE_FIELDS = {"at", "sample_id", "call"}


def read_linear(graph: Any, root: str) -> GraphHistory | None:
    """Return the history of a graph that is one list and has this root; None for every other graph."""
    if type(graph) is not dict or graph.keys() != _FIELDS or any(graph[name] != empty for name, empty in _EMPTY.items()):
        return None
    seed, responses = graph["seed"], graph["responses"]
    try:
        nodes = _read_nodes(graph["messages"])
        samples = None if nodes is None else _read_samples(responses, nodes)
    except (MessageError, CallError):
        return None
    if type(seed) is not str or nodes is None or samples is None or type(graph["length"]) is not int or graph["length"] != len(nodes):
        return None
    if root_of_list(seed, nodes, samples) != root:
        return None
    ids = [root_id(seed)]
    extend_ids(ids, nodes, max([sample.index for sample in samples], default=0))
    for sample in samples:
        call = None if sample.call is None else sample.call.digest
        sample.sealed = response_id(ids[sample.index], sample.overlay, nodes[sample.index], sample.sample_id, call)
    history = GraphHistory(seed)
    history.load_list(nodes, samples, ids)
    history.root_read = root
    return history


def _read_nodes(messages: Any) -> list[Node] | None:
    if type(messages) is not list:
        return None
    nodes = []
    for message in messages:
        if is_plain(message):
            nodes.append(Node.digested(message))
        elif type(message) is dict and METADATA not in message:
            nodes.append(Node.digested(check_message(message, "", refuse_change)))
        else:
            return None
    return nodes


def _read_samples(responses: Any, nodes: Sequence[Node]) -> list[Sample] | None:
    if type(responses) is not list:
        return None
    prompts, digests = PromptReader(), PromptDigests()
    samples: dict[str, Sample] = {}
    for number, entry in enumerate(responses):
        if type(entry) is not dict or not entry.keys() <= _RESPONSE_FIELDS:
            return None
        index, sample_id = _index(entry.get("at"), len(nodes)), entry.get("sample_id")
        if index is None or type(sample_id) is not str or not sample_id or sample_id in samples:
            return None
        call = None
        if "call" in entry:
            if type(entry["call"]) is not dict:
                return None
            call = _read_call(entry["call"], sample_id, prompts)
            prompts.note(number, call.prompt_token_ids, call.token_ids)
            call.seal(digests)
        samples[sample_id] = Sample(0, index, sample_id, EMPTY_OVERLAY, call)
    return list(samples.values())


def _index(at: Any, length: int) -> int | None:
    """Return the index of a response in the only list."""
    if type(at) is not list or len(at) != 2 or type(at[0]) is not int or type(at[1]) is not int:
        return None
    return at[1] if at[0] == 0 and 0 <= at[1] < length else None


def _read_call(call: Mapping[str, Any], sample_id: str, prompts: PromptReader) -> CallRecord:
    fields = dict(call)
    if fields.get("sample_id") is True:
        fields["sample_id"] = sample_id
    if "prompt_token_ids" in fields:
        fields["prompt_token_ids"] = prompts.read(fields["prompt_token_ids"], "call.prompt_token_ids")
    return CallRecord.from_dict(fields)
