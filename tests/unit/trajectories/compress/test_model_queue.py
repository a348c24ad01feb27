"""Summaries of a model: many at once, in order, paid once, within the budget; and a model that fails costs no trajectory."""

import asyncio
import json
import threading
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes import CallRecord, MessageGraph
from hermes.trajectories.compress.model_queue import SummaryBudgetSpent, compress_files_with_model
from hermes.trajectories.compress.run import CompressRun
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest
from tests.unit.trajectories.compress.job_files import agent_row, compressed, compressed_with, graph_line, job, rows, work, write


class Scribe:
    """A model that answers with what it was asked about, costs 1,000 micro-dollars, and takes a while."""

    name = "fake"

    def __init__(self, *, seconds: float = 0.0, fails: int = 0) -> None:
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0
        self.seconds, self.fails = seconds, fails

    async def sample(self, request: SampleRequest) -> SampledMessage:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds * (len(self.asked) % 3))
            self.asked.append(request.sample_id)
            if len(self.asked) <= self.fails:
                raise ModelFailed("overloaded", is_final=True)
            text = f"Summary for {request.sample_id}."
            return SampledMessage({"role": "assistant", "content": text}, CallRecord(model=self.name, sample_id=request.sample_id), 1_000)
        finally:
            self.at_once -= 1


def summaries(file: Path) -> list[str | None]:
    """What stands in each row for its middle."""
    found = []
    for row in rows(file):
        said = [turn["value"] for turn in row["conversations"] if turn["value"].startswith("[CONTEXT SUMMARY]:")]
        found.append(said[0] if said else None)
    return found


def source(folder: Path, count: int = 12) -> Path:
    return write(folder / "t.jsonl", [agent_row(12 if number % 2 else 1, prompt_index=number) for number in range(count)])


def said(finished: CompressRun) -> dict[str, Any]:
    values: dict[str, Any] = finished.metrics["summarization"]
    return values


async def test_many_are_asked_for_at_once_and_written_in_their_order(tmp_path: Path) -> None:
    model = Scribe(seconds=0.02)
    finished = await compressed_with(model, source(tmp_path, 40), work(model="fake", processing={"max_concurrent_requests": 5}))
    assert [row["prompt_index"] for row in rows(tmp_path / "t_compressed.jsonl")] == list(range(40))
    found = summaries(tmp_path / "t_compressed.jsonl")
    assert [text is None for text in found] == [number % 2 == 0 for number in range(40)]
    assert all(f"t.jsonl:{number + 1}#" in text for number, text in enumerate(found) if text is not None), "each has its own"
    assert len(model.asked) == 20
    assert 1 < model.most_at_once <= 5
    assert (said(finished)["total_api_calls"], said(finished)["fallbacks"], said(finished)["cost_usd"]) == (20, 0, 0.02)


async def test_a_model_that_takes_one_at_a_time_is_not_asked_for_more(tmp_path: Path) -> None:
    model = Scribe(seconds=0.01)
    await compressed_with(model, source(tmp_path), at_once=1)
    assert model.most_at_once == 1


async def test_a_graph_has_the_summary_with_the_chat_in_which_it_was_sampled(tmp_path: Path) -> None:
    await compressed_with(Scribe(), write(tmp_path / "g.jsonl", [graph_line(12)]))
    chat = MessageGraph.from_json((tmp_path / "g_compressed.jsonl").read_text())
    nested = [response for response in chat.responses() if not response.is_own]
    [summary] = [message for message in chat if message.get("metadata")]
    assert [response.message["content"] for response in nested] == [f"Summary for {nested[0].sample_id}."]
    assert nested[0].message["content"] in summary["content"]
    assert chat.verify()


