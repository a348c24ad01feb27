"""OpenAI, and every server with its chat completions API (vLLM, SGLang, llama.cpp, OpenRouter …): how they differ, the backend, requests.

The message graph has the same form as a request, so encoding mostly removes fields: those of Hermes itself and of other vendors.
`openai_answer.py` reads the answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from hermes.backends.http_backend import EncodedRequest, HttpBackend
from hermes.backends.openai_answer import OpenAIReader, decode, read_error_details
from hermes.backends.tool_calls import pair_tool_results
from hermes.backends.vendor_answers import AnswerParts, object_list
from hermes.backends.vendor_errors import VendorErrorDetails
from hermes.gateway.request_fields import (
    COMMON_FIELDS,
    LLAMA_CPP_FIELDS,
    OPENAI_FIELDS,
    PLAIN_FIELDS,
    SGLANG_FIELDS,
    VLLM_FIELDS,
)
from hermes.graph.call import LogprobMode
from hermes.http_client import HttpClient
from hermes.ports.backends import Capabilities, ChatMessage, ModelRequest

# --- how the servers differ


@dataclass(frozen=True, slots=True)
class Dialect:
    """How requests to one kind of server look."""

    name: str
    max_tokens_field: str = "max_tokens"
    reasoning_field: str | None = None
    """The field in which an assistant's reasoning is sent back; None where the server does not take it."""
    is_strict: bool = False
    """OpenAI's own server: it has the role developer."""
    fields: frozenset[str] = OPENAI_FIELDS | COMMON_FIELDS
    """The parameters of a client's request that are sent on."""
    lists_model_names: bool = True
    """Whether the server's list of models has the names that requests use."""
    keeps_connections: bool = True
    """Whether a connection can be used again. Some servers say so, but close it after a stream; then the next request is lost."""
    logprob_mode: LogprobMode | None = None
    """Which logprobs the server returns; None where that depends on how it was started."""
    token_request: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The parameters with which the server returns token ids and logprobs."""


OPENAI = Dialect("openai", max_tokens_field="max_completion_tokens", is_strict=True, fields=OPENAI_FIELDS)
"""Returns no token ids; logprobs alone train nothing, and some of its models refuse requests for them."""
VLLM = Dialect(
    "vllm",
    reasoning_field="reasoning",
    token_request=MappingProxyType({"logprobs": True, "return_token_ids": True}),
    fields=OPENAI_FIELDS | COMMON_FIELDS | VLLM_FIELDS,
)
SGLANG = Dialect(
    "sglang",
    reasoning_field="reasoning_content",
    token_request=MappingProxyType({"logprobs": True, "return_token_ids": True, "return_prompt_token_ids": True}),
    fields=OPENAI_FIELDS | COMMON_FIELDS | SGLANG_FIELDS,
)
LLAMA_CPP = Dialect(
    "llama.cpp",
    reasoning_field="reasoning_content",
    keeps_connections=False,
    lists_model_names=False,  # the server has the one model that it was started with, whatever name a request uses
    logprob_mode="raw",  # those after sampling have another name in its answers, `prob`
    token_request=MappingProxyType({"logprobs": True}),  # the ids are in the entries of its logprobs
    fields=OPENAI_FIELDS | COMMON_FIELDS | LLAMA_CPP_FIELDS,
)
PLAIN = Dialect("plain", fields=OPENAI_FIELDS | COMMON_FIELDS | PLAIN_FIELDS)
"""Any other server: the parameters that most servers take."""

DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in (OPENAI, VLLM, SGLANG, LLAMA_CPP, PLAIN)})


# --- the backend

DEFAULT_CAPABILITIES = Capabilities(tools=True, vision=False, sampling=True)
"""The capabilities of a model that is not in the caller's table."""


class OpenAICompatibleBackend(HttpBackend):
    """The port Backend for chat completions."""

    def __init__(
        self,
        client: HttpClient,
        base_url: str,
        api_key: str | None = None,
        name: str = "openai",
        dialect: Dialect = OPENAI,
        *,
        models: Mapping[str, Capabilities] | None = None,
        needs: Collection[str] = (),
    ) -> None:
        """`base_url` ends as in OpenAI's client (`https://api.openai.com/v1`); one without a path gets `/v1`.

        `models` says what each model can do; `needs` are the models that a health check must find."""
        if urlsplit(base_url).path in ("", "/"):
            base_url = f"{base_url.rstrip('/')}/v1"
        super().__init__(
            client, name=name, base_url=base_url, api_key=api_key, models=models, default_capabilities=DEFAULT_CAPABILITIES, needs=needs
        )
        self._dialect = dialect
        self._sends_reasoning = dialect.reasoning_field is not None
        self._logprob_mode = dialect.logprob_mode

    @property
    def _url(self) -> str:
        return f"{self._base_url}/chat/completions"

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if not self._dialect.keeps_connections:
            headers["connection"] = "close"
        return {**headers, "authorization": f"Bearer {self._api_key}"} if self._api_key else headers

    def _encode(self, ask: ModelRequest, model: str, *, stream: bool) -> dict[str, Any]:
        return encode(ask, model, self.capabilities(model), stream=stream, dialect=self._dialect)

    def _decode(self, body: dict[str, Any], request: EncodedRequest) -> AnswerParts:
        return decode(body, request.call_prefix)

    def _reader(self, request: EncodedRequest) -> OpenAIReader:
        return OpenAIReader(request.call_prefix)

    def _error_details(self, body: Mapping[str, Any]) -> VendorErrorDetails:
        return read_error_details(body)

    def _health_paths(self) -> Iterable[str]:
        return ["/models"]

    def _missing_models(self, body: dict[str, Any]) -> Iterable[str]:
        known = {model.get("id") for model in object_list(body.get("data"), "data")}
        return [model for model in self._needs if model not in known] if self._dialect.lists_model_names else []


# --- requests: a pure function from a ModelRequest to a body

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
    given = {key: value for key, value in ask.sampling.items() if value is not None and key in dialect.fields}
    return given if capabilities.sampling else {key: value for key, value in given.items() if key not in SAMPLING_PARAMETERS}
