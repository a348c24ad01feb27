"""An `/api/chat` answer, whole or line by line, as Parts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hermes.backends.classify import NO_SUCH_MODEL, NOT_TAKEN, TOO_LONG, Complaint
from hermes.backends.parts import Counts, Parts, Tokens
from hermes.backends.shape import Malformed, Refused, a_count, a_text, an_object, objects, parse_object
from hermes.backends.sse import Event
from hermes.backends.tool_calls import as_text, call
from hermes.ports.backends import Delta, ReasoningDelta, TextDelta, ToolCallDelta


def decode(body: Mapping[str, Any], call_prefix: str) -> Parts:
    """A whole answer: a stream of one line."""
    reader = AnswerReader(call_prefix)
    if "message" not in body and not body.get("error"):
        raise Malformed("the answer has no message")
    for _ in reader.take(body):
        pass
    return reader.parts()


class AnswerReader:
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

    def feed(self, event: Event) -> Iterator[Delta]:
        yield from self.take(parse_object(event.data, "a line"))

    def take(self, line: Mapping[str, Any]) -> Iterator[Delta]:
        """Take one line, already parsed."""
        if line.get("error"):
            raise Refused(status_of(line), line)
        message = an_object(line.get("message") or {}, "message")
        if thought := a_text(message.get("thinking"), "thinking"):
            self._reasoning += thought
            yield ReasoningDelta(thought)
        if text := a_text(message.get("content"), "content"):
            self._text += text
            yield TextDelta(text)
        for part in objects(message.get("tool_calls"), "tool_calls"):
            function = an_object(part.get("function"), "function")
            at = len(self._calls)
            call_id = a_text(part.get("id"), "id") or f"{self._call_prefix}_{at}"
            made = call(a_text(function.get("name"), "name"), as_text(function.get("arguments")), call_id)
            self._calls.append(made)
            yield ToolCallDelta(at, call_id, made["function"]["name"], made["function"]["arguments"])
        self._logprobs += [
            entry["logprob"] for entry in objects(line.get("logprobs"), "logprobs") if isinstance(entry.get("logprob"), float | int)
        ]
        self._last = line
        self.is_whole = line.get("done") is True

    def parts(self) -> Parts:
        last = self._last
        message: dict[str, Any] = {"role": "assistant", "content": self._text if self._text or not self._calls else None}
        if self._calls:
            message["tool_calls"] = self._calls
        if self._reasoning:
            message["reasoning"] = self._reasoning
        reason = "length" if last.get("done_reason") == "length" else "tool_calls" if self._calls else "stop"
        return Parts(
            message=message,
            finish_reason=reason,
            counts=Counts(
                tokens_in=a_count(last.get("prompt_eval_count")),
                tokens_out=a_count(last.get("eval_count")),
                cache_read=a_count(last.get("prompt_eval_cached_count")) or 0,
            ),
            model=a_text(last.get("model"), "model") or None,
            tokens=Tokens(logprobs=self._logprobs or None),
            extra={key: last[key] for key in ("total_duration", "load_duration") if last.get(key) is not None},
        )


def status_of(line: Mapping[str, Any]) -> int:
    """The status that an error in the middle of a stream would have had; only its words tell."""
    said = complaint(line).message
    if NO_SUCH_MODEL.search(said):
        return 404
    return 400 if TOO_LONG.search(said) or NOT_TAKEN.search(said) else 500


def complaint(body: Mapping[str, Any]) -> Complaint:
    """What an error says: a plain text."""
    error = body.get("error")
    return Complaint(error if isinstance(error, str) else "")
