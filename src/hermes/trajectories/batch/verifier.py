"""Call a user's function that scores a rollout.

    def verify(row: Mapping[str, Any], rollout: Rollout) -> float: ...
    async def verify(row, rollout) -> {"reward": 1.0, "steps": 3}: ...

It runs in a thread, an async one on its own event loop there, so that it does not delay other rollouts. In a mapping, `reward` is the
reward, and the rest is kept beside it. If it raises, the error is recorded and the rollout has no reward, which is not a reward of 0."""

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
