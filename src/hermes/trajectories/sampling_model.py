"""A model, as far as trajectories need one: messages in, one sampled answer out. Whoever has models stands behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hermes.graph import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """What a model is asked."""

    messages: Sequence[Mapping[str, Any]]
    """In the form of the message graph, exactly as they are to be sent."""
    tools: Sequence[Mapping[str, Any]] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """temperature, top_p, seed …"""
    max_tokens: int | None = None
    """None leaves it to the model's own settings."""
    sample_id: str
    """Names the sample. The same name with the same messages is the same sample, asked for again after a crash."""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """What a model said: the message, how it was sampled, and what it cost."""

    message: Mapping[str, Any]
    call: CallRecord
    micro_usd: int = 0


class ModelFailed(Exception):
    """No answer. `is_final`: asking again would not help (a bad request, a budget that is spent), `is_spent`: no request would."""

    def __init__(self, message: str, *, is_final: bool = False, is_spent: bool = False) -> None:
        super().__init__(message)
        self.is_final, self.is_spent = is_final or is_spent, is_spent


class SamplingModel(Protocol):
    """Somebody to ask. Answers are never taken from a cache: samples are independent of each other."""

    @property
    def name(self) -> str: ...

    async def sample(self, request: SampleRequest) -> SampledMessage:
        """Return one answer; raise ModelFailed."""
        ...
