"""In what the servers that speak OpenAI's chat completions differ. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of server wants to be spoken to."""

    name: str
    max_tokens_field: str = "max_tokens"
    reasoning_field: str | None = None
    """Under which name an assistant's thinking is sent back; None where the server does not take it."""
    is_strict: bool = False
    """Refuses parameters that it does not know, so only those of OpenAI are sent."""
    tells_models: bool = True
    """Its list of models has the names that requests use."""
    keeps_connections: bool = True
    """Whether a connection can be used again. Some servers say so and close it after a stream, and the next request is lost with it."""
    token_request: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What to add to a request so that token ids and logprobs come back."""


OPENAI = Dialect("openai", max_tokens_field="max_completion_tokens", is_strict=True)
"""Gives no token ids; logprobs alone train nothing, and some of its models refuse the question."""
VLLM = Dialect("vllm", reasoning_field="reasoning", token_request=MappingProxyType({"logprobs": True, "return_token_ids": True}))
SGLANG = Dialect(
    "sglang",
    reasoning_field="reasoning_content",
    token_request=MappingProxyType({"logprobs": True, "return_token_ids": True, "return_prompt_token_ids": True}),
)
LLAMA_CPP = Dialect(
    "llama.cpp",
    reasoning_field="reasoning_content",
    keeps_connections=False,
    tells_models=False,  # it serves the model that it was started with, whatever the request calls it
    token_request=MappingProxyType({"logprobs": True}),  # the ids are in the entries of its logprobs
)
PLAIN = Dialect("plain")
"""Any other server: only what they all take."""

DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in (OPENAI, VLLM, SGLANG, LLAMA_CPP, PLAIN)})
