"""Read a request of Anthropic's Messages API into a chat request: blocks become messages, input schemas become functions. Pure.

What is only about Anthropic's own machines (cache marks, tools that it runs itself, context management) is left out, and named in the
answer. `backends/anthropic_request.py` is the way back, for a vendor that speaks this API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.gateway.chat_request import MAX_FIELD_CHARS, InvalidChatRequest, integer_field, text_field, typed_field
from hermes.gateway.thinking_seal import ThinkingSeal, add_thinking

READ_FIELDS = frozenset(
    {"model", "messages", "system", "max_tokens", "tools", "tool_choice", "thinking", "output_config", "output_format", "stop_sequences"}
    | {"metadata", "stream", "temperature", "top_p", "top_k", "cache_control"}
)
BILLING_LINE = "x-anthropic-billing-header:"
"""Claude Code's first block of system text begins so. It changes with every request and is for Anthropic's own accounts."""
SESSION_IN_USER = re.compile(r"(.+?)_session_([0-9a-fA-F-]{8,})")
SERVER_BLOCKS = re.compile(r"server_tool_use|mcp_tool_(use|result)|\w+_tool_result|compaction|fallback")
"""Blocks of tools that Anthropic runs itself."""
TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}

Block = Mapping[str, Any]


@dataclass(slots=True)
class MessagesRequest:
    """A request, checked. `chat` is the chat request."""

    chat: dict[str, Any] = field(default_factory=dict)
    thinking: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Thinking in its vendor's own form, by the place of its message."""
    wants_thinking: bool = False
    ignored: list[str] = field(default_factory=list)
    """The fields, tools and blocks that were left out."""


def read_messages_request(body: Any, seal: ThinkingSeal, *, needs_limit: bool = True) -> MessagesRequest:
    """Check a body. Raises InvalidChatRequest for the first field that is wrong. `needs_limit`: `max_tokens` must be there."""
    if not isinstance(body, dict):
        raise InvalidChatRequest("body", "expected a JSON object", body)
    if body.get("mcp_servers"):
        raise InvalidChatRequest("mcp_servers", "MCP servers are not asked from here; send their tools as functions")
    read = MessagesRequest()
    read.ignored += [name for name, value in body.items() if name not in READ_FIELDS and value not in (None, [], {}, False)]
    max_tokens = integer_field(body, "max_tokens", 1)
    if max_tokens is None and needs_limit:
        raise InvalidChatRequest("max_tokens", "missing")
    thinking, output = typed_field(dict, body, "thinking", {}), typed_field(dict, body, "output_config", {})
    read.wants_thinking = thinking.get("type") not in (None, "disabled")
    tools = tools_of(typed_field(list, body, "tools", []), read.ignored)
    choice = typed_field(dict, body, "tool_choice", {})
    stops = typed_field(list, body, "stop_sequences", [])
    user, session = user_of(typed_field(dict, body, "metadata", {}).get("user_id"))
    chat = {
        "model": text_field(body, "model"),
        "max_tokens": max_tokens,
        "messages": MessageReader(seal, read).read(body),
        "stream": typed_field(bool, body, "stream", default=False),
        "tools": tools or None,
        "tool_choice": tool_choice_of(choice, tools) if tools or choice.get("type") == "tool" else None,
        "parallel_tool_calls": False if choice.get("disable_parallel_tool_use") and tools else None,
        "thinking": thinking or None,
        "reasoning_effort": output.get("effort"),
        "response_format": response_format_of(output.get("format") or body.get("output_format")),
        "stop": stops or None,
        **{name: body.get(name) for name in ("temperature", "top_p", "top_k")},
        "user": user,
        "metadata": {"session_id": session} if session else None,
        "prompt_cache_key": session,  # it means the same: requests that share a beginning
    }
    read.chat = {name: value for name, value in chat.items() if value is not None}
    return read


def user_of(user_id: Any) -> tuple[str | None, str | None]:
    """The client's name for the end user, and of its session. Claude Code puts both into one text."""
    if user_id is None:
        return None, None
    if not isinstance(user_id, str):
        raise InvalidChatRequest("metadata.user_id", "expected text", user_id)
    if match := SESSION_IN_USER.fullmatch(user_id):
        return match[1], match[2]
    try:
        told = json.loads(user_id) if user_id.startswith("{") else None
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        return user_id, None
    name = next((told[key] for key in ("account_uuid", "device_id") if isinstance(told.get(key), str) and told[key]), None)
    session = told.get("session_id")
    return name, session if isinstance(session, str) and 0 < len(session) <= MAX_FIELD_CHARS else None


