"""The chat completions codec: what each kind of server is sent, and what each of them answers."""

import json
from typing import Any

import pytest

from hermes.backends.openai_answer import OpenAIReader, decode, read_error_details
from hermes.backends.openai_compatible import DIALECTS, LLAMA_CPP, OPENAI, PLAIN, SGLANG, VLLM, Dialect, encode
from hermes.backends.vendor_answers import ErrorInAnswer, MalformedAnswer, ReturnedTokens, StreamEvent, TokenCounts
from hermes.ports.backends import Capabilities, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def request(*messages: Any, dialect: Dialect = OPENAI, capabilities: Capabilities | None = None, stream: bool = False, **more: Any) -> Any:
    ask = ModelRequest(**{"messages": messages or (USER,), "max_tokens": 100, **more})
    return encode(ask, "m", capabilities or Capabilities(), stream=stream, dialect=dialect)


# --- requests


def test_a_plain_request() -> None:
    assert request() == {"model": "m", "messages": [USER], "max_completion_tokens": 100}
    assert request(dialect=VLLM) == {"model": "m", "messages": [USER], "max_tokens": 100}
    streamed = request(stream=True, user="u")
    assert (streamed["stream"], streamed["stream_options"], streamed["user"]) == (True, {"include_usage": True}, "u")


@pytest.mark.parametrize(
    ("dialect", "asked"),
    [
        (OPENAI, {}),
        (VLLM, {"logprobs": True, "return_token_ids": True}),
        (SGLANG, {"logprobs": True, "return_token_ids": True, "return_prompt_token_ids": True}),
        (LLAMA_CPP, {"logprobs": True}),
        (PLAIN, {}),
    ],
)
def test_tokens_are_asked_for_as_each_server_wants(dialect: Dialect, asked: dict[str, Any]) -> None:
    plain, full = request(dialect=dialect), request(dialect=dialect, wants_tokens=True)
    assert full == plain | asked
    assert DIALECTS[dialect.name] is dialect


def test_a_strict_server_is_sent_only_what_it_knows() -> None:
    sampling = {"temperature": 0.5, "top_k": 4, "seed": 7, "chat_template_kwargs": {"x": 1}, "n": 5, "model": "other", "stop": None}
    assert request(sampling=sampling) == request() | {"temperature": 0.5, "seed": 7}
    assert request(sampling=sampling, dialect=VLLM) == request(dialect=VLLM) | {
        "temperature": 0.5,
        "top_k": 4,
        "seed": 7,
        "chat_template_kwargs": {"x": 1},
    }


def test_a_model_without_sampling_is_sent_none() -> None:
    sampling = {"temperature": 0.5, "top_p": 1, "presence_penalty": 1, "seed": 7, "reasoning_effort": "low"}
    bare = request(sampling=sampling, capabilities=Capabilities(sampling=False), wants_tokens=True)
    assert bare == request() | {"seed": 7, "reasoning_effort": "low"}


def test_messages_have_the_fields_of_their_role() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assistant = {
        "role": "assistant",
        "content": None,
        "tool_calls": [call],
        "reasoning": "Hm.",
        "thinking_blocks": {"model": "m", "blocks": []},
    }
    messages = [{**USER, "metadata": {}, "cache": 1}, assistant, {"role": "tool", "tool_call_id": "a", "content": "x", "is_error": True}]
    result = {"role": "tool", "tool_call_id": "a", "content": "x"}
    bare = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert request(*messages)["messages"] == [USER, bare, result]
    assert request(*messages, dialect=VLLM)["messages"] == [USER, {**bare, "reasoning": "Hm."}, result]
    assert request(*messages, dialect=SGLANG)["messages"] == [USER, {**bare, "reasoning_content": "Hm."}, result]
    assert request({"role": "assistant", "tool_calls": []}, USER)["messages"][0] == {"role": "assistant", "content": ""}


