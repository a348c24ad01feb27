"""Effects of a turn: what costs money or is visible outside Hermes, above all model calls. The journal keeps the result of each effect, so
that it is paid once, however often the turn is driven, and a turn that runs again reads it word for word."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from hermes.graph import CallRecord
from hermes.graph.call import LogprobMode
from hermes.ports.backends import ModelRequest, RecordedTokens
from hermes.ports.errors import StoreUnavailable
from hermes.ports.inbox import Claim
from hermes.ports.models import Answer, Caller, CallPurpose, CallSource, KeepingModels, ModelCall, NoAnswer
from hermes.ports.tools import ToolCall
from hermes.ports.turn_end import CallEnd
from hermes.router.services import Services
from hermes.router.step_log import now_us
from hermes.router.steps.resolve_user import ResolvedUser

MICRO_PER_USD = 1_000_000
MAX_TOKENS = 1_000_000
"""Above the limit of every model, so that the model's own limit holds."""


@dataclass(frozen=True, slots=True)
class EffectResult:
    """The result of an effect, and the facts that the journal may show of it: names and numbers, never text."""

    result: bytes
    facts: Mapping[str, Any]


@dataclass(slots=True)
class OpenEffect:
    """An effect that has begun and has no result yet."""

    claim: Claim
    step: str
    index: int
    services: Services
    began_us: int = field(default_factory=now_us)
    standing: bytes | None = None
    """The result that stands, once one is written."""

    async def finish(self, done: EffectResult) -> bytes:
        """Write the result, unless `end_call` has; return the one that stands."""
        if self.standing is None:
            async with self.services.transactions.once() as tx:
                self.standing = await self.services.journal.finish(
                    tx, self.claim, self.step, self.index, done.result, facts=self._facts(done)
                )
        return self.standing

    async def end_call(self, call: ModelCall, answer: JournaledAnswer) -> bool:
        """Write a model's answer as the result, and the call's row, in one statement. False, and nothing is written, if these stores
        write one after the other."""
        if self.services.turn_ends is None:
            return False
        done = EffectResult(answer.to_bytes(), answer.facts)
        end = CallEnd(self.step, self.index, done.result, self._facts(done), call)
        async with self.services.transactions.once() as tx:
            self.standing = await self.services.turn_ends.end_call(tx, self.claim, end)
        return True

    def _facts(self, done: EffectResult) -> Mapping[str, Any]:
        return {**done.facts, "us": now_us() - self.began_us}


RunEffect = Callable[[bytes], Awaitable[EffectResult]]
RunCall = Callable[[bytes, OpenEffect], Awaitable[EffectResult]]


async def run_once(claim: Claim, step: str, index: int, request: bytes, run: RunEffect, *, services: Services) -> tuple[bytes, bytes]:
    """Run an effect that is no model call, as `call_once` does."""
    return await call_once(claim, step, index, request, lambda body, _: run(body), services=services)


async def call_once(claim: Claim, step: str, index: int, request: bytes, run: RunCall, *, services: Services) -> tuple[bytes, bytes]:
    """Run an effect, unless the journal has its result; return the request of the first attempt, and the result that stands.

    `request` is what this attempt prepared; `run` gets what the first attempt prepared. If an attempt was cut off, the effect runs again:
    a model call costs, but does no harm, and a tool itself makes sure that its effect happens once. Raises ClaimLost before anything
    runs."""
    async with services.transactions.once() as tx:
        effect = await services.journal.begin(tx, claim, step, index, request)
    if effect.result is not None:
        return effect.request, effect.result
    running = OpenEffect(claim, step, index, services)
    return effect.request, await running.finish(await run(effect.request, running))


