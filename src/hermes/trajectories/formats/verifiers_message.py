"""A chat message in verifiers' types: flat tool calls and tools, four roles, and text where verifiers requires text.

Parts that verifiers has no type for become text. Trainers read the tokens of a node; its message is for people to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hermes.graph.message import thaw

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}


def message(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as verifiers' types take it."""
    role = ROLES[source["role"]]
    content = source.get("content")
    if role == "assistant":
        out: dict[str, Any] = {"role": role, "content": None if content is None else _text(content)}
        reasoning = source.get("reasoning_content") or source.get("reasoning")
        if reasoning:
            out["reasoning_content"] = _clean(reasoning)
        if source.get("tool_calls"):
            out["tool_calls"] = [_tool_call(call) for call in source["tool_calls"]]
        return out
    out = {"role": role, "content": [_part(part) for part in content] if isinstance(content, list) else _clean(content or "")}
    if role == "tool":
        out["tool_call_id"] = _clean(source.get("tool_call_id") or "")
        if source.get("name"):
            out["name"] = _clean(source["name"])
    return out


def tool(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool schema without the `function` around it."""
    inner = schema.get("function")
    flat = inner if isinstance(inner, Mapping) else schema
    known = {"name": _clean(str(flat.get("name", "")))}
    if isinstance(flat.get("description"), str):
        known["description"] = _clean(flat["description"])
    if isinstance(flat.get("parameters"), Mapping):
        known["parameters"] = _clean_json(flat["parameters"])
    return known


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    inner = function if isinstance(function, Mapping) else call
    arguments = inner.get("arguments", "")
    text = arguments if isinstance(arguments, str) else json.dumps(thaw(arguments))
    return {"id": _clean(str(call.get("id") or "")), "name": _clean(str(inner.get("name", ""))), "arguments": _clean(text)}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    image = part.get("image_url")
    if part["type"] == "image_url" and isinstance(image, Mapping) and isinstance(image.get("url"), str):
        return {"type": "image_url", "image_url": {"url": _clean(image["url"])}}
    return {"type": "text", "text": _text([part])}


def _text(content: Any) -> str:
    """Return content as one text; a part without text is written as JSON."""
    if isinstance(content, str):
        return _clean(content)
    texts = [part["text"] if isinstance(part.get("text"), str) else json.dumps(thaw(part), sort_keys=True) for part in content]
    return _clean("".join(texts))


def _clean(text: str) -> str:
    """Return a text in which U+FFFD replaces each half of a surrogate pair, which verifiers refuses."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if not text.isascii() else text


def _clean_json(value: Any) -> Any:
    return json.loads(_clean(json.dumps(thaw(value), ensure_ascii=False)))
