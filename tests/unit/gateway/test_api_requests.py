"""Requests as Codex and Claude Code send them, and every kind of item and block: what they become as chat requests."""

import json
from typing import Any

import pytest

from hermes.gateway.chat_request import InvalidChatRequest, read_request
from hermes.gateway.embeddings_request import read_embeddings_request
from hermes.gateway.messages_request import MessagesRequest, read_messages_request
from hermes.gateway.response_items import ItemReader
from hermes.gateway.responses_request import read_responses_request
from hermes.gateway.thinking_seal import ThinkingSeal

SEAL = ThinkingSeal("hk_one")
OWNER = "0" * 31 + "1"
PNG = "data:image/png;base64,AA=="
BLOCK = {"name": "look", "input_schema": {"type": "object"}}


def function(name: str, arguments: str = "{}", call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def messages_of(body: dict[str, Any]) -> MessagesRequest:
    return read_messages_request(body, SEAL)


def items(*given: dict[str, Any]) -> ItemReader:
    reader = ItemReader(SEAL)
    for at, item in enumerate(given):
        reader.read(item, f"input[{at}]")
    return reader


def test_codex() -> None:
    parameters = {"type": "object", "properties": {"cmd": {"type": "string"}}}
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    asked = read_responses_request(
        {
            "model": "hermes",
            "stream": True,
            "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            ],
            "tools": [
                {"type": "function", "name": "exec_command", "parameters": parameters, "strict": False},
                {"type": "web_search", "external_web_access": False},
                {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": grammar},
                {"type": "namespace", "name": "mcp__files__", "tools": [{"type": "function", "name": "read", "parameters": parameters}]},
                {"type": "tool_search", "execution": "client"},
            ],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"effort": "high", "summary": "auto"},
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "thread-1",
            "client_metadata": {"x": "y"},
            "text": {"verbosity": "low"},
        }
    )
    custom = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": False}
    described = {"name": "apply_patch", "description": "Patch.\n\nThe input follows this grammar:\nstart: /.+/", "parameters": custom}
    assert asked.chat == {
        "model": "hermes",
        "stream": True,
        "parallel_tool_calls": True,
        "prompt_cache_key": "thread-1",
        "tools": [
            {"type": "function", "function": {"name": "exec_command", "parameters": parameters, "strict": False}},
            {"type": "function", "function": described},
            {"type": "function", "function": {"name": "mcp__files__read", "parameters": parameters}},
        ],
        "tool_choice": "auto",
        "reasoning_effort": "high",
        "verbosity": "low",
    }
    assert (asked.store, asked.wants_encrypted) == (False, True)
    assert asked.ignored == ["client_metadata", "tools[1]: web_search", "tools[4]: tool_search"]
    assert items(*asked.items).messages == [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    read_request({**asked.chat, "messages": items(*asked.items).messages}, max_choices=1)


def test_the_items_of_one_answer_are_one_message() -> None:
    block = {"type": "thinking", "thinking": "Where?", "signature": "s1"}
    reader = items(
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_image", "image_url": PNG, "detail": "low"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Where?"}], "encrypted_content": SEAL.seal("m", block)},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
        {"type": "function_call", "call_id": "c1", "name": "read", "namespace": "ns", "arguments": '{"a":1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "shell", "input": 'echo "é"'},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "sun"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "é"},
        {"type": "reasoning", "summary": [], "encrypted_content": "of another server"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "message", "role": "assistant", "content": "And one more."},
    )
    shell = function("shell", '{"input": "echo \\"é\\""}', "c2")
    assert reader.messages == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}]},
        {"role": "assistant", "reasoning": "Where?", "content": "Looking.", "tool_calls": [function("ns__read", '{"a":1}'), shell]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sun"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "é"},
        {"role": "assistant", "refusal": "No."},
        {"role": "assistant", "content": "And one more."},
    ]
    assert reader.thinking == {1: {"model": "m", "blocks": [block], "places": [[0, 0]]}}


