"""`hermes batch` as a user types it: through the gateway to a server over HTTP, killed and interrupted, exported and verified."""

import asyncio
import json
import os
import random
import signal
import sys
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from hermes.cli import build_app
from hermes.graph import MessageGraph
from hermes.stores.seal import new_master_key
from hermes.trajectories.verify import verify
from tests.fakes.script import Say, ToolCall
from tests.fakes.vendors import Vendors, vendors
from tests.flows.agent_loop import trained
from tests.flows.command import PATIENCE_S, Ended
from tests.flows.toy_model import Sample, completion_ids, prompt_ids
from tests.preloaded import preloaded_hermes

TOOLS = '''
import os

def look_up(what: str) -> str:
    """Look something up."""
    if what == "nothing":
        raise LookupError(what)
    return f"{what} is {len(what)}"

def odd(x: "Unheard") -> str:
    """Have a type that nobody knows."""

def is_right(row, rollout):
    if row.get("boom"):
        raise RuntimeError("boom")
    return {"reward": float(str(row["length"]) in rollout.answer), "said": rollout.answer}
'''
RECIPE = """
prompts = "prompts.jsonl"
run_name = "r"
tools = ["mine:look_up"]
verify = "mine:is_right"
system = "Be brief."
ephemeral = "Psst."
groups = true
[sampling]
top_k = 40
"""
SETTINGS = """
[backends.gpu]
kind = "vllm"
base_url = "{url}"

[models.toy]
backend = "gpu"
id = "toy-1"
prices = [{{input = 1.0, output = 2.0}}]
"""


@dataclass
class Toy:
    """A vLLM that looks up what it is asked for, answers with what it found, and keeps count."""

    returned: list[Sample] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def __call__(self, body: dict[str, Any]) -> Say:
        messages, last = body["messages"], body["messages"][-1]
        self.seeds.append(body.get("seed", -1))
        calls: list[dict[str, Any]] = []
        content: str | None = f"You said: {last['content']}"
        if last["role"] == "user" and body.get("tools") and str(last["content"]).startswith("look up "):
            arguments = json.dumps({"what": str(last["content"])[8:]})
            calls, content = [{"id": f"c{len(messages)}", "function": {"name": "look_up", "arguments": arguments}}], None
        elif last["role"] == "tool":
            content = f"It is: {last['content']}"
        prompt = prompt_ids(messages, body.get("tools"))
        completion = completion_ids({"role": "assistant", "content": content, "tool_calls": calls})
        self.returned.append((prompt, completion))
        return Say(
            text=content or "",
            tool_calls=[ToolCall(call["function"]["name"], call["function"]["arguments"], call["id"]) for call in calls],
            tokens_in=len(prompt),
            tokens_out=len(completion),
            prompt_token_ids=prompt,
            token_ids=completion,
            logprobs=[-(1 + token % 64) / 64 for token in completion],
        )


@dataclass
class House:
    """A folder to work in, stores, and a server with a model."""

    folder: Path
    environ: dict[str, str]
    fakes: Vendors
    toy: Toy

    def rows(self, *rows: dict[str, Any]) -> None:
        (self.folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def start(self, *words: object, command: Sequence[str] = (sys.executable, "-m", "hermes")) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(*command, *map(str, words)),
            env=self.environ,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def hermes(self, *words: object) -> Ended:
        process = await self.start(*words, command=preloaded_hermes())
        async with asyncio.timeout(PATIENCE_S):
            output, complaints = await process.communicate()
        assert process.returncode is not None
        return Ended(process.returncode, output.decode(), complaints.decode())

    async def batch(self, *words: object) -> Ended:
        return await self.hermes("batch", "prompts.jsonl", "--run-name", "r", "--model", "toy", *words)

    def entries(self) -> list[dict[str, Any]]:
        return sorted(self.lines("rollouts.jsonl"), key=lambda entry: (entry["item"], entry["rollout"]))

    def lines(self, name: str) -> list[Any]:
        path = self.folder / "runs" / "r" / name
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def count(self) -> int:
        """How many graphs there are, whole ones."""
        path = self.folder / "runs" / "r" / "graphs.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def whole_graphs(self) -> list[Any]:
        """The graphs that are whole, after a process was killed."""
        path = self.folder / "runs" / "r" / "graphs.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line)["graphs"][-1]["messages"][0]["metadata"]["batch"] for line in lines if line.endswith(b"\n")]

    async def ask(self, query: str) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.environ["HERMES_DATABASE_URL"]) as connection:
            return await (await connection.execute(query.encode())).fetchall()


