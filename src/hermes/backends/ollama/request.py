"""Encode a ModelRequest as the body of an `/api/chat` request. Pure: sends nothing.

It differs from the form of the message graph: contents are plain texts with their images beside them as bare base64; arguments are
objects; a tool's result has `tool_name`; limits and sampling are `options`."""

from __future__ import annotations

import re
from typing import Any

from hermes.backends.answer_parts import CannotEncode
from hermes.backends.tool_calls import arguments_object, pair_tool_results
from hermes.gateway.token_estimate import parts_of
from hermes.ports.backends import Capabilities, ChatMessage, ModelRequest

OPTIONS = ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repeat_penalty", "repeat_last_n")
SAMPLING_PARAMETERS = frozenset({"temperature", "top_p", "top_k", "min_p"})
_BASE64 = re.compile(r"data:[^,]*;base64,(.*)", re.DOTALL)


def encode(
    ask: ModelRequest, model: str, capabilities: Capabilities, *, stream: bool, num_ctx: int, keep_alive: str | None = None
) -> dict[str, Any]:
    """The request's body. It always has `num_ctx`: without it the server takes a small context and cuts off the start of the prompt."""
    options: dict[str, Any] = {"num_predict": ask.max_tokens, "num_ctx": num_ctx}
    options |= {
        key: ask.sampling[key]
        for key in OPTIONS
        if ask.sampling.get(key) is not None and (capabilities.sampling or key not in SAMPLING_PARAMETERS)
    }
    stop = ask.sampling.get("stop")
    if stop:
        options["stop"] = [stop] if isinstance(stop, str) else list(stop)
    body: dict[str, Any] = {
        "model": model,
        "messages": [encode_message(message) for message in pair_tool_results(ask.messages)],
        "stream": stream,
        "options": options,
        "truncate": False,  # an error instead of a shorter prompt; servers before 0.12 ignore it and cut the prompt
    }
    if ask.tools and ask.tool_choice != "none":
        body["tools"] = list(ask.tools)
    if ask.sampling.get("think") is not None:
        body["think"] = ask.sampling["think"]
    if ask.response_format:
        schema = ask.response_format.get("json_schema")
        body["format"] = schema["schema"] if schema else "json"
    if ask.wants_tokens:
        body["logprobs"] = True
    if keep_alive:
        body["keep_alive"] = keep_alive
    return body


def encode_message(message: ChatMessage) -> dict[str, Any]:
    content = message.get("content")
    parts = parts_of(message)
    text = content if isinstance(content, str) else "".join(part.get("text") or "" for part in parts if part.get("type") == "text")
    encoded: dict[str, Any] = {"role": "system" if message["role"] == "developer" else message["role"], "content": text}
    # Every part that is no text counts as an image; encode_image refuses what is none.
    images = [encode_image(part) for part in parts if part.get("type") != "text"]
    if images:
        encoded["images"] = images
    if message.get("tool_calls"):
        encoded["tool_calls"] = [
            {"function": {"name": call["function"]["name"], "arguments": arguments_object(call["function"].get("arguments"))}}
            for call in message["tool_calls"]
        ]
    if message["role"] == "tool":
        encoded["tool_name"] = message.get("name") or ""
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if reasoning and message["role"] == "assistant":
        encoded["thinking"] = reasoning
    return encoded


def encode_image(part: Any) -> str:
    """An image as bare base64. Raises CannotEncode for any other part, and for an image at an address: the server fetches nothing."""
    where = part.get("image_url") if part.get("type") == "image_url" else None
    match = _BASE64.fullmatch(where.get("url") or "" if isinstance(where, dict) else where or "")
    if match is None:
        raise CannotEncode("only images that are in the request itself can be sent to this server")
    return match[1]