# --- tools


def tools_of(given: Sequence[Any], ignored: list[str]) -> list[dict[str, Any]]:
    """The tools as functions. Tools that Anthropic runs or knows itself are left out, unless nothing else is left."""
    tools = []
    for at, tool in enumerate(given):
        if not isinstance(tool, dict) or not isinstance(tool.get("name", ""), str):
            raise InvalidChatRequest(f"tools[{at}]", "expected a tool: an object with a name and an input_schema", tool)
        if tool.get("type") not in (None, "custom"):
            ignored.append(f"tools[{at}]: {tool['type']}")
            continue
        if not tool.get("name") or not isinstance(tool.get("input_schema"), dict):
            raise InvalidChatRequest(f"tools[{at}]", "expected a name and an input_schema", tool)
        function = {"name": tool["name"], "description": tool.get("description"), "parameters": tool["input_schema"]}
        function |= {"strict": tool.get("strict")}
        tools.append({"type": "function", "function": {key: value for key, value in function.items() if value is not None}})
    if given and not tools:
        kinds = ", ".join(sorted({str(tool["type"]) for tool in given}))
        raise InvalidChatRequest("tools", f"Hermes runs no built-in tools ({kinds}); send tools with an input_schema")
    return tools


def tool_choice_of(choice: Block, tools: Sequence[Mapping[str, Any]]) -> Any:
    kind = choice.get("type")
    if kind is None:
        return None
    if kind == "tool":
        name = choice.get("name")
        if name not in [tool["function"]["name"] for tool in tools]:
            raise InvalidChatRequest("tool_choice.name", "there is no such tool in tools", name)
        return {"type": "function", "function": {"name": name}}
    if kind not in TOOL_CHOICES:
        raise InvalidChatRequest("tool_choice.type", "expected auto, any, tool or none", kind)
    return TOOL_CHOICES[kind]


def response_format_of(form: Any) -> dict[str, Any] | None:
    if form is None:
        return None
    if not isinstance(form, dict) or form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        raise InvalidChatRequest("output_config.format", "expected json_schema with a schema", form)
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": form["schema"], "strict": True}}


# --- messages


