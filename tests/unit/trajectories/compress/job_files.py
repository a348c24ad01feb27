"""Trajectory files to compress, in every shape, and a run over them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hermes.trajectories.compress.chunks import find_inputs
from hermes.trajectories.compress.model_queue import compress_files_with_model
from hermes.trajectories.compress.output import OutputPaths
from hermes.trajectories.compress.run import CompressRun, compress_files
from hermes.trajectories.compress.worker import CompressWork
from hermes.trajectories.engines.local import LocalEngine
from hermes.trajectories.sampling_model import SamplingModel
from tests.unit.trajectories.compress.chats import answer, chat_of, result, settings, system, user, words

TARGET = 500


def turns(rounds: int, size: int = 20) -> list[dict[str, Any]]:
    """A hermes-agent conversation: a task, rounds of thought, call and result, an answer."""
    said: list[dict[str, Any]] = [{"from": "system", "value": "You work."}, {"from": "human", "value": f"Do {rounds} things."}]
    for number in range(rounds):
        call = json.dumps({"name": "look", "arguments": {"at": f"thing {number}"}})
        found = json.dumps({"tool_call_id": f"c{number}", "name": "look", "content": words(size, f"saw{number}_")})
        said.append({"from": "gpt", "value": f"<think>\nNumber {number}.\n</think>\n<tool_call>\n{call}\n</tool_call>"})
        said.append({"from": "tool", "value": f"<tool_response>\n{found}\n</tool_response>"})
    return [*said, {"from": "gpt", "value": "<think>\n</think>\nDone."}]


def agent_row(rounds: int, size: int = 20, **more: Any) -> str:
    """A line as hermes-agent's save_trajectory writes it."""
    return json.dumps({"conversations": turns(rounds, size), "timestamp": "2026-01-01", "model": "m", "completed": True, **more})


def messages(rounds: int, size: int = 20) -> list[dict[str, Any]]:
    said = [system("You work."), user(f"Do {rounds} things.")]
    for number in range(rounds):
        said.append(answer(None, (f"c{number}", "look", f'{{"at":  "thing {number}"}}'), reasoning=f"Number {number}."))
        said.append(result(f"c{number}", words(size, f"saw{number}_")))
    return [*said, answer("Done.")]


def openai_row(rounds: int) -> str:
    listed = [{**message, **({"weight": 1} if message["role"] == "assistant" else {})} for message in messages(rounds)]
    return json.dumps({"messages": [{key: value for key, value in each.items() if key != "reasoning"} for each in listed]})


def graph_line(rounds: int, seed: str = "g") -> str:
    return chat_of(messages(rounds), seed).to_json()


def work(target: int = TARGET, model: str | None = None, **values: Any) -> CompressWork:
    return CompressWork(settings(target, summary_target_tokens=100, **values), model)


def job(source: Path, wanted: CompressWork | None = None, out: Path | None = None) -> CompressRun:
    """A run as the command makes one."""
    is_folder = source.is_dir()
    place = out or source.with_name(f"{source.stem}_compressed{'' if is_folder else source.suffix}")
    places = OutputPaths(place, place.parent / "metrics.json", is_folder)
    return CompressRun(find_inputs(source), wanted or work(), places, chunk_bytes=4_000, checkpoint_every_s=0)  # many chunks, each marked


def compressed(source: Path, wanted: CompressWork | None = None, *, workers: int = 1, **more: Any) -> CompressRun:
    run = job(source, wanted)
    compress_files(run, LocalEngine(workers), **more)
    return run


async def compressed_with(model: SamplingModel, source: Path, wanted: CompressWork | None = None, **more: Any) -> CompressRun:
    run = job(source, wanted or work(model="fake"))
    await compress_files_with_model(model, run, LocalEngine(1), **more)
    return run


def write(file: Path, lines: Sequence[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
