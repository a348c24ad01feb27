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
from typing import Any, ClassVar, Protocol

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

    @property
    def needs_tools(self) -> bool:
        """Whether it has tools, or tool calls in its history: a backend without tools cannot take it."""
        return bool(self.tools) or any(message.get("tool_calls") or message.get("role") == "tool" for message in self.messages)

    @property
    def needs_vision(self) -> bool:
        """Whether one of the messages has an image."""
        parts = (part for message in self.messages if isinstance(message.get("content"), list | tuple) for part in message["content"])
        return any(isinstance(part, Mapping) and part.get("type") == "image_url" for part in parts)


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
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What else is worth keeping: the vendor's id of the answer, its service tier, content blocks that Hermes does not know.

    Under LOGPROBS the server's entry for each token, if the caller asked for it with `sampling={"logprobs": True}`."""


LOGPROBS = "logprob_entries"


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a tool call: id and name with its first piece, arguments in pieces of a JSON string."""

    index: int
    id: str | None
    name: str | None
    arguments: str


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
