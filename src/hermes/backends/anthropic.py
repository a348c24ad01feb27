"""Claude, at Anthropic or at another server with the Messages API: its answers, whole or as a stream of events, and the backend.

The message has thinking twice: as `reasoning`, its text, and as `thinking_blocks`, which must go back to the model unchanged:

    {"model": "claude-haiku-5-5", "blocks": [{"type": "thinking", "thinking": "…", "signature": "…"}], "places": [[0, 0]]}

`model` is the name in the request. `places` says how many characters of text and how many calls came before each block; it is left out
where all thinking came first. `anthropic_request.py` encodes requests."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from hermes.backends.anthropic_request import encode
from hermes.backends.http_backend import EncodedRequest, HttpBackend
from hermes.backends.tool_calls import RAW_ARGUMENTS, arguments_object, arguments_text, make_tool_call
from hermes.backends.vendor_answers import (
    AnswerParts,
    ErrorInAnswer,
    MalformedAnswer,
    StreamEvent,
    TokenCounts,
    count_or_none,
    object_list,
    parse_object,
    require_object,
    text_or_empty,
    usage_fields,
)
from hermes.backends.vendor_errors import VendorErrorDetails
from hermes.gateway.answer_parts import REASONING_SEPARATOR
from hermes.gateway.catalogue import UNLISTED_CLAUDE
from hermes.http_client import HttpClient
from hermes.ports.backends import (
    BackendError,
    BackendFinding,
    Capabilities,
    Delta,
    FindingLevel,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)

API_VERSION = "2023-06-01"
"""The version that takes temperature, top_p and top_k where the model does; its successor, 2026-10-21, refuses them for all models."""


class AnthropicBackend(HttpBackend):
    """The port Backend for the Messages API."""

    def __init__(
        self,
        client: HttpClient,
        api_key: str,
        base_url: str = "https://api.anthropic.com",
        *,
        name: str = "anthropic",
        models: Mapping[str, Capabilities] | None = None,
        needs: Collection[str] = (),
        caches_prompts: bool = False,
        betas: Sequence[str] = (),
    ) -> None:
        """`models` says what each model can do; `needs` are the models that a health check must find."""
        base_url = base_url.rstrip("/").removesuffix("/v1")
        super().__init__(
            client, name=name, base_url=base_url, api_key=api_key, models=models, default_capabilities=UNLISTED_CLAUDE, needs=needs
        )
        self._caches_prompts, self._betas = caches_prompts, ",".join(betas)

    @property
    def _url(self) -> str:
        return f"{self._base_url}/v1/messages"

    def _headers(self) -> dict[str, str]:
        headers = {"x-api-key": self._api_key or "", "anthropic-version": API_VERSION, "content-type": "application/json"}
        return {**headers, "anthropic-beta": self._betas} if self._betas else headers

    def _encode(self, ask: ModelRequest, model: str, *, stream: bool) -> dict[str, Any]:
        return encode(ask, model, self.capabilities(model), stream=stream, cache=self._caches_prompts)

    def _decode(self, body: dict[str, Any], request: EncodedRequest) -> AnswerParts:
        return decode(body, request.model)

    def _reader(self, request: EncodedRequest) -> AnthropicReader:
        return AnthropicReader(request.model)

    def _error_details(self, body: Mapping[str, Any]) -> VendorErrorDetails:
        return read_error_details(body)

    def _health_paths(self) -> Iterable[str]:
        # One path for each model: the list has dated names only, and these paths take the undated names too.
        return [f"/v1/models/{quote(model, safe='')}" for model in self._needs] or ["/v1/models?limit=1"]

    def _missing_models(self, body: dict[str, Any]) -> Iterable[str]:
        if body.get("type") != "model" and "data" not in body:
            raise MalformedAnswer("the answer is neither a model nor a list of them")
        return ()

    def _not_found(self, error: BackendError) -> list[BackendFinding]:
        return [
            BackendFinding(
                "model_missing", FindingLevel.ERROR, f"{self.name} has no such model: {error}", f"One of {', '.join(self._needs)}."
            )
        ]


# --- answers: pure functions from a body, or from events, to AnswerParts

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
}
ERROR_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status of an error that comes as an event, after a 200."""
_JSON = "partial_json"
"""The key under which a block keeps the pieces of its input while they come."""

Block = dict[str, Any]


