"""A backend that answers from a script, at once and always the same. Counts tokens exactly, and has no ids for them: no model sampled them.

A token is a word or a punctuation mark, with the space before it. A tool's schema has more marks than words, so there marks without a word
between them are one token. A message in a prompt is its role, its tokens and an end; an answer is its tokens and the end."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from operator import index
from threading import Lock
from typing import Any

from hermes.backends.scripted.request_view import text_of
from hermes.backends.scripted.requested_form import fit_answer
from hermes.backends.scripted.rule import ScriptAnswer, ScriptFault
from hermes.backends.scripted.script import Script
from hermes.backends.tool_calls import make_tool_call
from hermes.gateway.prices import parts_of
from hermes.graph.call import SCRIPTED
from hermes.graph.tool_schemas import once
from hermes.ports.backends import (
    BackendError,
    BackendFinding,
    BadRequest,
    Capabilities,
    ChatMessage,
    Completion,
    ContextTooLong,
    CutShort,
    Delta,
    FindingLevel,
    Garbled,
    ModelRequest,
    Overloaded,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Unauthorized,
    Unreachable,
    Unsupported,
    Usage,
)
from hermes.soul.statements.language_book import has_latin_books

DEFAULT_CAPABILITIES = Capabilities(tools=True, vision=True)
"""Takes everything. Of an image, a script sees only that there is one."""
END_TOKEN = "<|end|>"  # noqa: S105 - a token of text
_TOKEN = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
_SCHEMA_TOKEN = re.compile(r"\s*\w+|\s*[^\w\s]+|\s+")
_WORD = re.compile(r"\s*\S+|\s+")


@dataclass(frozen=True, slots=True)
class PlayedAnswer:
    """The script's answer to one request, and the completion made of it."""

    answer: ScriptAnswer
    completion: Completion