@pytest.fixture
async def house(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with vendors() as fakes:
        toy = Toy()
        fakes.vllm.models[:] = ["toy-1"]
        fakes.vllm.otherwise = toy
        (tmp_path / "hermes.toml").write_text(SETTINGS.format(url=fakes.vllm.url))
        (tmp_path / "mine.py").write_text(TOOLS)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")} | {
            "HERMES_DATABASE_URL": database_url,
            "HERMES_REDIS_URL": redis_url,
            "HERMES_MASTER_KEYS": new_master_key(),
            "HERMES_HOME": str(tmp_path / "home"),
            "HERMES_BACKENDS_GPU_API_KEY": fakes.vllm.key,
            "COLUMNS": "200",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        house = House(tmp_path, environ, fakes, toy)
        house.rows(
            {"id": "cat", "prompt": "look up cat", "length": 3},
            {"id": "horse", "prompt": "look up horse", "length": 5},
            {"id": "none", "prompt": "look up nothing", "length": 0},
        )
        yield house


async def test_prompts_become_rollouts_with_rewards_and_a_verified_export(house: House) -> None:
    (house.folder / "recipe.toml").write_text(RECIPE)
    ended = await house.hermes("batch", "recipe.toml", "--model", "toy", "-n", 2, "--set", "temperature=0.7", "--json")
    assert ended.code == 0, ended.complaints
    recorded = tomllib.loads((house.folder / "runs" / "r" / "recipe.toml").read_text())
    assert recorded == tomllib.loads(RECIPE) | {"model": "toy", "rollouts": 2, "temperature": 0.7}
    told = json.loads(ended.output)
    assert (told["planned"], told["rollouts"], told["outcomes"], told["stopped"]) == (6, 6, {"completed": 6}, "")
    assert told["tools"] == {"look_up": {"calls": 6, "done": 4, "failed": 2, "success_rate": 0.6667}}
    assert told["rewards"]["pass_at"] == {"1": 0.666667, "2": 0.666667}
    sampled = sum(len(completion) for _, completion in house.toy.returned)
    assert told["tokens"]["completion"] == sampled
    prompts = sum(len(prompt) for prompt, _ in house.toy.returned)
    assert told["cost_usd"]["total"] == pytest.approx((prompts + 2 * sampled) / 1e6, abs=1e-5)
    assert len(set(house.toy.seeds)) == 6, "a seed for each rollout"
    assert {(request.body["temperature"], request.body["top_k"]) for request in house.fakes.vllm.requests} == {(0.7, 40)}
    assert {request.body["messages"][0]["content"] for request in house.fakes.vllm.requests} == {"Be brief.\n\nPsst."}
    assert json.loads((house.folder / "runs" / "r" / "statistics.json").read_text())["rewards"] == told["rewards"]

    for source in ("graphs", "groups"):
        out = house.folder / source
        assert (await house.hermes("export", f"runs/r/{source}.jsonl", "--out", source)).code == 0
        assert verify(out, [house.folder / "runs" / "r" / f"{source}.jsonl"]).problems == ()
        assert trained(out) == Counter(house.toy.returned), "every sampled token is trained, once and in its own context"
    cleaned = await house.hermes("export", "runs/r/graphs.jsonl", "--out", "text", "--format", "sharegpt")
    assert cleaned.code == 0
    texts = "".join(file.read_text() for file in (house.folder / "text").iterdir())
    assert "Be brief." in texts
    assert "Psst." not in texts

    rows = await house.ask("select source, tier, account_id, count(*), sum(tokens_out), sum(micro_usd) from calls group by 1, 2, 3")
    assert [(*row[:4], int(row[4])) for row in rows] == [("batch", "batch", "batch", 12, sampled)]


async def test_the_example_recipe_runs_and_so_does_the_recorded_one(house: House) -> None:
    example = await house.hermes("batch", "--example-recipe")
    (house.folder / "recipe.toml").write_text(example.output)
    ended = await house.hermes("batch", "recipe.toml", "--json")
    assert (ended.code, json.loads(ended.output)["outcomes"]) == (0, {"completed": 3}), ended.complaints
    again = await house.hermes("batch", "runs/try/recipe.toml", "-n", 2, "--resume", "--json")
    assert (again.code, json.loads(again.output)["outcomes"]) == (0, {"completed": 6}), again.complaints


async def test_killed_at_random_nothing_finished_is_lost_or_made_again(house: House) -> None:
    rng = random.Random(8)
    house.rows(*({"id": f"i{number}", "prompt": f"look up {number}", "length": len(str(number))} for number in range(20)))
    words = ("batch", "prompts.jsonl", "--run-name", "r", "--model", "toy", "--tools", "mine:look_up", "-n", 3, "-j", 3, "--resume")
    finished: set[int] = set()
    kills = 0
    while True:
        before = len(house.toy.seeds)
        process = await house.start(*words)
        # Somewhere in the work: behind the first rollouts of this process, in whichever step it is then.
        aim = len(finished) + rng.randrange(1, 18)
        while process.returncode is None and house.count() < aim:  # noqa: ASYNC110  # another process moves it
            await asyncio.sleep(rng.random() * 0.01)
        if process.returncode is None:
            kills += 1
            os.kill(process.pid, signal.SIGKILL)
        _, complaints = await process.communicate()
        assert not {*house.toy.seeds[before:]} & finished, "what was finished is asked for again"
        kept = {entry["seed"] for entry in house.whole_graphs()}
        assert finished <= kept, "what was finished is lost"
        finished = kept
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, complaints.decode()
    assert kills >= 2
    entries = house.entries()
    assert [(entry["item"], entry["rollout"]) for entry in entries] == sorted((f"i{n}", k) for n in range(20) for k in range(3))
    assert json.loads((house.folder / "runs" / "r" / "statistics.json").read_text())["outcomes"] == {"completed": 60}
    exported = await house.hermes("export", "runs/r/graphs.jsonl", "--out", "rows")
    assert exported.code == 0, exported.complaints
    assert verify(house.folder / "rows", [house.folder / "runs" / "r" / "graphs.jsonl"]).problems == ()


async def test_ctrl_c_lets_what_is_under_way_end_and_says_how_to_go_on(house: House) -> None:
    house.rows(*({"id": f"i{number}", "prompt": f"p{number}"} for number in range(400)))
    process = await house.start("batch", "prompts.jsonl", "--run-name", "r", "--model", "toy", "-j", 2)
    while house.count() < 5:
        assert process.returncode is None
        await asyncio.sleep(0.005)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE_S):
        _, complaints = await process.communicate()
    assert process.returncode == 130
    said = complaints.decode().splitlines()
    assert said[0] == "hermes: stopping: running rollouts have 10 s to end; Ctrl-C again cancels them now"
    done = len(house.entries())
    go_on = "Continue: hermes batch prompts.jsonl --run-name r --model toy -j 2 --resume"
    assert said[1] == f"hermes: the run was stopped; {done:,} rollouts are done, {400 - done:,} are left. {go_on}"
    assert not house.lines("aside.jsonl"), "everything that was under way came to its end"
    asked = len(house.toy.seeds)
    assert asked == done
    ended = await house.batch("-j", 2, "--resume")
    assert (ended.code, len(house.entries()), len(house.toy.seeds)) == (0, 400, 400)


