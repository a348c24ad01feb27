"""Read a request of OpenAI's Responses API into a chat request: items become messages, tools become functions. Pure.

A function tool stays one. A custom tool becomes a function with one text, `input`; a namespaced one a function with a longer name; the
answer is turned back. Tools that OpenAI runs itself are left out, unless nothing else is left or the request insists on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.gateway.chat_request import InvalidChatRequest, integer_field, metadata_of, text_field, typed_field
from hermes.gateway.response_items import CUSTOM_INPUT, DROPPED_ITEMS, function_name, tool_name

CUSTOM_PARAMETERS = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string"}},
    "required": [CUSTOM_INPUT],
    "additionalProperties": False,
}
PASSED_FIELDS = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("chat_template_kwargs", "parallel_tool_calls", "prompt_cache_key", "service_tier", "user", "metadata"),
)
"""Fields that mean the same in both APIs."""
READ_FIELDS = frozenset(
    {*PASSED_FIELDS, "model", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "max_output_tokens", "stream"}
    | {"previous_response_id", "store", "include", "top_logprobs", "truncation", "safety_identifier", "stream_options", "background"}
)
REFUSED_FIELDS = {
    "conversation": "conversations are not kept here; use previous_response_id",
    "prompt": "stored prompts are not kept here; send instructions",
    "background": "responses are not made in the background",
}
ENCRYPTED_REASONING = "reasoning.encrypted_content"
LOGPROBS_INCLUDED = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True)
class ToolName:
    """A tool as the client calls it, where the model is shown another name or form."""

    name: str
    is_custom: bool = False
    namespace: str | None = None

    def to_json(self) -> list[Any]:
        return [self.name, self.is_custom, self.namespace]


@dataclass(slots=True)
class ResponsesTools:
    """The tools of a request: as chat functions, as the client wrote them, and their names."""

    functions: list[Mapping[str, Any]] = field(default_factory=list)
    shown: list[Mapping[str, Any]] = field(default_factory=list)
    names: dict[str, ToolName] = field(default_factory=dict)
    """By the function's name."""
    ignored: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesRequest:
    """A request, checked. `chat` is the chat request without its messages."""

    chat: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]]
    instructions: str | None
    previous: str | None
    store: bool
    include: frozenset[str]
    shown: Mapping[str, Any]
    """The fields that the response repeats."""
    tools: ResponsesTools
    ignored: Sequence[str]
    """The fields, tools and items that were left out."""

    @property
    def wants_encrypted(self) -> bool:
        return ENCRYPTED_REASONING in self.include

    @property
    def references(self) -> list[str]:
        """The ids of the items that the client names instead of sending them."""
        return [item["id"] for item in self.items if item.get("type") == "item_reference"]


