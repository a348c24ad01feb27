"""Encode a ModelRequest as the body of a Messages request. Pure.

It differs from the form of the message graph: the system text is beside the messages; speakers alternate; a tool's result is a block of
the user's turn, before everything else in it; arguments are objects; images are blocks; thinking goes back only to the model it came
from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hermes.backends.tool_calls import arguments_object, pair_tool_results, safe_id
from hermes.backends.vendor_answers import CannotEncode
from hermes.ports.backends import Capabilities, ChatMessage, ModelRequest, ToolSchema

OPENING_TEXT = "(The conversation begins.)"
"""A user's turn put before a conversation that starts with the assistant: the vendor requires the first turn to be the user's."""
CACHE_CONTROL = {"type": "ephemeral"}
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=-]+)*;base64,(.*)", re.DOTALL)

Block = dict[str, Any]


def encode(ask: ModelRequest, model: str, capabilities: Capabilities, *, stream: bool, cache: bool = False) -> dict[str, Any]:
    """The request's body. With `cache`, the parts that stay the same (tools, system, the conversation so far) are marked for the vendor's
    prompt cache."""
    system, turns = encode_messages(ask.messages, model)
    body: dict[str, Any] = {"model": model, "max_tokens": ask.max_tokens, "messages": turns}
    if system:
        body["system"] = system
    tools = [encode_tool(tool) for tool in ask.tools]
    choice = encode_tool_choice(ask.tool_choice, ask.sampling.get("parallel_tool_calls")) if tools else None
    if not tools and ask.needs_tools:
        # Without tools the vendor refuses calls in the history: name the tools that were called, and allow no new call.
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in called_tools(ask.messages)]
        choice = {"type": "none"}
    if tools:
        body["tools"] = tools
    if choice:
        body["tool_choice"] = choice
    body |= encode_sampling(ask, capabilities)
    if ask.user:
        body["metadata"] = {"user_id": ask.user}
    if stream:
        body["stream"] = True
    return mark_cached(body) if cache else body


# --- messages


def encode_messages(messages: Sequence[ChatMessage], model: str) -> tuple[str, list[Block]]:
    """The system text, and the turns of the two speakers."""
    systems = (plain_text(message) for message in messages if message["role"] in ("system", "developer"))
    system = "\n\n".join(text for text in systems if text.strip())
    turns: list[Block] = []
    for message in pair_tool_results([message for message in messages if message["role"] not in ("system", "developer")]):
        speaker = "assistant" if message["role"] == "assistant" else "user"
        blocks = list(assistant_blocks(message, model) if speaker == "assistant" else user_blocks(message))
        if blocks and turns and turns[-1]["role"] == speaker:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": speaker, "content": blocks})
    for turn in turns:
        if turn["role"] == "user":
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")  # stable: results first, the rest in its order
    if not turns or turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING_TEXT}]})
    if turns[-1]["role"] == "assistant" and turns[-1]["content"][-1]["type"] == "text":
        turns[-1]["content"][-1]["text"] = turns[-1]["content"][-1]["text"].rstrip()  # a prefill must not end in white space
    return system, turns


def assistant_blocks(message: ChatMessage, model: str) -> Iterator[Block]:
    """Text and calls, with the thinking between them where it was, if it came from this model: no other model accepts its signature."""
    text = plain_text(message)
    calls = [
        {
            "type": "tool_use",
            "id": safe_id(call["id"]),
            "name": call["function"]["name"],
            "input": arguments_object(call["function"].get("arguments")),
        }
        for call in message.get("tool_calls") or ()
    ]
    thinking = message.get("thinking_blocks")
    thought = thinking if isinstance(thinking, Mapping) and thinking.get("model") == model else {}
    blocks = thought.get("blocks") or ()
    places = [(at_text, at_call) for at_text, at_call in thought.get("places") or [(0, 0)] * len(blocks)]
    marks = [(0, 0), *places, (len(text), len(calls))]
    for number, ((from_text, from_call), (to_text, to_call)) in enumerate(pairwise(marks)):
        yield from text_blocks(text[from_text:to_text])
        yield from calls[from_call:to_call]
        if number < len(blocks):
            yield dict(blocks[number])


def user_blocks(message: ChatMessage) -> Iterator[Block]:
    """A user's words and images, or a tool's result."""
    content = message.get("content")
    blocks = list(text_blocks(content) if isinstance(content, str) else (block for part in content or () for block in encode_part(part)))
    if message["role"] != "tool":
        yield from blocks
        return
    result: Block = {"type": "tool_result", "tool_use_id": safe_id(message.get("tool_call_id") or "")}
    if blocks:
        result["content"] = content if isinstance(content, str) else blocks
    if message.get("is_error"):
        result["is_error"] = True
    yield result


def encode_part(part: Mapping[str, Any]) -> Iterator[Block]:
    """One part of a content that is a list."""
    match part.get("type"):
        case "text":
            yield from text_blocks(part.get("text") or "")
        case "image_url":
            yield {"type": "image", "source": encode_source(part["image_url"])}
        case "file" if isinstance(part.get("file"), Mapping) and part["file"].get("file_data"):
            yield {"type": "document", "source": encode_source(part["file"]["file_data"])}
        case kind:
            raise CannotEncode(f"a part of type {kind!r} cannot be sent to this vendor")


def encode_source(where: Any) -> Block:
    """The source of an image or a document: data in the request itself, or an address."""
    url = where.get("url") if isinstance(where, Mapping) else where
    if isinstance(url, str) and (match := _DATA_URL.fullmatch(url)):
        return {"type": "base64", "media_type": match[1], "data": match[2]}
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    raise CannotEncode("an image or file is neither base64 data nor a web address")


def text_blocks(text: str) -> Iterator[Block]:
    """A text as blocks: none for white space only, because the vendor refuses an empty block."""
    if text.strip():
        yield {"type": "text", "text": text}


def plain_text(message: ChatMessage) -> str:
    """The text of a message, its parts joined."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or () if part.get("type") == "text")


