"""Fit a script's answer to the form that the request asks for: a tool that must be called, or JSON for a schema.

If no rule of the script answers a request that must call a tool, the call's arguments are made from the tool's schema. JSON is always made
from the schema that is asked for."""

from __future__ import annotations

import json
from dataclasses import replace

from hermes.backends.scripted.request_view import ANY_TOOL, forced_tool, last_text, own_words, text_of
from hermes.backends.scripted.rule import ScriptAnswer, ScriptToolCall
from hermes.backends.scripted.schema_values import SchemaValues
from hermes.ports.backends import ModelRequest


def fit_answer(answer: ScriptAnswer, ask: ModelRequest) -> ScriptAnswer:
    """Return the answer in the form that is asked for. An answer that fails or breaks off stays as it is."""
    if answer.fail is not None or answer.cut_after is not None:
        return answer
    must, tools = forced_tool(ask.tool_choice), {tool["function"]["name"]: tool["function"] for tool in ask.tools}
    if must is not None and tools:
        if not answer.is_otherwise:
            return answer
        name = next_tool(ask, list(tools)) if must == ANY_TOOL else must
        words = own_words(last_text(ask.messages, "user"))
        arguments = SchemaValues(tools.get(name, {}).get("parameters") or {"type": "object"}, words).value()
        return replace(answer, say="", calls=(ScriptToolCall(name=name, arguments=arguments if isinstance(arguments, dict) else {}),))
    form = ask.response_format or {}
    if answer.calls or form.get("type") not in ("json_schema", "json_object"):
        return answer
    schema = (form.get("json_schema") or {}).get("schema") if form["type"] == "json_schema" else None
    value = {"answer": answer.say} if schema is None else SchemaValues(schema, answer.say).value()
    return replace(answer, say=json.dumps(value, ensure_ascii=False, default=str))


def next_tool(ask: ModelRequest, names: list[str]) -> str:
    """The first tool that the chat has not called yet; the last one when all were: agents offer the tool that ends their work last."""
    calls = [call["function"]["name"] for message in ask.messages for call in message.get("tool_calls") or ()]
    texts = [text_of(message) for message in ask.messages if message["role"] == "assistant"]
    return next((name for name in names if name not in calls and not any(name in text for text in texts)), names[-1])
