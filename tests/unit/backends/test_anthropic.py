"""The Messages codec: requests that the strict vendor takes, answers in the form of the message graph."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.backends.anthropic import AnthropicReader, decode, read_error_details
from hermes.backends.anthropic_request import OPENING_TEXT, encode
from hermes.backends.vendor_answers import CannotEncode, ErrorInAnswer, MalformedAnswer, StreamEvent, TokenCounts
from hermes.graph import MessageGraph
from hermes.ports.backends import Capabilities, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta
from tests.fakes.messages_api import MessagesApi, sign

HAIKU, SONNET = "claude-haiku-4-5", "claude-sonnet-4-6"
USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
VENDOR = MessagesApi("")


def request(
    *messages: Any, model: str = HAIKU, capabilities: Capabilities | None = None, cache: bool = False, **more: Any
) -> dict[str, Any]:
    """A request's body, after the strict vendor has taken it."""
    ask = ModelRequest(**{"messages": messages, "max_tokens": 100, **more})
    body = encode(ask, model, capabilities or Capabilities(), stream=False, cache=cache)
    VENDOR.check(json.loads(json.dumps(body)))
    return body


def calling(*ids: str, **more: Any) -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "weather", "arguments": '{"at": 1}'}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(call_id: str, content: Any = "30", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


# --- requests


def test_system_messages_are_joined_beside_the_others() -> None:
    parts = [text("One."), text("\n\nMore of one.")]
    body = request({"role": "system", "content": parts}, USER, {"role": "developer", "content": "Two."})
    assert body == {
        "model": HAIKU,
        "max_tokens": 100,
        "system": "One.\n\nMore of one.\n\nTwo.",
        "messages": [{"role": "user", "content": [text("Hi")]}],
    }


def test_speakers_alternate_and_empty_texts_are_dropped() -> None:
    body = request(USER, {"role": "user", "content": [text(""), text("there")]}, {"role": "assistant", "content": ""}, USER)
    assert body["messages"] == [{"role": "user", "content": [text("Hi"), text("there"), text("Hi")]}]


def test_a_conversation_that_the_assistant_begins_gets_an_opening() -> None:
    body = request({"role": "assistant", "content": "Welcome!"}, USER)
    assert body["messages"][0] == {"role": "user", "content": [text(OPENING_TEXT)]}
    assert request({"role": "system", "content": "Go."})["messages"] == [{"role": "user", "content": [text(OPENING_TEXT)]}]


def test_a_beginning_to_continue_ends_without_white_space() -> None:
    assert request(USER, {"role": "assistant", "content": "The answer is \n"})["messages"][-1]["content"] == [text("The answer is")]


def test_results_come_first_in_one_turn_whatever_was_said_between() -> None:
    body = request(USER, calling("a", "b"), result("a"), {"role": "user", "content": "Hurry!"}, result("b", is_error=True), tools=[TOOL])
    assert body["messages"][2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "30"},
            {"type": "tool_result", "tool_use_id": "b", "content": "30", "is_error": True},
            text("Hurry!"),
        ],
    }


def test_a_result_may_be_empty_or_an_image() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    body = request(USER, calling("a", "b"), result("a", ""), result("b", [image]), tools=[TOOL])
    empty, picture = body["messages"][2]["content"]
    assert empty == {"type": "tool_result", "tool_use_id": "a"}
    assert picture["content"] == [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]


def test_images_are_sent_by_value_or_by_address() -> None:
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url in ("data:image/jpeg;base64,Zm9v", "https://example.org/a.png")]
    file = {"type": "file", "file": {"file_data": "data:application/pdf;base64,Zm9v"}}
    body = request({"role": "user", "content": [*pictures, file]})
    assert [block["source"] for block in body["messages"][0]["content"]] == [
        {"type": "base64", "media_type": "image/jpeg", "data": "Zm9v"},
        {"type": "url", "url": "https://example.org/a.png"},
        {"type": "base64", "media_type": "application/pdf", "data": "Zm9v"},
    ]