def test_developers_are_known_at_openai_alone() -> None:
    message = {"role": "developer", "content": "Be brief."}
    assert request(message)["messages"][0]["role"] == "developer"
    assert request(message, dialect=LLAMA_CPP)["messages"][0]["role"] == "system"


def test_tools_and_what_needs_them() -> None:
    body = request(tools=[TOOL], tool_choice="required", sampling={"parallel_tool_calls": False}, response_format={"type": "json_object"})
    assert (body["tools"], body["tool_choice"], body["parallel_tool_calls"]) == ([TOOL], "required", False)
    assert body["response_format"] == {"type": "json_object"}
    assert request(tool_choice="auto", sampling={"parallel_tool_calls": False}) == request()


# --- answers


def whole(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {key: more.pop(key) for key in ("token_ids", "response_token_ids", "logprobs") if key in more}
    return {"id": "c1", "model": "m-1", "choices": [{"index": 0, "message": message, "finish_reason": finish, **choice}], **more}


def scores(*values: float, **more: Any) -> dict[str, Any]:
    return {"content": [{"token": "x", "logprob": value, **{key: ids[at] for key, ids in more.items()}} for at, value in enumerate(values)]}


USAGE = {"prompt_tokens": 12, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}, "cost": 0.001}


def test_cached_tokens_are_some_of_the_prompts() -> None:
    parts = decode(whole({"content": "Hi"}, usage=USAGE), "call")
    assert parts.counts == TokenCounts(tokens_in=12, tokens_out=2, cache_read=8)
    assert parts.extra == {"id": "c1", "cost_usd": 0.001}
    assert decode(whole({"content": "Hi"}), "call").counts == TokenCounts()
    assert decode(whole({"content": "Hi"}, usage="odd"), "call").counts == TokenCounts()


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_under_either_name(key: str) -> None:
    assert decode(whole({"content": "Hi", key: "Hm."}), "call").message == {"role": "assistant", "content": "Hi", "reasoning": "Hm."}
    both = {"content": "Hi", "reasoning": "Hm.", "reasoning_content": "Hm."}
    assert decode(whole(both), "call").message["reasoning"] == "Hm."


def test_thinking_within_the_text_is_left_alone() -> None:
    assert decode(whole({"content": "<think>Hm.</think>Hi"}), "call").message == {"role": "assistant", "content": "<think>Hm.</think>Hi"}


@pytest.mark.parametrize(
    ("said", "has_calls", "finish"),
    [
        ("stop", False, "stop"),
        ("stop", True, "tool_calls"),
        (None, True, "tool_calls"),
        (None, False, "stop"),
        ("length", True, "length"),
        ("content_filter", False, "content_filter"),
        ("function_call", True, "tool_calls"),
        ("eos", False, "stop"),
    ],
)
def test_why_it_stopped(said: str | None, has_calls: bool, finish: str) -> None:
    calls = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}] if has_calls else None
    assert decode(whole({"content": "", "tool_calls": calls}, said), "call").finish_reason == finish


def test_a_refusal_is_one() -> None:
    parts = decode(whole({"content": None, "refusal": "No."}), "call")
    assert (parts.message, parts.finish_reason) == ({"role": "assistant", "content": None, "refusal": "No."}, "refusal")


def test_calls_without_ids_or_arguments_get_them() -> None:
    calls = [{"function": {"name": "f", "arguments": ""}}, {"function": {"name": "g", "arguments": {"a": 1}}}]
    made = decode(whole({"content": None, "tool_calls": calls}), "call_x").message["tool_calls"]
    assert [(one["id"], one["function"]["arguments"]) for one in made] == [("call_x_0", "{}"), ("call_x_1", '{"a": 1}')]