class MessageReader:
    """Reads turns of blocks into messages: a tool's result becomes a message of its own, before the rest of its turn."""

    def __init__(self, seal: ThinkingSeal, read: MessagesRequest) -> None:
        self._seal, self._read = seal, read
        self._messages: list[dict[str, Any]] = []

    def read(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the messages of a request. Raises InvalidChatRequest."""
        if system := system_text(body.get("system"), "system"):
            self._messages.append({"role": "system", "content": system})
        turns = body.get("messages")
        if not isinstance(turns, list) or not turns:
            raise InvalidChatRequest("messages", "expected a list with at least one message", turns)
        for at, turn in enumerate(turns):
            path = f"messages[{at}]"
            if not isinstance(turn, dict) or turn.get("role") not in ("user", "assistant", "system"):
                raise InvalidChatRequest(
                    f"{path}.role", "expected user, assistant or system", turn.get("role") if isinstance(turn, dict) else turn
                )
            content = turn.get("content")
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
                raise InvalidChatRequest(f"{path}.content", "expected text or a list of blocks", content)
            match turn["role"]:
                case "assistant":
                    self._add_assistant(blocks, f"{path}.content")
                case "system":
                    self._messages.append({"role": "system", "content": system_text(blocks, f"{path}.content")})
                case _:
                    self._add_user(content, blocks, f"{path}.content")
        return self._messages

    def _add_user(self, content: Any, blocks: Sequence[Block], path: str) -> None:
        parts = []
        for at, block in enumerate(blocks):
            if block.get("type") != "tool_result":
                parts += parts_of(block, f"{path}[{at}]")
                continue
            given = block.get("content")
            result: dict[str, Any] = {"role": "tool", "tool_call_id": text_field(block, "tool_use_id"), "content": given or ""}
            if isinstance(given, list):
                inner = [part for number, one in enumerate(given) for part in parts_of(one, f"{path}[{at}].content[{number}]")]
                result["content"] = inner
            elif given is not None and not isinstance(given, str):
                raise InvalidChatRequest(f"{path}[{at}].content", "expected text or a list of blocks", given)
            if block.get("is_error"):
                result["is_error"] = True
            self._messages.append(result)
        if parts or not blocks:
            self._messages.append({"role": "user", "content": content if isinstance(content, str) else parts})

    def _add_assistant(self, blocks: Sequence[Block], path: str) -> None:
        if not self._messages or self._messages[-1]["role"] != "assistant":
            self._messages.append({"role": "assistant"})
        message, at = self._messages[-1], len(self._messages) - 1
        for number, block in enumerate(blocks):
            match block.get("type"):
                case "text":
                    message["content"] = message.get("content", "") + text_of(block, f"{path}[{number}]")
                case "tool_use":
                    arguments = json.dumps(typed_field(dict, block, "input", {}), ensure_ascii=False)
                    function = {"name": text_field(block, "name"), "arguments": arguments}
                    message.setdefault("tool_calls", []).append({"id": text_field(block, "id"), "type": "function", "function": function})
                case "thinking" | "redacted_thinking":
                    self._add_thinking(message, at, block, f"{path}[{number}]")
                case str(kind) if SERVER_BLOCKS.fullmatch(kind):
                    self._read.ignored.append(f"{path}[{number}]: {kind}")
                case _:
                    raise InvalidChatRequest(f"{path}[{number}].type", "unknown type of block", block.get("type"))

    def _add_thinking(self, message: dict[str, Any], at: int, block: Block, path: str) -> None:
        """Add thinking of ours. Another server's signature means nothing to a model here."""
        sealed = self._seal.open(block.get("data" if block["type"] == "redacted_thinking" else "signature"))
        if sealed is None:
            self._read.ignored.append(f"{path}: {block['type']} of another server or key")
            return
        thought = block.get("thinking") or ""
        if thought:
            message["reasoning"] = "\n\n".join(filter(None, (message.get("reasoning"), thought)))
        if sealed.block is not None:
            own = {**sealed.block, "thinking": thought} if block["type"] == "thinking" else sealed.block
            add_thinking(
                self._read.thinking, at, sealed.model, own, [len(message.get("content") or ""), len(message.get("tool_calls") or ())]
            )


def system_text(system: Any, path: str) -> str:
    """The system text; its blocks as paragraphs."""
    if system is None or isinstance(system, str):
        return system or ""
    if not isinstance(system, list) or not all(isinstance(block, dict) for block in system):
        raise InvalidChatRequest(path, "expected text or a list of text blocks", system)
    texts = [text_of(block, f"{path}[{at}]") for at, block in enumerate(system)]
    return "\n\n".join(text for text in texts if text and not text.startswith(BILLING_LINE))


def text_of(block: Block, path: str) -> str:
    text = block.get("text")
    if block.get("type") != "text" or not isinstance(text, str):
        raise InvalidChatRequest(path, "expected a text block")
    return text


def parts_of(block: Any, path: str) -> list[dict[str, Any]]:
    """One block of a user's turn or of a tool's result, as parts of a chat message."""
    match block:
        case {"type": "text"}:
            return [{"type": "text", "text": text_of(block, path)}]
        case {"type": "image", "source": source}:
            return [{"type": "image_url", "image_url": {"url": address_of_source(source, path)}}]
        case {"type": "document", "source": {"type": "text", "data": str(text)}} | {"type": "tool_reference", "tool_name": str(text)}:
            return [{"type": "text", "text": text}]
        case {"type": "document", "source": {"type": "content", "content": content}}:
            inner = [{"type": "text", "text": content}] if isinstance(content, str) else content
            return [part for at, one in enumerate(inner or ()) for part in parts_of(one, f"{path}.source.content[{at}]")]
        case {"type": "document", "source": source}:
            title = {"filename": block["title"]} if isinstance(block.get("title"), str) else {}
            return [{"type": "file", "file": {"file_data": address_of_source(source, path), **title}}]
        case {"type": "search_result", "content": list(content)}:
            head = "\n".join(str(block[name]) for name in ("title", "source") if block.get(name))
            return [{"type": "text", "text": "\n".join([head, *(text_of(one, f"{path}.content") for one in content)])}]
        case _:
            raise InvalidChatRequest(
                f"{path}.type",
                "expected text, image, document, search_result or tool_result",
                block.get("type") if isinstance(block, dict) else block,
            )


def address_of_source(source: Any, path: str) -> str:
    """The address of an image or document; data become a `data:` address."""
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            return f"data:{media_type};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
        case _:
            raise InvalidChatRequest(f"{path}.source", "files are not kept here; send base64 data or an address")
