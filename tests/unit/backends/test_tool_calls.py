"""Tool calls keep their ids, their arguments and their results on the way between vendors."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes.backends.tool_calls import RAW_ARGUMENTS, arguments_object, arguments_text, pair_tool_results, safe_id


@given(st.text(min_size=1))
def test_a_safe_id_can_be_taken_back(name: str) -> None:
    safe = safe_id(name)
    plain = bytes.fromhex(safe.removeprefix("hx_")).decode("utf-8", "surrogatepass") if safe.startswith("hx_") else safe
    assert plain == name
    assert set(safe_id(name)) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def test_an_id_that_is_safe_stays_as_it_is() -> None:
    assert safe_id("toolu_01-A") == "toolu_01-A"
    assert safe_id("call:1") != safe_id("call:2")
    assert safe_id("hx_63") != safe_id("c")


@given(st.text())
def test_arguments_that_are_no_object_can_be_taken_back(text: str) -> None:
    value = arguments_object(text)
    if RAW_ARGUMENTS in value:
        assert arguments_text(value) == text
    else:
        assert not text.strip() or arguments_object(arguments_text(value)) == value


def test_arguments_as_an_object() -> None:
    assert arguments_object('{"a": 1}') == {"a": 1}
    assert arguments_object("") == arguments_object(" ") == arguments_object(None) == {}
    assert arguments_object("[1]") == {RAW_ARGUMENTS: "[1]"}
    assert arguments_object('{"a": 1e999}') == {RAW_ARGUMENTS: '{"a": 1e999}'}
    assert arguments_object('{"a": NaN}') == {RAW_ARGUMENTS: '{"a": NaN}'}
    assert arguments_object({"a": 1}) == {"a": 1}
    assert arguments_text({"a": "é"}) == '{"a": "é"}'
    assert arguments_text(None) == "{}"


def call(call_id: str | None, name: str = "f") -> dict[str, Any]:
    return {"function": {"name": name, "arguments": "{}"}, **({"id": call_id} if call_id else {})}


def ids(messages: Any) -> list[Any]:
    return [
        [one["id"] for one in message["tool_calls"]] if "tool_calls" in message else message.get("tool_call_id") for message in messages
    ]


def test_results_go_with_their_calls() -> None:
    assistant = {"role": "assistant", "tool_calls": [call("a", "f"), call("b", "g")]}
    results = [{"role": "tool", "tool_call_id": "b", "content": "2"}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    sent = pair_tool_results([assistant, *results])
    assert ids(sent) == [["a", "b"], "b", "a"]
    assert [message.get("name") for message in sent] == [None, "g", "f"]


def test_calls_without_ids_are_answered_in_their_order() -> None:
    sent = pair_tool_results(
        [{"role": "assistant", "tool_calls": [call(None), call(None)]}, {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
    )
    assert ids(sent) == [["call_0_0", "call_0_1"], "call_0_0", "call_0_1"]


def test_an_id_that_comes_again_is_another_call() -> None:
    rounds = [{"role": "assistant", "tool_calls": [call("call_0")]}, {"role": "tool", "tool_call_id": "call_0", "content": "1"}] * 3
    assert ids(pair_tool_results(rounds)) == [["call_0"], "call_0", ["call_0_2"], "call_0_2", ["call_0_3"], "call_0_3"]


def test_other_messages_are_left_alone() -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "nobody", "content": "y"}]
    assert pair_tool_results(messages) == messages
