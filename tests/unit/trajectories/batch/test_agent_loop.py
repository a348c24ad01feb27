"""The agent loop: what is asked, what is recorded, and every way in which it can end."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes.graph import MessageGraph, Response
from hermes.trajectories.batch.agent_loop import NOT_RUN
from hermes.trajectories.batch.python_tools import python_toolset
from hermes.trajectories.batch.recipe import all_toolsets, seed_of
from hermes.trajectories.batch.rollout import RolloutOutcome
from hermes.trajectories.batch.tools import BatchToolCall, RolloutContext, RolloutTools, ToolFailed
from hermes.trajectories.sampling_model import SampledMessage, SampleRequest
from tests.unit.trajectories.batch.stage import Stage, StageModel, call, failing, said, turn_of


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def slow(seconds: float) -> str:
    """Take its time."""
    await asyncio.sleep(seconds)
    return f"slept {seconds}"


async def orphaned() -> str:
    """Wait for what somebody else cancelled."""
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    gone.cancel()
    return await gone


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.rows({"prompt": "go", "id": "a"})
    stage.toolsets = {"mine": python_toolset("mine", [add, slow])}
    return stage


def graph_of(stage: Stage) -> MessageGraph:
    [line] = stage.lines
    graph = MessageGraph.from_json(line)
    assert graph.verify().status == "ok"
    return graph


def plain(graph: MessageGraph) -> list[dict[str, Any]]:
    return [{key: value for key, value in message.items() if key != "metadata"} for message in graph]


async def test_asks_runs_tools_in_order_and_asks_again(stage: Stage) -> None:
    calls = [call("slow", {"seconds": 0.02}, "c1"), call("add", {"a": 1, "b": 2}, "c2")]
    stage.model = StageModel(lambda request: said("done", micro_usd=7) if turn_of(request) else said(None, *calls, micro_usd=5))
    await stage.run(stage.recipe(toolsets=all_toolsets(["mine"]), sampling={"temperature": 0.5}, max_tokens=9, system="Be brief.", seed=3))
    seed = seed_of(3, "a", 0)
    assert plain(graph_of(stage)) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "slept 0.02"},
        {"role": "tool", "tool_call_id": "c2", "content": "3"},
        {"role": "assistant", "content": "done"},
    ]
    first, second = stage.model.requests
    assert [schema["function"]["name"] for schema in first.tools] == ["add", "slow"]
    assert (first.sampling, first.max_tokens) == ({"seed": seed, "temperature": 0.5}, 9)
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "tool", "tool"]
    [entry] = stage.entries
    assert (entry.outcome, entry.calls, entry.messages, entry.tokens, entry.micro_usd, entry.seed) == (
        RolloutOutcome.COMPLETED, 2, 6, 50, 12, seed
    )  # fmt: skip
    assert entry.finish_reasons == {"tool_calls": 1, "stop": 1}
    assert entry.tools == {"slow": {"done": 1}, "add": {"done": 1}}
    assert entry.toolsets == ["mine"]


async def test_every_response_has_its_call_its_rollout_and_the_context_that_was_sent(stage: Stage) -> None:
    stage.model = StageModel(lambda request: said("done") if turn_of(request) else said(None, call("add", {"a": 1, "b": 2})))
    await stage.run(stage.recipe(toolsets=all_toolsets(["mine"]), ephemeral="Secret.", system="S"))
    responses: list[Response] = list(graph_of(stage).responses())
    assert [response.context for response in responses] == [[dict(m) for m in request.messages] for request in stage.model.requests]
    assert responses[0].context[0]["content"] == "S\n\nSecret."
    assert [dict(note) for response in responses for note in response.annotations] == [
        {"rollout": "a/0"},
        {"rollout": "a/0"},
        {"outcome": "completed"},
    ]
    names = [request.sample_id for request in stage.model.requests]
    assert [response.sample_id for response in responses] == names
    assert [name.partition("/")[2] for name in names] == ["a/0/0", "a/0/1"]
    assert "Secret" not in str(plain(graph_of(stage)))


async def test_prefill_stands_before_the_prompt_and_is_not_sampled(stage: Stage) -> None:
    shot = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    await stage.run(stage.recipe(prefill=shot, system="S"))
    graph = graph_of(stage)
    assert plain(graph)[:4] == [{"role": "system", "content": "S"}, *shot, {"role": "user", "content": "go"}]
    assert [response.index for response in graph.responses()] == [4]


async def test_reasoning_is_recorded_as_sent_only_where_the_server_took_it(stage: Stage) -> None:
    def answer(request: SampleRequest) -> SampledMessage:
        return said("done", reasoning="so") if turn_of(request) else said(None, call("add", {"a": 1, "b": 2}), reasoning="hm")

    stage.model = StageModel(answer)
    await stage.run(stage.recipe(toolsets=all_toolsets(["mine"])))
    assert stage.model.requests[1].messages[1]["reasoning"] == "hm", "this turn's is sent again"
    first, second = graph_of(stage).responses()
    assert (first.overlay.keep_reasoning, second.overlay.keep_reasoning) == ("none", "none")
    assert "reasoning" not in second.context[1], "this server did not say that it took it"


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (said("cut", finish="length"), RolloutOutcome.LENGTH, ""),
        (said("", finish="content_filter"), RolloutOutcome.REFUSED, "content_filter"),
        (failing("bad request", is_final=True), RolloutOutcome.ERROR, "bad request"),
        (said(None, call("add", {"a": 1, "b": 1})), RolloutOutcome.MAX_TURNS, ""),
    ],
)
async def test_a_rollout_that_does_not_come_to_an_answer_is_kept_and_says_why(
    stage: Stage, answer: Any, outcome: RolloutOutcome, reason: str
) -> None:
    stage.model = StageModel(lambda _: answer)
    runner = await stage.run(stage.recipe(toolsets=all_toolsets(["mine"]), max_turns=3))
    [entry] = stage.entries
    assert (entry.outcome, entry.reason, runner.reason) == (outcome, reason, "")
    assert plain(graph_of(stage))[0] == {"role": "user", "content": "go"}


async def test_unknown_tools_and_bad_arguments_are_answered_and_counted(stage: Stage) -> None:
    wrong = [call("ad", "{}", "c1"), call("add", "{oops", "c2"), call("add", {"a": 1}, "c3")]
    stage.model = StageModel(lambda request: said("sorry") if turn_of(request) else said(None, *wrong))
    await stage.run(stage.recipe(toolsets=all_toolsets(["mine"])))
    [entry] = stage.entries
    assert (entry.outcome, entry.tools) == (
        RolloutOutcome.COMPLETED,
        {"(unknown)": {"unknown": 1}, "add": {"bad_arguments": 1, "failed": 1}},
    )
    texts = [message["content"] for message in plain(graph_of(stage)) if message["role"] == "tool"]
    assert [text.split(";")[0][:40] for text in texts] == [
        "Error: there is no tool 'ad'",
        "Error: the arguments are not valid JSON ",
        "Error: add: b is missing",
    ]


async def test_a_call_that_fails_is_repeated_later_each_time(stage: Stage) -> None:
    answers = iter([failing(), failing(), failing(), said("at last")])
    stage.model = StageModel(lambda _: next(answers))
    await stage.run(retries=3, backoff_s=1.0)
    [entry] = stage.entries
    assert (entry.outcome, entry.retries, entry.calls) == (RolloutOutcome.COMPLETED, 3, 1)
    assert [0 <= slept <= most for slept, most in zip(stage.slept, (1, 2, 4), strict=True)] == [True] * 3
    assert len({request.sample_id for request in stage.model.requests}) == 1, "one sample, asked for four times"


async def test_what_never_works_and_what_is_final_is_an_error(stage: Stage) -> None:
    stage.model = StageModel(lambda _: failing("overloaded"))
    await stage.run(retries=2)
    [entry] = stage.entries
    assert (entry.outcome, entry.reason, entry.retries, len(stage.model.requests)) == (RolloutOutcome.ERROR, "overloaded", 2, 3)


async def test_time_is_up_in_the_middle_of_a_tool(stage: Stage) -> None:
    stage.model = StageModel(lambda _: said("let me see", call("slow", {"seconds": 60}, "c1"), call("add", {"a": 1, "b": 1}, "c2")))
    await stage.run(stage.recipe(toolsets=all_toolsets(["mine"])), timeout_s=0.1)
    [entry] = stage.entries
    assert (entry.outcome, entry.reason, entry.calls) == (RolloutOutcome.TIMEOUT, "after 0.1 s", 1)
    assert plain(graph_of(stage))[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": NOT_RUN},
        {"role": "tool", "tool_call_id": "c2", "content": NOT_RUN},
    ], "no call is left without a result"


async def test_a_tool_that_waited_for_what_was_cancelled_has_failed_and_the_run_goes_on(stage: Stage) -> None:
    stage.rows(*({"prompt": "go", "id": f"i{number}"} for number in range(6)))
    stage.toolsets = {"mine": python_toolset("mine", [orphaned])}
    stage.model = StageModel(lambda request: said("done") if turn_of(request) else said(None, call("orphaned")))
    runner = await stage.run(stage.recipe(toolsets=all_toolsets(["mine"])), concurrency=2)
    kept = [(entry.outcome, entry.tools) for entry in stage.entries]
    assert (kept, runner.reason) == ([(RolloutOutcome.COMPLETED, {"orphaned": {"failed": 1}})] * 6, "")
    results = [message["content"] for line in stage.lines for message in MessageGraph.from_json(line) if message["role"] == "tool"]
    assert results == ["Error: orphaned waited for something that was cancelled"] * 6


async def test_a_toolset_whose_closing_waited_for_what_was_cancelled_changes_nothing_any_more(stage: Stage) -> None:
    class Idle:
        schemas: Sequence[Mapping[str, Any]] = ()

        async def run(self, call: BatchToolCall) -> str:
            raise ToolFailed(call.name)

    class Leaving:
        name = "leaving"

        @asynccontextmanager
        async def open(self, _: RolloutContext) -> AsyncIterator[RolloutTools]:
            yield Idle()
            await orphaned()

    stage.toolsets = {"leaving": Leaving()}
    await stage.run(stage.recipe(toolsets=all_toolsets(["leaving"])))
    assert [entry.outcome for entry in stage.entries] == [RolloutOutcome.COMPLETED]


async def test_a_model_that_waited_for_what_was_cancelled_is_an_error_of_its_rollout(stage: Stage) -> None:
    class Orphaned(StageModel):
        async def sample(self, request: SampleRequest) -> SampledMessage:
            await orphaned()
            return await super().sample(request)

    stage.rows(*({"prompt": "go", "id": f"i{number}"} for number in range(6)))
    stage.model = Orphaned()
    await stage.run(concurrency=2)
    assert [(entry.outcome, entry.reason) for entry in stage.entries] == [
        (RolloutOutcome.ERROR, "something that it waited for was cancelled")
    ] * 6


async def test_an_answer_that_no_graph_can_hold_is_an_error(stage: Stage) -> None:
    stage.model = StageModel(lambda _: said("x", tool=float("nan")))
    await stage.run()
    [entry] = stage.entries
    assert entry.outcome is RolloutOutcome.ERROR
    assert entry.reason.startswith("the model's answer cannot be recorded: ")


async def test_a_toolset_that_breaks_is_an_error_of_its_rollout(stage: Stage) -> None:
    stage.toolsets["other"] = python_toolset("other", [add])
    await stage.run(stage.recipe(toolsets=all_toolsets(["mine", "other"])))
    [entry] = stage.entries
    assert (entry.outcome, entry.reason) == (
        RolloutOutcome.ERROR,
        "the toolsets cannot be used together: mine and other both have a tool add; choose one of them",
    )
