"""The codec of Ollama's own chat API, and the context that it must be told."""

import json
from typing import Any

import pytest

from hermes.backends import HttpClient, OllamaBackend
from hermes.backends.ollama import OllamaReader, decode, encode
from hermes.backends.vendor_answers import CannotEncode, ErrorInAnswer, MalformedAnswer, ReturnedTokens, StreamEvent, TokenCounts
from hermes.ports.backends import Capabilities, ContextTooLong, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta, Unsupported
from tests.fakes.ollama_api import OllamaApi

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
VENDOR = OllamaApi("")


def request(*messages: Any, capabilities: Capabilities | None = None, keep_alive: str | None = None, **more: Any) -> dict[str, Any]:
    """A request's body, after the strict vendor has taken it."""
    ask = ModelRequest(**{"messages": messages or (USER,), "max_tokens": 100, **more})
    body = encode(ask, "qwen3:8b", capabilities or Capabilities(), stream=False, num_ctx=8192, keep_alive=keep_alive)
    VENDOR.check(json.loads(json.dumps(body)))
    return body


# --- requests


def test_limits_and_sampling_are_options() -> None:
    body = request(sampling={"temperature": 0.5, "seed": 7, "stop": "END", "logit_bias": {}, "think": False}, keep_alive="10m")
    assert body == {
        "model": "qwen3:8b",
        "messages": [USER],
        "stream": False,
        "options": {"num_predict": 100, "num_ctx": 8192, "temperature": 0.5, "seed": 7, "stop": ["END"]},
        "truncate": False,
        "think": False,
        "keep_alive": "10m",
    }
    bare = request(capabilities=Capabilities(sampling=False), sampling={"temperature": 0.5, "seed": 7})
    assert bare["options"] == {"num_predict": 100, "num_ctx": 8192, "seed": 7}


def test_images_are_bare_base64_beside_the_text() -> None:
    parts = [
        {"type": "text", "text": "What "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,Zm9v"}},
        {"type": "text", "text": "is it?"},
    ]
    assert request({"role": "user", "content": parts})["messages"] == [{"role": "user", "content": "What is it?", "images": ["Zm9v"]}]


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, {"type": "input_audio"}])
def test_what_has_no_form_there_is_refused_here(part: dict[str, Any]) -> None:
    with pytest.raises(CannotEncode):
        request({"role": "user", "content": [part]})


def test_calls_have_objects_and_results_name_their_tool() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    assistant = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "Hm."}
    body = request(USER, assistant, {"role": "tool", "tool_call_id": "a", "content": "2"}, tools=[TOOL])
    assert body["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}], "thinking": "Hm."},
        {"role": "tool", "content": "2", "tool_name": "f"},
    ]
    assert body["tools"] == [TOOL]
    assert "tools" not in request(tools=[TOOL], tool_choice="none")


def test_the_form_of_an_answer() -> None:
    assert request(response_format={"type": "json_object"})["format"] == "json"
    schema = {"type": "object"}
    assert request(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})["format"] == schema
    assert request(wants_tokens=True)["logprobs"] is True


async def test_no_tools_unless_told_otherwise() -> None:
    backend = OllamaBackend(HttpClient(), models={"qwen3:8b": Capabilities(tools=True)})
    assert not backend.supports_tools("llama3.2")
    assert backend.supports_tools("qwen3:8b")
    assert OllamaBackend(HttpClient(), takes_tools=True).supports_tools("llama3.2")
    with pytest.raises(Unsupported):
        await backend.complete(ModelRequest(messages=[USER], max_tokens=1, tools=[TOOL]), "llama3.2", timeout_s=1)


async def test_the_context_is_the_settings_else_the_tables_else_8192() -> None:
    table = {"qwen3:8b": Capabilities(context=32_768)}
    assert OllamaBackend(HttpClient(), models=table, num_ctx=4_096).context("qwen3:8b") == 4_096
    assert OllamaBackend(HttpClient(), models=table).context("qwen3:8b") == 32_768
    assert OllamaBackend(HttpClient(), models=table).context("other") == 8_192


async def test_a_prompt_that_may_not_fit_is_not_sent() -> None:
    ask = ModelRequest(messages=[{"role": "user", "content": "x" * 30_000}], max_tokens=1)
    with pytest.raises(ContextTooLong):
        await OllamaBackend(HttpClient()).complete(ask, "llama3.2", timeout_s=1)


# --- answers


def line(done: bool = False, more: dict[str, Any] | None = None, **message: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", **message}, "done": done, **(more or {})}


def feed(reader: OllamaReader, *lines: dict[str, Any]) -> list[Any]:
    return [delta for one in lines for delta in reader.feed(StreamEvent("", json.dumps(one)))]


def test_a_stream_with_everything_in_it() -> None:
    reader = OllamaReader("call_x")
    call = {"function": {"name": "f", "arguments": {"x": "é"}}}
    end = {"done_reason": "stop", "prompt_eval_count": 9, "prompt_eval_cached_count": 4, "eval_count": 3, "load_duration": 1}
    deltas = feed(
        reader,
        line(content="", thinking="Hm."),
        line(content="Hi", more={"logprobs": [{"token": "Hi", "logprob": -0.5}]}),
        line(content="", tool_calls=[call, {"id": "given", **call}]),
        line(content="", done=True, more=end),
    )
    assert deltas == [
        ReasoningDelta("Hm."),
        TextDelta("Hi"),
        ToolCallDelta(0, "call_x_0", "f", '{"x": "é"}'),
        ToolCallDelta(1, "given", "f", '{"x": "é"}'),
    ]
    assert reader.is_whole
    parts = reader.parts()
    assert (parts.finish_reason, parts.counts) == ("tool_calls", TokenCounts(tokens_in=9, tokens_out=3, cache_read=4))
    assert (parts.message["content"], parts.message["reasoning"]) == ("Hi", "Hm.")
    assert parts.tokens == ReturnedTokens(logprobs=[-0.5])
    assert parts.extra == {"load_duration": 1}


def test_counts_that_are_not_there_are_none() -> None:
    parts = decode(line(content="Hi", done=True, more={"done_reason": "length", "eval_count": 3}), "call")
    assert (parts.finish_reason, parts.counts) == ("length", TokenCounts(tokens_in=None, tokens_out=3))


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("model 'x' not found", 404),
        ("the input length exceeds the context length", 400),
        ("gemma does not support tools", 400),
        ("llama runner process has terminated", 500),
    ],
)
def test_an_error_in_the_middle_is_a_refusal(said: str, status: int) -> None:
    with pytest.raises(ErrorInAnswer) as caught:
        feed(OllamaReader("call"), line(content="Hi"), {"error": said})
    assert caught.value.status == status


@pytest.mark.parametrize("body", [{}, {"message": "Hi"}, {"message": {"content": 1}}, {"message": {"tool_calls": [{}]}}])
def test_an_answer_without_its_shape_is_malformed(body: dict[str, Any]) -> None:
    with pytest.raises(MalformedAnswer):
        decode(body, "call")