def decode(body: Mapping[str, Any], requested_model: str) -> AnswerParts:
    """A whole answer. `requested_model` is the model's name in the request."""
    if body.get("type") == "error":
        raise ErrorInAnswer(error_status(body), body)
    if not isinstance(body.get("content"), list):
        raise MalformedAnswer("the answer has no content")
    return assemble(object_list(body["content"], "content"), body, usage_fields(body.get("usage")), requested_model)


def assemble(
    blocks: Sequence[Block], fields: Mapping[str, Any], usage: Mapping[str, Any], requested_model: str, *, is_counted: bool = True
) -> AnswerParts:
    """Build an answer from its blocks, the fields beside them and the usage."""
    text, thoughts = "", list[str]()
    calls: list[Block] = []
    signed: list[Block] = []
    places: list[list[int]] = []
    unknown: list[Block] = []
    for block in blocks:
        match block.get("type"):
            case "text":
                text += text_or_empty(block.get("text"), "text")
            case "tool_use":
                calls.append(
                    make_tool_call(text_or_empty(block.get("name"), "name"), arguments_of(block), text_or_empty(block.get("id"), "id"))
                )
            case "thinking" | "redacted_thinking":
                thoughts.append(text_or_empty(block.get("thinking"), "thinking"))
                if is_signed(block):
                    signed.append(block)
                    places.append([len(text), len(calls)])
            case _:
                unknown.append(block)
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if calls:
        message["tool_calls"] = calls
    if reasoning := REASONING_SEPARATOR.join(filter(None, thoughts)):
        message["reasoning"] = reasoning
    if signed:
        message["thinking_blocks"] = {"model": requested_model, "blocks": signed} | ({"places": places} if any(map(any, places)) else {})
    stop = text_or_empty(fields.get("stop_reason"), "stop_reason")
    extra = {key: fields[key] for key in ("id", "stop_reason", "stop_sequence", "stop_details", "container") if fields.get(key) is not None}
    extra |= {key: usage[key] for key in ("service_tier", "speed", "inference_geo") if usage.get(key) is not None}
    return AnswerParts(
        message=message,
        finish_reason=FINISH_REASONS.get(stop, "tool_calls" if calls else "stop"),
        counts=counts_of(usage, is_counted=is_counted),
        model=text_or_empty(fields.get("model"), "model") or None,
        extra=extra | ({"blocks": unknown} if unknown else {}),
    )


def is_signed(block: Block) -> bool:
    """Whether a block is thinking that the vendor takes back: it takes none without its signature."""
    return block.get("type") in ("thinking", "redacted_thinking") and bool(block.get("signature") or block.get("data"))


def arguments_of(block: Block) -> str:
    """The arguments as the model wrote them, where they came as text. If they are a RAW_ARGUMENTS object of ours, the text inside it."""
    written = block.get(_JSON)
    if not written:
        return arguments_text(block.get("input"))
    value = arguments_object(written)
    return arguments_text(value) if value.keys() == {RAW_ARGUMENTS} else str(written)


def counts_of(usage: Mapping[str, Any], *, is_counted: bool) -> TokenCounts:
    """The vendor's input tokens leave out cached tokens; ours are the whole prompt. `is_counted`: the output count is final."""
    fresh, read = count_or_none(usage.get("input_tokens")), count_or_none(usage.get("cache_read_input_tokens")) or 0
    by_ttl = usage.get("cache_creation")
    written_1h = (count_or_none(by_ttl.get("ephemeral_1h_input_tokens")) or 0) if isinstance(by_ttl, dict) else 0
    written = max(count_or_none(usage.get("cache_creation_input_tokens")) or 0, written_1h)
    return TokenCounts(
        tokens_in=None if fresh is None else fresh + read + written,
        tokens_out=count_or_none(usage.get("output_tokens")) if is_counted else None,
        cache_read=read,
        cache_write=written - written_1h,
        cache_write_1h=written_1h,
    )


def error_status(body: Mapping[str, Any]) -> int:
    """The status that an error would have had before the answer began."""
    error = body.get("error")
    return ERROR_STATUS.get(str(error.get("type")), 500) if isinstance(error, Mapping) else 500


def read_error_details(body: Mapping[str, Any]) -> VendorErrorDetails:
    """The details of an error: its message, its type, and the code in its details."""
    error = body.get("error")
    if not isinstance(error, Mapping):
        return VendorErrorDetails()
    details = error.get("details")
    codes = [error.get("type"), details.get("error_code") if isinstance(details, Mapping) else None]
    message = error.get("message")
    return VendorErrorDetails(message if isinstance(message, str) else "", " ".join(code for code in codes if isinstance(code, str)))


