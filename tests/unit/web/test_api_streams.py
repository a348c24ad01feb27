"""The events of a stream, in the order and the shape that OpenAI's and Anthropic's clients read. Golden: every field of every event."""

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from hermes.gateway.completions import ChoicePiece
from hermes.gateway.messages_request import read_messages_request
from hermes.gateway.responses_request import read_responses_request
from hermes.gateway.thinking_seal import ThinkingSeal
from hermes.ports.backends import Completion, CutShort, Delta, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from hermes.ports.models import Answer, AnswerStarted
from hermes.web.anthropic_answer import MessagesWriter
from hermes.web.completions import AnswerWriter
from hermes.web.responses_answer import ResponsesWriter

CALL_ID = UUID(int=1)
HEX = CALL_ID.hex
SEAL = ThinkingSeal("hk_one")
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s1"}
USAGE = Usage(tokens_in=13, tokens_out=5, cache_read=8, cache_write=2)


def answer(message: dict[str, Any], finish: str = "stop", **extra: Any) -> Answer:
    completion = Completion(
        message={"role": "assistant", **message}, finish_reason=finish, usage=USAGE, model="m-1", request_digest="", extra=extra
    )
    return Answer(CALL_ID, completion, "own", "m-1", 7, {}, (), 1)


def events(writer: AnswerWriter, deltas: Iterable[Delta], last: Answer | Exception) -> list[dict[str, Any]]:
    """The data of all events, each under the name that its data have."""
    chunks = [chunk for piece in [AnswerStarted(CALL_ID, "m-1"), *deltas] for chunk in writer.chunks(ChoicePiece(0, piece))]
    if isinstance(last, Answer):
        chunks += [*writer.chunks(ChoicePiece(0, last)), *writer.end()]
    else:
        chunks.append(writer.failure(last))
    parsed = []
    for chunk in chunks:
        name, data = chunk.decode().removesuffix("\n\n").split("\n")
        parsed.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {parsed[-1]['type']}"
    return parsed


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# --- responses


def responses(deltas: Iterable[Delta], last: Answer | Exception, **body: Any) -> list[dict[str, Any]]:
    writer = ResponsesWriter(read_responses_request({"model": "m", "input": "Hi", **body}), SEAL)
    found = events(writer, deltas, last)
    assert [event.pop("sequence_number") for event in found] == list(range(len(found)))
    return found


