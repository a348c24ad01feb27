"""Read an `/api/chat` answer, whole or line by line, into AnswerParts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hermes.backends.answer_parts import AnswerParts, ReturnedTokens, TokenCounts
from hermes.backends.json_fields import (
    ErrorInAnswer,
    MalformedAnswer,
    count_or_none,
    object_list,
    parse_object,
    require_object,
    text_or_empty,
)
from hermes.backends.sse import StreamEvent
from hermes.backends.tool_calls import arguments_text, make_tool_call
from hermes.backends.vendor_errors import CONTEXT_TOO_LONG, NO_SUCH_MODEL, NOT_SUPPORTED, VendorErrorDetails
from hermes.ports.backends import Delta, ReasoningDelta, TextDelta, ToolCallDelta


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