class ScriptedBackend:
    """The port Backend, from a script. The same request gets the same answer, except while a transcript lasts.

    Whatever model the request names, the answer's model is `scripted`, and it has neither token ids nor logprobs.
    Of a request the script reads the messages, the offered tools, `tool_choice`, `response_format` and `max_tokens`; sampling changes
    nothing."""

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        models: Mapping[str, Capabilities] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`models` says what each model can do; a model that is not in it can do everything. `sleep` is called for a `delay_s`."""
        self.name = name
        self._script, self._models, self._sleep = script, dict(models or {}), sleep
        self._reads_statements = any(rule.statements for rule in script.rules)
        self._given = 0
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def capabilities(self, model: str) -> Capabilities:
        return self._models.get(model, DEFAULT_CAPABILITIES)

    def supports_tools(self, model: str) -> bool:
        return self.capabilities(model).tools

    def answers_as(self, model: str) -> str:  # noqa: ARG002 - it is a script under every name
        return SCRIPTED

    async def complete(self, ask: ModelRequest, model: str, *, timeout_s: float) -> Completion:
        played = await self._play(ask, model, timeout_s)
        if played.answer.cut_after is not None:
            raise Unreachable("the script breaks the answer off", backend=self.name, model=model)
        return played.completion

    async def stream(self, ask: ModelRequest, model: str, *, timeout_s: float) -> AsyncGenerator[Delta | Completion, None]:
        played = await self._play(ask, model, timeout_s)
        message = played.completion.message
        cut_after = played.answer.cut_after
        for delta in deltas(message if cut_after is None else message_start(message, cut_after)):
            yield delta
        if cut_after is not None:
            raise self._broken(played.completion, message_start(message, cut_after), model)
        yield played.completion

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[BackendFinding]:  # noqa: ARG002 - there is nothing to wait for
        rules, left = len(self._script.rules), max(0, len(self._script.transcript) - self._given)
        return [
            BackendFinding(
                "ok", FindingLevel.INFO, f"{self.name} answers from a script: {rules} rules, {left} answers of a transcript to come"
            )
        ]

    async def aclose(self) -> None:
        """Nothing to close."""

    async def _play(self, ask: ModelRequest, model: str, timeout_s: float) -> PlayedAnswer:
        """Check the request, choose the answer, wait for its delay, and raise if it is a failure."""
        try:
            digest, tokens_in = digest_of(ask, model), count_prompt(ask)
            if self._reads_statements and not has_latin_books():
                chosen = await asyncio.to_thread(self._next, ask, model, tokens_in)  # loads them, and the event loop goes on
            else:
                chosen = self._next(ask, model, tokens_in)
            answer = fit_answer(chosen, ask)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
            what = f"the request is not made of chat messages and tools ({type(error).__name__})"
            raise BadRequest(what, backend=self.name, model=model) from error
        await self._wait(answer.delay_s, timeout_s, model)
        if answer.fail is not None:
            raise fault_error(answer.fail, answer.retry_after_s, self.name, model)
        return PlayedAnswer(answer, make_completion(answer, ask, tokens_in, digest))

    def _next(self, ask: ModelRequest, model: str, tokens_in: int) -> ScriptAnswer:
        """Choose the answer and go one step on in the transcript. A refused request takes no step."""
        can = self.capabilities(model)
        if index(ask.max_tokens) < 1:
            raise BadRequest("max_tokens must be 1 or more", backend=self.name, model=model)
        if ask.needs_tools and not can.tools:
            raise Unsupported("the model takes no tools, and the request has some", backend=self.name, model=model)
        if ask.needs_vision and not can.vision:
            raise Unsupported("the model takes no images, and the request has some", backend=self.name, model=model)
        if can.context is not None and tokens_in > can.context:
            raise ContextTooLong(f"{tokens_in:,} tokens of prompt in a context of {can.context:,}", backend=self.name, model=model)
        with self._lock:
            answer = self._script.answer(ask, given=self._given)
            self._given += 1
        return answer

    async def _wait(self, delay_s: float, timeout_s: float, model: str) -> None:
        if delay_s >= timeout_s:
            await self._sleep(max(0.0, timeout_s))
            raise Unreachable(f"no answer within {timeout_s:g} s", backend=self.name, model=model)
        if delay_s:
            await self._sleep(delay_s)

    def _broken(self, whole: Completion, partial: ChatMessage, model: str) -> BackendError:
        """The error of a stream that the script breaks off. Before the first delta the caller has seen nothing; another backend may try."""
        what = "the script breaks the answer off"
        if not partial["content"] and "reasoning" not in partial:
            return Unreachable(what, backend=self.name, model=model)
        usage = Usage(tokens_in=whole.usage.tokens_in, tokens_out=len(message_tokens(partial)))
        return CutShort(what, backend=self.name, model=model, partial=partial, usage=usage)


def fault_error(fault: ScriptFault, retry_after_s: float | None, backend: str, model: str) -> BackendError:
    """The error for a failure in the script."""
    what = f"the script says {fault}"
    match fault:
        case ScriptFault.OVERLOADED:
            return Overloaded(what, backend=backend, model=model, status=503)
        case ScriptFault.RATE_LIMITED:
            return RateLimited(what, backend=backend, model=model, status=429, retry_after_s=retry_after_s)
        case ScriptFault.UNREACHABLE:
            return Unreachable(what, backend=backend, model=model)
        case ScriptFault.GARBLED:
            return Garbled(what, backend=backend, model=model, status=200)
        case ScriptFault.UNAUTHORIZED:
            return Unauthorized(what, backend=backend, model=model, status=401)
        case ScriptFault.BAD_REQUEST:
            return BadRequest(what, backend=backend, model=model, status=400)


# --- from an answer to a completion


def make_completion(answer: ScriptAnswer, ask: ModelRequest, tokens_in: int, digest: str) -> Completion:
    """The whole answer, cut to `max_tokens`. The ids of its tool calls are made from the request, so every round has other ids."""
    calls = [
        make_tool_call(each.name, json.dumps(each.arguments, ensure_ascii=False, default=str), f"call_{digest[:12]}_{number}")
        for number, each in enumerate(answer.calls)
    ]
    whole = message_of(answer.say, answer.reasoning, calls)
    tokens = [*message_tokens(whole), END_TOKEN]
    is_cut = len(tokens) > ask.max_tokens
    tokens = tokens[: ask.max_tokens]
    message = shorten_message(whole, ask.max_tokens) if is_cut else whole
    return Completion(
        message=message,
        finish_reason="length" if is_cut else "tool_calls" if calls else "stop",
        usage=Usage(tokens_in=tokens_in, tokens_out=len(tokens)),
        model=SCRIPTED,
        sampling={},
        request_digest=digest,
    )


def message_of(text: str, reasoning: str, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    return message | ({"reasoning": reasoning} if reasoning else {}) | ({"tool_calls": list(calls)} if calls else {})


def shorten_message(message: ChatMessage, max_tokens: int) -> dict[str, Any]:
    """A message cut to its first tokens. A tool call that would be cut is left out."""
    left = max_tokens
    reasoning, text = split_tokens(message.get("reasoning") or ""), split_tokens(message["content"] or "")
    thought = reasoning[: max(0, left - 1)]  # one token is the mark at the start of thinking
    left -= len(reasoning) + 1 if reasoning else 0
    spoken = text[: max(0, left)]
    left -= len(text)
    calls = []
    for each in message.get("tool_calls") or ():
        left -= len(call_tokens(each))
        if left < 0:
            break
        calls.append(each)
    return message_of("".join(spoken), "".join(thought), calls)


def message_start(message: ChatMessage, words: int) -> dict[str, Any]:
    """A message whose text breaks off after `words` words."""
    return message_of("".join(_WORD.findall(message["content"] or "")[:words]), message.get("reasoning") or "", ())


def deltas(message: ChatMessage) -> Iterator[Delta]:
    """A message word by word."""
    yield from (ReasoningDelta(word) for word in _WORD.findall(message.get("reasoning") or ""))
    yield from (TextDelta(word) for word in _WORD.findall(message["content"] or ""))
    for at, each in enumerate(message.get("tool_calls") or ()):
        yield ToolCallDelta(at, each["id"], each["function"]["name"], "")
        yield from (ToolCallDelta(at, None, None, word) for word in _WORD.findall(each["function"]["arguments"]))


# --- tokens


def split_tokens(text: str) -> list[str]:
    """The tokens of a text; joined, they are the text again."""
    return _TOKEN.findall(text)


def count_prompt(ask: ModelRequest) -> int:
    """The tokens of the whole prompt: the tools, every message with its role and its end, and the mark for the assistant's turn."""
    return once(ask.tools, count_schemas) + sum(2 + len(message_tokens(message)) for message in ask.messages) + 1


