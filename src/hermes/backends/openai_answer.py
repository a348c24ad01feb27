"""Read a chat completion, whole or as a stream of chunks, into AnswerParts. Pure, and tolerant: every server leaves out something else.

Each server puts token ids in its own place: vLLM `prompt_token_ids` beside the choices and `token_ids` in them, SGLang `prompt_token_ids`
and `response_token_ids` in the choice, llama.cpp an `id` in each entry of the logprobs. SGLang names the weights in
`metadata.weight_version`, but not in a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hermes.backends.tool_calls import arguments_text, make_tool_call
from hermes.backends.vendor_answers import (
    AnswerParts,
    ErrorInAnswer,
    MalformedAnswer,
    ReturnedTokens,
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
from hermes.ports.backends import LOGPROBS, Delta, ReasoningDelta, TextDelta, ToolCallDelta

FINISH_REASON_ALIASES = {"function_call": "tool_calls", "max_tokens": "length", "eos": "stop", "eos_token": "stop"}
"""Other names that some servers use for these reasons."""
UNNAMED_WEIGHTS = "default"
"""What SGLang calls weights that no trainer has named."""
FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter"})


def decode(body: Mapping[str, Any], call_prefix: str) -> AnswerParts:
    """A whole answer. A tool call without an id gets one that starts with `call_prefix`."""
    draft = AnswerDraft(call_prefix)
    draft.add_fields(body)
    choice = next(iter(object_list(body.get("choices"), "choices")), None)
    if choice is None:
        raise MalformedAnswer("the answer has no choice")
    for _ in draft.add_piece(choice, require_object(choice.get("message"), "message")):
        pass
    return draft.parts()


class OpenAIReader:
    """The port StreamReader for chunks. The answer is whole with a finish reason, and over with `[DONE]`, which some servers leave out."""

    def __init__(self, call_prefix: str) -> None:
        self._draft = AnswerDraft(call_prefix)
        self.is_over = False

    @property
    def is_whole(self) -> bool:
        return bool(self._draft.finish)

    def feed(self, event: StreamEvent) -> Iterator[Delta]:
        if event.data.strip() == "[DONE]":
            self.is_over = True
            return
        chunk = parse_object(event.data, "a chunk")
        self._draft.add_fields(chunk)
        for choice in object_list(chunk.get("choices"), "choices"):
            if choice.get("index", 0) in (0, None):
                yield from self._draft.add_piece(choice, require_object(choice.get("delta") or choice.get("message") or {}, "delta"))

    def parts(self) -> AnswerParts:
        return self._draft.parts()


@dataclass(slots=True)
class ToolCallDraft:
    """A tool call while its pieces come."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class AnswerDraft:
    """An answer while its pieces come; a whole answer is one piece."""

    call_prefix: str
    model: str = ""
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    finish: str = ""
    calls: list[ToolCallDraft] = field(default_factory=list)
    by_index: dict[int, ToolCallDraft] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    policy_version: str | None = None
    prompt_ids: list[Any] | None = None
    ids: list[Any] | None = None
    logprobs: list[Any] | None = None
    logprob_ids: list[Any] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    shown: int = 0
    """How many of the entries a delta had."""
    extra: dict[str, Any] = field(default_factory=dict)

    def add_fields(self, body: Mapping[str, Any]) -> None:
        """Take the fields beside the choices. Usage may come with any chunk, and the last one counts."""
        if body.get("error") or body.get("object") == "error":
            raise ErrorInAnswer(error_status(body), body)
        self.model = text_or_empty(body.get("model"), "model") or self.model
        self.usage |= usage_fields(body.get("usage"))
        self.extra |= {key: body[key] for key in ("id", "service_tier", "system_fingerprint", "provider") if body.get(key)}
        self._add_prompt_ids(body)
        metadata = body.get("metadata")
        version = metadata.get("weight_version") if isinstance(metadata, Mapping) else None
        if isinstance(version, str) and version != UNNAMED_WEIGHTS:
            self.policy_version = version

    def add_piece(self, choice: Mapping[str, Any], piece: Mapping[str, Any]) -> Iterator[Delta]:
        """Take a piece of the message, and the fields of its choice."""
        if choice.get("error"):
            raise ErrorInAnswer(error_status(choice), choice)
        self._add_prompt_ids(choice)
        self._add_tokens(choice)
        deltas = list(self._add_message(choice, piece))
        yield from deltas[:-1]
        if deltas:
            # Tokens without a delta of their own (half a character) belong to the next one.
            yield replace(deltas[-1], logprobs=tuple(self.entries[self.shown :]))
            self.shown = len(self.entries)

    def _add_message(self, choice: Mapping[str, Any], piece: Mapping[str, Any]) -> Iterator[Delta]:
        reasoning = text_or_empty(piece.get("reasoning"), "reasoning") or text_or_empty(piece.get("reasoning_content"), "reasoning_content")
        if reasoning:
            self.reasoning += reasoning
            yield ReasoningDelta(reasoning)
        if text := text_of(piece.get("content")):
            self.text += text
            yield TextDelta(text)
        self.refusal += text_or_empty(piece.get("refusal"), "refusal")
        for part in object_list(piece.get("tool_calls"), "tool_calls"):
            yield self._add_call(part)
        self.finish = text_or_empty(choice.get("finish_reason"), "finish_reason") or self.finish

    def parts(self) -> AnswerParts:
        calls = [
            make_tool_call(call.name, join_surrogates(call.arguments), call.id or f"{self.call_prefix}_{at}")
            for at, call in enumerate(self.calls)
        ]
        text = join_surrogates(self.text)
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not (calls or self.refusal) else None}
        if calls:
            message["tool_calls"] = calls
        if self.reasoning:
            message["reasoning"] = join_surrogates(self.reasoning)
        if self.refusal:
            message["refusal"] = self.refusal
        details = self.usage.get("prompt_tokens_details")
        cached = count_or_none(details.get("cached_tokens")) if isinstance(details, dict) else None
        written = count_or_none(details.get("cache_write_tokens")) if isinstance(details, dict) else None
        cost = self.usage.get("cost")
        return AnswerParts(
            message=message,
            finish_reason=self._finish_reason(),
            counts=TokenCounts(
                tokens_in=count_or_none(self.usage.get("prompt_tokens")),
                tokens_out=count_or_none(self.usage.get("completion_tokens")),
                cache_read=cached or 0,
                cache_write=written or 0,
            ),
            model=self.model or None,
            policy_version=self.policy_version,
            tokens=ReturnedTokens(prompt=self.prompt_ids, completion=self.ids or self.logprob_ids or None, logprobs=self._scores()),
            extra=self.extra
            | ({"cost_usd": cost} if isinstance(cost, int | float) else {})
            | ({LOGPROBS: self.entries} if self.entries else {}),
        )

    def _finish_reason(self) -> str:
        if self.refusal:
            return "refusal"
        reason = FINISH_REASON_ALIASES.get(self.finish, self.finish)
        if self.calls and reason in ("stop", ""):
            return "tool_calls"  # some servers say stop although the answer has tool calls
        return reason if reason in FINISH_REASONS else "stop"

    def _add_call(self, part: Mapping[str, Any]) -> ToolCallDelta:
        """Add a piece of a tool call. It belongs to the call with its index, else to the call with its id, else to the last call."""
        function = require_object(part.get("function") or {}, "function")
        call_id, name = text_or_empty(part.get("id"), "id"), text_or_empty(function.get("name"), "name")
        index = count_or_none(part.get("index"))
        same_id = (call for call in self.calls if call_id and call.id == call_id)
        found = self.by_index.get(index) if index is not None else next(same_id, None)
        if found is None and index is None and not call_id and not name and self.calls:
            found = self.calls[-1]
        # Some servers give every call the index 0; a second id with a second name is a second call.
        is_new = found is None or bool(call_id and name and found.id and found.id != call_id)
        if found is None or is_new:
            found = ToolCallDraft(call_id, name)
            self.calls.append(found)
            if index is not None:
                self.by_index[index] = found
        elif name and not found.name:
            found.name, is_new = name, True
        at = next(at for at, call in enumerate(self.calls) if call is found)
        given = function.get("arguments")
        piece = text_or_empty(given, "arguments") if not isinstance(given, dict) else arguments_text(given)
        found.arguments += piece
        if not is_new:
            return ToolCallDelta(at, None, None, piece)
        found.id = found.id or call_id or f"{self.call_prefix}_{at}"
        return ToolCallDelta(at, found.id, found.name, piece)

    def _add_prompt_ids(self, body: Mapping[str, Any]) -> None:
        if isinstance(body.get("prompt_token_ids"), list):
            self.prompt_ids = body["prompt_token_ids"]

    def _add_tokens(self, choice: Mapping[str, Any]) -> None:
        ids = choice.get("token_ids") if choice.get("token_ids") is not None else choice.get("response_token_ids")
        if isinstance(ids, list):
            self.ids = self.ids or []
            self.ids += ids
        scores = choice.get("logprobs")
        entries = object_list(scores.get("content"), "logprobs") if isinstance(scores, dict) else []
        if entries:
            self.logprobs = self.logprobs or []
            self.logprobs += [entry.get("logprob") for entry in entries]
            self.logprob_ids += [entry["id"] for entry in entries if "id" in entry]
            self.entries += entries

    def _scores(self) -> list[float] | None:
        if self.logprobs is None or not all(isinstance(score, int | float) for score in self.logprobs):
            return None
        return [float(score) for score in self.logprobs]


def join_surrogates(text: str) -> str:
    """Join the halves of surrogate pairs that came in two chunks into one character; replace a half that stays alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def text_of(content: Any) -> str:
    """The text of a content; some servers send it in parts."""
    if isinstance(content, list):
        return "".join(text_or_empty(part.get("text"), "text") for part in object_list(content, "content") if part.get("type") == "text")
    return text_or_empty(content, "content")


def error_status(body: Mapping[str, Any]) -> int:
    """The status that an error inside a success would have had; 500 where the error names none."""
    error = body.get("error")
    code = error.get("code") if isinstance(error, Mapping) else body.get("code")
    if isinstance(code, str) and code.isdecimal():
        code = int(code)
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def read_error_details(body: Mapping[str, Any]) -> VendorErrorDetails:
    """The details of an error. OpenAI and most servers put them under `error`, older vLLM at the top level, some as plain text."""
    error = body.get("error", body)
    if isinstance(error, str):
        return VendorErrorDetails(error)
    if not isinstance(error, Mapping):
        return VendorErrorDetails()
    message = error.get("message") or error.get("detail")
    codes = (str(error[key]) for key in ("type", "code") if error.get(key))
    return VendorErrorDetails(message if isinstance(message, str) else "", " ".join(codes))