async def test_ctrl_c_twice_cuts_off_and_keeps_aside_what_hung(house: House) -> None:
    house.rows({"id": "a", "prompt": "look up x", "length": 1})
    house.fakes.vllm.say("", tool_calls=[ToolCall("look_up", {"what": "x"}, "c1")])
    house.fakes.vllm.hang()
    process = await house.start("batch", "prompts.jsonl", "--run-name", "r", "--model", "toy", "--tools", "mine:look_up")
    while len(house.fakes.vllm.requests) < 2:  # noqa: ASYNC110  # another process moves it
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGINT)
    await asyncio.sleep(0.3)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE_S):
        await process.communicate()
    assert (process.returncode, house.entries()) == (130, [])
    [aside] = house.lines("aside.jsonl")
    assert aside["graphs"][-1]["messages"][0]["metadata"]["batch"]["outcome"] == "interrupted"
    ended = await house.batch("--tools", "mine:look_up", "--resume", "--json")
    assert (ended.code, json.loads(ended.output)["aside"]["rollouts"]) == (0, 1)
    [entry] = house.entries()
    assert (entry["outcome"], entry["attempt"]) == ("completed", 1)


async def test_a_changed_file_is_noticed_and_there_is_a_way_on(house: House) -> None:
    assert (await house.batch("-n", 2)).code == 0
    house.rows(
        {"id": "cat", "prompt": "look up a cat", "length": 3},
        {"id": "none", "prompt": "look up nothing", "length": 0},
        {"id": "dog", "prompt": "look up dog", "length": 3},
    )
    refused = await house.batch("-n", 2, "--resume")
    assert (refused.code, refused.complaints.splitlines()) == (
        2,
        [
            (
                "hermes: 1 row was changed since its rollouts were made (cat) and 1 row was removed since its rollouts were made (horse); "
                "--changed keep leaves their rollouts as they are, --changed again sets them aside and runs the rows again"
            )
        ],
    )
    kept = await house.batch("-n", 3, "--resume", "--changed", "keep")
    assert kept.code == 0
    assert Counter(entry["item"] for entry in house.entries()) == {"cat": 2, "horse": 2, "none": 3, "dog": 3}
    again = await house.batch("-n", 3, "--resume", "--changed", "again")
    assert again.code == 0, again.complaints
    assert Counter(entry["item"] for entry in house.entries()) == {"cat": 3, "none": 3, "dog": 3}
    prompts = {MessageGraph.from_json(json.dumps(line))[0]["content"] for line in house.lines("graphs.jsonl")}
    assert prompts == {"look up a cat", "look up nothing", "look up dog"}
    assert len(house.lines("aside.jsonl")) == 4


