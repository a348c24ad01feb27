"""A stage for batch runs without any gateway: a model that is a function, toolsets of plain functions, a folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes.graph import CallRecord
from hermes.trajectories.batch.prompt_file import PromptFile
from hermes.trajectories.batch.recipe import BatchPace, BatchRecipe
from hermes.trajectories.batch.rollout import RolloutEntry
from hermes.trajectories.batch.run import BatchRun, Budget, RolloutOutput
from hermes.trajectories.batch.run_folder import RunFolder
from hermes.trajectories.batch.tools import Toolset
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest


def call(name: str, arguments: Mapping[str, Any] | str = "{}", call_id: str = "") -> dict[str, Any]:
    """A tool call as models write them."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id or f"c_{name}", "type": "function", "function": {"name": name, "arguments": text}}


def said(content: str | None = None, *calls: dict[str, Any], finish: str | None = None, micro_usd: int = 10, **more: Any) -> SampledMessage:
    """What a model says: a text, or calls of tools. A prompt is 20 tokens, an answer 5."""
    message: dict[str, Any] = {"role": "assistant", "content": content, **more}
    if calls:
        message["tool_calls"] = list(calls)
    ids = {"prompt_token_ids": list(range(20)), "token_ids": list(range(5)), "logprobs": [-0.5] * 5, "tokenizer": "stage"}
    usage = {"prompt_tokens": 20, "completion_tokens": 5}
    return SampledMessage(
        message, CallRecord(model="stage-1", finish_reason=finish or ("tool_calls" if calls else "stop"), usage=usage, **ids), micro_usd
    )


Answer = Callable[[SampleRequest], SampledMessage | Exception]


@dataclass
class StageModel:
    """The Model that a function is. Keeps what it was asked."""

    answer: Answer = lambda request: said(f"You said: {request.messages[-1]['content']}")
    name: str = "stage"
    requests: list[SampleRequest] = field(default_factory=list)

    async def sample(self, request: SampleRequest) -> SampledMessage:
        self.requests.append(request)
        await asyncio.sleep(0)
        answer = self.answer(request)
        if isinstance(answer, Exception):
            raise answer
        record = answer.call.to_dict() | {"sample_id": request.sample_id, "sampling": dict(request.sampling)}
        return SampledMessage(answer.message, CallRecord.from_dict(record), answer.micro_usd)


def turn_of(request: SampleRequest) -> int:
    """How many answers stand in the messages already."""
    return sum(message["role"] == "assistant" for message in request.messages)


def failing(message: str = "overloaded", **more: bool) -> ModelFailed:
    return ModelFailed(message, **more)


def write_rows(file: Path, *rows: Mapping[str, Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


@dataclass
class Stage:
    """A run in a folder."""

    folder: Path
    model: StageModel = field(default_factory=StageModel)
    toolsets: dict[str, Toolset] = field(default_factory=dict)
    verifier: Any = None
    slept: list[float] = field(default_factory=list)
    shelves: Sequence[RolloutOutput] = ()

    def __post_init__(self) -> None:
        self.rows({"prompt": "one", "id": "a"}, {"prompt": "two", "id": "b"})

    def rows(self, *rows: Mapping[str, Any]) -> None:
        self.items = PromptFile(write_rows(self.folder / "prompts.jsonl", *rows))

    def recipe(self, **more: Any) -> BatchRecipe:
        return BatchRecipe(model="stage", **more)

    async def run(
        self,
        recipe: BatchRecipe | None = None,
        *,
        rollouts: int = 1,
        budget: Budget | None = None,
        during: Callable[[BatchRun], object] = lambda _: None,
        on_rollout: Callable[[RolloutEntry], None] = lambda _: None,
        **pace: Any,
    ) -> BatchRun:
        """Run, or go on, to the end; return the run, which says why it stopped."""
        recipe = recipe or self.recipe()
        folder = RunFolder.open(self.folder / "run", recipe.to_dict(), may_go_on=True)
        run = BatchRun(
            folder,
            self.items,
            recipe,
            BatchPace(**pace),
            rollouts=rollouts,
            budget=budget,
            verifier=self.verifier,
            on_rollout=on_rollout,
            sleep=self._sleep,
        )
        during(run)
        try:
            await run.run(self.model, self.toolsets, self.shelves)
        finally:
            folder.close()
        return run

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    @property
    def entries(self) -> list[RolloutEntry]:
        return sorted((placed.entry for placed in RunFolder.peek(self.folder / "run").read_index()), key=lambda entry: entry.name)

    @property
    def lines(self) -> list[bytes]:
        return (self.folder / "run" / "graphs.jsonl").read_bytes().splitlines()