@pytest.mark.parametrize(
    ("more", "tokens"),
    [
        (
            {"prompt_token_ids": [1, 2], "token_ids": [3, 4], "logprobs": scores(-0.1, -0.2)},
            ReturnedTokens(prompt=[1, 2], completion=[3, 4], logprobs=[-0.1, -0.2]),
        ),
        ({"response_token_ids": [3, 4], "logprobs": scores(-0.1, -0.2)}, ReturnedTokens(completion=[3, 4], logprobs=[-0.1, -0.2])),
        ({"logprobs": scores(-0.1, -0.2, id=[3, 4])}, ReturnedTokens(completion=[3, 4], logprobs=[-0.1, -0.2])),
        ({"logprobs": scores(-0.1, -0.2)}, ReturnedTokens(logprobs=[-0.1, -0.2])),
        ({"logprobs": {"content": None}}, ReturnedTokens()),
        ({"logprobs": None}, ReturnedTokens()),
    ],
    ids=["vllm", "sglang", "llama.cpp", "openai", "empty", "none"],
)
def test_tokens_are_found_where_each_server_puts_them(more: dict[str, Any], tokens: ReturnedTokens) -> None:
    assert decode(whole({"content": "Hi"}, **more), "call").tokens == tokens


def test_sglang_puts_the_prompt_into_the_choice() -> None:
    body = whole({"content": "Hi"})
    body["choices"][0]["prompt_token_ids"] = [1, 2]
    assert decode(body, "call").tokens.prompt == [1, 2]


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{}]}, {"choices": [1]}, {"choices": {}}, whole({"content": 3})])
def test_an_answer_without_its_shape_is_malformed(body: dict[str, Any]) -> None:
    with pytest.raises(MalformedAnswer):
        decode(body, "call")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"code": 429, "message": "slow down"}}, 429),
        ({"error": {"code": "502", "message": "upstream"}}, 502),
        ({"error": {"code": "server_error", "message": "oops"}}, 500),
        ({"error": "oops"}, 500),
        ({"object": "error", "code": 400, "message": "too long"}, 400),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "error", "error": {"code": 503}}]}, 503),
    ],
)
def test_an_error_in_a_success_is_a_refusal(body: dict[str, Any], status: int) -> None:
    with pytest.raises(ErrorInAnswer) as caught:
        decode(body, "call")
    assert caught.value.status == status


def test_errors_in_every_shape() -> None:
    said = read_error_details({"error": {"message": "No.", "type": "t", "code": "c"}})
    assert (said.message, said.codes) == ("No.", "t c")
    assert read_error_details({"object": "error", "message": "No.", "type": "BadRequestError", "code": 400}).message == "No."
    assert read_error_details({"error": "No."}).message == "No."
    assert read_error_details({"detail": "Not Found"}).message == "Not Found"
    assert read_error_details({"error": 7}).message == ""


# --- streams


def feed(reader: OpenAIReader, *chunks: Any) -> list[Any]:
    events = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    return [delta for event in events for delta in reader.feed(StreamEvent("", event))]


def chunk(finish: str | None = None, more: dict[str, Any] | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **(more or {})}]}


def called(*pieces: dict[str, Any]) -> dict[str, Any]:
    return chunk(tool_calls=list(pieces))


def test_usage_may_come_with_any_chunk() -> None:
    for last in ({"choices": [], "usage": USAGE}, {**chunk("stop"), "usage": USAGE}, {"choices": [{"delta": {}}], "usage": USAGE}):
        reader = OpenAIReader("call")
        feed(reader, {**chunk(content="Hi"), "usage": {"prompt_tokens": 12, "completion_tokens": 1}}, chunk("stop"), last, "[DONE]")
        assert reader.parts().counts == TokenCounts(tokens_in=12, tokens_out=2, cache_read=8)
        assert reader.is_over


def test_a_stream_is_whole_with_a_finish_reason_even_without_its_last_word() -> None:
    reader = OpenAIReader("call")
    assert feed(reader, chunk(role="assistant", content=""), chunk(content="Hi")) == [TextDelta("Hi")]
    assert not reader.is_whole
    feed(reader, chunk("stop"))
    assert (reader.is_whole, reader.is_over) == (True, False)


