"""The scripted model fills in the forms that agents ask for: every value is valid for its schema."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hermes.backends.scripted.backend import ScriptedBackend
from hermes.backends.scripted.schema_values import SchemaValues
from hermes.backends.scripted.script import Script
from hermes.ports.backends import ChatMessage, ModelRequest

NODE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["name", "next"],
    "additionalProperties": False,
}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"kind": {"enum": ["cafe", "bar"]}, "open": {"type": "boolean"}}, "required": ["kind", "open"]},
    {"type": "object", "properties": {"at": {"type": "object", "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90}}}}},
    {"type": "array", "items": {"type": "integer", "minimum": 5, "multipleOf": 5}, "minItems": 3, "maxItems": 4},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "items": False},
    {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 3, "uniqueItems": True},
    {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    {"allOf": [{"properties": {"a": {"const": 7}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]},
    {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
    *({"type": "string", "format": name} for name in ("date", "time", "email", "ipv4", "ipv6", "uuid", "uri", "duration", "hostname")),
    {"type": "string", "minLength": 30, "maxLength": 31},
    {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{3}$"},
    {"type": "string", "pattern": "^[0-9]{5}$"},
    {"type": ["string", "null"], "maxLength": 3},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "integer", "exclusiveMinimum": 7, "maximum": 8},
    {"type": "number", "minimum": 10},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    {"type": "object", "properties": {}, "required": ["left"], "additionalProperties": {"type": "boolean"}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
def test_a_value_is_valid_for_its_schema(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    value = SchemaValues(schema, "Find me a cafe").value()
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)
    assert json.loads(json.dumps(value)) == value


async def test_a_script_calls_the_tool_that_must_be_called_and_answers_in_the_form_that_is_asked_for() -> None:
    model = ScriptedBackend(Script.parse('otherwise = "Pardon?"'))
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {what: {"type": "string"}}}}}
        for name, what in (("look", "place"), ("final_answer", "answer"))
    ]

    async def ask(*messages: dict[str, Any], **more: Any) -> ChatMessage:
        request = ModelRequest(messages=[{"role": "user", "content": "zxcv qwer"}, *messages], max_tokens=500, **more)
        return (await model.complete(request, "any", timeout_s=5)).message

    first = await ask(tools=tools, tool_choice="required")
    [call] = first["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("look", {"place": "zxcv qwer"})
    result = {"role": "tool", "tool_call_id": call["id"], "content": "nothing"}
    [last] = (await ask(dict(first), result, tools=tools, tool_choice="required"))["tool_calls"]
    assert last["function"]["name"] == "final_answer", "agents offer the tool that ends their work last"
    [named] = (await ask(tools=tools, tool_choice={"type": "function", "function": {"name": "final_answer"}}))["tool_calls"]
    assert named["function"]["name"] == "final_answer"
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}, "required": ["text", "n"]}
    form = {"type": "json_schema", "json_schema": {"name": "it", "strict": True, "schema": schema}}
    said = json.loads((await ask(response_format=form))["content"])
    Draft202012Validator(schema).validate(said)
    assert isinstance(json.loads((await ask(response_format={"type": "json_object"}))["content"]), dict)
