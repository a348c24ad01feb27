"""The reader of one list agrees with the whole reader, on graphs and on damaged documents."""

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph
from hermes.graph.codec import decode_graph
from hermes.graph.errors import CallError, CodecError, MessageError
from hermes.graph.history import GraphHistory
from hermes.graph.linear_document import read_linear
from hermes.graph.root import root_of
from hermes.graph.shared_parts import SharedPartsReader
from tests.unit.graph.sessions import rich_session
from tests.unit.graph.test_codec import everything, mutate

TEXTS = st.text(max_size=12) | st.sampled_from(["plain", "", '"\\', "<think>", "é", "\ud83d", "\ud83d\ude00", "\x7f\n"])
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.lists(st.integers(0, 2**31 - 1), max_size=7)
LOGPROBS = st.lists(st.floats(-30, 0.0009765625, width=32) | st.sampled_from([0.0, -0.0, float("-inf"), -3e38]), max_size=7)
CALLS = st.fixed_dictionaries(
    {"token_ids": NUMBERS | st.none(), "logprobs": LOGPROBS, "raw_text": TEXTS | st.none(), "prompt_derived": st.booleans()},
    optional={
        "model": st.sampled_from(["m", "é"]),
        "sampling": st.just({"temperature": 1.0, "stop": ["\n"], "seed": 2**70}),
        "usage": st.just({"completion_tokens": 3}),
        "policy_spans": st.just([("step-1", 0, 2)]),
        "extra": st.just({"experts": [[1, 2]]}),
    },
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "tool"]), "content": TEXTS | st.none()},
    optional={"name": TEXTS, "tool_calls": st.just([{"id": "1", "function": {"name": "f", "arguments": "{}"}}])},
)


@st.composite
def lists(draw: st.DrawFn) -> MessageGraph:
    """A graph to which messages and responses were only appended."""
    chat = MessageGraph(seed=draw(NAMES))
    prompt: list[int] = []
    for number, (message, call) in enumerate(draw(st.lists(st.tuples(MESSAGES, CALLS | st.none()), max_size=5))):
        chat.append(message)
        prompt = prompt + draw(NUMBERS)
        if call is not None:
            answer = {"role": "assistant", "content": draw(TEXTS), "reasoning": draw(TEXTS)}
            chat.append(answer, call=CallRecord(**call, prompt_token_ids=prompt, sample_id=f"{number} {draw(NAMES)}"))
    return chat


def read_whole(graph: Any) -> GraphHistory | None:
    """Read a graph as the whole reader does, with the root that it now has; None if it is damaged."""
    try:
        history = decode_graph(graph, "graphs[0]", [], SharedPartsReader())
    except (CodecError, MessageError, CallError):
        return None
    history.root_read = root_of(history)
    return history


def opened(history: GraphHistory) -> Any:
    chat = MessageGraph._open(history)
    return everything(chat), chat.to_json(), chat.find_alteration(), history.root_read, [sample.is_recorded for sample in history.settle()]


@settings(max_examples=150, deadline=None)
@given(lists())
def test_a_list_is_read_as_the_whole_reader_reads_it(chat: MessageGraph) -> None:
    document = json.loads(chat.to_json())
    one, two = read_linear(document["graphs"][0], document["root"]), read_whole(document["graphs"][0])
    assert one is not None
    assert two is not None
    assert opened(one) == opened(two)
    assert everything(MessageGraph._open(one)) == everything(chat)
    assert one.root_read == document["root"]


@settings(max_examples=200, deadline=None)
@given(lists(), st.integers(0, 2**32), st.integers(1, 3))
def test_a_damaged_list_is_left_to_the_whole_reader(chat: MessageGraph, seed: int, times: int) -> None:
    document = json.loads(chat.to_json())
    rng = random.Random(seed)
    for _ in range(times):
        document["graphs"][0] = mutate(document["graphs"][0], rng)
    graph = document["graphs"][0]
    two = read_whole(graph)
    one = read_linear(graph, document["root"] if two is None else two.root_read or "")
    assert one is None or (two is not None and opened(one) == opened(two))
    assert two is None or two.root_read == document["root"] or read_linear(graph, document["root"]) is None


def test_versions_chats_and_overlays_are_left_to_the_whole_reader() -> None:
    document = json.loads(rich_session().to_json())
    assert [read_linear(graph, document["root"]) for graph in document["graphs"]] == [None] * len(document["graphs"])