def count_schemas(tools: Sequence[Mapping[str, Any]]) -> int:
    """The tokens of the tools, each with a mark before it."""
    return sum(1 + len(_SCHEMA_TOKEN.findall(canonical_json(tool))) for tool in tools)


def message_tokens(message: ChatMessage) -> list[str]:
    """The tokens of a message, without its role and its end."""
    reasoning = message.get("reasoning")
    return [
        *(["<|think|>", *split_tokens(reasoning)] if reasoning else []),
        *("<|image|>" for part in parts_of(message) if part.get("type") == "image_url"),
        *split_tokens(text_of(message)),
        *(token for each in message.get("tool_calls") or () for token in call_tokens(each)),
    ]


def call_tokens(each: Mapping[str, Any]) -> list[str]:
    function = each["function"]
    return ["<|call|>", *split_tokens(function["name"]), *split_tokens(function.get("arguments") or "{}")]


def digest_of(ask: ModelRequest, model: str) -> str:
    """SHA-256 of the request in canonical JSON."""
    request = {
        "model": model,
        "messages": ask.messages,
        "tool_choice": ask.tool_choice,
        "max_tokens": ask.max_tokens,
        "sampling": ask.sampling,
        "response_format": ask.response_format,
    }
    # `tools` and `user` are the last keys.
    tools, user = once(ask.tools, canonical_json), canonical_json(ask.user)
    return sha256(f'{canonical_json(request)[:-1]},"tools":{tools},"user":{user}}}'.encode("ascii")).hexdigest()


def to_plain_json(value: Any) -> Any:
    """Convert values that `json` does not know: mappings and sequences that are no dicts and lists."""
    match value:
        case Mapping():
            return dict(value)
        case Sequence():
            return list(value)
    raise TypeError(f"a {type(value).__name__} is no JSON")


canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, default=to_plain_json).encode
