"""Write answers and errors as Anthropic's Messages API does: the message with its blocks, whole or as a stream of events. Pure.

message_start, ping, then for each block: start, its pieces, stop; then message_delta, message_stop"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from fastapi.responses import JSONResponse

from hermes.gateway.answer_parts import (
    AnswerPart,
    CallPart,
    PartEnded,
    PartEvent,
    PartGrown,
    PartStarted,
    PartStream,
    RefusalPart,
    TextPart,
    ThinkingPart,
    answer_parts,
    call_arguments,
)
from hermes.gateway.completions import ChoicePiece
from hermes.gateway.messages_request import MessagesRequest
from hermes.gateway.thinking_seal import ThinkingSeal
from hermes.ports.backends import Completion, Usage
from hermes.ports.models import Answer, AnswerStarted
from hermes.web.completion_errors import openai_api_error
from hermes.web.completions import hermes_fields
from hermes.web.errors import ApiError
from hermes.web.response_object import thinking_model
from hermes.web.responses_answer import named_event

STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal", "refusal": "refusal"}
VENDOR_STOP_REASONS = frozenset({"end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", "model_context_window_exceeded"})
"""Reasons that a vendor with this API gave, and that stay as they are."""
NO_PART: AnswerPart = TextPart("")

Block = dict[str, Any]


class BlockWriter:
    """Writes the parts of one answer as blocks."""

    def __init__(self, model: str, seal: ThinkingSeal, *, wants_thinking: bool) -> None:
        """`model` is the model that a vendor's own thinking belongs to."""
        self._model, self._seal, self._wants_thinking = model, seal, wants_thinking

    def shows(self, part: AnswerPart) -> bool:
        """Whether the client sees a part: thinking that it did not ask for only if it has to send it back."""
        return not isinstance(part, ThinkingPart) or self._wants_thinking or part.block is not None

    def block(self, part: AnswerPart) -> Block:
        match part:
            case ThinkingPart(_, block) if block is not None and block.get("type") == "redacted_thinking":
                return {"type": "redacted_thinking", "data": self._seal.seal(self._model, block)}
            case ThinkingPart(text, block):
                rest = None if block is None else {key: value for key, value in block.items() if key != "thinking"}
                return {"type": "thinking", "thinking": text, "signature": self._seal.seal(self._model, rest)}
            case CallPart(call_id, name, text):
                return {"type": "tool_use", "id": call_id, "name": name, "input": call_arguments(text)}
            case TextPart(text) | RefusalPart(text):
                return {"type": "text", "text": text}

    def empty(self, part: AnswerPart) -> Block:
        """A block as it is when it begins."""
        block = self.block(part)
        match block["type"]:
            case "thinking":
                return {"type": "thinking", "thinking": "", "signature": ""}
            case "tool_use":
                return {**block, "input": {}}
        return block


def stop_of(completion: Completion) -> dict[str, Any]:
    """Why the answer ended."""
    told = completion.extra.get("stop_reason")
    reason = told if told in VENDOR_STOP_REASONS else STOP_REASONS.get(completion.finish_reason, "end_turn")
    return {"stop_reason": reason, "stop_sequence": completion.extra.get("stop_sequence") if reason == "stop_sequence" else None}