async def test_failures_are_kept_and_can_be_made_once_more(house: House) -> None:
    for _ in range(2):
        house.fakes.vllm.fail(400, "too hot")
    ended = await house.batch("-j", 1)
    assert ended.code == 0
    assert [entry["outcome"] for entry in house.entries()] == ["error", "error", "completed"]
    assert "too hot" in house.entries()[0]["reason"]
    assert "2 rollouts failed; rollouts.jsonl has the reasons. Run them once more: --resume --retry-failed" in ended.complaints
    assert (await house.batch("--resume", "--retry-failed")).code == 0
    assert [(entry["outcome"], entry.get("attempt", 0)) for entry in house.entries()] == [
        ("completed", 1),
        ("completed", 1),
        ("completed", 0),
    ]


async def test_an_overloaded_server_is_asked_again_and_a_wrong_key_stops_the_run(house: House) -> None:
    house.fakes.vllm.fail(503)
    house.fakes.vllm.fail(429, headers={"retry-after": "1"})
    ended = await house.batch("-j", 1)
    assert (ended.code, sum(entry.get("retries", 0) for entry in house.entries())) == (0, 2)
    house.environ["HERMES_BACKENDS_GPU_API_KEY"] = "wrong"
    stopped = await house.batch("-n", 2, "--resume")
    assert (stopped.code, len(house.entries())) == (1, 3)
    assert "the run stopped: no model answered (toy: Unauthorized)" in stopped.complaints


