"""Models on an Ollama server, over Ollama's own API, `/api/chat`: the backend, its requests, and its answers, whole or line by line.

A request differs from the form of the message graph: contents are plain texts with their images beside them as bare base64; arguments are
objects; a tool's result has `tool_name`; limits and sampling are `options`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from hermes.backends.http_backend import EncodedRequest, HttpBackend
from hermes.backends.tool_calls import arguments_object, arguments_text, make_tool_call, pair_tool_results
from hermes.backends.vendor_answers import (
    AnswerParts,
    CannotEncode,
    ErrorInAnswer,
    JsonLines,
    MalformedAnswer,
    ReturnedTokens,
    StreamEvent,
    TokenCounts,
    count_or_none,
    object_list,
    parse_object,
    require_object,
    text_or_empty,
)
from hermes.backends.vendor_errors import CONTEXT_TOO_LONG, NO_SUCH_MODEL, NOT_SUPPORTED, VendorErrorDetails
from hermes.gateway.prices import parts_of, prompt_tokens
from hermes.http_client import HttpClient
from hermes.ports.backends import Capabilities, ChatMessage, ContextTooLong, Delta, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta

DEFAULT_NUM_CTX = 8_192
"""Tokens of context where neither the settings nor the table of models has a number; memory grows with it."""


class OllamaBackend(HttpBackend):
    """The port Backend for Ollama. Without tools, unless `takes_tools` or the table of models says otherwise.

    The backend refuses a prompt that may not fit, because an older server would cut its start off and answer the rest."""

    _framing = JsonLines

    def __init__(
        self,
        client: HttpClient,
        base_url: str = "http://127.0.0.1:11434",
        *,
        name: str = "ollama",
        api_key: str | None = None,
        models: Mapping[str, Capabilities] | None = None,
        needs: Collection[str] = (),
        takes_tools: bool = False,
        num_ctx: int | None = None,
        keep_alive: str | None = None,
    ) -> None:
        """`models` says what each model can do; `needs` are the models that a health check must find. `num_ctx` is the context to load
        models with: by default that of the table, else 8,192 tokens."""
        default_capabilities = Capabilities(tools=takes_tools)
        super().__init__(
            client, name=name, base_url=base_url, api_key=api_key, models=models, default_capabilities=default_capabilities, needs=needs
        )
        self._num_ctx, self._keep_alive = num_ctx, keep_alive

    def context(self, model: str) -> int:
        """The tokens of prompt and answer together that a model is loaded for."""
        return self._num_ctx or self.capabilities(model).context or DEFAULT_NUM_CTX

    @property
    def _url(self) -> str:
        return f"{self._base_url}/api/chat"

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        return {**headers, "authorization": f"Bearer {self._api_key}"} if self._api_key else headers

    def _encode(self, ask: ModelRequest, model: str, *, stream: bool) -> dict[str, Any]:
        context = self.context(model)
        if (bound := prompt_tokens(ask)) > context:
            raise ContextTooLong(f"up to {bound:,} tokens of prompt in a context of {context:,}", backend=self.name, model=model)
        return encode(ask, model, self.capabilities(model), stream=stream, num_ctx=context, keep_alive=self._keep_alive)

    def _decode(self, body: dict[str, Any], request: EncodedRequest) -> AnswerParts:
        return decode(body, request.call_prefix)

    def _reader(self, request: EncodedRequest) -> OllamaReader:
        return OllamaReader(request.call_prefix)

    def _error_details(self, body: Mapping[str, Any]) -> VendorErrorDetails:
        return read_error_details(body)

    def _health_paths(self) -> Iterable[str]:
        return ["/api/tags"]

    def _missing_models(self, body: dict[str, Any]) -> Iterable[str]:
        known = {model.get("name") for model in object_list(body.get("models"), "models")}
        return [model for model in self._needs if (model if ":" in model else f"{model}:latest") not in known]


# --- requests: a pure function from a ModelRequest to a body

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


# --- answers: pure functions from lines to AnswerParts


def decode(body: Mapping[str, Any], call_prefix: str) -> AnswerParts:
    """A whole answer: a stream of one line."""
    reader = OllamaReader(call_prefix)
    if "message" not in body and not body.get("error"):
        raise MalformedAnswer("the answer has no message")
    for _ in reader.take(body):
        pass
    return reader.parts()


class OllamaReader:
    """The port StreamReader. Each line adds to the message; the last one says `done` and has the counts."""

    def __init__(self, call_prefix: str) -> None:
        self._call_prefix = call_prefix
        self._text, self._reasoning = "", ""
        self._calls: list[dict[str, Any]] = []
        self._last: Mapping[str, Any] = {}
        self._logprobs: list[float] = []
        self.is_whole = False

    @property
    def is_over(self) -> bool:
        return self.is_whole

    def feed(self, event: StreamEvent) -> Iterator[Delta]:
        yield from self.take(parse_object(event.data, "a line"))

    def take(self, line: Mapping[str, Any]) -> Iterator[Delta]:
        """Take one line, already parsed."""
        if line.get("error"):
            raise ErrorInAnswer(error_status(line), line)
        message = require_object(line.get("message") or {}, "message")
        if thought := text_or_empty(message.get("thinking"), "thinking"):
            self._reasoning += thought
            yield ReasoningDelta(thought)
        if text := text_or_empty(message.get("content"), "content"):
            self._text += text
            yield TextDelta(text)
        for part in object_list(message.get("tool_calls"), "tool_calls"):
            function = require_object(part.get("function"), "function")
            at = len(self._calls)
            call_id = text_or_empty(part.get("id"), "id") or f"{self._call_prefix}_{at}"
            made = make_tool_call(text_or_empty(function.get("name"), "name"), arguments_text(function.get("arguments")), call_id)
            self._calls.append(made)
            yield ToolCallDelta(at, call_id, made["function"]["name"], made["function"]["arguments"])
        self._logprobs += [
            entry["logprob"] for entry in object_list(line.get("logprobs"), "logprobs") if isinstance(entry.get("logprob"), float | int)
        ]
        self._last = line
        self.is_whole = line.get("done") is True

    def parts(self) -> AnswerParts:
        last = self._last
        message: dict[str, Any] = {"role": "assistant", "content": self._text if self._text or not self._calls else None}
        if self._calls:
            message["tool_calls"] = self._calls
        if self._reasoning:
            message["reasoning"] = self._reasoning
        reason = "length" if last.get("done_reason") == "length" else "tool_calls" if self._calls else "stop"
        return AnswerParts(
            message=message,
            finish_reason=reason,
            counts=TokenCounts(
                tokens_in=count_or_none(last.get("prompt_eval_count")),
                tokens_out=count_or_none(last.get("eval_count")),
                cache_read=count_or_none(last.get("prompt_eval_cached_count")) or 0,
            ),
            model=text_or_empty(last.get("model"), "model") or None,
            tokens=ReturnedTokens(logprobs=self._logprobs or None),
            extra={key: last[key] for key in ("total_duration", "load_duration") if last.get(key) is not None},
        )


def error_status(line: Mapping[str, Any]) -> int:
    """The status that an error in the middle of a stream would have had; only its text tells."""
    text = read_error_details(line).message
    if NO_SUCH_MODEL.search(text):
        return 404
    return 400 if CONTEXT_TOO_LONG.search(text) or NOT_SUPPORTED.search(text) else 500


def read_error_details(body: Mapping[str, Any]) -> VendorErrorDetails:
    """The details of an error, which is a plain text."""
    error = body.get("error")
    return VendorErrorDetails(error if isinstance(error, str) else "")
