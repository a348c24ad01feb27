"""Somebody's function that says how good a rollout is.

    def verify(row: Mapping[str, Any], rollout: Rollout) -> float: ...
    async def verify(row, rollout) -> {"reward": 1.0, "steps": 3}: ...

It runs in a thread, an async one on an event loop of its own there, so that it holds up nobody. Of a mapping `reward` is the reward and the
rest is kept beside it. What it raises is noted on the rollout, which is kept without a reward: no reward is not a reward of 0."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes.graph import MessageError, MessageGraph
from hermes.graph.message import thaw
from hermes.trajectories.batch.rollout import BATCH_METADATA, Rollout
from hermes.trajectories.batch.threads import is_cancelled, run_in_thread

Verifier = Callable[[Mapping[str, Any], Rollout], Any]
MAX_REWARD = 3.4e38
"""Exports keep rewards as float32."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a verifier said."""

    reward: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


async def score(verifier: Verifier, row: Mapping[str, Any], rollout: Rollout, *, timeout_s: float) -> Score:
    """Ask a verifier, for so long at most. Raises nothing but cancellation."""

    def ask() -> Any:
        said = verifier(row, rollout)
        return asyncio.run(_run_awaitable(said)) if isinstance(said, Awaitable) else said

    try:
        async with asyncio.timeout(timeout_s):
            return parse_score(await run_in_thread(ask))
    except TimeoutError:
        return Score(error=f"the verifier took longer than {timeout_s:g} s")
    except asyncio.CancelledError as cancelled:
        if is_cancelled():
            raise
        return Score(error=f"{type(cancelled).__name__}: something that it waited for was cancelled")
    except Exception as error:  # noqa: BLE001  # a verifier is somebody's program: whatever it raises is noted on the rollout
        return Score(error=f"{type(error).__name__}: {error}")


def parse_score(said: Any) -> Score:
    """Read what a verifier returned; raise ValueError for what is no score."""
    if not isinstance(said, Mapping):
        return Score(parse_reward(said))
    metrics = {str(name): _plain_number(value) for name, value in said.items() if name != "reward"}
    try:
        # As deep as they will stand in the rollout's graph: what is taken here can be written there.
        held = MessageGraph([{"role": "user", "content": "", "metadata": {BATCH_METADATA: {"metrics": metrics}}}])
    except MessageError as error:
        raise ValueError(f"beside the reward it returned what JSON cannot hold ({error})") from None
    return Score(None if said.get("reward") is None else parse_reward(said["reward"]), thaw(held[0]["metadata"][BATCH_METADATA]["metrics"]))


def parse_reward(value: Any) -> float:
    try:
        reward = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"it returned {value!r}; expected a number, or a mapping with `reward`") from None
    if not math.isfinite(reward) or abs(reward) > MAX_REWARD:
        raise ValueError(f"it returned {reward}, which is no reward")
    return reward


def _plain_number(value: Any) -> Any:
    """A number of numpy's or torch's as Python's own."""
    item = getattr(value, "item", None)
    return item() if callable(item) and not isinstance(value, Mapping) else value


async def _run_awaitable(said: Awaitable[Any]) -> Any:
    return await said
