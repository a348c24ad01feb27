"""prepare, commit and call records: the context is pinned, the response is never mixed up, the record is exact."""

import array
import math
from typing import Any

import pytest

from hermes import CallError, CallRecord, ForeignTurn, MessageError, MessageGraph, PolicySpan, SampleConflict, UnknownResponse

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def full_call(**changes: Any) -> CallRecord:
    fields: dict[str, Any] = {
        "model": "my-policy",
        "policy_version": "step-12",
        "policy_spans": [("step-12", 0, 2), ("step-13", 2, 3)],
        "sampling": {"temperature": 1.0, "top_p": 0.9},
        "finish_reason": "stop",
        "usage": {"completion_tokens": 3},
        "raw_text": "<think>hm</think>hi",
        "template_id": "chatml",
        "tokenizer": "bpe-1",
        "request_digest": "00ff",
        "prompt_token_ids": [1, 2, 2**31 - 1],
        "prompt_derived": True,
        "token_ids": [4, 5, 6],
        "logprobs": [-0.1, -1e-9, -math.inf],
        "logprob_mode": "processed",
        "extra": {"routed_experts": [[1]]},
    }
    return CallRecord(**{**fields, **changes})


def test_commit_extends_the_list_that_is_still_what_was_sent() -> None:
    chat = MessageGraph([user("a")])
    turn = chat.prepare(tools=TOOLS, ephemeral="Be brief.")
    response = chat.commit(turn, answer("b"), call=full_call(template_id=None))
    assert chat == [user("a"), answer("b")]
    assert response.context == turn.messages == [{"role": "system", "content": "Be brief."}, user("a")]
    assert (response.context_id, response.message, response.index, response.version) == (turn.context_id, answer("b"), 1, 0)
    assert response.call is not None
    assert (response.call.tools, response.overlay.tools, response.overlay.ephemeral) == (TOOLS, TOOLS, "Be brief.")
    assert list(chat.responses()) == [response]


def test_a_late_response_goes_to_a_branch_and_the_list_is_left_alone() -> None:
    chat = MessageGraph([user("a")])
    turn = chat.prepare()
    chat[0]["content"] = "b"
    response = chat.commit(turn, answer("for a"))
    assert chat == [user("b")]
    assert [list(version) for version in chat.versions] == [[user("a"), answer("for a")], [user("b")]]
    assert response.context == [user("a")]
    adopted = chat.commit(chat.fork().prepare(), answer("for b"))
    assert (chat, adopted.context) == ([user("b"), answer("for b")], [user("b")])
    late = chat.commit(turn, answer("late"), adopt=True)
    assert chat == [user("b"), answer("for b"), answer("late")]
    assert (late.context, chat[2].sampled) == ([user("a")], False)


def test_two_commits_on_one_turn_are_two_samples_and_the_first_extends_the_list() -> None:
    chat = MessageGraph([user("a")])
    turn = chat.prepare()
    one, two = chat.commit(turn, answer("x")), chat.commit(turn, answer("y"))
    assert chat == [user("a"), answer("x")]
    assert [response.message["content"] for response in chat.responses()] == ["x", "y"]
    assert one.context_id == two.context_id != chat.head


def test_an_edit_that_is_taken_back_leaves_the_turn_valid() -> None:
    chat = MessageGraph([user("a")])
    turn = chat.prepare()
    chat[0]["content"] = "b"
    chat[0]["content"] = "a"
    chat.commit(turn, answer("x"))
    assert (chat, len(chat.versions)) == ([user("a"), answer("x")], 1)


def test_a_sample_id_names_one_sample() -> None:
    chat = MessageGraph([user("a")])
    turn = chat.prepare()
    first = chat.commit(turn, answer("x"), call=full_call(sample_id="journal-1"))
    before = chat.to_json()
    assert chat.commit(turn, answer("x"), call=full_call(sample_id="journal-1")) == first
    chat.append(answer("x"), call=full_call(sample_id="journal-1"))
    assert chat.to_json() == before
    for again in (
        lambda: chat.commit(turn, answer("y"), call=full_call(sample_id="journal-1")),
        lambda: chat.commit(turn, answer("x"), call=full_call(sample_id="journal-1", token_ids=[4, 5, 7])),
        lambda: chat.commit(chat.prepare(), answer("x"), call=full_call(sample_id="journal-1")),
        lambda: chat.commit(chat.prepare(ephemeral="e"), answer("x"), call=full_call(sample_id="journal-1")),
        lambda: chat.append(answer("y"), call=full_call(sample_id="journal-1")),
    ):
        with pytest.raises(SampleConflict, match="journal-1"):
            again()
    assert (chat.to_json(), first.sample_id) == (before, "journal-1")


def test_a_turn_of_another_conversation_is_refused() -> None:
    with pytest.raises(ForeignTurn, match="prepare it in the graph"):
        MessageGraph([user("a")]).commit(MessageGraph([user("a")]).prepare(), answer("x"))


def test_the_short_form_records_tools_from_the_call() -> None:
    chat = MessageGraph([user("a")])
    chat.append(answer("x"), call=full_call(tools=TOOLS))
    (response,) = chat.responses()
    assert (response.overlay.tools, response.overlay.template_id) == (TOOLS, "chatml")
    assert response.context_id == MessageGraph([user("a")], seed=chat.seed).prepare(TOOLS, template_id="chatml").context_id
    with pytest.raises(ValueError, match="leave sampled out"):
        chat.append(answer("y"), sampled=False, call=CallRecord())