async def test_a_budget_stops_the_run_and_says_how_to_go_on(house: House) -> None:
    ended = await house.batch("-n", 2, "--set", "budget_tokens=60")
    assert ended.code == 1
    assert "resume with a higher budget_tokens" in ended.complaints
    done = len(house.entries())
    assert 0 < done < 6
    assert sum(entry["prompt_tokens"] + entry["completion_tokens"] for entry in house.entries()) <= 60
    assert (await house.batch("-n", 2, "--set", "budget_tokens=6000", "--resume")).code == 0
    assert len(house.toy.seeds) == 6


async def test_rollouts_are_sessions_of_the_store_too(house: House) -> None:
    words = ("--tools", "mine:look_up", "--set", "verify=mine:is_right")
    assert (await house.batch(*words)).code == 0
    assert (await house.batch(*words, "-n", 2, "--resume", "--set", "store=true")).code == 0
    assert (await house.hermes("export", "--account", "batch", "--out", "rows")).code == 0
    assert trained(house.folder / "rows") == Counter(house.toy.returned)
    lines = [json.loads(line) for line in (house.folder / "rows" / "ledger.jsonl").read_text().splitlines()]
    assert len({line["session"] for line in lines[1:]}) == 6
    assert (await house.batch(*words, "-n", 2, "--resume", "--set", "store=true")).code == 0
    assert [count for (count,) in await house.ask("select count(*) from sessions")] == [6], "copied twice, there once"


async def test_many_more_at_once_than_slots_wait_and_do_not_fail(house: House) -> None:
    house.rows(*({"id": f"i{number}", "prompt": f"p{number}"} for number in range(120)))
    settings = house.folder / "hermes.toml"
    settings.write_text(settings.read_text() + "\n[llm]\nslots = 2\nslot_wait_s = 0.05\n")
    ended = await house.batch("-j", 60, "--json")
    told = json.loads(ended.output)
    assert (ended.code, told["outcomes"], told["retries"]) == (0, {"completed": 120}, 0)


