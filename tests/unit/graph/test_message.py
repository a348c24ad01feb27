"""Messages: every OpenAI shape comes back to the byte; what is no message is refused with the path to the fault."""

import enum
import json
from typing import Any

import pytest

from hermes import GraphError, MessageError, MessageGraph

SHAPES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
    {
        "role": "user",
        "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}],
    },
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}]},
    {"role": "user", "content": [{"type": "file", "file": {"file_id": "f1"}}], "name": "ann"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":  1e3}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '{"b": [1, 2.50]}'},
    {"role": "assistant", "content": "", "reasoning": "hm", "refusal": None},
    {"role": "assistant", "content": "x", "reasoning_content": "hm"},
    {"role": "assistant", "content": None, "refusal": "No."},
    {"role": "function", "name": "old", "content": "1"},
    {"role": "user", "content": "tab\t nul\x00 é 漢 😀 \ud800 \u2028", "x_vendor": {"deep": [None, True, -0.0, 10**30, {"": ""}]}},
    {"role": "assistant"},
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape['role']}-{'-'.join(list(shape)[1:])}")
def test_every_shape_comes_back_to_the_byte(shape: dict[str, Any]) -> None:
    chat = MessageGraph()
    chat.append(shape)
    assert json.dumps(chat[0]) == json.dumps(shape)
    assert json.dumps(list(MessageGraph.from_json(chat.to_json())), sort_keys=True) == json.dumps([shape], sort_keys=True)


def endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


REFUSED: dict[str, tuple[Any, str]] = {
    "no role": ({"content": "x"}, "message.role: missing"),
    "role null": ({"role": None}, "message.role: missing"),
    "unknown role": ({"role": "bot", "content": "x"}, "message.role: unknown role 'bot'"),
    "role a list": ({"role": ["user"], "content": "x"}, "message.role: unknown role"),
    "not a message": ("hello", "message: expected a message with a role, got str"),
    "a list": ([("role", "user")], "message: expected a message with a role, got list"),
    "none": (None, "message: expected a message with a role, got NoneType"),
    "content a number": ({"role": "user", "content": 5}, "message.content: expected text, parts or null, got int"),
    "content an object": ({"role": "user", "content": {"type": "text"}}, "message.content: expected text"),
    "part a string": ({"role": "user", "content": ["x"]}, r"message.content\[0\]: expected a part"),
    "part without type": (
        {"role": "user", "content": [{"type": "text", "text": ""}, {"text": "x"}]},
        r"message.content\[1\]: expected a part",
    ),
    "tool calls an object": ({"role": "assistant", "tool_calls": {"id": 1}}, "message.tool_calls: expected a list"),
    "tool call a string": ({"role": "assistant", "tool_calls": ["f"]}, r"message.tool_calls\[0\]: expected an object"),
    "tool call id a number": ({"role": "tool", "tool_call_id": 1}, "message.tool_call_id: expected text"),
    "reasoning a list": ({"role": "assistant", "reasoning": []}, "message.reasoning: expected text"),
    "nan": ({"role": "user", "x": [{"y": float("nan")}]}, r"message.x\[0\].y: nan is not a JSON number"),
    "infinity": ({"role": "user", "x": float("inf")}, "message.x: inf is not"),
    "bytes": ({"role": "user", "content": b"x"}, "message.content: bytes cannot be written as JSON"),
    "a set": ({"role": "user", "x": {"y": {1}}}, "message.x.y: set cannot be written"),
    "an object": ({"role": "user", "x": object()}, "message.x: object cannot be written"),
    "a number as key": ({"role": "user", "x": {1: 2}}, "message.x: key 1 is int"),
    "contains itself": ({"role": "user", "x": endless()}, r"nested deeper than"),
    "huge integer": ({"role": "user", "x": 10**5000}, "message.x: integer too large"),
    "metadata a string": ({"role": "user", "metadata": "x"}, "message.metadata: expected an object"),
    "chat a number": ({"role": "tool", "metadata": {"chat": 5}}, "message.metadata.chat: expected a MessageGraph"),
    "chat with a bad message": ({"role": "tool", "metadata": {"chat": [{"role": "x"}]}}, r"messages\[0\].role: unknown role"),
}


@pytest.mark.parametrize(("message", "complaint"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_the_path_to_the_fault_and_changes_nothing(message: Any, complaint: str) -> None:
    chat = MessageGraph([{"role": "user", "content": "a"}])
    chat.append({"role": "assistant", "content": "b"})
    before = chat.to_json()
    with pytest.raises(MessageError, match=complaint):
        chat.append(message)
    for operation in (
        lambda: chat.insert(0, message),
        lambda: chat.extend([{"role": "user", "content": "fine"}, message]),
        lambda: chat.__setitem__(0, message),
        lambda: chat.__setitem__(slice(0, 1), [{"role": "user", "content": "fine"}, message]),
        lambda: chat.compact(slice(0, 1), message if not isinstance(message, str) else 5),
        lambda: chat.commit(chat.prepare(), message),
        lambda: MessageGraph([message]),
    ):
        with pytest.raises(MessageError):
            operation()
    assert chat.to_json() == before


def test_the_path_names_the_message_among_many() -> None:
    with pytest.raises(MessageError, match=r"messages\[1\].role: missing") as caught:
        MessageGraph([{"role": "user"}, {"content": "x"}])
    assert (caught.value.path, isinstance(caught.value, ValueError), isinstance(caught.value, GraphError)) == (
        "messages[1].role",
        True,
        True,
    )
    chat = MessageGraph([{"role": "user", "content": "a"}] * 3)
    with pytest.raises(MessageError, match=r"messages\[2\].content"):
        chat[2]["content"] = 5
    with pytest.raises(MessageError, match=r"messages\[0\].role: missing"):
        del chat[0]["role"]
    assert chat == [{"role": "user", "content": "a"}] * 3


@pytest.mark.parametrize("source", ["abc", b"abc", 5, {"role": "user", "content": "x"}])
def test_what_is_no_list_of_messages_is_refused(source: Any) -> None:
    chat = MessageGraph()
    with pytest.raises(MessageError):
        chat.extend(source)
    with pytest.raises(MessageError):
        MessageGraph(source)
    assert chat == []


def test_subclasses_of_json_types_become_plain_values() -> None:
    class Role(enum.StrEnum):
        USER = "user"

    class Level(enum.IntEnum):
        HIGH = 3

    chat = MessageGraph([{"role": Role.USER, "content": "x", "level": Level.HIGH, "pair": (1, 2)}])
    assert [type(value) for value in chat[0].values()][:3] == [str, str, int]
    assert chat == [{"role": "user", "content": "x", "level": 3, "pair": [1, 2]}]


def test_takes_the_message_objects_that_client_libraries_return() -> None:
    class ChatCompletionMessage:
        """As the OpenAI client's: a model with fields that were set and fields that were not."""

        def model_dump(self, *, mode: str, exclude_unset: bool) -> dict[str, Any]:
            assert (mode, exclude_unset) == ("json", True)
            return {"role": "assistant", "content": "hi"}

    chat = MessageGraph()
    chat.append(ChatCompletionMessage())
    assert chat == [{"role": "assistant", "content": "hi"}]
    assert [response.message["content"] for response in chat.responses()] == ["hi"]


def test_later_changes_of_the_callers_dict_do_not_reach_the_graph() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    chat = MessageGraph([message])
    message["content"][0]["text"] = "b"  # type: ignore[index]
    message["role"] = "system"
    assert chat == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