@dataclass(frozen=True, slots=True, kw_only=True)
class JournaledAnswer:
    """A model's answer with the facts of its call, as the journal stores it."""

    message: Mapping[str, Any]
    call_id: str
    model: str
    backend: str
    finish_reason: str
    tokens_in: int
    tokens_out: int
    micro_usd: int
    rate: Mapping[str, int]
    latency_ms: int
    attempts: Sequence[str]
    copy_of: str | None = None
    """The call that sampled it, if it came from the cache."""
    request_digest: str = ""
    prompt_token_ids: Sequence[int] | None = None
    token_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    logprob_mode: LogprobMode | None = None
    policy_version: str | None = None
    derived: Sequence[str] = field(default_factory=list)
    saved_micro_usd: int = 0
    """What it would have cost, if it came from the cache."""
    usage: Mapping[str, int] | None = None
    """The counts as the message graph keeps them: those of the server, or estimates under other names."""
    without_tools: bool = False
    """The model takes no tools: it was asked without them, and without the tool calls of the history."""

    @classmethod
    def of(cls, answer: Answer) -> JournaledAnswer:
        completion = answer.completion
        return cls(
            message={name: value for name, value in completion.message.items() if value is not None},
            call_id=str(answer.call_id),
            model=completion.model,
            backend=answer.backend,
            finish_reason=completion.finish_reason,
            tokens_in=completion.usage.tokens_in,
            tokens_out=completion.usage.tokens_out,
            micro_usd=answer.micro_usd,
            rate=dict(answer.rate),
            latency_ms=answer.latency_ms,
            attempts=[f"{attempt.name}: {attempt.outcome}" for attempt in answer.attempts],
            copy_of=str(answer.copy_of) if answer.copy_of else None,
            saved_micro_usd=answer.saved_micro_usd,
            request_digest=completion.request_digest,
            prompt_token_ids=list_or_none(completion.prompt_token_ids),
            token_ids=list_or_none(completion.token_ids),
            logprobs=list_or_none(completion.logprobs) if completion.token_ids is not None else None,
            logprob_mode=completion.logprob_mode,
            policy_version=completion.policy_version,
            derived=list(completion.derived),
            usage=completion.usage.to_record(),
            without_tools=answer.without_tools,
        )

    @classmethod
    def from_bytes(cls, body: bytes) -> JournaledAnswer:
        return cls(**json.loads(body))

    def to_bytes(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, separators=(",", ":")).encode()

    @property
    def text(self) -> str:
        content = self.message.get("content")
        return content.strip() if isinstance(content, str) else ""

    @property
    def tool_calls(self) -> list[ToolCall]:
        calls = self.message.get("tool_calls") or ()
        return [ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that the journal may show: names and numbers, no text."""
        names = ("call_id", "model", "backend", "finish_reason", "tokens_in", "tokens_out", "micro_usd", "latency_ms")
        copied = ("copy_of", "saved_micro_usd") if self.copy_of else ("copy_of",)
        return {**{name: getattr(self, name) for name in (*names, *copied)}, "attempts": list(self.attempts)}

    def record(self, tools: Sequence[Mapping[str, Any]]) -> CallRecord:
        """The call as the message graph keeps it."""
        tokens = RecordedTokens.of(
            model=self.model,
            prompt_token_ids=self.prompt_token_ids,
            token_ids=self.token_ids,
            logprobs=self.logprobs,
            logprob_mode=self.logprob_mode,
            derived=self.derived,
        )
        extra: dict[str, Any] = {
            "call_id": self.call_id,
            "backend": self.backend,
            "latency_ms": self.latency_ms,
            "micro_usd": self.micro_usd,
        }
        if tokens.derived:
            extra["derived"] = list(tokens.derived)
        return CallRecord(
            model=self.model,
            policy_version=self.policy_version,
            finish_reason=self.finish_reason,
            usage=self.usage or {"prompt_tokens": self.tokens_in, "completion_tokens": self.tokens_out},
            tools=tools or None,
            request_digest=self.request_digest or None,
            **tokens.fields,
            sample_id=self.call_id,
            extra=extra if self.copy_of is None else {**extra, "copy_of": self.copy_of},
        )


def list_or_none(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


class EmptyAnswer(NoAnswer):
    """The model returned neither text nor tool calls."""


async def ask_model(
    effect: OpenEffect,
    messages: Sequence[Mapping[str, Any]],
    caller: Caller,
    *,
    tools: Sequence[Mapping[str, Any]],
    tool_choice: str | Mapping[str, Any] | None = None,
    max_tokens: int | None = None,
    may_leave_out_tools: bool = False,
) -> EffectResult:
    """Call the model once through the gateway. Raises NoAnswer, BudgetSpent and CallsPaused.

    The gateway writes the answer into the journal together with the row of its call, if it can: then no paid answer is lost between."""
    models = effect.services.models
    request = ModelRequest(
        messages=messages,
        max_tokens=max_tokens or MAX_TOKENS,
        tools=tools,
        tool_choice=tool_choice,
        wants_tokens=True,
        user=str(caller.user_id),
        may_leave_out_tools=may_leave_out_tools,
    )

    def is_empty(answer: JournaledAnswer) -> bool:
        return not answer.text and (not answer.tool_calls or tool_choice == "none")

    async def keep(call: ModelCall, answer: Answer) -> bool:
        kept = JournaledAnswer.of(answer)
        return not is_empty(kept) and await effect.end_call(call, kept)

    try:
        asked = models.complete_and_keep(request, caller, keep) if isinstance(models, KeepingModels) else models.complete(request, caller)
        answer = JournaledAnswer.of(await asked)
    except StoreUnavailable as error:
        # The rest of the budget is unknown, so it counts as spent: no call is made. If the turn's own store is away, the steps raise.
        raise NoAnswer(f"the call could not be admitted: {error}") from error
    if is_empty(answer):
        raise EmptyAnswer(f"{answer.model} said nothing ({answer.finish_reason})")
    return EffectResult(answer.to_bytes(), answer.facts)


def make_caller(claim: Claim, person: ResolvedUser, session_id: UUID, purpose: CallPurpose) -> Caller:
    return Caller(
        user_id=claim.user_id,
        account=claim.envelope.account,
        tier=person.tier,
        source=CallSource.ROUTER,
        purpose=purpose,
        platform=claim.envelope.event.platform,
        api_key_id=claim.envelope.api_key_id,
        turn_id=claim.turn_id,
        session_id=session_id,
        agent=person.agent.name,
        # An attempt that was cut off may have left its own answer in the cache. That answer is in no graph, so this attempt samples anew.
        may_use_cache=claim.attempt == 1,
    )