def test_our_own_items_find_their_message_again_wherever_they_stand() -> None:
    reader = items(
        {"type": "function_call", "id": f"fc_{OWNER}_0", "call_id": "c1", "name": "a", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call", "id": f"fc_{OWNER}_1", "call_id": "c2", "name": "b", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": "2"},
    )
    assert [message["role"] for message in reader.messages] == ["assistant", "tool", "tool"]
    assert reader.messages[0]["tool_calls"] == [function("a"), function("b", call_id="c2")]


@pytest.mark.parametrize(
    ("choice", "wanted", "left"),
    [
        ("required", "required", ["a", "ns__b"]),
        ({"type": "function", "name": "a"}, {"type": "function", "function": {"name": "a"}}, ["a", "ns__b"]),
        ({"type": "function", "name": "b", "namespace": "ns"}, {"type": "function", "function": {"name": "ns__b"}}, ["a", "ns__b"]),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "a"}]}, "required", ["a"]),
    ],
)
def test_which_tool_is_chosen(choice: Any, wanted: Any, left: list[str]) -> None:
    tools = [{"type": "function", "name": "a"}, {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "b"}]}]
    chat = read_responses_request({"model": "m", "input": "Hi", "tools": tools, "tool_choice": choice}).chat
    assert (chat["tool_choice"], [tool["function"]["name"] for tool in chat["tools"]]) == (wanted, left)


# --- messages


def messages(turns: list[Any], **body: Any) -> MessagesRequest:
    return read_messages_request({"model": "m", "max_tokens": 9, "messages": turns, **body}, SEAL)


def test_claude_code() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    user_id = json.dumps({"device_id": "d-1", "account_uuid": "", "session_id": "s-1"})
    asked = messages(
        [
            {"role": "user", "content": [{"type": "text", "text": "<reminder>"}, {"type": "text", "text": "Hi", **cached}]},
            {"role": "system", "content": "Agents: none."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}, **cached}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a b", "is_error": False}]},
        ],
        model="hermes",
        max_tokens=32_000,
        stream=True,
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cch=00000"},
            {"type": "text", "text": "You are Claude Code.", **cached},
            {"type": "text", "text": "Be brief.", **cached},
        ],
        tools=[{"name": "Bash", "description": "Run.", "input_schema": schema, **cached}],
        thinking={"type": "adaptive"},
        output_config={"effort": "high"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        metadata={"user_id": user_id},
    )
    assert asked.chat == {
        "model": "hermes",
        "max_tokens": 32_000,
        "messages": [
            {"role": "system", "content": "You are Claude Code.\n\nBe brief."},
            {"role": "user", "content": [{"type": "text", "text": "<reminder>"}, {"type": "text", "text": "Hi"}]},
            {"role": "system", "content": "Agents: none."},
            {"role": "assistant", "tool_calls": [function("Bash", '{"command": "ls"}')]},
            {"role": "tool", "tool_call_id": "c1", "content": "a b"},
        ],
        "stream": True,
        "tools": [{"type": "function", "function": {"name": "Bash", "description": "Run.", "parameters": schema}}],
        "thinking": {"type": "adaptive"},
        "reasoning_effort": "high",
        "user": "d-1",
        "metadata": {"session_id": "s-1"},
        "prompt_cache_key": "s-1",
    }
    assert (asked.wants_thinking, asked.ignored) == (True, ["context_management"])
    read_request(asked.chat, max_choices=1)