def test_a_response_with_reasoning_text_and_two_calls() -> None:
    message = {"content": "Hi there", "reasoning": "hm", "tool_calls": [call("c1", "look", '{"a":1}'), call("c2", "ns__go", "{}")]}
    deltas = [
        *(ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("Hi"), TextDelta(" there")),
        *(ToolCallDelta(0, "c1", "look", '{"a"'), ToolCallDelta(1, "c2", "ns__go", ""), ToolCallDelta(0, None, None, ":1}")),
    ]
    inner = {"type": "function", "name": "go", "parameters": {"type": "object"}}
    tools = [{"type": "function", "name": "look"}, {"type": "namespace", "name": "ns", "tools": [inner]}, {"type": "web_search"}]
    found = responses(deltas, answer(message, "tool_calls"), tools=tools, include=["reasoning.encrypted_content"])
    created, in_progress, *middle, completed = found
    assert (created["type"], in_progress["type"], completed["type"]) == ("response.created", "response.in_progress", "response.completed")
    assert created["response"] == in_progress["response"]
    assert (created["response"]["status"], created["response"]["output"], created["response"]["tools"]) == ("in_progress", [], tools[:2])
    summary = {"type": "summary_text", "text": "hm"}
    reasoning = {"id": f"rs_{HEX}_0", "type": "reasoning", "summary": [summary], "encrypted_content": SEAL.seal("m-1", None)}
    text = {"type": "output_text", "text": "Hi there", "annotations": [], "logprobs": []}
    said = {"id": f"msg_{HEX}_1", "type": "message", "status": "completed", "role": "assistant", "content": [text]}
    look = {"id": f"fc_{HEX}_2", "type": "function_call", "status": "completed", "call_id": "c1", "name": "look", "arguments": '{"a":1}'}
    go = {**look, "id": f"fc_{HEX}_3", "call_id": "c2", "name": "go", "namespace": "ns", "arguments": "{}"}
    output = [{**reasoning, "status": "completed"}, said, look, go]
    rs = {"item_id": f"rs_{HEX}_0", "output_index": 0, "summary_index": 0}
    msg = {"item_id": f"msg_{HEX}_1", "output_index": 1, "content_index": 0}
    begun = {"id": f"rs_{HEX}_0", "type": "reasoning", "summary": [], "status": "in_progress"}
    assert middle == [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.reasoning_summary_part.added", **rs, "part": {**summary, "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **rs, "delta": "h"},
        {"type": "response.reasoning_summary_text.delta", **rs, "delta": "m"},
        {"type": "response.reasoning_summary_text.done", **rs, "text": "hm"},
        {"type": "response.reasoning_summary_part.done", **rs, "part": summary},
        {"type": "response.output_item.done", "output_index": 0, "item": output[0]},
        {"type": "response.output_item.added", "output_index": 1, "item": {**said, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **msg, "part": {**text, "text": ""}},
        {"type": "response.output_text.delta", **msg, "delta": "Hi", "logprobs": []},
        {"type": "response.output_text.delta", **msg, "delta": " there", "logprobs": []},
        {"type": "response.output_text.done", **msg, "text": "Hi there", "logprobs": []},
        {"type": "response.content_part.done", **msg, "part": text},
        {"type": "response.output_item.done", "output_index": 1, "item": said},
        *call_events(look, 2, ['{"a"', ":1}"]),
        *call_events(go, 3, ["{}"]),
    ]
    assert completed["response"] == {
        **created["response"],
        "status": "completed",
        "output": output,
        "usage": {
            "input_tokens": 13,
            "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 18,
        },
        "hermes": {"session": None, "backend": "own", "attempts": [], "cost_usd": 0.000007, "ignored": ["tools[2]: web_search"]},
    }