def test_a_last_word_without_a_finish_reason_is_no_end() -> None:
    reader = OpenAIReader("call")
    feed(reader, chunk(content="Hi"), "[DONE]")
    assert (reader.is_whole, reader.is_over) == (False, True)


CALLS = [("a", "f", '{"x":1}'), ("b", "g", "{}")]


@pytest.mark.parametrize(
    "chunks",
    [
        [
            called({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}),
            called({"index": 0, "function": {"arguments": '{"x":'}}),
            called({"index": 0, "function": {"arguments": "1}"}}),
            called({"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}),
        ],
        [
            called(
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}, {"index": 1, "id": "b", "function": {"name": "g"}}
            ),
            called({"index": 1, "function": {"arguments": "{}"}}, {"index": 0, "function": {"arguments": ":1}"}}),
        ],
        [
            called({"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":'}}),
            called({"index": 0, "id": "a", "function": {"name": "f", "arguments": "1}"}}),
            called({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}),
        ],
        [
            called({"id": "a", "function": {"name": "f", "arguments": '{"x":'}}),
            called({"function": {"arguments": "1}"}}),
            called({"id": "b", "function": {"name": "g", "arguments": "{}"}}),
        ],
        [
            called({"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}),
            called({"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}),
        ],
        [
            called({"index": 0, "id": "a", "function": {"arguments": ""}}),
            called({"index": 0, "function": {"name": "f", "arguments": '{"x":1}'}}),
            called({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}),
        ],
    ],
    ids=["usual", "interleaved", "repeats_id_and_name", "no_index", "index_always_0", "name_later"],
)
def test_calls_are_put_together_whatever_the_server_leaves_out(chunks: list[dict[str, Any]]) -> None:
    reader = OpenAIReader("call")
    deltas = feed(reader, *chunks, chunk("stop"))
    made = reader.parts().message["tool_calls"]
    assert [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in made] == CALLS
    for at, (call_id, name, arguments) in enumerate(CALLS):
        pieces = [delta for delta in deltas if isinstance(delta, ToolCallDelta) and delta.index == at]
        assert {piece.name for piece in pieces if piece.name} == {name}
        assert {piece.id for piece in pieces if piece.id} == {call_id}
        assert ("".join(piece.arguments for piece in pieces) or "{}") == arguments
    assert reader.parts().finish_reason == "tool_calls"


def test_reasoning_and_tokens_come_in_pieces() -> None:
    reader = OpenAIReader("call")
    deltas = feed(
        reader,
        {**chunk(role="assistant"), "prompt_token_ids": [1, 2], "model": "m-1"},
        chunk(reasoning="H", more={"token_ids": [3], "logprobs": scores(-0.1)}),
        chunk(reasoning_content="m.", more={"token_ids": [4], "logprobs": scores(-0.2)}),
        chunk("stop", content="Hi", more={"token_ids": [5, 6], "logprobs": scores(-0.3, -0.4)}),
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
    )
    assert deltas == [ReasoningDelta("H"), ReasoningDelta("m."), TextDelta("Hi")]
    parts = reader.parts()
    assert parts.message == {"role": "assistant", "content": "Hi", "reasoning": "Hm."}
    assert parts.tokens == ReturnedTokens(prompt=[1, 2], completion=[3, 4, 5, 6], logprobs=[-0.1, -0.2, -0.3, -0.4])
    assert parts.model == "m-1"


def test_content_may_come_in_parts() -> None:
    reader = OpenAIReader("call")
    assert feed(reader, chunk(content=[{"type": "text", "text": "Hi"}, {"type": "other"}])) == [TextDelta("Hi")]


def test_a_chunk_that_is_no_json_is_malformed() -> None:
    with pytest.raises(MalformedAnswer):
        feed(OpenAIReader("call"), '{"half":')
    with pytest.raises(ErrorInAnswer):
        feed(OpenAIReader("call"), {"error": {"message": "x", "code": 500}})