def read_responses_request(body: Any) -> ResponsesRequest:
    """Check a body. Raises InvalidChatRequest for the first field that is wrong."""
    if not isinstance(body, dict):
        raise InvalidChatRequest("body", "expected a JSON object", body)
    for name, advice in REFUSED_FIELDS.items():
        if body.get(name):
            raise InvalidChatRequest(name, advice)
    items = items_of(body.get("input"))
    text, reasoning = typed_field(dict, body, "text", {}), typed_field(dict, body, "reasoning", {})
    include = frozenset(item for item in typed_field(list, body, "include", []) if isinstance(item, str))
    added = [tool for item in items if item.get("type") == "additional_tools" for tool in typed_field(list, item, "tools", [])]
    tools = tools_of([*typed_field(list, body, "tools", []), *added], "tools")
    choice, functions = tool_choice_of(body.get("tool_choice"), tools)
    top_logprobs = integer_field(body, "top_logprobs", 0, 20)
    chat: dict[str, Any] = {
        "model": text_field(body, "model"),
        **{name: body[name] for name in PASSED_FIELDS if body.get(name) is not None},
        "max_tokens": integer_field(body, "max_output_tokens", 1),
        "stream": typed_field(bool, body, "stream", default=False),
        "tools": functions or None,
        "tool_choice": choice if functions or isinstance(choice, dict) else None,
        "response_format": response_format_of(text.get("format")),
        "reasoning_effort": reasoning.get("effort"),
        "verbosity": text.get("verbosity"),
        "logprobs": True if LOGPROBS_INCLUDED in include or top_logprobs else None,
        "top_logprobs": top_logprobs,
    }
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise InvalidChatRequest("instructions", "expected text", instructions)
    unread = [name for name, value in body.items() if name not in READ_FIELDS and value not in (None, [], {}, False)]
    dropped = [f"input[{at}]: {item['type']}" for at, item in enumerate(items) if item.get("type") in DROPPED_ITEMS]
    return ResponsesRequest(
        chat={name: value for name, value in chat.items() if value is not None},
        items=items,
        instructions=instructions or None,
        previous=text_field(body, "previous_response_id", default="") or None,
        store=typed_field(bool, body, "store", default=True),
        include=include,
        shown={
            "instructions": instructions or None,
            "max_output_tokens": chat["max_tokens"],
            "metadata": metadata_of(body),
            "parallel_tool_calls": body.get("parallel_tool_calls", True) is not False,
            "previous_response_id": body.get("previous_response_id"),
            "prompt_cache_key": body.get("prompt_cache_key"),
            "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
            "safety_identifier": body.get("safety_identifier"),
            "service_tier": body.get("service_tier"),
            "store": typed_field(bool, body, "store", default=True),
            "temperature": body.get("temperature"),
            "text": {**text, "format": text.get("format") or {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": tools.shown,
            "top_logprobs": top_logprobs or 0,
            "top_p": body.get("top_p"),
            "truncation": body.get("truncation") or "disabled",
            "user": body.get("user"),
        },
        tools=tools,
        ignored=[*unread, *tools.ignored, *dropped],
    )


def items_of(given: Any) -> list[Mapping[str, Any]]:
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    if not isinstance(given, list):
        raise InvalidChatRequest("input", "missing" if given is None else "expected text or a list of items", given)
    for at, item in enumerate(given):
        if not isinstance(item, dict):
            raise InvalidChatRequest(f"input[{at}]", "expected an item: an object with a type", item)
        if not isinstance(item.get("type"), str | None):
            raise InvalidChatRequest(f"input[{at}].type", "expected the name of a type", item["type"])
        if item.get("type") == "item_reference" and not isinstance(item.get("id"), str):
            raise InvalidChatRequest(f"input[{at}].id", "expected the id of an item", item.get("id"))
    return given


# --- tools


def tools_of(given: Sequence[Any], path: str) -> ResponsesTools:
    tools = ResponsesTools()
    for at, tool in enumerate(given):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(kind, str):
            raise InvalidChatRequest(f"{path}[{at}]", "expected a tool: an object with a type", tool)
        if kind in ("function", "custom"):
            add_tool(tools, tool, f"{path}[{at}]")
        elif kind == "namespace":
            for number, inner in enumerate(typed_field(list, tool, "tools", [])):
                add_tool(tools, inner, f"{path}[{at}].tools[{number}]", namespace=tool_name(tool, f"{path}[{at}]"))
        else:
            tools.ignored.append(f"{path}[{at}]: {kind}")
            continue
        tools.shown.append(tool)
    if given and not tools.functions:
        kinds = ", ".join(sorted({tool["type"] for tool in given}))
        raise InvalidChatRequest(path, f"Hermes runs no built-in tools ({kinds}); send functions")
    return tools


def add_tool(tools: ResponsesTools, tool: Any, path: str, namespace: str | None = None) -> None:
    """Add a function or a custom tool. Raises InvalidChatRequest."""
    if not isinstance(tool, dict) or tool.get("type", "function") not in ("function", "custom"):
        raise InvalidChatRequest(path, "expected a function or a custom tool", tool)
    name = tool_name(tool, path)
    is_custom = tool.get("type") == "custom"
    flat = name if namespace is None else function_name(name, namespace)
    if is_custom or namespace is not None:
        tools.names[flat] = ToolName(name, is_custom, namespace)
    function = {"name": flat, "description": tool.get("description"), "parameters": tool.get("parameters"), "strict": tool.get("strict")}
    if is_custom:
        function |= {"description": describe_custom(tool) or None, "parameters": CUSTOM_PARAMETERS, "strict": None}
    tools.functions.append({"type": "function", "function": {key: value for key, value in function.items() if value is not None}})


def describe_custom(tool: Mapping[str, Any]) -> str:
    """What a model is told of a custom tool: the grammar of its input is part of it, because no server here enforces it."""
    form = tool.get("format")
    grammar = form.get("definition") if isinstance(form, dict) else None
    return "\n\n".join(filter(None, (tool.get("description"), f"The input follows this grammar:\n{grammar}" if grammar else None)))


def tool_choice_of(choice: Any, tools: ResponsesTools) -> tuple[Any, list[Mapping[str, Any]]]:
    """The choice as chat completions write it, and the functions that may be called."""
    if choice is None or isinstance(choice, str):
        return choice, tools.functions
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind in ("function", "custom"):
        return {"type": "function", "function": {"name": chosen_name(choice)}}, tools.functions
    if kind == "allowed_tools":
        allowed = {chosen_name(tool) for tool in typed_field(list, choice, "tools", []) if isinstance(tool, dict) and "name" in tool}
        return choice.get("mode", "auto"), [tool for tool in tools.functions if tool["function"]["name"] in allowed]
    raise InvalidChatRequest("tool_choice", f"Hermes runs no built-in tools ({kind}); choose a function")


def chosen_name(choice: Mapping[str, Any]) -> str:
    name, namespace = tool_name(choice, "tool_choice"), choice.get("namespace")
    return function_name(name, namespace) if isinstance(namespace, str) else name


def response_format_of(form: Any) -> Mapping[str, Any] | None:
    if form is None or (isinstance(form, dict) and form.get("type") == "text"):
        return None
    if isinstance(form, dict) and form.get("type") == "json_object":
        return {"type": "json_object"}
    if not isinstance(form, dict) or form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        raise InvalidChatRequest("text.format", "expected text, json_object, or json_schema with a schema", form)
    schema = {name: form[name] for name in ("name", "description", "schema", "strict") if form.get(name) is not None}
    return {"type": "json_schema", "json_schema": {"name": "answer", **schema}}
