"""Batch runs: what a rollout costs beside the model's own time; and with --real a small real model from prompts to a verified export.

    loop      the runner alone, with a model that answers at once: without tools, with a round of two tools, with a subagent
    disk      the same, every rollout on disk and synced before it counts
    gateway   the same through the gateway, on stores of its own: admitted, priced, with a row for each call
    plain     the same conversations in a bare loop over lists, written with json: what nobody records
    --real    20 prompts, 4 rollouts each, by a model of 135M on this machine; `hermes export`, `hermes verify --against`

Exits with 1 if a promise is broken."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hermes.app.batch_model import make_batch_model, open_batch_services
from hermes.config import load
from hermes.graph import CallRecord
from hermes.ops import logs
from hermes.trajectories.batch.prompt_file import PromptFile
from hermes.trajectories.batch.python_tools import python_toolset
from hermes.trajectories.batch.recipe import BatchPace, BatchRecipe, all_toolsets
from hermes.trajectories.batch.rollout import Rollout
from hermes.trajectories.batch.run import BatchRun
from hermes.trajectories.batch.run_folder import RunFolder
from hermes.trajectories.batch.statistics import statistics_of
from hermes.trajectories.sampling_model import SampledMessage, SampleRequest, SamplingModel

CONCURRENCY = 16
MOST_MS = 5.0
"""Processor time of a rollout with a round of tools, on disk: more than this would show beside a model that takes a second."""

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("What is the capital of France?", "Paris"),
    ("What is the capital of Italy?", "Rome"),
    ("What is the capital of Japan?", "Tokyo"),
    ("What is the capital of Spain?", "Madrid"),
    ("What is the capital of Germany?", "Berlin"),
    ("What is the capital of Egypt?", "Cairo"),
    ("What is the capital of Russia?", "Moscow"),
    ("What is the capital of China?", "Beijing"),
    ("What is the capital of Greece?", "Athens"),
    ("What is the capital of Austria?", "Vienna"),
    ("What colour is the sky on a clear day?", "blue"),
    ("What colour is grass?", "green"),
    ("What colour is snow?", "white"),
    ("How many days are in a week?", "seven"),
    ("How many legs does a spider have?", "eight"),
    ("What is 2 plus 2?", "4"),
    ("Which planet do we live on?", "Earth"),
    ("What do bees make?", "honey"),
    ("What animal says meow?", "cat"),
    ("What is the opposite of hot?", "cold"),
)
VERIFIER = '''
def names_it(row, rollout):
    """1 where the answer names what was asked for."""
    return float(row["gold"].lower() in rollout.answer.lower())
'''


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def look_up(what: str) -> str:
    """Look something up."""
    return f"{what} is nothing that anybody knows"


@dataclass(frozen=True)
class AtOnce:
    """A model that answers at once, with as many token ids as a short answer has; two tools in the first turn if there are any."""

    name: str = "at_once"

    async def sample(self, request: SampleRequest) -> SampledMessage:
        last = request.messages[-1]
        message: dict[str, Any] = {"role": "assistant", "content": "This is what I know about it, and it is not much."}
        if request.tools and last["role"] == "user" and not str(last["content"]).startswith("("):
            message |= {"content": None, "tool_calls": calls_for({tool["function"]["name"] for tool in request.tools})}
        record = CallRecord(
            model=self.name,
            sampling=request.sampling,
            finish_reason="tool_calls" if "tool_calls" in message else "stop",
            usage={"prompt_tokens": 200, "completion_tokens": 12},
            tokenizer=self.name,
            prompt_token_ids=range(200),
            token_ids=range(12),
            logprobs=[-0.5] * 12,
            sample_id=request.sample_id,
        )
        return SampledMessage(message, record, 100)


def calls_for(tools: set[str]) -> list[dict[str, Any]]:
    wanted = [("delegate", {"task": "(do it)"})] if "delegate" in tools else [("add", {"a": 1, "b": 2}), ("look_up", {"what": "x"})]
    return [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for at, (name, arguments) in enumerate(wanted)
    ]


class Nowhere(RunFolder):
    """A folder that keeps nothing."""

    def put(self, rollouts: Iterable[tuple[Rollout, bytes]]) -> None:
        """Let go of them."""


KINDS: Mapping[str, Mapping[str, Any]] = {
    "without tools": {},
    "two tools": {"toolsets": all_toolsets(["bench"])},
    "a subagent": {"subagent_depth": 1},
}


class Took(NamedTuple):
    """Seconds by the clock, and of the processor: others on the machine count in the first one."""

    clock: float
    processor: float

    @classmethod
    def now(cls) -> Took:
        return cls(time.perf_counter(), time.process_time())

    def since(self, began: Took) -> Took:
        return Took(self.clock - began.clock, self.processor - began.processor)


async def measure(folder: Path, rollouts: int, kind: str, model: SamplingModel, *, is_kept: bool) -> Took:
    """Return what a run takes."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"id": f"i{at}", "prompt": f"Tell me about {at}."}) + "\n" for at in range(rollouts // 4)))
    recipe = BatchRecipe(model=model.name, **KINDS[kind])
    opened = (RunFolder if is_kept else Nowhere).open(folder / f"{kind} {is_kept} {model.name}", recipe.to_dict(), may_go_on=False)
    run = BatchRun(opened, PromptFile(prompts), recipe, BatchPace(concurrency=CONCURRENCY), rollouts=4)
    began = Took.now()
    await run.run(model, {"bench": python_toolset("bench", [add, look_up])})
    took = Took.now().since(began)
    assert not run.reason, run.reason
    if is_kept:
        sums = statistics_of(placed.entry for placed in opened.read_index())
        assert (sums.rollouts, dict(sums.outcomes)) == (rollouts, {"completed": rollouts})
    opened.close()
    return took


