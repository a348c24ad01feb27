"""What all codecs share to read an answer: the vendor's JSON, its stream of events, the parts of the answer, and the usage to bill.

No I/O, and no vendor's fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any, NamedTuple, Protocol

from hermes.gateway.prices import answer_tokens, prompt_tokens
from hermes.ports.backends import TOKEN_MISMATCH, ChatMessage, Delta, ModelRequest, Usage

# --- the vendor's JSON: every value has the expected type, or MalformedAnswer says where it has not


class MalformedAnswer(Exception):
    """The answer has not the form that its vendor promises."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        """What is wrong, without quoting the answer."""


class ErrorInAnswer(Exception):
    """An error inside an answer that began as a success. `status` is the status that it would have had as an answer of its own."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(f"an error inside a success ({status})")
        self.status, self.body = status, body


def parse_object(data: bytes | str, where: str) -> dict[str, Any]:
    """Parse a JSON object."""
    if not data.strip():
        raise MalformedAnswer(f"{where} is empty")
    try:
        return require_object(json.loads(data), where)
    except (ValueError, RecursionError):
        raise MalformedAnswer(f"{where} is not JSON") from None


def require_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedAnswer(f"{where} is not an object")
    return value


def object_list(value: Any, where: str) -> list[dict[str, Any]]:
    """A list of objects; null is an empty list."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedAnswer(f"{where} is not a list")
    return [require_object(item, f"{where}[]") for item in value]


def text_or_empty(value: Any, where: str) -> str:
    """A text; null is an empty text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedAnswer(f"{where} is not text")
    return value


def count_or_none(value: Any) -> int | None:
    """A number of tokens; None where it is missing or wrong. A wrong count is no reason to lose an answer."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def usage_fields(value: Any) -> dict[str, Any]:
    """The fields of a usage; empty where it is no object, for the same reason."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else {}


# --- a stream of bytes, cut into events. A piece of the stream may end anywhere, also inside a character

MAX_LINE_BYTES = 16 * 1024 * 1024
"""The reader gives up a stream after this many bytes without a line break."""


class StreamEvent(NamedTuple):
    """One event. `name` is empty where the server gave none."""

    name: str
    data: str


class LineSplitter:
    """The lines of a stream, ended by LF or CRLF."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the lines that this piece completes. Raises MalformedAnswer for a line longer than MAX_LINE_BYTES."""
        rest = self._rest
        rest += piece
        start = 0
        while (end := rest.find(b"\n", start)) >= 0:
            yield bytes(rest[start : end - 1 if end > start and rest[end - 1] == 13 else end])
            start = end + 1
        del rest[:start]
        if len(rest) > MAX_LINE_BYTES:
            raise MalformedAnswer("a line of the stream does not end")


class ServerSentEvents:
    """The part of the standard that model servers use: `event`, `data` over several lines, comments; `id` and `retry` are ignored."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[StreamEvent]:
        for line in self._lines.feed(piece):
            if not line:
                if self._data:
                    yield StreamEvent(self._name, "\n".join(self._data))
                self._name, self._data = "", []
                continue
            key, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")  # a comment has an empty key
            text = value.removeprefix(b" ").decode("utf-8", "replace")
            if key == b"data":
                self._data.append(text)
            elif key == b"event":
                self._name = text


class JsonLines:
    """One JSON value on each line; empty lines are ignored."""

    def __init__(self) -> None:
        self._lines = LineSplitter()

    def feed(self, piece: bytes) -> Iterator[StreamEvent]:
        for line in self._lines.feed(piece):
            if line.strip():
                yield StreamEvent("", line.decode("utf-8", "replace"))


Framing = ServerSentEvents | JsonLines
"""Finds events in pieces of a stream: `feed` yields the events that a piece completes."""


# --- the parts of an answer, whole or broken off


class CannotEncode(Exception):
    """A part of the request has no form that this vendor takes. The message says which part, without quoting it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """The vendor's token counts so far; None where it has given no count (yet)."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedTokens:
    """Token ids and logprobs as the server returned them."""

    prompt: Sequence[int] | None = None
    completion: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerParts:
    """An answer, or the part of it that has come so far."""

    message: ChatMessage
    finish_reason: str
    counts: TokenCounts = TokenCounts()
    model: str | None = None
    tokens: ReturnedTokens = ReturnedTokens()
    policy_version: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class StreamReader(Protocol):
    """Builds an answer from the events of its stream. Knows no connection."""

    def feed(self, event: StreamEvent) -> Iterable[Delta]:
        """Take one event and return the deltas it adds. Raises MalformedAnswer, or ErrorInAnswer for an error that comes as an event."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether the answer is complete, so that the stream may end here."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        ...

    def parts(self) -> AnswerParts:
        """The answer so far."""
        ...


def consistent_tokens(tokens: ReturnedTokens, counts: TokenCounts) -> tuple[ReturnedTokens, dict[str, Any]]:
    """Return the tokens if every length agrees, and otherwise none of them and a note for `extra`.

    Servers lose control tokens on the way through tool parsers and streams; the remaining tokens would be trained in a context they were
    not sampled in. Logprobs without ids train nothing, so they are not checked."""
    lengths = {
        "prompt_token_ids": None if tokens.prompt is None else len(tokens.prompt),
        "token_ids": None if tokens.completion is None else len(tokens.completion),
        "logprobs": None if tokens.logprobs is None else len(tokens.logprobs),
    }
    if tokens.prompt is None and tokens.completion is None:
        return tokens, {}
    agree = (
        lengths["prompt_token_ids"] in (None, counts.tokens_in or lengths["prompt_token_ids"])
        and lengths["token_ids"] in (None, lengths["token_ids"] if counts.tokens_out is None else counts.tokens_out)
        and (lengths["logprobs"] is None or lengths["logprobs"] == lengths["token_ids"])
        and all(_is_token_id(token) for ids in (tokens.prompt, tokens.completion) for token in ids or ())
        and not any(map(isnan, tokens.logprobs or ()))
    )
    if agree:
        return tokens, {}
    return ReturnedTokens(), {TOKEN_MISMATCH: {**lengths, "tokens_in": counts.tokens_in, "tokens_out": counts.tokens_out}}


def _is_token_id(token: Any) -> bool:
    return type(token) is int and token >= 0


# --- usage


def billed_usage(counts: TokenCounts, ask: ModelRequest, answer: ChatMessage) -> Usage:
    """The vendor's counts, and our own upper bound for each count that is missing."""
    is_estimated = counts.tokens_in is None or counts.tokens_out is None
    return Usage(
        tokens_in=prompt_tokens(ask) if counts.tokens_in is None else counts.tokens_in,
        tokens_out=answer_tokens(answer, ask.max_tokens) if counts.tokens_out is None else counts.tokens_out,
        cache_read=counts.cache_read,
        cache_write=counts.cache_write,
        cache_write_1h=counts.cache_write_1h,
        is_estimated=is_estimated,
    )