class AnthropicReader:
    """The port StreamReader: blocks open, grow and close; usage is cumulative, so the last value of each field counts."""

    def __init__(self, requested_model: str) -> None:
        self._requested_model = requested_model
        self._fields: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, Block] = {}
        self._call_number: dict[int, int] = {}
        self._has_thought = False
        self.is_whole = False
        self._is_counted = False

    @property
    def is_over(self) -> bool:
        return self.is_whole

    def feed(self, event: StreamEvent) -> Iterator[Delta]:
        data = parse_object(event.data, "an event")
        match data.get("type"):
            case "message_start":
                message = require_object(data.get("message"), "message")
                self._fields |= {key: value for key, value in message.items() if key not in ("content", "usage")}
                self._count(message.get("usage"))
            case "content_block_start":
                yield from self._open(self._block_index(data), dict(require_object(data.get("content_block"), "content_block")))
            case "content_block_delta":
                yield from self._grow(self._block_index(data), require_object(data.get("delta"), "delta"))
            case "content_block_stop":
                block = self._blocks.get(self._block_index(data), {})
                if is_signed(block):
                    yield ReasoningDelta("", dict(block))
            case "message_delta":
                self._fields |= {key: value for key, value in require_object(data.get("delta"), "delta").items() if value is not None}
                self._count(data.get("usage"))
                self._is_counted = True
            case "message_stop":
                self.is_whole = True
            case "error":
                raise ErrorInAnswer(error_status(data), data)

    def parts(self) -> AnswerParts:
        blocks = [self._blocks[at] for at in sorted(self._blocks)]
        parts = assemble(blocks, self._fields, self._usage, self._requested_model, is_counted=self._is_counted)
        for block in parts.extra.get("blocks", ()):
            if written := block.pop(_JSON, ""):
                block["input"] = arguments_object(written)
        return parts

    @staticmethod
    def _block_index(data: Mapping[str, Any]) -> int:
        at = data.get("index")
        if not isinstance(at, int):
            raise MalformedAnswer("an event of a block has no index")
        return at

    def _count(self, usage: Any) -> None:
        self._usage |= usage_fields(usage)

    def _open(self, at: int, block: Block) -> Iterator[Delta]:
        self._blocks[at] = block
        match block.get("type"):
            case "text" if block.get("text"):
                yield TextDelta(text_or_empty(block["text"], "text"))
            case "thinking" if block.get("thinking"):
                yield self._reasoning_delta(text_or_empty(block["thinking"], "thinking"), is_first=True)
            case "tool_use":
                self._call_number[at] = len(self._call_number)
                yield ToolCallDelta(
                    self._call_number[at], text_or_empty(block.get("id"), "id"), text_or_empty(block.get("name"), "name"), ""
                )
                if block.get("input"):
                    yield ToolCallDelta(self._call_number[at], None, None, json.dumps(block["input"], ensure_ascii=False))

    def _grow(self, at: int, delta: Mapping[str, Any]) -> Iterator[Delta]:
        block = self._blocks.get(at)
        if block is None:
            raise MalformedAnswer("a delta belongs to a block that was not opened")
        match delta.get("type"):
            case "text_delta":
                if piece := self._add(block, "text", delta):
                    yield TextDelta(piece)
            case "thinking_delta":
                is_first = not block.get("thinking")
                if piece := self._add(block, "thinking", delta):
                    yield self._reasoning_delta(piece, is_first=is_first)
            case "signature_delta":
                self._add(block, "signature", delta)
            case "input_json_delta":
                piece = self._add(block, _JSON, delta)
                if piece and at in self._call_number:
                    yield ToolCallDelta(self._call_number[at], None, None, piece)

    @staticmethod
    def _add(block: Block, key: str, delta: Mapping[str, Any]) -> str:
        piece = text_or_empty(delta.get(key), key)
        block[key] = text_or_empty(block.get(key), key) + piece
        return piece

    def _reasoning_delta(self, piece: str, *, is_first: bool) -> Delta:
        """A piece of thinking; before the first piece of a later block comes the separator, as in `reasoning`."""
        separator = REASONING_SEPARATOR if is_first and self._has_thought else ""
        self._has_thought = True
        return ReasoningDelta(separator + piece)
