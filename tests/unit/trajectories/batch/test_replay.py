"""All rollouts of a prompt as one graph: the same samples, each in its context, as a group that trainers compare."""

import json
from pathlib import Path

import pytest

from hermes.graph import MessageGraph
from hermes.trajectories.batch.replay import graphs_by_item, merge_graphs, replay
from hermes.trajectories.batch.run_folder import RunFolder
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import FileSessions
from hermes.trajectories.verify import verify
from tests.unit.trajectories.batch.stage import Stage, StageModel, call, said, turn_of


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    """Two prompts, three rollouts each, of one, two and two turns, with a subagent in every second turn."""

    def answer(request: object) -> object:
        short = request.sample_id.split("/")[2] == "0"  # type: ignore[attr-defined]
        below = "sub" in request.sample_id  # type: ignore[attr-defined]
        return said("same") if short or below or turn_of(request) else said(None, call("delegate", {"task": "x"}))  # type: ignore[arg-type]

    stage = Stage(tmp_path, StageModel(answer), verifier=lambda row, rollout: rollout.entry.rollout)  # type: ignore[arg-type]
    await stage.run(stage.recipe(subagent_depth=1, ephemeral="E"), rollouts=3)
    return stage


async def test_a_group_holds_the_same_samples_as_its_rollouts(stage: Stage) -> None:
    folder = RunFolder.peek(stage.folder / "run")
    single = [response for line in stage.lines for response in MessageGraph.from_json(line).responses()]
    graphs = [MessageGraph.from_json(line) for line in graphs_by_item(folder)]
    together = [response for graph in graphs for response in graph.responses()]
    assert len(graphs) == 2
    assert {graph.verify().status for graph in graphs} == {"ok"}
    assert sorted(response.id for response in together) == sorted(response.id for response in single)
    assert {response.id: response.context for response in together} == {response.id: response.context for response in single}
    assert {response.id: response.annotations for response in together} == {response.id: response.annotations for response in single}
    assert {edge.kind for graph in graphs for edge in graph.edges()} >= {"alternative", "sequential"}


async def test_an_export_of_groups_has_a_session_for_each_prompt_and_a_reward_for_each_rollout(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "groups.jsonl"
    file.write_text("".join(line + "\n" for line in graphs_by_item(RunFolder.peek(stage.folder / "run"))))
    summary = export(FileSessions([file]), tmp_path / "rows", ExportSettings(format="atropos"), FORMATS)
    assert (summary.manifest["sessions"], summary.manifest["tokens"]["excluded"]) == (2, 0)
    assert verify(tmp_path / "rows", [file]).problems == ()
    lines = [json.loads(line) for line in (tmp_path / "rows" / "groups.jsonl").read_text().splitlines()]
    assert [sorted(set(line["scores"])) for line in lines] == [[0.0, 1.0, 2.0]] * 2


async def test_graphs_of_different_conversations_are_not_merged() -> None:
    with pytest.raises(ValueError, match="different conversations"):
        merge_graphs([MessageGraph([], seed="a"), MessageGraph([], seed="b")])


async def test_a_rollout_written_into_an_empty_graph_is_the_same_but_for_its_ids(stage: Stage) -> None:
    source, empty = MessageGraph.from_json(stage.lines[-1]), MessageGraph(seed="other")
    replay(source, empty)
    assert empty == source
    assert empty.verify().status == "ok"
    assert [(one.sample_id, one.context, one.annotations) for one in empty.responses()] == [
        (one.sample_id, one.context, one.annotations) for one in source.responses()
    ]
    assert empty[0]["metadata"] == source[0]["metadata"]