def test_a_call_that_contradicts_its_turn_is_refused() -> None:
    chat = MessageGraph([user("a")])
    with pytest.raises(MessageError, match=r"call\.tools: differs"):
        chat.commit(chat.prepare(tools=TOOLS), answer("x"), call=CallRecord(tools=[{"name": "other"}]))
    assert (chat, list(chat.responses())) == ([user("a")], [])


def test_ids_tell_apart_what_differs_and_nothing_else() -> None:
    def ids(seed: str = "s", text: str = "a", reply: str = "x", call: CallRecord | None = None, **sent: Any) -> tuple[str, str]:
        chat = MessageGraph([user(text)], seed=seed)
        response = chat.commit(chat.prepare(**sent), answer(reply), call=call or CallRecord(sample_id="1"))
        return response.context_id, response.id

    base = ids()
    assert ids() == base
    contexts = [base, ids(seed="t"), ids(text="b"), ids(tools=TOOLS), ids(ephemeral="e"), ids(keep_reasoning="all"), ids(template_id="t")]
    assert len({context for context, _ in contexts}) == len(contexts)
    same_context = [base, ids(reply="y"), ids(call=CallRecord(sample_id="2")), ids(call=CallRecord(sample_id="1", token_ids=[1]))]
    assert {context for context, _ in same_context} == {base[0]}
    assert len({name for _, name in [*contexts, *same_context[1:]]}) == len(contexts) + 3


def test_token_lists_are_compact_and_float32() -> None:
    call = full_call()
    assert isinstance(call.token_ids, array.array)
    assert isinstance(call.logprobs, array.array)
    assert (call.token_ids.itemsize, call.logprobs.typecode, list(call.prompt_token_ids or ())) == (4, "f", [1, 2, 2**31 - 1])
    assert call.logprobs[0] == pytest.approx(-0.1, abs=1e-8)
    assert call.policy_spans == (PolicySpan("step-12", 0, 2), PolicySpan("step-13", 2, 3))
    assert CallRecord.from_dict(call.to_dict()) == call


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"model": 5}, "call.model: expected text"),
        ({"token_ids": [1, "2"]}, "call.token_ids: expected a list of int32"),
        ({"token_ids": [2**31]}, "call.token_ids: expected a list of int32"),
        ({"token_ids": 5}, "call.token_ids: expected a list of int32"),
        ({"token_ids": [1, -100]}, "call.token_ids: a token id must not be negative"),
        ({"sample_id": "\ud800"}, "call.sample_id: half a surrogate pair"),
        ({"policy_spans": [("\ud800", 0, 1)]}, r"call.policy_spans\[0\]: expected a version"),
        ({"logprobs": ["x"]}, "call.logprobs: expected a list of float32"),
        ({"logprobs": [float("nan")]}, "call.logprobs: NaN"),
        ({"logprob_mode": "odd"}, "call.logprob_mode: 'odd'"),
        ({"sampling": [1]}, "call.sampling: expected an object"),
        ({"usage": {"x": {1}}}, "call.usage.x: set cannot"),
        ({"tools": {"name": "f"}}, "call.tools: expected a list"),
        ({"tools": ["f"]}, r"call.tools\[0\]: expected an object"),
        ({"policy_spans": [("v", 2, 1)]}, r"call.policy_spans\[0\]: expected a version"),
        ({"policy_spans": ["v"]}, r"call.policy_spans\[0\]: expected \("),
    ],
)
def test_a_bad_call_record_is_refused_with_the_path(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CallError, match=complaint):
        CallRecord(**fields)


def test_records_of_mismatched_lengths_are_kept_as_the_server_gave_them() -> None:
    call = CallRecord(token_ids=[1, 2, 3], logprobs=[-0.5], usage={"completion_tokens": 5})
    assert (len(call.token_ids or ()), len(call.logprobs or ())) == (3, 1)


def test_annotations_come_later_and_belong_to_one_response() -> None:
    inner = MessageGraph()
    inner.append(answer("inner"))
    chat = MessageGraph([user("a")])
    chat.append(answer("x"))
    chat.append({"role": "tool", "content": "out", "metadata": {"chat": inner}})
    outer_response, inner_response = chat.responses()
    chat.annotate(outer_response, reward=1.0)
    chat.annotate(outer_response.id, reaction="👍", at=[1, 2])
    chat.annotate(inner_response, reward=0.5)
    again = MessageGraph.from_json(chat.to_json())
    for graph in (chat, again, chat.copy()):
        assert [response.annotations for response in graph.responses()] == [
            [{"reward": 1.0}, {"reaction": "👍", "at": [1, 2]}],
            [{"reward": 0.5}],
        ]
    with pytest.raises(UnknownResponse, match="nobody"):
        chat.annotate("nobody", reward=1)
    with pytest.raises(MessageError, match=r"annotation\.reward"):
        chat.annotate(outer_response, reward=float("nan"))


def test_annotations_are_not_part_of_any_id() -> None:
    chat = MessageGraph([user("a")])
    chat.append(answer("x"))
    (response,) = chat.responses()
    before = response.id, chat.head
    chat.annotate(response, reward=1)
    chat[1]["metadata"] = {"seen": True}
    assert ((response.id, chat.head), len(chat.versions)) == (before, 1)
