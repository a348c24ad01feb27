"""Subagents: a nested chat is attached to the result of its call, and what was sampled in it belongs to the rollout."""

import asyncio
from pathlib import Path

import pytest

from hermes.graph import MessageGraph
from hermes.trajectories.batch.agent_loop import DELEGATE_SCHEMA
from hermes.trajectories.batch.rollout import RolloutOutcome
from hermes.trajectories.batch.run_files import ASIDE
from hermes.trajectories.calls import SamplePolicies, read_calls
from hermes.trajectories.sampling_model import SampledMessage, SampleRequest
from hermes.trajectories.source import ExportSession
from tests.unit.trajectories.batch.stage import Stage, StageModel, call, failing, said, turn_of


def answer(request: SampleRequest) -> SampledMessage:
    """Hands `deep N` on as `deep N-1`, until there is nothing to hand on."""
    text = request.messages[-1]["content"] if request.messages[-1]["role"] == "user" else ""
    can = any(tool == DELEGATE_SCHEMA for tool in request.tools)
    if text.startswith("deep ") and text != "deep 0" and can:
        return said(None, call("delegate", {"task": f"deep {int(text[5:]) - 1}"}))
    return said("from below" if turn_of(request) else f"bottom with {'a' if can else 'no'} delegate")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path, StageModel(answer))
    stage.rows({"prompt": "deep 5", "id": "a", "system": "S"})
    return stage


async def test_a_chat_is_nested_as_deep_as_is_allowed(stage: Stage) -> None:
    await stage.run(stage.recipe(subagent_depth=2))
    graph = MessageGraph.from_json(stage.lines[0])
    assert graph.verify().status == "ok"
    result = graph[3]
    assert (result["role"], result["content"], result["metadata"]["length"]) == ("tool", "from below", 5)
    below = result["metadata"]["chat"]
    assert [message["content"] for message in below][:2] == ["S", "deep 4"]
    deepest = below[3]["metadata"]["chat"]
    assert [message["content"] for message in deepest] == ["S", "deep 3", "bottom with no delegate"]
    [entry] = stage.entries
    assert (entry.outcome, entry.subagents, entry.calls, entry.tools) == (RolloutOutcome.COMPLETED, 2, 5, {"delegate": {"done": 2}})
    assert len({request.sample_id for request in stage.model.requests}) == 5
    assert len({request.sampling["seed"] for request in stage.model.requests}) == 3, "each agent has a seed of its own"


async def test_samples_of_every_depth_are_exported_in_the_same_rollout(stage: Stage) -> None:
    stage.verifier = lambda row, rollout: 0.5
    await stage.run(stage.recipe(subagent_depth=2))
    calls = read_calls(ExportSession("x", MessageGraph.from_json(stage.lines[0])), SamplePolicies())
    assert [(each.rollout, each.rollout_reward, each.trained) for each in calls] == [("a/0", 0.5, 5)] * 5


async def test_without_leave_there_is_no_delegate(stage: Stage) -> None:
    await stage.run()
    assert [list(request.tools) for request in stage.model.requests] == [[]]


@pytest.mark.parametrize("arguments", ["{oops", "{}", '{"task": " "}'])
async def test_a_task_that_is_none_is_told_to_the_model(stage: Stage, arguments: str) -> None:
    stage.model = StageModel(lambda request: said("ok") if turn_of(request) else said(None, call("delegate", arguments)))
    await stage.run(stage.recipe(subagent_depth=1))
    [entry] = stage.entries
    assert (entry.outcome, entry.subagents, entry.tools) == (RolloutOutcome.COMPLETED, 0, {"delegate": {"bad_arguments": 1}})


async def test_a_subagent_that_does_not_finish_says_so(stage: Stage) -> None:
    def cut(request: SampleRequest) -> SampledMessage:
        is_below = request.messages[-1]["content"] == "deep 4"
        return said("half a", finish="length") if is_below else answer(request)

    stage.model = StageModel(cut)
    await stage.run(stage.recipe(subagent_depth=1))
    graph = MessageGraph.from_json(stage.lines[0])
    assert graph[3]["content"] == "Error: the agent did not finish (length). It said last: half a"
    assert graph[3]["metadata"]["length"] == 3


async def test_what_a_subagent_sampled_before_time_was_up_is_kept(stage: Stage) -> None:
    async def hang(request: SampleRequest) -> SampledMessage:
        if request.messages[-1]["role"] == "tool":
            await asyncio.sleep(60)
        return answer(request)

    class Hanging(StageModel):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            return await hang(request)

    stage.model = Hanging()
    await stage.run(stage.recipe(subagent_depth=2), timeout_s=0.1)
    graph = MessageGraph.from_json(stage.lines[0])
    [entry] = stage.entries
    assert (entry.outcome, entry.calls) == (RolloutOutcome.TIMEOUT, 3)
    assert len(list(graph.responses())) == 3, "also those of the chats that did not come to their end"


async def test_what_subagents_sampled_is_kept_when_the_one_beside_them_is_answered_no_more(stage: Stage) -> None:
    class Spent(StageModel):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            text = request.messages[-1]["content"]
            if text == "spent":
                await asyncio.sleep(0.05)
                raise failing("spent", is_spent=True)
            if request.messages[-1]["role"] == "tool":
                await asyncio.sleep(60)
            return await super().sample(request)

    def begin(request: SampleRequest) -> SampledMessage:
        if request.messages[-1]["content"] == "long":
            return said(None, call("nothing"))
        return said(None, call("delegate", {"task": "long"}, "c1"), call("delegate", {"task": "spent"}, "c2"))

    stage.model = Spent(begin)
    runner = await stage.run(stage.recipe(subagent_depth=1))
    assert (runner.reason, stage.entries) == ("spent", [])
    [line] = (stage.folder / "run" / ASIDE).read_bytes().splitlines()
    graph = MessageGraph.from_json(line)
    assert len(list(graph.responses())) == 2, "the delegating one, and the one of the agent that was cut off"
    assert len(asyncio.all_tasks()) == 1, "nobody works on"


async def test_the_model_works_in_the_folder_of_the_row_at_every_depth(stage: Stage) -> None:
    stage.rows({"prompt": "deep 5", "id": "a", "cwd": "/srv/one"}, {"prompt": "hi", "id": "b"})
    await stage.run(stage.recipe(subagent_depth=2))
    folders = {request.sample_id.split("/")[1]: set[str | None]() for request in stage.model.requests}
    for request in stage.model.requests:
        folders[request.sample_id.split("/")[1]].add(request.cwd)
    assert folders == {"a": {"/srv/one"}, "b": {None}}
