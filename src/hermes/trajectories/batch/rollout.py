"""One attempt at one prompt: its message graph, and an entry that says how it ended.

The entry is stored twice: in the graph, in the `metadata` of the prompt's last message (which no model is sent), so that a graph alone says
what it is; and as a line of the run's index. Every response is annotated with the rollout's name, the last one also with its reward.

A verifier is a user's function that scores a rollout:

    def verify(row: Mapping[str, Any], rollout: Rollout) -> float: ...
    async def verify(row, rollout) -> {"reward": 1.0, "steps": 3}: ...

It runs in a thread, an async one on its own event loop there, so that it does not delay other rollouts. In a mapping, `reward` is the
reward, and the rest is kept beside it. If it raises, the error is recorded and the rollout has no reward, which is not a reward of 0."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any

from hermes.graph import MessageError, MessageGraph
from hermes.graph.message import thaw
from hermes.trajectories.batch.tools import ToolOutcome, is_cancelled, run_in_thread
from hermes.trajectories.errors import SourceError
from hermes.trajectories.sampling_model import SampledMessage

BATCH_METADATA = "batch"
"""The key of the entry in a message's metadata."""


class RolloutOutcome(StrEnum):
    """How a rollout ended."""

    COMPLETED = "completed"
    """The model gave an answer."""
    MAX_TURNS = "max_turns"
    """The model still called tools when its turns were used up."""
    LENGTH = "length"
    """An answer was longer than allowed."""
    REFUSED = "refused"
    """The model, or a filter of its server, refused to answer."""
    TIMEOUT = "timeout"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    """The run was stopped. The rollout is kept aside, and made again."""


FAILED_OUTCOMES = frozenset({RolloutOutcome.TIMEOUT, RolloutOutcome.ERROR})


@dataclass(slots=True)
class RolloutUsage:
    """What a rollout used so far, subagents included."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    micro_usd: int = 0
    retries: int = 0
    subagents: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter)
    tools: dict[str, Counter[str]] = field(default_factory=dict)
    """For each tool, how its calls ended."""

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def count(self, sampled: SampledMessage) -> None:
        """Count an answer of the model, with its tokens as the server counted them."""
        call, usage = sampled.call, sampled.call.usage or {}
        self.calls += 1
        self.micro_usd += sampled.micro_usd
        self.prompt_tokens += _token_count(usage, "prompt_tokens", call.prompt_token_ids)
        self.completion_tokens += _token_count(usage, "completion_tokens", call.token_ids)
        self.finish_reasons[call.finish_reason or "unknown"] += 1

    def count_tool(self, name: str, outcome: ToolOutcome) -> None:
        self.tools.setdefault(name[:100], Counter())[outcome] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEntry:
    """The record of a finished rollout: a line of the run's index."""

    item: str
    rollout: int
    attempt: int = 0
    """How often this rollout was made before; the earlier attempts are kept aside."""
    digest: str
    """The digest of the item's row."""
    outcome: RolloutOutcome
    reason: str = ""
    """Why it ended, if the outcome does not say enough."""
    seed: int = 0
    toolsets: Sequence[str] = field(default_factory=list)
    messages: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    micro_usd: int = 0
    retries: int = 0
    subagents: int = 0
    finish_reasons: Mapping[str, int] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    reward: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """What the verifier returned beside the reward."""
    verify_error: str = ""
    seconds: float = 0.0
    ended_at: str = ""

    @property
    def name(self) -> str:
        return rollout_name(self.item, self.rollout)

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; fields with their default value are left out."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if name not in ENTRY_DEFAULTS or value != ENTRY_DEFAULTS[name]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RolloutEntry:
        """Read what `to_dict` returned; fields of a later Hermes version are ignored. Raises TypeError, ValueError and KeyError."""
        known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        return cls(**{**known, "outcome": RolloutOutcome(known["outcome"])})


ENTRY_DEFAULTS: Mapping[str, Any] = {
    **{each.name: each.default for each in fields(RolloutEntry) if each.default is not MISSING},
    **{each.name: each.default_factory() for each in fields(RolloutEntry) if each.default_factory is not MISSING},
}


