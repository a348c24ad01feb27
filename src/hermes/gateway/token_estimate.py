"""How many tokens a text has at most, where the vendor gave no count: rather too many than too few.

Three bytes to a token: most text has four, and Chinese, Japanese or Thai have about three. Every image counts as much as the largest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.ports.backends import ChatMessage, ModelRequest

BYTES_PER_TOKEN = 3
TOKENS_PER_IMAGE = 4_800
TOKENS_PER_MESSAGE = 8
"""Tokens that a template adds around each message."""


def prompt_tokens(ask: ModelRequest) -> int:
    """An upper bound for the whole request."""
    tools = sum(len(json.dumps(tool, ensure_ascii=False).encode("utf-8", "replace")) for tool in ask.tools)
    images = sum(1 for message in ask.messages for part in parts_of(message) if part.get("type") == "image_url")
    size = tools + sum(message_bytes(message) for message in ask.messages)
    return -(-size // BYTES_PER_TOKEN) + images * TOKENS_PER_IMAGE + len(ask.messages) * TOKENS_PER_MESSAGE


def answer_tokens(message: ChatMessage, max_tokens: int) -> int:
    """An upper bound for a model's answer; never more than `max_tokens`."""
    return min(max_tokens, -(-message_bytes(message) // BYTES_PER_TOKEN))


def message_bytes(message: ChatMessage) -> int:
    """The bytes of a message that a model reads or writes as text."""
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [part.get("text") for part in parts_of(message)]
    texts += [message.get("reasoning") or message.get("reasoning_content"), message.get("refusal")]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        texts += [function.get("name"), function.get("arguments")]
    return sum(len(text.encode("utf-8", "replace")) for text in texts if isinstance(text, str))


def parts_of(message: ChatMessage) -> Sequence[Mapping[str, Any]]:
    """The parts of a content that is a list; a plain text has no parts."""
    content = message.get("content")
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list | tuple) else ()
