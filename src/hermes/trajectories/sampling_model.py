"""The model that trajectories need: messages in, one sampled answer out. The caller passes in an object that implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hermes.graph import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One request to a model."""

    messages: Sequence[Mapping[str, Any]]
    """In the form of the message graph, exactly as they are sent."""
    tools: Sequence[Mapping[str, Any]] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """temperature, top_p, seed …"""
    max_tokens: int | None = None
    """None leaves the limit to the model's own settings."""
    sample_id: str
    """The sample's name. A request with the same name and the same messages is the same sample, repeated after a crash."""
    timeout_s: float | None = None
    cwd: str | None = None
    """The folder in which a model that is a program works; other models ignore it."""


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """A model's answer: the message, how it was sampled, and what it cost."""

    message: Mapping[str, Any]
    call: CallRecord
    micro_usd: int = 0


class ModelFailed(Exception):
    """The model gave no answer. `is_final`: a retry would fail too (a bad request). `is_spent`: every request would (a spent budget)."""

    def __init__(self, message: str, *, is_final: bool = False, is_spent: bool = False) -> None:
        super().__init__(message)
        self.is_final, self.is_spent = is_final or is_spent, is_spent


class SamplingModel(Protocol):
    """A model to sample from. Answers never come from a cache: samples are independent of each other."""

    @property
    def name(self) -> str: ...

    async def sample(self, request: SampleRequest) -> SampledMessage:
        """Return one answer; raise ModelFailed."""
        ...
