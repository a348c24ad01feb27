"""Chat messages as OpenTelemetry writes them into spans. Used only if the operator captures content.

Images are left out: a span is no place for a megabyte, and the reference to a user's file would let others fetch it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.util.genai.types import (
    FunctionToolDefinition,
    InputMessage,
    MessagePart,
    OutputMessage,
    ReasoningPart,
    SystemInstructionPart,
    TextPart,
    ToolCallRequestPart,
    ToolCallResponsePart,
    ToolDefinition,
)

from hermes.ports.backends import ChatMessage, ToolSchema

SYSTEM = "system"


def system_parts(messages: Sequence[ChatMessage]) -> list[SystemInstructionPart]:
    """Return the system messages: the conventions keep them apart from the others."""
    return [TextPart(text) for message in messages if message.get("role") == SYSTEM for text in texts_of(message)]


def question_messages(messages: Sequence[ChatMessage]) -> list[InputMessage]:
    """Return all messages of a request but the system's."""
    return [InputMessage(role=str(message["role"]), parts=parts_of(message)) for message in messages if message.get("role") != SYSTEM]


def answer_message(message: ChatMessage) -> OutputMessage:
    return OutputMessage(role=str(message.get("role", "assistant")), parts=parts_of(message))


def text_message(role: str, text: str) -> InputMessage:
    return InputMessage(role=role, parts=[TextPart(text)])


def tool_definitions(tools: Sequence[ToolSchema]) -> list[ToolDefinition]:
    """Return the tools of a request by name and description; their parameters are the same in every request."""
    functions: Iterable[Mapping[str, Any]] = (tool["function"] for tool in tools)
    return [FunctionToolDefinition(name=each["name"], description=each.get("description"), parameters=None) for each in functions]


def parts_of(message: ChatMessage) -> list[MessagePart]:
    if message.get("role") == "tool":
        return [ToolCallResponsePart(response="\n".join(texts_of(message)), id=message.get("tool_call_id"))]
    parts: list[MessagePart] = []
    if message.get("reasoning"):
        parts.append(ReasoningPart(str(message["reasoning"])))
    parts += [TextPart(text) for text in texts_of(message)]
    for call in message.get("tool_calls") or ():
        function = call["function"]
        parts.append(ToolCallRequestPart(arguments=function["arguments"], name=function["name"], id=call.get("id")))
    return parts


def texts_of(message: ChatMessage) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content] if content else []
    return [part["text"] for part in content or () if part.get("type") == "text"]
