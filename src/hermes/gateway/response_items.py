"""Read the items of OpenAI's Responses API into the messages of a chat: those of one answer are one message. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hermes.gateway.chat_request import InvalidChatRequest, text_field
from hermes.gateway.thinking_seal import ThinkingSeal, add_thinking
from hermes.ports.backends import ChatMessage

CUSTOM_INPUT = "input"
"""The one argument of the function that stands for a custom tool."""
DROPPED_ITEMS = frozenset(
    {"compaction", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call"}
    | {"computer_call_output", "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response", "tool_search_call"}
    | {"tool_search_output", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call"}
    | {"apply_patch_call_output"}
)
"""Items of tools that OpenAI runs or knows itself, and what only OpenAI can read."""


class ItemReader:
    """Reads items into messages. The items of one answer become one message: reasoning, text and calls."""

    def __init__(self, seal: ThinkingSeal) -> None:
        self._seal = seal
        self.messages: list[dict[str, Any]] = []
        self.thinking: dict[int, dict[str, Any]] = {}
        """The thinking in its vendor's own form, by the place of its message."""
        self._at: int | None = None
        """The place of the assistant's message that the next items may belong to."""
        self._by_owner: dict[str, int] = {}

    def read(self, item: Mapping[str, Any], path: str) -> None:
        """Add an item. Raises InvalidChatRequest."""
        kind = item.get("type") or ("message" if "role" in item else None)
        match kind:
            case "message" if item.get("role") == "assistant":
                self._add_answer(item, path)
            case "message":
                if item.get("role") not in ("user", "system", "developer"):
                    raise InvalidChatRequest(f"{path}.role", "expected user, assistant, system or developer", item.get("role"))
                self._add({"role": item["role"], "content": content_of(item.get("content"), f"{path}.content")})
            case "reasoning":
                self._add_reasoning(item)
            case "function_call" | "custom_tool_call":
                self._add_call(item, path)
            case "function_call_output" | "custom_tool_call_output":
                content = content_of(item.get("output"), f"{path}.output")
                self._add({"role": "tool", "tool_call_id": text_field(item, "call_id"), "content": content})
            case "additional_tools":
                pass
            case _ if kind in DROPPED_ITEMS:
                pass
            case _:
                raise InvalidChatRequest(f"{path}.type", "unknown type of item", kind)

    def _add(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self._at = None

    def _answer(self, item: Mapping[str, Any], *, may_join: bool) -> dict[str, Any]:
        """The assistant's message that an item belongs to: that of its own answer, if its id names one, or else the one before it."""
        owner = owner_of(item)
        known = self._by_owner.get(owner) if owner else None
        if known is None and self._at is not None and may_join:
            known = self._at
        if known is None:
            self.messages.append({"role": "assistant"})
            known = self._at = len(self.messages) - 1
        if owner:
            self._by_owner[owner] = known
        return self.messages[known]

    def _add_answer(self, item: Mapping[str, Any], path: str) -> None:
        before = self.messages[self._at] if self._at is not None else {}
        message = self._answer(item, may_join=not before.keys() & {"content", "refusal", "tool_calls"})
        text, refusal = answer_text(item.get("content"), f"{path}.content")
        if text is not None:
            message["content"] = message.get("content", "") + text
        if refusal:
            message["refusal"] = refusal

    def _add_reasoning(self, item: Mapping[str, Any]) -> None:
        before = self.messages[self._at] if self._at is not None else {}
        message = self._answer(item, may_join=not before.keys() & {"content", "refusal", "tool_calls"})
        sealed = self._seal.open(item.get("encrypted_content"))
        parts = next((found for name in ("content", "summary") if isinstance(found := item.get(name), list) and found), [])
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str) and part["text"]]
        if texts:
            message["reasoning"] = "\n\n".join(filter(None, (message.get("reasoning"), *texts)))
        if sealed is not None and sealed.block is not None:
            at = next(at for at, known in enumerate(self.messages) if known is message)
            place = [len(message.get("content") or ""), len(message.get("tool_calls") or ())]
            add_thinking(self.thinking, at, sealed.model, sealed.block, place)

    def _add_call(self, item: Mapping[str, Any], path: str) -> None:
        message = self._answer(item, may_join=True)
        name, namespace = tool_name(item, path), item.get("namespace")
        if item["type"] == "custom_tool_call":
            arguments = json.dumps({CUSTOM_INPUT: item.get("input") or ""}, ensure_ascii=False)
        else:
            arguments = item.get("arguments") or "{}"
        function = {"name": function_name(name, namespace) if isinstance(namespace, str) else name, "arguments": arguments}
        message.setdefault("tool_calls", []).append({"id": text_field(item, "call_id"), "type": "function", "function": function})


def owner_of(item: Mapping[str, Any]) -> str | None:
    """The answer that an item of ours belongs to: its id is `msg_<answer>_<number>`."""
    parts = item["id"].split("_") if isinstance(item.get("id"), str) else []
    return parts[1] if len(parts) == 3 and len(parts[1]) == 32 and parts[2].isdigit() else None


def answer_text(content: Any, path: str) -> tuple[str | None, str | None]:
    """The text and the refusal of an assistant's message."""
    if isinstance(content, str):
        return content, None
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise InvalidChatRequest(path, "expected text or a list of parts", content)
    texts = [part.get("text") or "" for part in content if part.get("type") in ("output_text", "text", "input_text")]
    refusals = [part.get("refusal") or "" for part in content if part.get("type") == "refusal"]
    return ("".join(texts) if texts else None), ("".join(refusals) or None)


def content_of(content: Any, path: str) -> Any:
    """The content of a message or of a tool's result, as chat completions write it."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidChatRequest(path, "expected text or a list of parts", content)
    return [chat_part(part, f"{path}[{at}]") for at, part in enumerate(content)]


def chat_part(part: Any, path: str) -> ChatMessage:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url)}:
            detail = {"detail": part["detail"]} if part.get("detail") else {}
            return {"type": "image_url", "image_url": {"url": url, **detail}}
        case {"type": "input_file", "file_data": str(data)}:
            return {"type": "file", "file": {"file_data": data, **({"filename": part["filename"]} if part.get("filename") else {})}}
        case {"type": "input_image" | "input_file"}:
            raise InvalidChatRequest(path, "files are not kept here; send the data itself or an image's address")
        case _:
            raise InvalidChatRequest(
                path, "expected input_text, input_image or input_file", part.get("type") if isinstance(part, dict) else part
            )


# --- names of tools


def tool_name(tool: Mapping[str, Any], path: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidChatRequest(f"{path}.name", "expected the name of the tool", name)
    return name


def function_name(name: str, namespace: str) -> str:
    """The name of a namespaced tool's function."""
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"
