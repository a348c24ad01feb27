"""How the servers with OpenAI's chat completions API differ. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Dialect:
    """How requests to one kind of server look."""

    name: str
    max_tokens_field: str = "max_tokens"
    reasoning_field: str | None = None
    """The field in which an assistant's reasoning is sent back; None where the server does not take it."""
    is_strict: bool = False
    """The server refuses parameters that it does not know, so only those of OpenAI are sent."""
    lists_model_names: bool = True
    """Whether the server's list of models has the names that requests use."""
    keeps_connections: bool = True
    """Whether a connection can be used again. Some servers say so, but close it after a stream; then the next request is lost."""
    token_request: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The parameters with which the server returns token ids and logprobs."""


OPENAI = Dialect("openai", max_tokens_field="max_completion_tokens", is_strict=True)
"""Returns no token ids; logprobs alone train nothing, and some of its models refuse requests for them."""
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
    lists_model_names=False,  # the server has the one model that it was started with, whatever name a request uses
    token_request=MappingProxyType({"logprobs": True}),  # the ids are in the entries of its logprobs
)
PLAIN = Dialect("plain")
"""Any other server: only the parameters that all servers take."""

DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in (OPENAI, VLLM, SGLANG, LLAMA_CPP, PLAIN)})