# --- tools and sampling


def encode_tool(tool: ToolSchema) -> Block:
    """A function as a tool; a tool in the vendor's own form stays unchanged."""
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    encoded: Block = {"name": function["name"], "input_schema": {"type": "object", **(function.get("parameters") or {})}}
    return encoded | {key: function[key] for key in ("description", "strict") if function.get(key)}


def encode_tool_choice(choice: str | Mapping[str, Any] | None, parallel: Any) -> Block | None:
    """Which tool must be called, if any."""
    kinds = {"auto": "auto", "none": "none", "required": "any", "any": "any"}
    encoded: Block | None = None
    if isinstance(choice, Mapping):
        encoded = {"type": "tool", "name": choice["function"]["name"]}
    elif choice is not None:
        if choice not in kinds:
            raise CannotEncode("the tool choice is neither auto, none, required nor a function")
        encoded = {"type": kinds[choice]}
    if parallel is False and (encoded is None or encoded["type"] != "none"):
        encoded = {**(encoded or {"type": "auto"}), "disable_parallel_tool_use": True}
    return encoded


def called_tools(messages: Iterable[ChatMessage]) -> list[str]:
    """The names of the tools in a history, each once, in their order."""
    names = (call["function"]["name"] for message in messages for call in message.get("tool_calls") or ())
    return list(dict.fromkeys(names)) or ["unknown"]


def encode_sampling(ask: ModelRequest, capabilities: Capabilities) -> dict[str, Any]:
    """The sampling parameters that the model takes. Those that no Claude model takes (seed, penalties) are left out."""
    given = ask.sampling
    body: dict[str, Any] = {}
    if capabilities.sampling:
        body |= {key: given[key] for key in ("temperature", "top_p", "top_k") if given.get(key) is not None}
    stop = given.get("stop")
    if stop:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if isinstance(given.get("thinking"), Mapping):
        body["thinking"] = dict(given["thinking"])
    output: dict[str, Any] = {}
    if capabilities.thinking and given.get("reasoning_effort"):
        output["effort"] = given["reasoning_effort"]
    if ask.response_format and ask.response_format.get("type") == "json_schema":
        output["format"] = {"type": "json_schema", "schema": ask.response_format["json_schema"]["schema"]}
    return body | ({"output_config": output} if output else {})


def mark_cached(body: dict[str, Any]) -> dict[str, Any]:
    """Mark the ends of the parts that the vendor may cache: the tools, the system text, the last user turn."""
    if "tools" in body:
        body["tools"][-1] = {**body["tools"][-1], "cache_control": CACHE_CONTROL}
    if "system" in body:
        body["system"] = [{"type": "text", "text": body["system"], "cache_control": CACHE_CONTROL}]
    last = next(turn for turn in reversed(body["messages"]) if turn["role"] == "user")
    last["content"][-1] = {**last["content"][-1], "cache_control": CACHE_CONTROL}
    return body