@pytest.mark.parametrize("part", [{"type": "input_audio"}, {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}])
def test_what_has_no_form_there_is_refused_here(part: dict[str, Any]) -> None:
    with pytest.raises(CannotEncode):
        request({"role": "user", "content": [part]})


def test_tools_and_the_choice_among_them() -> None:
    strict = {"type": "function", "function": {"name": "b", "description": "B.", "parameters": {"type": "object"}, "strict": True}}
    body = request(USER, tools=[TOOL, strict], tool_choice={"type": "function", "function": {"name": "b"}})
    assert body["tools"] == [
        {"name": "weather", "input_schema": {"type": "object", "properties": {}}},
        {"name": "b", "description": "B.", "input_schema": {"type": "object"}, "strict": True},
    ]
    assert body["tool_choice"] == {"type": "tool", "name": "b"}
    for ours, theirs in (("auto", "auto"), ("none", "none"), ("required", "any")):
        assert request(USER, tools=[TOOL], tool_choice=ours)["tool_choice"] == {"type": theirs}
    assert "tool_choice" not in request(USER, tools=[TOOL])
    assert "tool_choice" not in request(USER, tool_choice="auto")
    one = request(USER, tools=[TOOL], sampling={"parallel_tool_calls": False})
    assert one["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_calls_in_the_history_name_their_tools_and_forbid_more() -> None:
    body = request(USER, calling("a"), result("a"))
    assert body["tools"] == [{"name": "weather", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


def test_a_model_is_sent_the_sampling_that_it_takes() -> None:
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "seed": 1, "stop": "END", "presence_penalty": 1}
    assert request(USER, sampling=sampling).items() >= {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop_sequences": ["END"]}.items()
    bare = request(USER, sampling=sampling, model="claude-haiku-5-5", capabilities=Capabilities(sampling=False))
    assert bare.keys() == {"model", "max_tokens", "messages", "stop_sequences"}


def test_effort_form_and_user_have_their_places() -> None:
    schema = {"type": "object", "properties": {}}
    body = request(
        USER,
        capabilities=Capabilities(thinking=True),
        sampling={"reasoning_effort": "low", "thinking": {"type": "disabled"}},
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        user="u-7",
    )
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    assert (body["thinking"], body["metadata"]) == ({"type": "disabled"}, {"user_id": "u-7"})


def test_what_stays_the_same_can_be_marked_for_the_cache() -> None:
    body = request({"role": "system", "content": "S"}, USER, calling("a"), result("a"), tools=[TOOL], cache=True)
    mark = {"type": "ephemeral"}
    assert body["system"] == [{"type": "text", "text": "S", "cache_control": mark}]
    assert body["tools"][-1]["cache_control"] == mark
    assert body["messages"][-1]["content"][-1]["cache_control"] == mark
    assert json.dumps(body).count("cache_control") == 3


def test_a_graphs_frozen_messages_are_taken() -> None:
    chat = MessageGraph([{"role": "system", "content": "S"}, USER, calling("a"), result("a")])
    turn = chat.prepare(tools=[TOOL], ephemeral="Now.")
    assert request(*turn.messages, tools=turn.tools)["system"] == "S\n\nNow."


ids = st.sampled_from(["a", "b", "call:1", "é", "hx_61"])
texts = st.sampled_from(["", " ", "Hi", "Hi \n"])


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Any history whose calls are answered."""
    messages: list[dict[str, Any]] = []
    for kind in draw(st.lists(st.sampled_from(["system", "user", "assistant", "round"]), max_size=8)):
        if kind == "round":
            called = draw(st.lists(ids, min_size=1, max_size=3, unique=True))
            thought = {"thinking_blocks": draw(st.sampled_from([THOUGHT, {**THOUGHT, "model": "another"}]))} if draw(st.booleans()) else {}
            messages.append(calling(*called, **thought) | {"content": draw(texts)})
            messages += [result(one, draw(texts)) for one in draw(st.permutations(called))]
        else:
            messages.append({"role": kind, "content": draw(texts)})
    return messages


THOUGHT = {"model": HAIKU, "blocks": [{"type": "thinking", "thinking": "Hm.", "signature": sign(HAIKU, "Hm.")}]}


@given(histories(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_strict_vendor_takes_any_history_whose_calls_are_answered(messages: list[dict[str, Any]], has_tools: bool) -> None:
    request(*messages, tools=[TOOL] if has_tools else ())


# --- thinking


def test_thinking_goes_back_unchanged_to_the_model_that_thought_it() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": sign(HAIKU, "Hm.")}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    use = {"type": "tool_use", "id": "a", "name": "weather", "input": {"at": 1}}
    answer = decode({"content": [thinking, hidden, text("Wait."), use], "stop_reason": "tool_use"}, HAIKU).message
    assert answer["reasoning"] == "Hm."
    assert answer["thinking_blocks"] == {"model": HAIKU, "blocks": [thinking, hidden]}
    same = request(USER, answer, result("a"), tools=[TOOL])
    assert same["messages"][1]["content"] == [thinking, hidden, text("Wait."), use]
    other = request(USER, answer, result("a"), tools=[TOOL], model=SONNET)
    assert other["messages"][1]["content"] == [text("Wait."), use]


def test_thinking_between_texts_and_calls_keeps_its_place() -> None:
    def thought(what: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": what, "signature": sign(HAIKU, what)}

    def use(call_id: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": "weather", "input": {}}

    content = [thought("1"), text("One."), thought("2"), text("Two."), use("a"), thought("3"), use("b")]
    answer = decode({"content": content, "stop_reason": "tool_use"}, HAIKU).message
    assert answer["content"] == "One.Two."
    assert answer["reasoning"] == "1\n\n2\n\n3"
    assert answer["thinking_blocks"]["places"] == [[0, 0], [4, 0], [8, 1]]
    assert request(USER, answer, result("a"), result("b"), tools=[TOOL])["messages"][1]["content"] == content


# --- answers

USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 30,
    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 10},
    "output_tokens": 7,
    "service_tier": "priority",
}
COUNTS = TokenCounts(tokens_in=140, tokens_out=7, cache_read=100, cache_write=20, cache_write_1h=10)


def test_the_whole_prompt_is_counted() -> None:
    parts = decode({"id": "msg_1", "model": "m", "content": [text("Hi")], "stop_reason": "end_turn", "usage": USAGE}, HAIKU)
    assert (parts.counts, parts.model) == (COUNTS, "m")
    assert parts.extra == {"id": "msg_1", "stop_reason": "end_turn", "service_tier": "priority"}


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "refusal"),
        ("something_new", "stop"),
        (None, "stop"),
    ],
)
def test_why_it_stopped(stop: str | None, finish: str) -> None:
    parts = decode({"content": [text("Hi")], "stop_reason": stop}, HAIKU)
    assert parts.finish_reason == finish
    assert parts.extra.get("stop_reason") == stop


def test_blocks_that_nobody_knows_are_kept_aside() -> None:
    odd = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    parts = decode({"content": [odd, text("Hi")], "stop_reason": "end_turn"}, HAIKU)
    assert parts.message == {"role": "assistant", "content": "Hi"}
    assert parts.extra["blocks"] == [odd]


def test_arguments_that_were_no_object_come_back_as_they_were() -> None:
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {"_raw_arguments": "{oops"}}
    assert decode({"content": [block]}, HAIKU).message["tool_calls"][0]["function"]["arguments"] == "{oops"


@pytest.mark.parametrize(
    "body", [{}, {"content": None}, {"content": "Hi"}, {"content": ["Hi"]}, {"content": [{"type": "text", "text": 1}]}]
)
def test_an_answer_without_its_shape_is_malformed(body: dict[str, Any]) -> None:
    with pytest.raises(MalformedAnswer):
        decode(body, HAIKU)


def test_an_error_in_a_success_is_a_refusal() -> None:
    with pytest.raises(ErrorInAnswer) as caught:
        decode({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, HAIKU)
    assert caught.value.status == 529


def test_a_spending_limit_is_in_the_details() -> None:
    said = read_error_details(
        {"error": {"type": "rate_limit_error", "message": "No.", "details": {"error_code": "enforced_spend_limit_reached"}}}
    )
    assert (said.message, said.codes) == ("No.", "rate_limit_error enforced_spend_limit_reached")
    assert read_error_details({"error": "odd"}).message == read_error_details({}).message == ""


# --- streams


def feed(reader: AnthropicReader, *events: dict[str, Any]) -> list[Any]:
    return [delta for event in events for delta in reader.feed(StreamEvent(event["type"], json.dumps(event)))]


def start(at: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": at, "content_block": block}


def delta(at: int, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": at, "delta": more}


def test_a_stream_with_everything_in_it() -> None:
    reader = AnthropicReader(HAIKU)
    deltas = feed(
        reader,
        {"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": {**USAGE, "output_tokens": 1}}},
        {"type": "ping"},
        start(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="Hm"),
        delta(0, type="thinking_delta", thinking="."),
        delta(0, type="signature_delta", signature="sig"),
        {"type": "content_block_stop", "index": 0},
        start(1, type="text", text=""),
        delta(1, type="text_delta", text="Wa"),
        delta(1, type="text_delta", text="it."),
        delta(1, type="citations_delta", citation={}),
        start(2, type="server_tool_use", id="s", name="web_search", input={}),
        delta(2, type="input_json_delta", partial_json='{"query": "x"}'),
        start(3, type="thinking", thinking="", signature=""),
        delta(3, type="thinking_delta", thinking="So"),
        start(4, type="tool_use", id="a", name="f", input={}),
        delta(4, type="input_json_delta", partial_json=""),
        delta(4, type="input_json_delta", partial_json='{"at":'),
        delta(4, type="input_json_delta", partial_json="  1}"),
        start(5, type="tool_use", id="b", name="g", input={}),
        {"type": "something_new", "index": 9},
        {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 3}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7, "input_tokens": 10}},
    )
    assert not reader.is_whole
    assert feed(reader, {"type": "message_stop"}) == []
    assert reader.is_whole
    assert deltas == [
        ReasoningDelta("Hm"),
        ReasoningDelta("."),
        ReasoningDelta("", {"type": "thinking", "thinking": "Hm.", "signature": "sig"}),
        TextDelta("Wa"),
        TextDelta("it."),
        ReasoningDelta("\n\nSo"),
        ToolCallDelta(0, "a", "f", ""),
        ToolCallDelta(0, None, None, '{"at":'),
        ToolCallDelta(0, None, None, "  1}"),
        ToolCallDelta(1, "b", "g", ""),
    ]
    parts = reader.parts()
    assert parts.message["content"] == "Wait."
    assert parts.message["reasoning"] == "Hm.\n\nSo"
    assert parts.message["thinking_blocks"]["blocks"] == [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}]
    assert [call["function"] for call in parts.message["tool_calls"]] == [
        {"name": "f", "arguments": '{"at":  1}'},
        {"name": "g", "arguments": "{}"},
    ]
    assert (parts.finish_reason, parts.counts, parts.model) == ("tool_calls", COUNTS, "m")
    assert parts.extra["blocks"] == [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}]


def test_the_output_is_not_counted_before_the_end() -> None:
    reader = AnthropicReader(HAIKU)
    feed(reader, {"type": "message_start", "message": {"usage": {**USAGE, "output_tokens": 1}}}, start(0, type="text", text="Hi"))
    assert reader.parts().counts == TokenCounts(tokens_in=140, tokens_out=None, cache_read=100, cache_write=20, cache_write_1h=10)


def test_an_error_event_is_a_refusal() -> None:
    with pytest.raises(ErrorInAnswer) as caught:
        feed(AnthropicReader(HAIKU), {"type": "error", "error": {"type": "rate_limit_error", "message": "No."}})
    assert caught.value.status == 429


@pytest.mark.parametrize("event", [delta(7, type="text_delta", text="x"), {"type": "content_block_start", "index": "0"}])
def test_events_out_of_place_are_malformed(event: dict[str, Any]) -> None:
    with pytest.raises(MalformedAnswer):
        feed(AnthropicReader(HAIKU), event)
