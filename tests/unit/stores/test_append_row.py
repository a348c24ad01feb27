"""An append without a graph writes the rows that an append to a graph writes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.graph import CallRecord, MessageError, MessageGraph
from hermes.graph.context import KeepReasoning
from hermes.graph.errors import CallError
from hermes.graph.message import canonical, digest
from hermes.graph.stored_graph import continue_graph, history_of
from hermes.ports.sessions import AppendResult, GraphEntry
from hermes.stores.postgres.graph_rows import BodyKind, GraphChanges, SessionCipher, append_changes, linear_changes
from hermes.stores.postgres.graphs import AppendRow, append_row, append_without_graph, extend_graph
from hermes.stores.seal import DataKeys

KEYS = DataKeys({0: b"k" * 32})
SESSION = UUID("5b2dd7e8-1c1c-4000-8000-000000000000")
CIPHER = SessionCipher(KEYS, SESSION)
HEAD = "ab" * 32

TEXTS = st.text() | st.sampled_from(["Hi", "Grüße", 'say "no"\\\n', "\U0001f379", "\ud83c\udf79", "half \ud83c", "", "\x7f"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


def in_any_order(fields: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.permutations(list(fields.items())).map(dict)


PLAIN = st.builds(dict, role=st.sampled_from(["user", "system", "assistant"]), content=TEXTS).flatmap(in_any_order)
RICH = st.fixed_dictionaries(
    {"role": st.sampled_from(["assistant", "tool", "user"]), "content": st.none() | TEXTS | st.just([{"type": "text", "text": "ü"}])},
    optional={"reasoning": TEXTS, "tool_calls": st.just([{"id": "1", "function": {"name": "f", "arguments": "{}"}}]), "more": VALUES},
).flatmap(in_any_order)
ODD = st.sampled_from(
    [
        {"role": "nobody", "content": "x"},
        {"content": "x"},
        {"role": "user", "content": 1},
        {"role": "user", "content": "x", "metadata": {"a": 1}},
    ]
)
CALLS = st.builds(
    CallRecord,
    model=st.none() | st.just("small"),
    sampling=st.none() | OBJECTS,
    usage=st.none() | st.just({"prompt_tokens": 3, "completion_tokens": 2**70}),
    raw_text=st.none() | TEXTS,
    tools=st.none() | st.just(TOOLS),
    template_id=st.none() | st.just("chatml"),
    policy_spans=st.none() | st.just([("step-1", 0, 2)]),
    prompt_token_ids=st.none() | st.lists(st.integers(0, 9), max_size=4),
    prompt_derived=st.booleans(),
    token_ids=st.none() | st.just([1, 2]),
    logprobs=st.none() | st.just([-0.5, -1.5]),
    sample_id=st.sampled_from(["one", "two", "dréi"]),
    extra=st.none() | OBJECTS,
)
SAMPLED = st.builds(
    GraphEntry,
    PLAIN | RICH,
    call=CALLS,
    keep_reasoning=st.sampled_from(["none", "none", "all", "current_turn"]),
    system=st.none() | TEXTS,
    without_tools=st.sampled_from([False] * 5 + [True]),
)
NAMED = st.builds(GraphEntry, PLAIN, sample_id=st.sampled_from(["three", "four"]), is_sampled=st.booleans())
ENTRIES = st.lists(st.builds(GraphEntry, PLAIN | RICH) | SAMPLED | NAMED, max_size=5)


def read(changes: GraphChanges) -> dict[str, Any]:
    """What the rows hold: two seals of one text differ."""
    return {
        "messages": {address: CIPHER.open(BodyKind.MESSAGE, body) for address, body in changes.messages.items()},
        "nodes": changes.nodes,
        "overlays": {address: CIPHER.open(BodyKind.OVERLAY, body) for address, body in changes.overlays.items()},
        "samples": [(*columns, CIPHER.open(BodyKind.SAMPLE, body)) for *columns, body in changes.samples],
        "rest": (changes.gone, changes.splices, changes.versions, changes.moved, changes.notes, changes.chats, changes.erased),
    }


def append_to_graph(entries: Sequence[GraphEntry]) -> tuple[dict[str, Any], AppendResult]:
    graph = continue_graph(HEAD, 0)
    extend_graph(graph, entries)
    return read(append_changes(history_of(graph), 0, 0, CIPHER)), AppendResult.to(graph, len(graph))


@given(entries=ENTRIES)
def test_without_a_graph_the_rows_are_those_of_a_graph(entries: list[GraphEntry]) -> None:
    appended = append_without_graph(HEAD, entries)
    if appended is None:
        names = [name for entry in entries if (name := entry.sample_id or (entry.call and entry.call.sample_id))]
        assert any(entry.without_tools for entry in entries) or len(set(names)) < len(names)
        return
    assert (read(linear_changes(appended, CIPHER)), AppendRow({}, appended).result()) == append_to_graph(entries)


@given(entries=st.lists(st.builds(GraphEntry, PLAIN | ODD), max_size=3))
def test_without_a_graph_the_same_messages_are_refused_with_the_same_words(entries: list[GraphEntry]) -> None:
    is_for_graphs = any("metadata" in entry.message for entry in entries)
    refusal, mine = refusal_of(append_to_graph, entries), refusal_of(partial(append_without_graph, HEAD), entries)
    assert mine == refusal or (mine is None and is_for_graphs)


def refusal_of(append: Callable[[Sequence[GraphEntry]], object], entries: Sequence[GraphEntry]) -> tuple[str, str] | None:
    try:
        append(entries)
    except MessageError as error:
        return error.path, error.reason
    return None


@pytest.mark.parametrize("keep", ["none", "all"])
def test_an_answer_without_a_call_gets_a_name_of_its_own(keep: KeepReasoning) -> None:
    entries = [
        GraphEntry({"role": "user", "content": "Hi"}),
        GraphEntry({"role": "assistant", "content": "Hello"}, is_sampled=True, keep_reasoning=keep),
    ]
    (mine, my_result), (theirs, their_result) = (append_row_as_read(entries), append_to_graph(entries))
    assert my_result == their_result
    assert mine["messages"] == theirs["messages"]
    [(name, head, index, response, overlay, body)] = mine["samples"]
    assert (head, index, overlay, len(body)) == (0, 1, None, 35)
    [theirs_too] = theirs["samples"]
    assert (name, response, body) != (theirs_too[0], theirs_too[3], theirs_too[5])


def append_row_as_read(entries: Sequence[GraphEntry]) -> tuple[dict[str, Any], AppendResult]:
    appended = append_without_graph(HEAD, entries)
    assert appended is not None
    return read(linear_changes(appended, CIPHER)), AppendRow({}, appended).result()


def test_a_message_with_metadata_is_appended_by_a_graph_and_one_with_a_chat_not_at_all() -> None:
    plain: Any = {"role": "user", "content": "Hi", "metadata": {"place": "Bali"}}
    row = append_row(SESSION, HEAD, [GraphEntry(plain)], KEYS)
    assert row is not None
    assert isinstance(row.appended, MessageGraph)
    assert (row.values["count"], row.values["new_head"]) == (1, row.result().head)
    chat = MessageGraph([{"role": "user", "content": "inside"}])
    assert append_row(SESSION, HEAD, [GraphEntry({**plain, "metadata": {"chat": chat}})], KEYS) is None


def test_an_equal_message_is_written_once() -> None:
    row = append_row(SESSION, HEAD, [GraphEntry({"role": "user", "content": "Hi"})] * 3, KEYS)
    assert row is not None
    assert (row.values["count"], len(row.values["addresses"]), len(row.values["nodes"])) == (3, 1, 48)


@given(call=CALLS)
def test_a_record_of_given_fields_equals_one_that_the_constructor_made(call: CallRecord) -> None:
    fields = {name: value for name, value in vars(call).items() if name != "_digest"}
    made = CallRecord.of(fields)
    assert made == call
    assert made.to_dict() == call.to_dict()
    assert all(isinstance(getattr(made, name), array) for name in ("token_ids", "logprobs") if fields[name] is not None)


@pytest.mark.parametrize(
    ("part", "names"), [("prompt", {"prompt_token_ids"}), ("completion", {"extra", "logprobs", "raw_text", "token_ids"})]
)
@given(call=CALLS)
def test_the_digest_of_a_part_is_that_of_its_canonical_json(part: str, names: set[str], call: CallRecord) -> None:
    values = {name: value for name, value in call.to_dict().items() if name in names}
    assert call.part_digest(part) == digest(canonical(values)).hex()


def test_a_record_refuses_a_field_that_it_does_not_have_and_values_that_the_constructor_refuses() -> None:
    with pytest.raises(TypeError, match="no field 'modle'"):
        CallRecord.of({"modle": "small"})
    for fields in ({"extra": {"score": float("nan")}}, {"model": "half \ud83c"}, {"token_ids": [-1]}, {"logprob_mode": "odd"}):
        with pytest.raises(CallError) as by_constructor:
            CallRecord(**fields)
        with pytest.raises(CallError) as by_fields:
            CallRecord.of(fields)
        assert str(by_fields.value) == str(by_constructor.value)