@pytest.mark.parametrize("is_paid_before", [False, True])
async def test_a_graph_that_is_compressed_again_keeps_whatever_was_paid_for(tmp_path: Path, is_paid_before: bool) -> None:
    file = write(tmp_path / "g.jsonl", [graph_line(24)])
    if is_paid_before:
        await compressed_with(Scribe(), file, work(1_500, model="fake"))
    else:
        await asyncio.to_thread(compressed, file, work(1_500))
    finished = await compressed_with(model := Scribe(), tmp_path / "g_compressed.jsonl", work(600, model="fake"))
    chat = MessageGraph.from_json((tmp_path / "g_compressed_compressed.jsonl").read_text())
    nested = {response.sample_id for response in chat.responses() if not response.is_own}
    assert (finished.is_clean, said(finished)["fallbacks"], len(model.asked), len(nested)) == (True, 0, 1, 1 + is_paid_before)
    assert chat.verify()


@pytest.mark.parametrize("fails", [3, 100])
async def test_a_model_that_fails_is_replaced_for_that_trajectory_and_the_metrics_say_so(tmp_path: Path, fails: int) -> None:
    finished = await compressed_with(Scribe(fails=fails), source(tmp_path), work(model="fake", processing={"max_concurrent_requests": 1}))
    assert (said(finished)["fallbacks"], said(finished)["total_errors"]) == (min(fails, 6), min(fails, 6))
    assert (finished.is_clean, len(rows(tmp_path / "t_compressed.jsonl"))) == (True, 12)
    about = [row["summary"] for row in rows(tmp_path / "metrics.jsonl") if row.get("was_compressed")]
    assert about[0] == "extractive (model failed: overloaded)"


async def test_a_model_that_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    class Silent(Scribe):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            await asyncio.Event().wait()
            raise AssertionError

    finished = await compressed_with(Silent(), source(tmp_path), work(model="fake", processing={"per_trajectory_timeout": 0.05}))
    assert (said(finished)["fallbacks"], finished.is_clean) == (6, True)
    assert all("[CONTEXT SUMMARY]" in json.dumps(row) for row in rows(tmp_path / "t_compressed.jsonl")[1::2])


async def test_a_model_that_breaks_in_a_way_nobody_foresaw_costs_no_trajectory(tmp_path: Path) -> None:
    class Broken(Scribe):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            raise OSError("the plug was pulled")

    finished = await compressed_with(Broken(), source(tmp_path))
    assert (said(finished)["fallbacks"], finished.is_clean) == (6, True)
    about = [row["summary"] for row in rows(tmp_path / "metrics.jsonl") if row.get("was_compressed")]
    assert set(about) == {"extractive (model failed: OSError: the plug was pulled)"}


async def test_a_trajectory_that_nobody_can_compress_is_written_as_it_was_and_flagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ValueError("never seen before")

    monkeypatch.setattr("hermes.trajectories.compress.worker.compact_to_target", broken)
    file = source(tmp_path)
    finished = await compressed_with(Scribe(), file)
    assert (tmp_path / "t_compressed.jsonl").read_bytes() == file.read_bytes()
    assert (finished.metrics["summary"]["trajectories_failed"], finished.is_clean) == (6, False)
    assert finished.problems[0] == "t.jsonl, line 2: left as it was: ValueError: never seen before"
    assert rows(tmp_path / "metrics.jsonl")[1]["failed"] == "ValueError: never seen before"


async def test_a_budget_is_not_passed_and_a_larger_one_pays_for_the_rest_only(tmp_path: Path) -> None:
    file = source(tmp_path, 20)
    first, second, free = Scribe(seconds=0.01), Scribe(), Scribe()
    with pytest.raises(SummaryBudgetSpent, match=r"the budget of 0\.0045 USD is used up"):
        await compressed_with(first, file, budget_micro_usd=4_500)
    assert len(first.asked) == 4
    assert not (tmp_path / "t_compressed.jsonl").exists()
    with pytest.raises(SummaryBudgetSpent):
        await compressed_with(free, file, budget_micro_usd=4_500)
    assert free.asked == []
    finished = await compressed_with(second, file, budget_micro_usd=10_000)
    assert sorted(first.asked + second.asked) == sorted(set(first.asked + second.asked))
    assert (len(second.asked), said(finished)["cost_usd"], finished.is_resumed) == (6, 0.01, True)
    found = [text for text in summaries(tmp_path / "t_compressed.jsonl") if text is not None]
    assert all(f"t.jsonl:{2 * number + 2}#" in text for number, text in enumerate(found))