def call_events(item: dict[str, Any], index: int, pieces: list[str]) -> list[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": index}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress", "arguments": ""}},
        *({"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in pieces),
        {"type": "response.function_call_arguments.done", **place, "name": item["name"], "arguments": item["arguments"]},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def test_a_custom_call_a_refusal_and_nothing() -> None:
    written = call("c1", "shell", '{"input": "ls"}')
    deltas = [ToolCallDelta(0, "c1", "shell", '{"input": '), ToolCallDelta(0, None, None, '"ls"}')]
    found = responses(deltas, answer({"content": None, "tool_calls": [written]}), tools=[{"type": "custom", "name": "shell"}])
    place = {"item_id": f"ctc_{HEX}_0", "output_index": 0}
    item = {"id": f"ctc_{HEX}_0", "type": "custom_tool_call", "status": "completed", "call_id": "c1", "name": "shell", "input": "ls"}
    assert found[2:-1] == [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress", "input": ""}},
        {"type": "response.custom_tool_call_input.delta", **place, "delta": "ls"},
        {"type": "response.custom_tool_call_input.done", **place, "input": "ls"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    refused = responses([], answer({"content": None, "refusal": "No."}, "refusal"))
    assert [event["type"].removeprefix("response.") for event in refused] == [
        *("created", "in_progress", "output_item.added", "content_part.added", "refusal.delta", "refusal.done"),
        *("content_part.done", "output_item.done", "completed"),
    ]
    assert refused[-1]["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]
    silent = responses([], answer({"content": ""}, "content_filter"))[-1]
    assert (silent["type"], silent["response"]["incomplete_details"]) == ("response.incomplete", {"reason": "content_filter"})
    assert silent["response"]["output"][0]["content"][0]["text"] == ""


def test_a_response_that_breaks_off_has_one_end() -> None:
    error = CutShort("the answer broke off", backend="own", model="m-1", partial={}, usage=USAGE)
    found = responses([TextDelta("One")], error)
    assert [event["type"] for event in found][-2:] == ["response.output_text.delta", "response.failed"]
    assert found[-1]["response"]["status"] == "failed"
    assert found[-1]["response"]["error"] == {"code": "cut_short", "message": "The answer broke off."}


# --- messages


def messages(deltas: Iterable[Delta], last: Answer | Exception, **body: Any) -> list[dict[str, Any]]:
    asked = read_messages_request({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], **body}, SEAL)
    return events(MessagesWriter(asked, SEAL, "req_1"), deltas, last)


def test_a_message_with_thinking_text_and_a_call() -> None:
    thought = {"model": "m-1", "blocks": [SIGNED]}
    message = {"content": "Hi", "reasoning": "hm", "tool_calls": [call("c1", "look", '{"a":1}')], "thinking_blocks": thought}
    deltas = [ReasoningDelta("hm"), ReasoningDelta("", SIGNED), TextDelta("Hi"), ToolCallDelta(0, "c1", "look", '{"a":1}')]
    signature = SEAL.seal("m-1", {"type": "thinking", "signature": "s1"})
    head = {"id": f"msg_{HEX}", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    none = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 8, "output_tokens": 5}
    hermes = {"session": None, "backend": "own", "attempts": [], "cost_usd": 0.000007}
    begin = [{"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None, "usage": none}}, {"type": "ping"}]
    thinking = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": signature}},
        {"type": "content_block_stop", "index": 0},
    ]
    rest = [
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "c1", "name": "look", "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
        {"type": "content_block_stop", "index": 2},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": usage, "hermes": hermes},
        {"type": "message_stop"},
    ]
    # Signed thinking is shown to every client, because it has to come back.
    for wanted in ({}, {"thinking": {"type": "adaptive"}}):
        assert messages(deltas, answer(message, "tool_calls"), **wanted) == [*begin, *thinking, *rest]
    asked = read_messages_request({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}, SEAL)
    whole = MessagesWriter(asked, SEAL, "req_1").body([answer(message, "tool_calls")])
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": signature},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}},
    ]
    ending = {"stop_reason": "tool_use", "stop_sequence": None, "usage": usage, "hermes": hermes}
    assert whole == {**head, "content": blocks, **ending}
    unsigned = messages([ReasoningDelta("hm"), TextDelta("Hi")], answer({"content": "Hi", "reasoning": "hm"}))
    assert [event["content_block"]["type"] for event in unsigned if event["type"] == "content_block_start"] == ["text"]


@pytest.mark.parametrize(
    ("finish", "extra", "reason"),
    [
        ("stop", {}, "end_turn"),
        ("length", {}, "max_tokens"),
        ("content_filter", {}, "refusal"),
        ("refusal", {}, "refusal"),
        ("stop", {"stop_reason": "stop_sequence", "stop_sequence": "END"}, "stop_sequence"),
        ("length", {"stop_reason": "model_context_window_exceeded"}, "model_context_window_exceeded"),
        ("stop", {"stop_reason": "pause_turn"}, "end_turn"),
    ],
)
def test_why_a_message_ends(finish: str, extra: dict[str, str], reason: str) -> None:
    stop_sequence = extra.get("stop_sequence")
    *_, delta, _ = messages([TextDelta("a")], answer({"content": "a"}, finish, **extra))
    assert delta["delta"] == {"stop_reason": reason, "stop_sequence": stop_sequence}


def test_a_message_that_breaks_off_ends_with_an_error() -> None:
    error = CutShort("the answer broke off", backend="own", model="m-1", partial={}, usage=USAGE)
    *_, last = messages([TextDelta("One")], error)
    assert last == {"type": "error", "error": {"type": "api_error", "message": "The answer broke off."}, "request_id": "req_1"}