@dataclass(frozen=True, slots=True)
class Rollout:
    """A finished rollout. Verifiers get one."""

    entry: RolloutEntry
    graph: MessageGraph

    @property
    def outcome(self) -> RolloutOutcome:
        return self.entry.outcome

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation as it ended."""
        return [dict(message) for message in self.graph]

    @property
    def answer(self) -> str:
        """The text of the last message if the model wrote it; else empty."""
        last = self.graph[-1] if len(self.graph) else {}
        if last.get("role") != "assistant":
            return ""
        content = last.get("content")
        if isinstance(content, str):
            return content
        return "".join(part.get("text", "") for part in content or () if isinstance(part, Mapping))

    @property
    def tools_used(self) -> list[str]:
        """The names of the tools with at least one call that succeeded."""
        return [name for name, ended in self.entry.tools.items() if ended.get(ToolOutcome.DONE)]


def rollout_name(item: str, rollout: int) -> str:
    """Return the name of a rollout in exports: the item's name and the rollout's number."""
    return f"{item}/{rollout}"


def annotate_rollout(graph: MessageGraph, entry: RolloutEntry, at: int, row: Mapping[str, Any]) -> None:
    """Write the entry into the metadata of message `at`, and annotate every response. Makes no version."""
    graph[at]["metadata"] = {**(graph[at].get("metadata") or {}), BATCH_METADATA: {**entry.to_dict(), "row": row}}
    responses = list(graph.responses())
    for response in responses:
        graph.annotate(response, rollout=entry.name)
    own = [response for response in responses if response.is_own]
    if own:
        scored = {} if entry.reward is None else {"rollout_reward": entry.reward}
        graph.annotate(own[-1], outcome=entry.outcome, **scored)


def read_entry(line: bytes, where: str) -> RolloutEntry:
    """Read the entry from a graph's JSON without building the graph. Raises SourceError for a line that has none."""
    try:
        graph = json.loads(line)["graphs"][-1]
        # From the end: the entry is at the last message of the prompt, and messages before it may have entries of an earlier run.
        for message in reversed(graph["messages"]):
            note = (message.get("metadata") or {}).get(BATCH_METADATA)
            if note is not None:
                return RolloutEntry.from_dict(note)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        pass
    raise SourceError(where, "not a graph of a batch run")


def _token_count(usage: Mapping[str, Any], name: str, ids: Sequence[int] | None) -> int:
    reported = usage.get(name, usage.get(f"estimated_{name}"))
    return reported if isinstance(reported, int) else len(ids or ())


Verifier = Callable[[Mapping[str, Any], Rollout], Any]
MAX_REWARD = 3.4e38
"""Exports keep rewards as float32."""


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a verifier."""

    reward: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


async def score(verifier: Verifier, row: Mapping[str, Any], rollout: Rollout, *, timeout_s: float) -> Score:
    """Call a verifier, with a time limit. Raises nothing but CancelledError."""

    def ask() -> Any:
        returned = verifier(row, rollout)
        return asyncio.run(_run_awaitable(returned)) if isinstance(returned, Awaitable) else returned

    try:
        async with asyncio.timeout(timeout_s):
            return parse_score(await run_in_thread(ask))
    except TimeoutError:
        return Score(error=f"the verifier took longer than {timeout_s:g} s")
    except asyncio.CancelledError as cancelled:
        if is_cancelled():
            raise
        return Score(error=f"{type(cancelled).__name__}: something that it waited for was cancelled")
    except Exception as error:  # noqa: BLE001  # a verifier is a program of the user: its error is recorded
        return Score(error=f"{type(error).__name__}: {error}")


def parse_score(returned: Any) -> Score:
    """Read what a verifier returned; raise ValueError if it is not a score."""
    if not isinstance(returned, Mapping):
        return Score(parse_reward(returned))
    metrics = {str(name): _plain_number(value) for name, value in returned.items() if name != "reward"}
    try:
        # Nested as deep as in the rollout's graph: metrics that pass here can be written there.
        held = MessageGraph([{"role": "user", "content": "", "metadata": {BATCH_METADATA: {"metrics": metrics}}}])
    except MessageError as error:
        raise ValueError(f"beside the reward it returned a value that JSON cannot hold ({error})") from None
    reward = None if returned.get("reward") is None else parse_reward(returned["reward"])
    return Score(reward, thaw(held[0]["metadata"][BATCH_METADATA]["metrics"]))


def parse_reward(value: Any) -> float:
    try:
        reward = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"it returned {value!r}; expected a number, or a mapping with `reward`") from None
    if not math.isfinite(reward) or abs(reward) > MAX_REWARD:
        raise ValueError(f"it returned {reward}, which cannot be a reward")
    return reward


def _plain_number(value: Any) -> Any:
    """Return a number of numpy or torch as a Python number."""
    item = getattr(value, "item", None)
    return item() if callable(item) and not isinstance(value, Mapping) else value


async def _run_awaitable(returned: Awaitable[Any]) -> Any:
    return await returned