def test_every_block() -> None:
    thought = {"type": "thinking", "thinking": "Where?", "signature": SEAL.seal("m", {"type": "thinking", "signature": "s1"})}
    hidden = {"type": "redacted_thinking", "data": SEAL.seal("m", {"type": "redacted_thinking", "data": "d1"})}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "AA=="}
    asked = messages(
        [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                    {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
                    {"type": "document", "source": pdf, "title": "Menu"},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
                    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "inner"}]}},
                    {"type": "search_result", "title": "T", "source": "S", "content": [{"type": "text", "text": "found"}]},
                ],
            },
            {"role": "assistant", "content": [thought, {"type": "text", "text": "Hm. "}, hidden]},
            {
                "role": "assistant",
                "content": [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "text", "text": "Yes."}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "And"},
                    {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": [{"type": "text", "text": "no"}]},
                    {"type": "tool_result", "tool_use_id": "c2"},
                ],
            },
        ],
        stop_sequences=["END"],
        top_k=3,
        metadata={"user_id": "user_abc_account__session_01234567-89ab"},
    )
    assert asked.chat["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": PNG}},
                {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "Menu"}},
                {"type": "text", "text": "plain"},
                {"type": "text", "text": "inner"},
                {"type": "text", "text": "T\nS\nfound"},
            ],
        },
        {"role": "assistant", "reasoning": "Where?", "content": "Hm. Yes."},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "no"}], "is_error": True},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "And"}]},
    ]
    blocks = [{"type": "thinking", "signature": "s1", "thinking": "Where?"}, {"type": "redacted_thinking", "data": "d1"}]
    assert asked.thinking == {1: {"model": "m", "blocks": blocks, "places": [[0, 0], [4, 0]]}}
    assert {name: asked.chat[name] for name in ("stop", "top_k", "user", "metadata")} == {
        "stop": ["END"],
        "top_k": 3,
        "user": "user_abc_account_",
        "metadata": {"session_id": "01234567-89ab"},
    }
    assert asked.ignored == ["messages[2].content[0]: server_tool_use"]


def test_a_wrong_block_is_named_by_its_place() -> None:
    for content, param in (
        (3, "messages[0].content"),
        ([{"type": "text"}], "messages[0].content[0]"),
        ([{"type": "container_upload", "file_id": "f"}], "messages[0].content[0].type"),
        ([{"type": "tool_result", "tool_use_id": "c", "content": 3}], "messages[0].content[0].content"),
    ):
        with pytest.raises(InvalidChatRequest) as wrong:
            messages([{"role": "user", "content": content}])
        assert wrong.value.param == param


def test_a_wrong_value_is_shown() -> None:
    roles = 'messages[0].role: expected user, assistant or system, and got "Wizard"'
    for read, body, message in (
        (read_responses_request, {"input": 3}, "input: expected text or a list of items, and got 3"),
        (read_responses_request, {"tools": ["Look"]}, 'tools[0]: expected a tool: an object with a type, and got "Look"'),
        (read_embeddings_request, {"input": []}, "input: expected text, a list of texts, token ids or a list of those, and got []"),
        (read_embeddings_request, {"encoding_format": "Hex"}, 'encoding_format: expected float or base64, and got "Hex"'),
        (
            messages_of,
            {"tool_choice": {"type": "Any"}, "tools": [BLOCK]},
            'tool_choice.type: expected auto, any, tool or none, and got "Any"',
        ),
        (
            messages_of,
            {"tool_choice": {"type": "tool", "name": "Leap"}},
            'tool_choice.name: there is no such tool in tools, and got "Leap"',
        ),
        (messages_of, {"messages": [{"role": "Wizard"}]}, roles),
    ):
        whole = {"model": "m", "input": "hi", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **body}
        with pytest.raises(InvalidChatRequest) as wrong:
            read(whole)
        assert str(wrong.value) == message


def test_a_tool_that_is_not_offered_is_refused_also_if_none_is() -> None:
    asked = read_responses_request({"model": "m", "input": "hi", "tool_choice": {"type": "function", "name": "Leap"}})
    with pytest.raises(InvalidChatRequest, match='no tool "Leap" among the tools of this request'):
        read_request({**asked.chat, "messages": [{"role": "user", "content": "hi"}]}, max_choices=1)
