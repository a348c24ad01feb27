"""Many rollouts at once: how many, in which order of names, when they stop, and how they go on."""

import asyncio
import json
from pathlib import Path

import pytest

from hermes.graph import MessageGraph
from hermes.trajectories.batch.rollout import Rollout, RolloutEntry, RolloutOutcome
from hermes.trajectories.batch.run import BatchRun, Budget, BudgetDecision
from hermes.trajectories.batch.run_files import ASIDE
from hermes.trajectories.batch.run_folder import RunFolder
from hermes.trajectories.batch.statistics import statistics_of
from hermes.trajectories.sampling_model import SampledMessage, SampleRequest
from tests.unit.trajectories.batch.stage import Stage, StageModel, failing, said


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.rows(*({"prompt": f"p{number}", "id": f"i{number}"} for number in range(10)))
    return stage


class Busy(StageModel):
    """Knows how many asked at once."""

    now = most = 0

    async def sample(self, request: SampleRequest) -> SampledMessage:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.002)
        self.now -= 1
        return await super().sample(request)


async def test_as_many_at_once_as_asked_for(stage: Stage) -> None:
    stage.model = model = Busy()
    await stage.run(rollouts=2, concurrency=4)
    assert (model.most, len(stage.entries)) == (4, 20)
    assert len({entry.name for entry in stage.entries}) == 20


async def test_rollouts_of_a_prompt_have_seeds_of_their_own_and_always_the_same(stage: Stage, tmp_path: Path) -> None:
    await stage.run(rollouts=3)
    seeds = {entry.name: entry.seed for entry in stage.entries}
    assert len(set(seeds.values())) == 30
    (tmp_path / "again").mkdir()
    other = Stage(tmp_path / "again")
    other.items = stage.items
    await other.run(rollouts=3, concurrency=1)
    assert {entry.name: entry.seed for entry in other.entries} == seeds
    assert {request.sampling["seed"] for request in other.model.requests} == {*seeds.values()}


async def test_unseeded_runs_send_none(stage: Stage) -> None:
    await stage.run(stage.recipe(is_seeded=False))
    assert {json.dumps(dict(request.sampling)) for request in stage.model.requests} == {"{}"}


async def test_goes_on_where_it_stopped_and_asks_for_nothing_twice(stage: Stage) -> None:
    def after(count: int, runner: BatchRun) -> None:
        seen: list[RolloutEntry] = []

        def note(entry: RolloutEntry) -> None:
            seen.append(entry)
            if len(seen) == count:
                runner.stop("enough")

        runner.on_rollout = note

    asked = 0
    while len(stage.entries) < 20:
        runner = await stage.run(rollouts=2, concurrency=3, during=lambda runner: after(4, runner))
        assert runner.reason in ("enough", "")
        asked += 1
    assert asked > 2
    assert len(stage.model.requests) == 20
    assert len(stage.lines) == 20


async def test_more_rollouts_can_be_asked_for_later(stage: Stage) -> None:
    await stage.run(rollouts=1)
    await stage.run(rollouts=3)
    assert (len(stage.entries), len(stage.model.requests)) == (30, 30)


