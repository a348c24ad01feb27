"""Verifiers: whatever they return or raise, the rollout is kept, and says it."""

import asyncio
import threading
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from hermes.graph import MessageGraph
from hermes.graph.message import MAX_DEPTH
from hermes.trajectories.batch.rollout import Rollout, RolloutOutcome
from hermes.trajectories.calls import SamplePolicies, read_calls
from hermes.trajectories.source import ExportSession
from tests.unit.trajectories.batch.stage import Stage, StageModel, failing


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.rows({"prompt": "go", "id": "a", "gold": "You said: go"})
    return stage


async def scored(stage: Stage, verifier: Any, **pace: Any) -> Any:
    stage.verifier = verifier
    await stage.run(**pace)
    [entry] = stage.entries
    return entry


async def test_gets_the_row_and_the_rollout_in_a_thread_of_its_own(stage: Stage) -> None:
    seen: list[Any] = []

    def verify(row: Any, rollout: Rollout) -> float:
        seen.append((row, rollout.answer, rollout.outcome, rollout.messages, rollout.entry.calls, threading.current_thread().name))
        return float(rollout.answer == row["gold"])

    entry = await scored(stage, verify)
    assert seen == [
        (
            {"prompt": "go", "id": "a", "gold": "You said: go"},
            "You said: go",
            RolloutOutcome.COMPLETED,
            [{"role": "user", "content": "go"}, {"role": "assistant", "content": "You said: go"}],
            1,
            "hermes-batch",
        )
    ]
    [call] = read_calls(ExportSession("x", MessageGraph.from_json(stage.lines[0])), SamplePolicies())
    assert (entry.reward, call.rollout, call.rollout_reward) == (1.0, "a/0", 1.0)


async def test_a_mapping_is_a_reward_and_what_goes_with_it(stage: Stage) -> None:
    async def verify(row: Any, rollout: Rollout) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"reward": np.float32(0.25), "steps": np.int64(3), "why": "because"}

    entry = await scored(stage, verify)
    assert (entry.reward, entry.metrics, entry.verify_error) == (0.25, {"steps": 3, "why": "because"}, "")


class Report:
    """As pydantic's models are."""

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {"steps": [1, 2]}


async def test_metrics_are_kept_as_json_whatever_held_them(stage: Stage) -> None:
    async with asyncio.timeout(5):
        entry = await scored(stage, lambda row, rollout: {"reward": 1, "report": Report(), "view": MappingProxyType({"n": (1, 2)})})
    assert (entry.reward, entry.metrics, entry.verify_error) == (1.0, {"report": {"steps": [1, 2]}, "view": {"n": [1, 2]}}, "")


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 0


async def test_metrics_as_deep_as_a_message_may_be_do_not_stop_the_run(stage: Stage) -> None:
    """In the graph they stand below `batch` and `metrics`, so that a few levels less are left to them."""
    for depth in range(MAX_DEPTH - 6, MAX_DEPTH + 2):
        stage.rows({"prompt": "go", "id": f"d{depth}"})
        stage.verifier = lambda row, rollout, depth=depth: {"reward": 1, "deep": nested(depth)}
        await stage.run()
    errors = [bool(entry.verify_error) for entry in sorted(stage.entries, key=lambda entry: int(entry.item[1:]))]
    assert errors == sorted(errors)
    assert {*errors} == {False, True}


def fails(row: Any, rollout: Rollout) -> float:
    raise KeyError("gold")


async def waits_for_what_was_cancelled(row: Any, rollout: Rollout) -> float:
    gone: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    gone.cancel()
    return await gone


@pytest.mark.parametrize(
    ("verifier", "error"),
    [
        (waits_for_what_was_cancelled, "CancelledError: something that it waited for was cancelled"),
        (fails, "KeyError: 'gold'"),
        (lambda row, rollout: "good", "ValueError: it returned 'good'; expected a number, or a mapping with `reward`"),
        (lambda row, rollout: float("nan"), "ValueError: it returned nan, which cannot be a reward"),
        (lambda row, rollout: {"reward": 1, "x": object}, "ValueError: beside the reward it returned a value that JSON cannot hold"),
        (lambda row, rollout: time.sleep(5), "the verifier took longer than 0.05 s"),
    ],
)
async def test_a_verifier_that_fails_costs_the_reward_and_not_the_rollout(stage: Stage, verifier: Any, error: str) -> None:
    entry = await scored(stage, verifier, verify_timeout_s=0.05)
    assert (entry.outcome, entry.reward) == (RolloutOutcome.COMPLETED, None)
    assert entry.verify_error.startswith(error)
    [call] = read_calls(ExportSession("x", MessageGraph.from_json(stage.lines[0])), SamplePolicies())
    assert call.rollout_reward is None


async def test_what_is_no_fault_of_the_model_is_not_scored(stage: Stage) -> None:
    stage.model = StageModel(lambda _: failing("down", is_final=True))
    entry = await scored(stage, lambda row, rollout: 1.0)
    assert (entry.outcome, entry.reward) == (RolloutOutcome.ERROR, None)


async def test_a_reward_of_0_is_a_reward(stage: Stage) -> None:
    assert (await scored(stage, lambda row, rollout: 0)).reward == 0.0
