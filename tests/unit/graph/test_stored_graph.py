"""The seam for stores: a graph out of its parts, and going on with one that was not read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hermes import CallRecord, MessageError, MessageGraph, Overlay
from hermes.graph.codec import encode_call, encode_graph, encode_node
from hermes.graph.message import compact_json, freeze
from hermes.graph.node import attached_chats
from hermes.graph.stored_graph import (
    LazySample,
    StoredVersion,
    continue_graph,
    freeze_trusted,
    history_of,
    restore_chat,
    restore_graph,
    restore_node,
)
from tests.unit.graph.sessions import TOOLS, rich_session


def taken_apart_and_revived(graph: MessageGraph) -> MessageGraph:
    history = history_of(graph)
    numbers: dict[int, int] = {}
    chats = []
    for chat in attached_chats(history.all_nodes()):
        chats.append(restore_chat(json.loads(compact_json(encode_graph(chat.history, numbers))), chats))
        numbers[id(chat.history)] = len(numbers)
    nodes = {
        id(node): restore_node(json.loads(compact_json(encode_node(node, numbers))), node.digest, chats) for node in history.all_nodes()
    }

    def twins(originals):
        return tuple(nodes[id(node)] for node in originals)

    heads = []
    for delta, edge in zip(history.deltas, history.edges, strict=True):
        hunks = [hunk._replace(nodes=twins(hunk.nodes)) for hunk in delta.hunks]
        heads.append(StoredVersion(*edge, replace(delta, end=twins(delta.end), hunks=hunks)))
    samples = [
        LazySample.of(
            sample.head,
            sample.index,
            sample.sample_id,
            sample.overlay,
            history.seal(sample),
            unread=compact_json(encode_call(sample.call, sample)).encode(),
        )
        if sample.call is not None
        else sample
        for sample in history.settle()
    ]
    notes = ((response, note) for response, notes in history.annotations.items() for note in notes)
    live, erased = history.live, history.erased
    return restore_graph(graph.seed, twins(history.nodes), heads=heads, live=live, samples=samples, annotations=notes, erased=erased)


@pytest.mark.parametrize("is_redacted", [False, True])
def test_a_graph_out_of_its_parts_is_the_same_graph_and_goes_on_as_it_would(is_redacted: bool) -> None:
    graph = rich_session()
    if is_redacted:
        graph.redact(2)
        graph.redact({"role": "assistant", "content": "deepest answer"})
    twin = taken_apart_and_revived(graph)
    assert twin.to_json() == graph.to_json()
    assert twin.verify().status == ("redacted" if is_redacted else "ok")
    for one in (graph, twin):
        one.append({"role": "assistant", "content": "more"}, call=CallRecord(sample_id="more"))
        one[0]["content"] = "edited"
        one.annotate(next(one.responses()), reward=1)
    assert twin.to_json() == graph.to_json()


def test_a_continued_graph_gives_the_ids_that_the_whole_one_gives() -> None:
    whole = rich_session()
    end = continue_graph(whole.head, live=history_of(whole).live)
    messages = [
        ({"role": "user", "content": "on"}, None),
        ({"role": "assistant", "content": "yes"}, CallRecord(sample_id="on", tools=TOOLS)),
    ]
    length = len(whole)
    for graph in (whole, end):
        for message, call in messages:
            graph.append(message, call=call)
    [response] = end.responses()
    twin = next(twin for twin in whole.responses() if twin.sample_id == "on")
    assert (end.head, len(end), response.id, response.index + length) == (whole.head, 2, twin.id, twin.index)
    assert history_of(end).settle()[0].head == history_of(whole).live


def test_a_continued_graph_refuses_what_any_graph_refuses() -> None:
    with pytest.raises(MessageError):
        continue_graph("0" * 64, live=0).append({"role": "nobody"})


def test_a_call_is_read_when_it_is_asked_for_and_once() -> None:
    overlay, call = Overlay(tools=TOOLS), CallRecord(sample_id="1", tools=TOOLS, token_ids=[1, 2])
    sample = LazySample.of(0, 1, "1", overlay, "0" * 64, unread=b"")
    with pytest.raises(ValueError, match="Expecting value"):
        _ = sample.call
    sample.unread = compact_json(encode_call(call, sample_with(call, overlay))).encode()
    assert b"function" not in sample.unread
    assert (sample.call, sample.call is sample.call) == (call, True)
    moved = replace(sample, head=5)
    assert (moved.head, moved.index, moved.call) == (5, 1, call)
    with pytest.raises(AttributeError):
        _ = sample.nothing


def sample_with(call: CallRecord, overlay: Overlay) -> LazySample:
    sample = LazySample.of(0, 1, "1", overlay, "0" * 64, unread=b"")
    sample.call = call
    return sample


def test_freezing_our_own_json_gives_what_freezing_anybodys_gives() -> None:
    value = json.loads('{"a": [1, 1.5, true, null, {"b": []}], "c": "d"}')
    ours, theirs = freeze_trusted(value), freeze(value, "value")
    assert ours == theirs
    assert [type(part) for part in (ours, ours["a"], ours["a"][4], ours["a"][4]["b"])] == [
        type(part) for part in (theirs, theirs["a"], theirs["a"][4], theirs["a"][4]["b"])
    ]


def test_a_chat_whose_root_was_broken_is_stored_and_stays_broken() -> None:
    document = json.loads(rich_session().to_json())
    document["graphs"][-1]["length"] += 1
    graph = MessageGraph([{"role": "tool", "content": "t", "metadata": {"chat": MessageGraph.from_json(json.dumps(document))}}])
    assert taken_apart_and_revived(graph).verify() == graph.verify()
    assert graph.verify().status == "broken"


def test_what_a_store_knows_goes_along_with_copies_and_not_with_forks() -> None:
    graph, known = rich_session(), object()
    history_of(graph).base = known
    assert [history_of(twin).base for twin in (graph.copy(), graph.fork(), MessageGraph.from_json(graph.to_json()))] == [known, None, None]
