"""Chats attached to messages: snapshots to any depth, their samples never lost, no cycles."""

import json
from typing import Any

import pytest

from hermes import CycleError, MessageGraph


def tool(chat: Any, text: str = "out") -> dict[str, Any]:
    return {"role": "tool", "content": text, "metadata": {"chat": chat}}


def agent(*texts: str) -> MessageGraph:
    chat = MessageGraph([{"role": "user", "content": "go"}])
    for text in texts:
        chat.append({"role": "assistant", "content": text})
    return chat


def contents(graph: MessageGraph) -> list[str]:
    return [response.message["content"] for response in graph.responses()]


def test_an_attached_chat_is_a_snapshot_that_reads_as_a_list() -> None:
    inner = agent("one")
    chat = MessageGraph([tool(inner)])
    inner.append({"role": "assistant", "content": "two"})
    attached = chat[0]["metadata"]["chat"]
    assert (attached, chat[0]["metadata"]["length"]) == (list(agent("one")), 2)
    assert json.loads(json.dumps(list(chat)))[0]["metadata"]["chat"] == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "one"},
    ]
    assert contents(attached.graph) == ["one"]
    attached.graph.append({"role": "assistant", "content": "elsewhere"})
    assert contents(chat) == ["one"]


def test_a_plain_list_can_be_attached_and_has_no_samples() -> None:
    chat = MessageGraph([tool([{"role": "assistant", "content": "said"}])])
    assert (contents(chat), chat[0]["metadata"]["length"]) == ([], 1)


def test_nested_samples_are_found_at_any_depth_and_once() -> None:
    deepest = agent("deep")
    chat = deepest
    for level in range(50):
        chat = MessageGraph([tool(chat, f"level {level}")])
        chat.append({"role": "assistant", "content": f"answer {level}"})
    assert contents(chat) == [*(f"answer {level}" for level in range(49, -1, -1)), "deep"]
    chat.append(tool(deepest))
    assert contents(chat).count("deep") == 1
    assert MessageGraph.from_json(chat.to_json()).to_json() == chat.to_json()


@pytest.mark.parametrize(
    "remove",
    [
        lambda chat: chat.__delitem__(1),
        lambda chat: chat.__setitem__(1, {"role": "tool", "content": "out"}),
        lambda chat: chat[1].pop("metadata"),
        lambda chat: chat[1].__setitem__("metadata", {"note": "gone"}),
        lambda chat: chat[1].__setitem__("metadata", {"chat": agent()}),
        lambda chat: chat.compact(slice(0, 2), "short"),
        lambda chat: chat.clear(),
    ],
)
def test_losing_a_message_with_a_sampled_chat_keeps_the_version(remove: Any) -> None:
    chat = MessageGraph([{"role": "user", "content": "a"}, tool(agent("inner")), {"role": "user", "content": "b"}])
    remove(chat)
    assert (len(chat.versions), contents(chat)) == (2, ["inner"])


@pytest.mark.parametrize(
    "keep",
    [
        lambda chat: chat[0].update(content="edited"),
        lambda chat: chat.insert(0, {"role": "user", "content": "new"}),
        lambda chat: chat.reverse(),
        lambda chat: chat[1].update(content="another output"),
        lambda chat: chat[1].__setitem__("metadata", {**chat[1]["metadata"], "note": "more"}),
        lambda chat: chat.__setitem__(1, chat[1]),
    ],
)
def test_an_edit_that_leaves_the_chat_attached_keeps_nothing(keep: Any) -> None:
    chat = MessageGraph([{"role": "user", "content": "a"}, tool(agent("inner")), {"role": "user", "content": "b"}])
    keep(chat)
    assert (len(chat.versions), contents(chat)) == (1, ["inner"])


def test_a_chat_without_samples_leaves_no_trace() -> None:
    chat = MessageGraph([tool(agent())])
    chat.clear()
    assert len(chat.versions) == 1


def test_a_chat_cannot_contain_itself() -> None:
    chat, inner = agent("one"), agent("two")
    with pytest.raises(CycleError, match=r"attach chat\.fork"):
        chat.append(tool(chat))
    inner.append(tool(chat))
    with pytest.raises(CycleError):
        chat.append(tool(inner))
    with pytest.raises(CycleError):
        chat.append(inner[-1] | {"metadata": {"chat": inner[-1]["metadata"]["chat"]}})
    assert (len(chat), len(chat.versions)) == (2, 1)
    chat.append(tool(chat.fork()))  # a subagent that went on from here is another chat with the same samples
    assert contents(chat) == ["one"]


def test_edges_lead_into_the_subagent_and_back() -> None:
    inner = agent("one")
    chat = MessageGraph([{"role": "user", "content": "a"}, tool(inner)], seed="s")
    edges = list(chat.edges())
    assert [edge.kind for edge in edges] == ["sequential", "sequential", "subagent_call", "subagent_return", "sequential", "sequential"]
    call, back = edges[2], edges[3]
    assert (back.source, back.target, call.source) == (inner.head, chat.head, edges[0].target)
