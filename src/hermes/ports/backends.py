"""Requests to models, their answers, and how they can fail. The same for every vendor.

Messages and tools are in the form of the message graph: OpenAI's chat messages (`role`, `content`, `tool_calls` with arguments as a JSON
string, `role: tool` with `tool_call_id`, `reasoning`), tools as `{"type": "function", "function": {…}}`. Each backend translates them into
its vendor's form.

    BackendError
    ├── Overloaded          5xx, 529: another vendor may have capacity         → next backend
    ├── RateLimited         429; says how long to wait, where it is known      → next backend
    ├── Unreachable         no connection, or no answer in time                → next backend
    ├── Garbled             a success that makes no sense: empty, HTML, no choice → next backend
    ├── Unauthorized        401, 402, 403, 404: key, bill, or no such model    → next backend, and an alert
    ├── ContextTooLong      the prompt does not fit this model                 → next backend
    ├── Unsupported         the request has a part that this model rejects     → next backend
    ├── BadRequest          400, 413: the same everywhere                      → no further backend
    └── CutShort            the stream broke after text had come               → no further backend; carries the text and the usage
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from hermes.graph.call import LogprobMode

ChatMessage = Mapping[str, Any]
ToolSchema = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request to a model, before any vendor's encoding."""

    messages: Sequence[ChatMessage]
    max_tokens: int
    tools: Sequence[ToolSchema] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    """`auto`, `none`, `required`, or one function; None leaves it to the vendor."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """temperature, top_p, seed, stop … A model that does not take one is not sent it."""
    response_format: Mapping[str, Any] | None = None
    wants_tokens: bool = False
    """Ask for token ids and logprobs, where the server has them."""
    user: str | None = None
    """An opaque name of the end user, for vendors that ask for one to detect abuse. Never a phone number."""
    cwd: Path | None = None
    """The folder in which a backend that is a program runs; None leaves it to the backend. No other backend reads it."""

    may_leave_out_tools: bool = False
    """A backend without tools may be asked without the tools, and without the tool calls of the history."""

    @property
    def needs_tools(self) -> bool:
        """Whether it has tools, or tool calls in its history: a backend without tools cannot take it."""
        return bool(self.tools) or any(message.get("tool_calls") or message.get("role") == "tool" for message in self.messages)

    @property
    def needs_vision(self) -> bool:
        """Whether one of the messages has an image."""
        parts = (part for message in self.messages if isinstance(message.get("content"), list | tuple) for part in message["content"])
        return any(isinstance(part, Mapping) and part.get("type") == "image_url" for part in parts)


EmbeddingInput = str | Sequence[int]
"""What a vector is asked for: a text, or its token ids of the model's own tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRequest(ModelRequest):
    """One request for vectors. Its messages stand for the inputs where tokens are estimated."""

    inputs: Sequence[EmbeddingInput]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the vendor counted them. `tokens_in` is the whole prompt, cached parts included, whatever the vendor calls it."""

    tokens_in: int = 0
    tokens_out: int = 0
    cache_read: int = 0
    """Of `tokens_in`, read from the vendor's prompt cache."""
    cache_write: int = 0
    """Of `tokens_in`, written to it for 5 minutes."""
    cache_write_1h: int = 0
    is_estimated: bool = False
    """The vendor gave no counts; these are upper bounds that Hermes computed."""

    def to_record(self) -> dict[str, int]:
        """Return the counts under the names that exports look for. Our own estimates are not a server's counts and have other names."""
        if self.is_estimated:
            return {"estimated_prompt_tokens": self.tokens_in, "estimated_completion_tokens": self.tokens_out}
        cached = {"cache_read": self.cache_read, "cache_write": self.cache_write, "cache_write_1h": self.cache_write_1h}
        return {
            "prompt_tokens": self.tokens_in,
            "completion_tokens": self.tokens_out,
            **{name: count for name, count in cached.items() if count},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A whole answer."""

    message: ChatMessage
    """The assistant's message in the form of the message graph, with `reasoning` where the model gave any.

    What a vendor wants back unchanged in the next request is a field beside it (`thinking_blocks`). It is sent to no other vendor."""
    finish_reason: str
    """`stop`, `length`, `tool_calls`, `content_filter` or `refusal`."""
    usage: Usage
    model: str
    """The model that answered, as it named itself."""
    request_digest: str
    """SHA-256 of the encoded request."""
    is_reasoning_sent: bool = False
    """Whether the request included the earlier reasoning in the messages. Most servers take none."""
    raw_text: str | None = None
    prompt_token_ids: Sequence[int] | None = None
    token_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    logprob_mode: LogprobMode | None = None
    """Whether the logprobs are the model's own or those after temperature, top-p and the like; None where the server does not tell."""
    policy_version: str | None = None
    """The weights that answered, as the server named them."""
    sampling: Mapping[str, Any] | None = None
    """The sampling parameters of the request that were sent: those that the model does not take are left out. None if it is not known."""
    derived: Sequence[str] = ()
    """The fields above that the server did not give and the backend filled in: `model` (then it is the requested name),
    `prompt_token_ids` (then they were tokenised apart from the call)."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What else is worth keeping: the vendor's id of the answer, its service tier, content blocks that Hermes does not know.

    Under LOGPROBS the server's entry for each token, if the caller asked for it with `sampling={"logprobs": True}`."""


LOGPROBS = "logprob_entries"
TOKEN_MISMATCH = "token_mismatch"  # noqa: S105  # the name of a field
"""In a completion's `extra`: the server returned token ids that do not fit its own counts, so none are recorded."""
UNREACHABLE = "unreachable"
"""The code of a finding of a health check: there is no server."""
EMBEDDING_VECTORS = "embedding_vectors"
"""The key in `extra` under which the answer to an EmbeddingRequest has its vectors."""


class RecordedTokens(NamedTuple):
    """What a call record says about an answer's tokens, and which fields of the record the server did not give."""

    fields: Mapping[str, Any]
    derived: Sequence[str]

    @classmethod
    def of(
        cls,
        *,
        model: str,
        prompt_token_ids: Sequence[int] | None,
        token_ids: Sequence[int] | None,
        logprobs: Sequence[float] | None,
        logprob_mode: LogprobMode | None,
        derived: Sequence[str],
    ) -> RecordedTokens:
        """No server names its tokenizer, so ids are recorded under the model's name. Logprobs without ids are left out."""
        has_ids = token_ids is not None
        fields = {
            "tokenizer": model if has_ids else None,
            "prompt_token_ids": prompt_token_ids,
            "prompt_derived": prompt_token_ids is not None and "prompt_token_ids" in derived,
            "token_ids": token_ids,
            "logprobs": logprobs if has_ids else None,
            "logprob_mode": logprob_mode if has_ids and logprobs is not None else None,
        }
        return cls(fields, [*derived, *(["tokenizer"] if has_ids else [])])


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's text."""

    text: str
    logprobs: Sequence[Mapping[str, Any]] = field(default=(), compare=False, repr=False)
    """The server's entries for the tokens of exactly this piece, if it gives them while it streams."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's thinking."""

    text: str
    block: Mapping[str, Any] | None = None
    """The vendor's own form of the thinking that has just ended, where the vendor wants it back unchanged; the text is empty then."""
    logprobs: Sequence[Mapping[str, Any]] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a tool call: id and name with its first piece, arguments in pieces of a JSON string."""

    index: int
    id: str | None
    name: str | None
    arguments: str
    logprobs: Sequence[Mapping[str, Any]] = field(default=(), compare=False, repr=False)


Delta = TextDelta | ReasoningDelta | ToolCallDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a model can do, and what it must not be sent."""

    tools: bool = True
    vision: bool = False
    sampling: bool = True
    """Takes temperature, top_p and top_k."""
    prefill: bool = False
    """May continue an assistant message."""
    thinking: bool = False
    """Thinks before it answers, unless the request turns it off."""
    context: int | None = None
    """Tokens of prompt and answer together; None if unknown."""
    cache_floor: int | None = None
    """The shortest prompt that its vendor caches, in tokens."""


class FindingLevel(StrEnum):
    """How bad a finding of a health check is."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class BackendFinding:
    """One finding of a health check."""

    code: str
    level: FindingLevel
    message: str
    hint: str = ""


class Backend(Protocol):
    """A server or program that runs models. It tries each request once: no retries, no failover, no budget; the gateway does those."""

    name: str

    def capabilities(self, model: str) -> Capabilities:
        """Return what a model of this backend can do."""
        ...

    def supports_tools(self, model: str) -> bool:
        """Whether a request with tools may be sent to it."""
        ...

    def answers_as(self, model: str) -> str:
        """Return the name of what answers a request for this model: the model itself, or what answers to every name (a script, local
        weights).

        Streams and answers that broke off are recorded under it; a whole answer is recorded under the name that the server gave."""
        ...

    async def complete(self, request: ModelRequest, model: str, *, timeout_s: float) -> Completion:
        """Return the whole answer; raise a BackendError."""
        ...

    def stream(self, request: ModelRequest, model: str, *, timeout_s: float) -> AsyncGenerator[Delta | Completion]:
        """Yield deltas as they come, and last of all the whole answer. Raises a BackendError before the first delta, CutShort after it.

        To give up, close it (`aclosing`): that also closes the connection."""
        ...

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[BackendFinding]:
        """Return what is wrong with the backend. Without a finding of level ERROR it can be used. Never raises."""
        ...

    async def aclose(self) -> None:
        """Close connections and end processes."""
        ...


class BackendError(Exception):
    """A model could not be asked, or did not answer."""

    fails_over: ClassVar[bool] = True
    """Whether another backend may do better."""

    def __init__(self, message: str, *, backend: str, model: str, status: int | None = None) -> None:
        super().__init__(message)
        self.backend, self.model, self.status = backend, model, status


class Overloaded(BackendError):
    """The vendor has no capacity, or had an error of its own."""


class RateLimited(BackendError):
    """Too many requests."""

    def __init__(
        self,
        message: str,
        *,
        backend: str,
        model: str,
        status: int | None = None,
        retry_after_s: float | None = None,
        is_exhausted: bool = False,
    ) -> None:
        super().__init__(message, backend=backend, model=model, status=status)
        self.retry_after_s = retry_after_s
        """As the vendor says; None if it does not say, or if no wait helps before the month ends."""
        self.is_exhausted = is_exhausted
        """A spending limit or a quota is used up. Only the operator can help, so the caller repeats nothing and says so."""


class Unreachable(BackendError):
    """No connection, or no answer in time."""


class Garbled(BackendError):
    """The response says success, but it is empty or unreadable."""


class Unauthorized(BackendError):
    """The key is wrong, the bill is not paid, or there is no such model for it."""


class ContextTooLong(BackendError):
    """The prompt does not fit the model."""


class Unsupported(BackendError):
    """The request has a part that this model does not take."""


class BadRequest(BackendError):
    """The request is wrong, and would be wrong everywhere."""

    fails_over = False


class CutShort(BackendError):
    """The answer broke off after the caller had received a part of it."""

    fails_over = False

    def __init__(self, message: str, *, backend: str, model: str, partial: ChatMessage, usage: Usage) -> None:
        super().__init__(message, backend=backend, model=model)
        self.partial, self.usage = partial, usage
        """The part that came, and the usage that will be billed for it."""
