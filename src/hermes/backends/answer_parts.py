"""The types that all codecs share: the parts of an answer, whole or broken off, and the error for a request that a vendor cannot take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any, Protocol

from hermes.backends.sse import StreamEvent
from hermes.ports.backends import ChatMessage, Delta


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
    return ReturnedTokens(), {"token_mismatch": {**lengths, "tokens_in": counts.tokens_in, "tokens_out": counts.tokens_out}}


def _is_token_id(token: Any) -> bool:
    return type(token) is int and token >= 0
