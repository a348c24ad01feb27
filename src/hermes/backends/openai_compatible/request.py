"""Encode a ModelRequest as the body of a chat completions request. Pure.

The message graph has the same form, so this mostly removes fields: those of Hermes itself and of other vendors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes.backends.openai_compatible.dialect import OPENAI, Dialect
from hermes.backends.tool_calls import pair_tool_results
from hermes.ports.backends import Capabilities, ChatMessage, ModelRequest

MESSAGE_FIELDS = {
    "system": ("content", "name"),
    "developer": ("content", "name"),
    "user": ("content", "name"),
    "assistant": ("content", "name", "refusal", "audio"),
    "tool": ("content", "tool_call_id"),
}
"""The fields of each role's messages; `tool_calls` and reasoning are handled separately."""
SAMPLING_PARAMETERS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
)
"""Not sent to a model that takes no sampling parameters."""
OTHER_PARAMETERS = (
    *("seed", "stop", "reasoning_effort", "parallel_tool_calls", "verbosity", "service_tier", "prompt_cache_key"),
    *("logprobs", "top_logprobs"),
)
"""Parameters that OpenAI takes beside the sampling parameters."""
NOT_OPENAI = frozenset({"top_k", "min_p", "repetition_penalty"})
REQUEST_FIELDS = frozenset(
    {"model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "tools", "tool_choice", "thinking"}
)
"""Fields that the encoder sets itself, and `n`, which would ask for several answers: never taken from the sampling parameters."""


def encode(ask: ModelRequest, model: str, capabilities: Capabilities, *, stream: bool, dialect: Dialect = OPENAI) -> dict[str, Any]:
    """The request's body."""
    body: dict[str, Any] = {
        "model": model,
        "messages": encode_messages(ask.messages, dialect),
        dialect.max_tokens_field: ask.max_tokens,
        **encode_sampling(ask, capabilities, dialect),
    }
    if ask.tools:
        body["tools"] = list(ask.tools)
        if ask.tool_choice is not None:
            body["tool_choice"] = ask.tool_choice
    else:
        body.pop("parallel_tool_calls", None)  # servers refuse it without tools
    if ask.response_format:
        body["response_format"] = ask.response_format
    if ask.user:
        body["user"] = ask.user
    if ask.wants_tokens and capabilities.sampling:
        body |= dialect.token_request
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def encode_messages(messages: Sequence[ChatMessage], dialect: Dialect) -> list[dict[str, Any]]:
    """The messages with the fields that the server takes, every result under its call's id."""
    return [encode_message(message, dialect) for message in pair_tool_results(messages)]


def encode_message(message: ChatMessage, dialect: Dialect) -> dict[str, Any]:
    role = message["role"]
    known = MESSAGE_FIELDS.get(role, ("content",))
    encoded: dict[str, Any] = {"role": role, **{key: message[key] for key in known if message.get(key) is not None}}
    if role == "developer" and not dialect.is_strict:
        encoded["role"] = "system"  # templates of open models have no role developer
    if role == "assistant":
        if message.get("tool_calls"):
            encoded["tool_calls"] = message["tool_calls"]
        reasoning = message.get("reasoning") or message.get("reasoning_content")
        if reasoning and dialect.reasoning_field:
            encoded[dialect.reasoning_field] = reasoning
    if "content" not in encoded:
        encoded["content"] = None if encoded.get("tool_calls") or encoded.get("refusal") else ""
    return encoded


def encode_sampling(ask: ModelRequest, capabilities: Capabilities, dialect: Dialect) -> dict[str, Any]:
    """The sampling parameters that the server and the model take."""
    given = {key: value for key, value in ask.sampling.items() if value is not None and key not in REQUEST_FIELDS}
    if dialect.is_strict:
        given = {key: value for key, value in given.items() if key in (*SAMPLING_PARAMETERS, *OTHER_PARAMETERS) and key not in NOT_OPENAI}
    return given if capabilities.sampling else {key: value for key, value in given.items() if key not in SAMPLING_PARAMETERS}