@dataclass
class Desk:
    """The command in this process, for what needs neither stores nor a server."""

    folder: Path

    def batch(self, *words: object) -> tuple[int, str, str]:
        words = ("batch", "prompts.jsonl", "--run-name", "r", "--model", "toy", *words)
        result = CliRunner().invoke(build_app(["batch"]), [*map(str, words)])
        return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    for name in [name for name in os.environ if name.startswith("HERMES_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "hermes.toml").write_text(SETTINGS.format(url="http://127.0.0.1:9/v1"))
    (tmp_path / "mine.py").write_text(TOOLS)
    (tmp_path / "prompts.jsonl").write_text('{"id": "cat", "prompt": "look up cat"}\n{"prompt": "b"}\n{"prompt": "c"}\n')
    return Desk(tmp_path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "toi"), "there is no model toi; did you mean toy?"),
        (("--model", "claude-haiku"), "claude-haiku cannot be asked: anthropic has no key"),
        (("--tools", "mine:lok_up"), "--tools 'mine:lok_up': mine has no 'lok_up'"),
        (("--tools", "no_such"), "--tools 'no_such': there is no module 'no_such'; looked for it in "),
        (("--tools", "mine:__name__"), "--tools 'mine:__name__': 'mine' is not a function, so it cannot be a tool"),
        (("--tools", "mine:odd"), "--tools 'mine:odd': name 'Unheard' is not defined"),
        (
            ("--model", "smollm2", "--set", "subagents=true"),
            "smollm2 takes no tools; leave out tools and subagents",
        ),
        (("--tools", "mcp"), "the settings name no MCP server"),
        (("--tools", "mcp:x"), "--tools mcp:x: the settings name no such MCP server"),
        (("--set", "verify=mine"), "expected MODULE:FUNCTION"),
        (("--set", "verify=mine:nope"), "verify 'mine:nope': mine has no 'nope'"),
        (("--set", "temperature"), "--set 'temperature': expected KEY=VALUE"),
        (("--set", "temprature=1"), "prompts.jsonl: unknown key temprature; did you mean temperature?"),
        (("--temperature", "0.7"), "--temperature is a key of the recipe (RECIPE.toml) now: write temperature there, or --set temp"),
        (("--sampling=top_k=40",), "--sampling is a key of the recipe (RECIPE.toml) now: write sampling.KEY there"),
        (("--set", "distribution=none.yaml"), "there is no distribution 'none.yaml'"),
        (("--set", "prefill=mine.py"), "is not a JSON list of messages"),
        (("--set", "prefill=none.json"), "cannot read none.json: No such file or directory"),
        (("--budget-usd", "inf"), "budget_usd is inf; expected a finite number"),
        (("--budget-usd", "1e308"), "budget_usd is 1e+308; expected less than"),
        (("--run-name", "a/b"), "cannot be the name of a folder"),
        (("--set", "prompt_field=question"), "prompts.jsonl, line 1: expected an object with 'question'; it has id, prompt."),
    ],
)
def test_bad_arguments_are_one_line_and_leave_nothing_behind(desk: Desk, words: tuple[str, ...], says: str) -> None:
    code, output, complaints = desk.batch(*words)
    assert (code, output, len(complaints.splitlines())) == (2, "", 1), complaints
    assert says in complaints
    assert not (desk.folder / "runs").exists()


def test_a_run_that_left_rollouts_unmade_does_not_end_well(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def perform(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr("hermes.cli.batch.run_batch", perform)
    code, _, complaints = desk.batch("--json")
    assert (code, len(complaints.splitlines())) == (1, 1)
    assert "3 rollouts were not run, for an unknown reason. Continue: " in complaints


def test_a_dry_run_says_what_would_be_done_and_does_nothing(desk: Desk) -> None:
    words = ("--tools", "mine:look_up", "--set", "distribution=balanced", "-n", 4, "--limit", 2, "--dry-run", "--set", "ephemeral=Psst.")
    code, output, complaints = desk.batch(*words)
    assert (code, complaints) == (0, "")
    assert "8 to do, 0 done" in output
    told = json.loads(desk.batch(*words, "--json")[1])
    assert (told["items"], told["rollouts"]) == (2, {"done": 0, "to_do": 8})
    assert told["first_request"] == [{"role": "system", "content": "Psst."}, {"role": "user", "content": "look up cat"}]
    assert sum(told["toolsets"].values()) == 2
    assert 0 < told["estimate"]["min_usd"] < told["estimate"]["max_usd"]
    assert not (desk.folder / "runs").exists()


def test_a_dry_run_reads_a_run_that_was_killed_while_it_wrote_a_line(desk: Desk) -> None:
    (desk.folder / "runs" / "r").mkdir(parents=True)
    index = desk.folder / "runs" / "r" / "rollouts.jsonl"
    entry = {"item": "cat", "rollout": 0, "digest": "", "outcome": "completed", "start": 0, "size": 9}
    index.write_text(json.dumps(entry) + '\n{"item": "hal')
    code, output, complaints = desk.batch("--dry-run", "--json")
    assert (code, json.loads(output)["rollouts"], complaints) == (0, {"done": 1, "to_do": 2}, "")