def usage_counts(usage: Usage) -> dict[str, Any]:
    """Here the input tokens leave out what was read from a cache or written to one."""
    written = usage.cache_write + usage.cache_write_1h
    return {
        "input_tokens": max(0, usage.tokens_in - usage.cache_read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.tokens_out,
    }


class MessagesWriter:
    """Writes the answer to one request, whole or piece by piece."""

    def __init__(self, request: MessagesRequest, seal: ThinkingSeal, request_id: str) -> None:
        self._request, self._seal, self._request_id = request, seal, request_id
        self._parts = PartStream()
        self._model: str = request.chat["model"]
        self._index, self._open = -1, NO_PART
        self._is_hidden = False
        self._answer: Answer | None = None

    def body(self, answers: Sequence[Answer]) -> dict[str, Any]:
        answer = answers[0]
        completion = answer.completion
        writer = self._writer(thinking_model(completion.message, completion.model))
        blocks = [writer.block(part) for part in answer_parts(completion.message) if writer.shows(part)]
        ending = {**stop_of(completion), "usage": usage_counts(completion.usage), "hermes": self._hermes(answer)}
        return message_head(answer.call_id, completion.model, blocks) | ending

    def chunks(self, choice_piece: ChoicePiece) -> Iterator[bytes]:
        match choice_piece.piece:
            case AnswerStarted(call_id, model):
                self._model = model
                message = {**message_head(call_id, model, []), "stop_reason": None, "stop_sequence": None, "usage": usage_counts(Usage())}
                yield event_of("message_start", message=message)
                yield event_of("ping")
            case Answer() as answer:
                self._answer = answer
                for event in self._parts.finish(answer.completion.message):
                    yield from self._part(event, thinking_model(answer.completion.message, self._model))
            case delta:
                for event in self._parts.feed(delta):
                    yield from self._part(event, self._model)

    def end(self) -> Iterator[bytes]:
        if self._answer is not None:
            completion = self._answer.completion
            usage = usage_counts(completion.usage)
            yield event_of("message_delta", delta=stop_of(completion), usage=usage, hermes=self._hermes(self._answer))
            yield event_of("message_stop")

    def failure(self, error: Exception) -> bytes:
        """The last event of a stream that breaks off."""
        api_error = openai_api_error(error) or ApiError(500, "internal_error", "Something went wrong on our side.")
        return named_event("error", error_body(api_error, self._request_id)[1])

    def _writer(self, model: str) -> BlockWriter:
        return BlockWriter(model, self._seal, wants_thinking=self._request.wants_thinking)

    def _hermes(self, answer: Answer) -> dict[str, Any]:
        return {**hermes_fields([answer]), **({"ignored": self._request.ignored} if self._request.ignored else {})}

    def _part(self, event: PartEvent, model: str) -> Iterator[bytes]:
        """The events of a part that begins, grows or ends. Thinking that the client may not see waits for its end."""
        match event:
            case PartStarted(_, part):
                self._is_hidden = not self._writer(model).shows(part)
                if not self._is_hidden:
                    yield from self._start(part, model)
            case PartGrown(_, text) if not self._is_hidden:
                yield self._delta(text)
            case PartEnded(_, part):
                writer = self._writer(model)
                if not writer.shows(part):
                    return
                if self._is_hidden:
                    yield from self._start(part, model)
                    if part.text:
                        yield self._delta(part.text)
                block = writer.block(part)
                if block["type"] == "thinking":
                    yield event_of(
                        "content_block_delta", index=self._index, delta={"type": "signature_delta", "signature": block["signature"]}
                    )
                yield event_of("content_block_stop", index=self._index)

    def _start(self, part: AnswerPart, model: str) -> Iterator[bytes]:
        self._index, self._open = self._index + 1, part
        begun = part if isinstance(part, ThinkingPart | CallPart) else TextPart("")
        yield event_of("content_block_start", index=self._index, content_block=self._writer(model).empty(begun))

    def _delta(self, text: str) -> bytes:
        match self._open:
            case ThinkingPart():
                delta = {"type": "thinking_delta", "thinking": text}
            case CallPart():
                delta = {"type": "input_json_delta", "partial_json": text}
            case _:
                delta = {"type": "text_delta", "text": text}
        return event_of("content_block_delta", index=self._index, delta=delta)


def message_head(call_id: UUID, model: str, content: Sequence[Block]) -> dict[str, Any]:
    return {"id": f"msg_{call_id.hex}", "type": "message", "role": "assistant", "model": model, "content": list(content)}


def event_of(kind: str, **fields: Any) -> bytes:
    return named_event(kind, {"type": kind, **fields})


# --- errors

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
OVERLOADED = frozenset({"overloaded", "upstream_overloaded"})


def new_request_id() -> str:
    return f"req_{uuid4().hex}"


def error_body(error: ApiError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The status and the body of an error."""
    status = 529 if error.code in OVERLOADED else error.status
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    # Claude Code compacts its conversation when it reads these words.
    message = f"prompt is too long: {error.message}" if error.code == "context_length_exceeded" else error.message
    return status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def error_response_of(error: ApiError, request_id: str) -> JSONResponse:
    status, body = error_body(error, request_id)
    return JSONResponse(body, status, {**(error.headers or {}), "request-id": request_id})


def model_fields(name: str) -> Mapping[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