def plain(folder: Path, rollouts: int) -> Took:
    """The same conversation with two tools, on bare lists: no graph, no ids, no note, one file at the end."""

    async def go() -> None:
        model = AtOnce()
        with (folder / "plain.jsonl").open("w") as out:
            for number in range(rollouts):
                messages: list[dict[str, Any]] = [{"role": "user", "content": f"Tell me about {number}."}]
                while messages[-1]["role"] != "assistant":
                    tools = [{"function": {"name": "add"}}] if len(messages) == 1 else []
                    said = await model.sample(SampleRequest(messages=messages, tools=tools, sample_id=str(number)))
                    messages.append(dict(said.message))
                    for call in said.message.get("tool_calls", ()):
                        arguments = json.loads(call["function"]["arguments"])
                        text = str(add(**arguments)) if call["function"]["name"] == "add" else await look_up(**arguments)
                        messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
                out.write(json.dumps({"messages": messages, "call": said.call.to_dict()}) + "\n")

    began = Took.now()
    asyncio.run(go())
    return Took.now().since(began)


Line = tuple[str, str, int, Took]


async def gateway(folder: Path, rollouts: int, table: list[Line]) -> None:
    """The runner over the whole gateway, with the backend `scripted` and a script of one line."""
    script = folder / "script.toml"
    script.write_text('[[rule]]\nsay = "This is what I know about it, and it is not much."\n')
    environ = {"HERMES_HOME": str(folder / "home"), "HERMES_LLM_SCRIPT": str(script)}
    async with AsyncExitStack() as stack:
        ground = await stack.enter_async_context(open_batch_services(load(environ), "scripted"))
        model = await make_batch_model(ground, "scripted")
        await measure(folder, 200, "without tools", model, is_kept=False)  # to be warm
        table.append(("gateway + disk", "without tools", rollouts, await measure(folder, rollouts, "without tools", model, is_kept=True)))


def overhead(rollouts: int) -> bool:
    table: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="hermes-batch-") as name:
        folder = Path(name)
        table.append(("plain lists", "two tools", rollouts, plain(folder, rollouts)))
        for what, is_kept in (("loop", False), ("loop + disk", True)):
            for kind in KINDS:
                took = asyncio.run(measure(folder, rollouts, kind, AtOnce(), is_kept=is_kept))
                table.append((what, kind, rollouts, took))
        asyncio.run(gateway(folder, rollouts, table))
    print(f"{'':16} {'':14} {'rollouts':>8} {'s':>7} {'ms each':>8} {'a second':>9} {'processor ms':>13}")
    for what, kind, count, took in table:
        each = took.clock / count * 1e3
        print(f"{what:16} {kind:14} {count:8,} {took.clock:7.2f} {each:8.3f} {1e3 / each:9,.0f} {took.processor / count * 1e3:13.3f}")
    worst = next(took.processor / count * 1e3 for what, kind, count, took in table if (what, kind) == ("loop + disk", "two tools"))
    held = worst <= MOST_MS
    print(f"a rollout with two tools, on disk: {worst:.2f} ms of the processor; promised: {MOST_MS:g} ms, {'held' if held else 'BROKEN'}")
    return held


def real(max_tokens: int) -> bool:
    """The commands that a person types, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="hermes-batch-") as name:
        folder = Path(name)
        (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": text, "gold": gold}) + "\n" for text, gold in QUESTIONS))
        (folder / "checks.py").write_text(VERIFIER)
        words = (
            "prompts.jsonl --run-name real --model smollm2 -n 4 --set temperature=0.8 --set verify=checks:names_it --set groups=true --json"
        )
        began = time.perf_counter()
        told = command(folder, f"batch {words} --set max_tokens={max_tokens}")
        took = time.perf_counter() - began
        exported = command(folder, "export runs/real/groups.jsonl --format parquet --out rows --json")
        verdict = command(folder, "verify rows --against runs/real/groups.jsonl --json")
    tokens, rewards = told["tokens"], told["rewards"]
    print(f"SmolLM2 135M, {len(QUESTIONS)} prompts x 4 rollouts, at most {max_tokens} tokens each, one at a time")
    print(f"  {told['rollouts']} rollouts in {took:.0f} s: {told['outcomes']}; {tokens['completion']:,} tokens sampled")
    print(f"  reward {rewards['mean']:.3f}, pass@k {rewards['pass_at']}, prompts on which all four agree: {rewards['items_all_equal']}")
    print(f"  export: {exported['tokens']}; excluded: {exported['excluded'] or 'nothing'}; rows {exported['rows']}")
    print(f"  verify --against: {'holds' if verdict['ok'] else verdict['problems']}")
    return bool(verdict["ok"]) and told["rollouts"] == 4 * len(QUESTIONS)


def command(folder: Path, words: str) -> dict[str, Any]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HERMES_")} | {"HERMES_HOME": str(folder / "home")}
    done = subprocess.run(  # noqa: S603  # our own command
        [sys.executable, "-m", "hermes", *words.split()], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    for line in done.stderr.splitlines():
        print(f"    {line}")
    assert done.returncode == 0, f"hermes {words} ended with {done.returncode}"
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> int:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rollouts", type=int, default=4_000)
    options.add_argument("--real", action="store_true", help="the small real model instead; takes minutes")
    options.add_argument("--max-tokens", type=int, default=24, help="of an answer, with --real")
    chosen = options.parse_args()
    logs.configure("console", "warning", sys.stderr)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {CONCURRENCY} rollouts at once")
    return 0 if (real(chosen.max_tokens) if chosen.real else overhead(chosen.rollouts)) else 1


if __name__ == "__main__":
    sys.exit(main())