async def test_giving_up_keeps_aside_what_was_under_way_and_makes_it_again(stage: Stage) -> None:
    class Slow(StageModel):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            done = await super().sample(request)
            if len(request.messages) > 1:
                await asyncio.sleep(60)
            return done

    looking = said(None, {"id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}})
    stage.model = Slow(lambda _: looking)
    runner = await stage.run(concurrency=2, during=lambda runner: asyncio.get_running_loop().call_later(0.1, runner.give_up))
    assert (runner.reason, stage.entries) == ("given up", [])
    aside = (stage.folder / "run" / ASIDE).read_bytes().splitlines()
    graphs = [MessageGraph.from_json(line) for line in aside]
    assert [[response.is_own for response in graph.responses()] for graph in graphs] == [[True], [True]], "what was paid for is kept"
    stage.model = StageModel()
    await stage.run()
    again = {entry.name: entry for entry in stage.entries}
    assert (len(again), again["i0/0"].attempt, again["i5/0"].attempt) == (10, 1, 0)
    names = {request.sample_id.partition("/")[2] for request in stage.model.requests}
    assert {"i0/0.1/0", "i5/0/0"} <= names, "a sample of another attempt has another name"


async def test_giving_up_ends_a_rollout_whose_client_has_kept_the_cancellation_to_itself(stage: Stage) -> None:
    class Deaf(StageModel):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return await super().sample(request)
            raise AssertionError("given up before")

    looking = said(None, {"id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}})
    stage.model = Deaf(lambda _: looking)
    async with asyncio.timeout(20):
        runner = await stage.run(concurrency=2, during=lambda runner: asyncio.get_running_loop().call_later(0.1, runner.give_up))
    assert (runner.reason, stage.entries, len(stage.model.requests)) == ("given up", [], 2)


async def test_a_model_that_answers_nobody_stops_the_run_and_nothing_counts_as_failed(stage: Stage) -> None:
    stage.model = StageModel(
        lambda request: failing("the day's budget is spent", is_spent=True) if len(stage.model.requests) > 4 else said("x")
    )
    runner = await stage.run(concurrency=1)
    assert (runner.reason, len(stage.entries)) == ("the day's budget is spent", 4)
    stage.model = StageModel()
    assert (await stage.run()).reason == ""
    assert [entry.outcome for entry in stage.entries] == [RolloutOutcome.COMPLETED] * 10


async def test_a_run_in_which_everything_fails_is_stopped(stage: Stage) -> None:
    stage.rows(*({"prompt": f"p{number}"} for number in range(100)))
    stage.model = StageModel(lambda _: failing("refused", is_final=True))
    runner = await stage.run(concurrency=1)
    assert runner.reason == "20 rollouts in a row failed, the last one with: refused"
    assert [entry.outcome for entry in stage.entries] == [RolloutOutcome.ERROR] * 20


async def test_a_budget_is_not_gone_beyond(stage: Stage) -> None:
    """A rollout takes 25 tokens and 10 micro-dollars."""
    runner = await stage.run(rollouts=2, concurrency=8, budget=Budget(tokens=130))
    assert runner.reason.startswith("125 of 130 tokens are used")
    assert len(stage.entries) == 5
    runner = await stage.run(rollouts=2, concurrency=8, budget=Budget(micro_usd=115))
    assert runner.reason.startswith("0.0001 of 0.0001 USD are spent")
    assert len(stage.entries) == 11, "what was spent before counts"
    assert (await stage.run(rollouts=2, budget=Budget(tokens=1_000_000))).reason == ""
    assert len(stage.entries) == 20


async def test_nothing_is_lost_or_noted_twice_when_a_shelf_fails(stage: Stage) -> None:
    class Full:
        async def put(self, rollout: Rollout) -> None:
            if rollout.entry.item == "i3":
                raise OSError(28, "No space left on device")

    stage.shelves = [Full()]
    with pytest.raises(OSError, match="No space left"):
        await stage.run(concurrency=2)
    kept = {entry.name for entry in stage.entries}
    assert "i3/0" in kept, "the first shelf has it"
    stage.shelves = []
    await stage.run()
    assert len(stage.entries) == 10
    assert len(stage.model.requests) - 10 <= 2, "at most what was under way is asked for again"


async def test_statistics_are_those_of_the_whole_run_however_often_it_was_interrupted(stage: Stage, tmp_path: Path) -> None:
    stage.verifier = lambda row, rollout: int(rollout.entry.item[1:]) % 2
    for _ in range(10):
        stop = lambda runner: asyncio.get_running_loop().call_later(0.01, runner.stop, "enough")  # noqa: E731
        stage.model = Busy()
        await stage.run(rollouts=4, concurrency=2, during=stop)
    await stage.run(rollouts=4)
    (tmp_path / "whole").mkdir()
    whole = Stage(tmp_path / "whole", verifier=stage.verifier)
    whole.items = stage.items
    await whole.run(rollouts=4)
    one, other = (
        statistics_of(placed.entry for placed in RunFolder.peek(each.folder / "run").read_index()).to_dict() for each in (stage, whole)
    )
    for each in (one, other):
        del each["seconds"]
    assert one == other
    assert one["rewards"] == {
        "scored": 40, "verify_errors": 0, "mean": 0.5, "std": 0.5, "min": 0.0, "max": 1.0, "pass_mark": 1.0,
        "pass_at": {"1": 0.5, "2": 0.5, "4": 0.5}, "items_all_equal": 10,
    }  # fmt: skip


# --- budgets: what rollouts cost is known from all that were made


def cost(tokens: int) -> RolloutEntry:
    return RolloutEntry(item="a", rollout=0, digest="", outcome=RolloutOutcome.COMPLETED, prompt_tokens=tokens)


def test_what_lies_aside_is_spent_and_does_not_make_the_next_one_dearer() -> None:
    budget = Budget(tokens=120)
    budget.add(cost(10))
    for _ in range(9):
        budget.add(cost(10), is_finished=False)
    assert [budget.begin() for _ in range(3)] == [BudgetDecision.GO, BudgetDecision.GO, BudgetDecision.WAIT]


def test_the_first_to_finish_goes_alone_also_when_others_lie_aside() -> None:
    budget = Budget(tokens=120)
    budget.add(cost(10), is_finished=False)
    assert [budget.begin() for _ in range(2)] == [BudgetDecision.GO, BudgetDecision.WAIT]
