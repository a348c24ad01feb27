"""A run on disk: killed at any byte, it goes on with everything that was finished."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from hermes.graph import MessageGraph
from hermes.trajectories.batch.rollout import RolloutOutcome
from hermes.trajectories.batch.run_files import ASIDE, GRAPHS, INDEX, RUN
from hermes.trajectories.batch.run_folder import ItemChanges, RunFolder, changes_since, record_items
from hermes.trajectories.errors import TrajectorySettingsError
from tests.unit.trajectories.batch.stage import Stage, StageModel, failing

RECIPE = Stage.recipe(None).to_dict()  # type: ignore[arg-type]  # it needs no stage


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    await stage.run(rollouts=2, concurrency=1)
    return stage


def opened(path: Path) -> RunFolder:
    folder = RunFolder.open(path, RECIPE, may_go_on=True)
    folder.close()
    return folder


async def test_killed_at_any_byte_of_either_file_nothing_finished_is_lost(stage: Stage) -> None:
    whole = stage.folder / "run"
    graphs, index = (whole / GRAPHS).read_bytes(), (whole / INDEX).read_bytes()
    graph_ends = [sum(map(len, graphs.splitlines(keepends=True)[:count])) for count in range(5)]
    note_ends = [sum(map(len, index.splitlines(keepends=True)[:count])) for count in range(5)]
    # Each rollout is written as its graph and then as its note: the states in which a process can die, in their order.
    states = []
    for number in range(4):
        states += [(cut, note_ends[number]) for cut in range(graph_ends[number], graph_ends[number + 1], 97)]
        states += [(graph_ends[number + 1], cut) for cut in range(note_ends[number], note_ends[number + 1], 31)]
    for at, (graph_cut, note_cut) in enumerate(states):
        path = stage.folder / f"cut{at}"
        shutil.copytree(whole, path)
        (path / GRAPHS).write_bytes(graphs[:graph_cut])
        (path / INDEX).write_bytes(index[:note_cut])
        finished = sum(end <= graph_cut for end in graph_ends[1:])
        folder = opened(path)
        assert len(folder.done) == finished, (graph_cut, note_cut)
        assert (path / GRAPHS).read_bytes() == graphs[: graph_ends[finished]]
        assert (path / INDEX).read_bytes() == index[: note_ends[finished]]
        assert [folder.graph_line(placed) for placed in folder.read_index()] == graphs.splitlines(keepends=True)[:finished]
        shutil.rmtree(path)


async def test_a_graph_says_what_it_is_without_its_note(stage: Stage) -> None:
    before = stage.entries
    (stage.folder / "run" / INDEX).unlink()
    folder = opened(stage.folder / "run")
    assert (folder.recovered, folder.torn) == (4, 0)
    assert stage.entries == before
    graph = MessageGraph.from_json(stage.lines[0])
    assert {key: graph[0]["metadata"]["batch"][key] for key in ("item", "outcome", "row")} == {
        "item": "a",
        "outcome": "completed",
        "row": {},
    }


async def test_graphs_that_somebody_cut_are_not_taken_for_a_run(stage: Stage) -> None:
    (stage.folder / "run" / GRAPHS).write_bytes(b"")
    with pytest.raises(TrajectorySettingsError, match=r"graphs\.jsonl is shorter than rollouts\.jsonl says"):
        opened(stage.folder / "run")


async def test_only_one_process_works_on_a_run(stage: Stage) -> None:
    first = RunFolder.open(stage.folder / "run", RECIPE, may_go_on=True)
    with pytest.raises(TrajectorySettingsError, match="another process works on the run"):
        opened(stage.folder / "run")
    first.close()
    opened(stage.folder / "run")


async def test_a_run_goes_on_only_if_somebody_says_so_and_with_the_same_recipe(stage: Stage) -> None:
    path = stage.folder / "run"
    with pytest.raises(TrajectorySettingsError, match=r"exists; resume it with --resume, or take another --run-name"):
        RunFolder.open(path, RECIPE, may_go_on=False)
    other = stage.recipe(sampling={"temperature": 0.5}).to_dict()
    with pytest.raises(TrajectorySettingsError, match=r"was begun with another sampling: \{\} then, \{'temperature': 0.5\} now"):
        RunFolder.open(path, other, may_go_on=True)
    with pytest.raises(TrajectorySettingsError, match="was begun with another system; give the same again"):
        RunFolder.open(path, stage.recipe(system="x").to_dict(), may_go_on=True)


async def test_a_run_that_made_nothing_has_not_begun(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "r", RECIPE, may_go_on=False).close()
    RunFolder.open(tmp_path / "r", {**RECIPE, "seed": 5}, may_go_on=False).close()
    assert json.loads((tmp_path / "r" / RUN).read_text())["recipe"]["seed"] == 5


async def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TrajectorySettingsError, match="is not a batch run, and not empty"):
        RunFolder.open(tmp_path, RECIPE, may_go_on=True)
    (tmp_path / RUN).write_text("{}")
    with pytest.raises(TrajectorySettingsError, match="is not what a batch run wrote"):
        RunFolder.open(tmp_path, RECIPE, may_go_on=True)


async def test_what_is_set_aside_is_kept_made_again_and_counted_on(stage: Stage) -> None:
    path, before = stage.folder / "run", set(stage.lines)
    folder = RunFolder.open(path, RECIPE, may_go_on=True)
    assert folder.set_aside(lambda placed: placed.entry.item == "a") == 2
    assert folder.set_aside(lambda placed: placed.entry.item == "a") == 0
    assert {*folder.done} == {("b", 0), ("b", 1)}
    assert [MessageGraph.from_json(folder.graph_line(placed))[0]["content"] for placed in folder.read_index()] == ["two", "two"]
    folder.close()
    aside = (path / ASIDE).read_bytes().splitlines()
    assert {*aside, *stage.lines} == before
    await stage.run(rollouts=2)
    assert [(entry.name, entry.attempt) for entry in stage.entries] == [("a/0", 1), ("a/1", 1), ("b/0", 0), ("b/1", 0)]
    assert len(stage.model.requests) == 6
    again = RunFolder.open(path, RECIPE, may_go_on=True)
    assert [entry.attempt for entry in again.entries_aside()] == [0, 0]
    again.close()


@pytest.mark.parametrize("step", ["before", "between"])
async def test_killed_while_it_sets_aside_a_run_is_as_before_or_as_after(stage: Stage, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stage.folder / "run"
    replaced: list[str] = []
    replace = Path.replace

    def dying(self: Path, target: Path) -> Path:
        if self.name.endswith("jsonl.new"):
            if step == "before" or replaced:
                raise KeyboardInterrupt
            replaced.append(self.name)
        return replace(self, target)

    folder = RunFolder.open(path, RECIPE, may_go_on=True)
    monkeypatch.setattr(Path, "replace", dying)
    with pytest.raises(KeyboardInterrupt):
        folder.set_aside(lambda placed: placed.entry.item == "a")
    monkeypatch.undo()
    folder.close()
    folder = opened(path)
    assert len(folder.done) == (4 if step == "before" else 2)
    assert len(list(folder.entries_aside())) == (0 if step == "before" else 2), "each is in one place, and its cost counts once"
    assert [len(folder.graph_line(placed)) for placed in folder.read_index()] == [len(line) + 1 for line in stage.lines]


def dying(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


async def test_killed_before_a_move_only_the_copies_are_taken_out_of_what_lies_aside(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stage.folder / "run"
    folder = RunFolder.open(path, RECIPE, may_go_on=True)
    folder.set_aside(lambda placed: placed.key == ("a", 0))
    folder.close()
    await stage.run(rollouts=2)
    before = (path / ASIDE).read_bytes()
    folder = RunFolder.open(path, RECIPE, may_go_on=True)
    monkeypatch.setattr("hermes.trajectories.batch.run_folder.finish_moving", dying)
    with pytest.raises(KeyboardInterrupt):
        folder.set_aside(lambda placed: placed.entry.item == "a")
    monkeypatch.undo()
    folder.close()
    folder = opened(path)
    assert ((path / ASIDE).read_bytes(), folder.aside) == (before, {("a", 0): 0})
    assert folder.done == {("a", 0): 1, ("a", 1): 0, ("b", 0): 0, ("b", 1): 0}


async def test_a_prompt_that_carries_the_note_of_an_earlier_run_is_not_taken_for_that_run(tmp_path: Path) -> None:
    earlier = {"item": "old", "rollout": 7, "digest": "x", "outcome": "error"}
    first = {"role": "user", "content": "hi", "metadata": {"batch": earlier}}
    stage = Stage(tmp_path)
    stage.rows({"id": "a", "prompt": [first, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "go"}]})
    await stage.run()
    before = stage.entries
    (tmp_path / "run" / INDEX).unlink()
    assert opened(tmp_path / "run").recovered == 1
    assert (stage.entries, [entry.name for entry in before]) == (before, ["a/0"])


async def test_whatever_keeps_rollouts_from_the_disk_is_raised_and_nobody_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing_put(*_: object) -> None:
        raise TypeError("no JSON")

    stage = Stage(tmp_path)
    monkeypatch.setattr(RunFolder, "put", failing_put)
    async with asyncio.timeout(5):
        with pytest.raises(TypeError, match="no JSON"):
            await stage.run(rollouts=3, concurrency=4)


async def test_failed_rollouts_can_be_made_once_more(tmp_path: Path) -> None:
    stage = Stage(tmp_path, StageModel(lambda _: failing("down", is_final=True)))
    await stage.run()
    folder = RunFolder.open(tmp_path / "run", RECIPE, may_go_on=True)
    assert folder.set_aside(lambda placed: placed.entry.outcome is RolloutOutcome.ERROR) == 2
    folder.close()
    stage.model = StageModel()
    await stage.run()
    assert [entry.outcome for entry in stage.entries] == [RolloutOutcome.COMPLETED] * 2


async def test_changes_of_the_prompts_are_noticed(stage: Stage) -> None:
    folder = RunFolder.open(stage.folder / "run", RECIPE, may_go_on=True)
    assert changes_since(folder, stage.items.index()) == ItemChanges()
    record_items(folder, stage.items.index())
    stage.rows({"prompt": "ONE", "id": "a"}, {"prompt": "three", "id": "c"})
    changes = changes_since(folder, stage.items.index())
    assert changes == ItemChanges(new=("c",), changed=("a",), removed=("b",))
    assert changes.stale == {"a", "b"}
    folder.close()


async def test_rollouts_that_end_together_go_to_disk_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    stage.rows(*({"prompt": str(number)} for number in range(200)))
    trips: list[int] = []
    put = RunFolder.put

    def counting(self: RunFolder, rollouts: list[object]) -> None:
        trips.append(len(rollouts))
        put(self, rollouts)  # type: ignore[arg-type]

    monkeypatch.setattr(RunFolder, "put", counting)
    await stage.run(concurrency=50)
    assert sum(trips) == 200
    assert len(trips) < 100
    await asyncio.sleep(0)