async def test_when_the_gateway_pays_no_more_everything_stops_and_nothing_is_extracted_instead(tmp_path: Path) -> None:
    class Bankrupt(Scribe):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            if len(self.asked) == 2:
                raise ModelFailed("the platform's cap is reached", is_spent=True)
            return await super().sample(request)

    file = source(tmp_path)
    with pytest.raises(SummaryBudgetSpent, match="the platform's cap is reached"):
        await compressed_with(Bankrupt(), file, work(model="fake", processing={"max_concurrent_requests": 1}))
    finished = await compressed_with(model := Scribe(), file)
    assert (len(model.asked), said(finished)["fallbacks"], said(finished)["total_api_calls"]) == (4, 0, 6)


async def test_equal_rows_are_two_trajectories_with_a_summary_each(tmp_path: Path) -> None:
    model = Scribe()
    await compressed_with(model, write(tmp_path / "t.jsonl", [agent_row(12)] * 2))
    assert len(set(model.asked)) == 2


async def test_who_waits_for_the_till_does_not_wait_on_their_own_clock(tmp_path: Path) -> None:
    (tmp_path / "hasty").mkdir()

    class Slow(Scribe):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            sampled = await super().sample(request)
            await asyncio.sleep(0.2)
            return replace(sampled, micro_usd=4_000 if len(self.asked) == 1 else 100)

    # After a dear answer there is money for one at a time: the last of six waits for a second, more than any limit allows for.
    limits = work(model="fake", processing={"per_trajectory_timeout": 0.7}, summarization={"timeout": 0.6})
    finished = await compressed_with(model := Slow(), source(tmp_path), limits, budget_micro_usd=8_500)
    assert (len(model.asked), said(finished)["fallbacks"], said(finished)["total_errors"]) == (6, 0, 0)
    hasty = work(model="fake", processing={"per_trajectory_timeout": 0.1})
    finished = await compressed_with(Slow(), source(folder := tmp_path / "hasty"), hasty, budget_micro_usd=8_500)
    assert (said(finished)["fallbacks"], len(rows(folder / "t_compressed.jsonl"))) == (6, 12), "the clock goes on for the answer itself"


async def test_no_time_limit_of_a_trajectory_is_no_limit(tmp_path: Path) -> None:
    finished = await compressed_with(Scribe(seconds=0.01), source(tmp_path), work(model="fake", processing={"per_trajectory_timeout": 0}))
    assert (said(finished)["fallbacks"], said(finished)["total_api_calls"]) == (0, 6)


async def test_stopped_while_a_chunk_is_worked_on_it_ends_as_anything_that_is_stopped(tmp_path: Path) -> None:
    is_at_work, may_go_on = threading.Event(), threading.Event()

    class Working:
        def map(self, work: Callable[[Any], Any], chunks: Iterable[Any]) -> Generator[Any]:
            for chunk in chunks:
                is_at_work.set()
                may_go_on.wait(10)
                yield work(chunk)

    running = asyncio.create_task(compress_files_with_model(Scribe(), job(source(tmp_path), work(model="fake")), Working()))
    await asyncio.to_thread(is_at_work.wait, 10)
    running.cancel()
    asyncio.get_running_loop().call_later(0.05, may_go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    finished = await compressed_with(Scribe(), tmp_path / "t.jsonl")
    assert (finished.is_clean, len(rows(tmp_path / "t_compressed.jsonl"))) == (True, 12)
