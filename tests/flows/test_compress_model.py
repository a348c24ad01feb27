"""`hermes compress` with a model through the gateway, over HTTP, killed and out of money; and sessions out of the store."""

import asyncio
import hashlib
import json
import os
import random
import signal
import stat
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hermes.config import BackendKind, BackendSettings, CompletionsSettings, ModelSettings, PriceSettings, Secret, TierSettings
from hermes.graph import MessageGraph
from hermes.stores.seal import new_master_key
from hermes.trajectories.verify import verify
from tests.fakes.script import Say
from tests.fakes.vendors import vendors
from tests.flows.command import PATIENCE_S, Ended, hermes
from tests.flows.service import running
from tests.flows.toy_model import ToyModel
from tests.preloaded import preloaded_hermes
from tests.unit.trajectories.compress.job_files import agent_row, graph_line, rows, write

SETTINGS = """
[backends.gpu]
kind = "vllm"
base_url = "{url}"

[models.toy]
backend = "gpu"
id = "toy-1"
prices = [{{input = 10.0, output = 20.0}}]
"""
CONFIG = """
compression: {target_max_tokens: 500, summary_target_tokens: 100}
processing: {max_concurrent_requests: 2}
"""


@dataclass
class Scribe:
    """A vLLM that sums up, the same to the same, and keeps count of what it was paid for."""

    paid: Counter[str] = field(default_factory=Counter)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, body: dict[str, Any]) -> Say:
        digest = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()
        self.paid[digest] += 1
        self.asked.set()
        return Say(
            text=f"It came to {digest}.",
            tokens_in=100,
            tokens_out=50,
            prompt_token_ids=[*range(100)],
            token_ids=[*range(50)],
            logprobs=[-0.5] * 50,
        )


@dataclass
class House:
    """A folder to work in, stores, and a server with a model."""

    folder: Path
    environ: dict[str, str]
    scribe: Scribe
    url: str

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

    async def compress(self, *words: object) -> Ended:
        return await self.hermes("compress", "t.jsonl", "--config", "short.yaml", "--json", *words)

    async def calls(self) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.environ["HERMES_DATABASE_URL"]) as connection:
            return await (await connection.execute("select source, tier, count(*), sum(micro_usd) from calls group by 1, 2")).fetchall()


@pytest.fixture
async def house(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with vendors() as fakes:
        scribe = Scribe()
        fakes.vllm.models[:] = ["toy-1"]
        fakes.vllm.otherwise = scribe
        (tmp_path / "hermes.toml").write_text(SETTINGS.format(url=fakes.vllm.url))
        (tmp_path / "short.yaml").write_text(CONFIG)
        write(tmp_path / "t.jsonl", [agent_row(12 + number if number % 3 else 1) for number in range(12)])
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")} | {
            "HERMES_DATABASE_URL": database_url,
            "HERMES_REDIS_URL": redis_url,
            "HERMES_MASTER_KEYS": new_master_key(),
            "HERMES_HOME": str(tmp_path / "home"),
            "HERMES_BACKENDS_GPU_API_KEY": fakes.vllm.key,
            "SCRIBE_KEY": fakes.vllm.key,
            "COLUMNS": "200",
        }
        yield House(tmp_path, environ, scribe, fakes.vllm.url)


COST_MICRO_USD = 100 * 10 + 50 * 20
"""Of one summary."""


async def test_a_model_of_the_catalogue_writes_the_summaries_and_is_paid_through_the_gateway(house: House) -> None:
    dry = await house.compress("--model", "toy", "--dry-run")
    assert dry.code == 0, dry.complaints
    about = json.loads(dry.output)
    assert (about["requests"], about["model"], house.scribe.paid.total()) == (8, "toy", 0)
    assert about["cost_usd"] == (about["prompt_tokens"] * 10 + about["answer_tokens"] * 20) / 1_000_000
    ended = await house.compress("--model", "toy")
    assert (ended.code, ended.complaints) == (0, "")
    said = json.loads(ended.output)["summarization"]
    assert (said["total_api_calls"], said["fallbacks"], said["cost_usd"]) == (8, 0, 8 * COST_MICRO_USD / 1_000_000)
    assert await house.calls() == [("batch", "batch", 8, 8 * COST_MICRO_USD)]
    found = [row for row in rows(house.folder / "t_compressed.jsonl") if "on_policy" in row]
    assert [row["compression_metrics"]["summary"] for row in found] == ["model"] * 8
    assert all("It came to" in json.dumps(row) for row in found)


async def test_killed_at_random_points_it_pays_once_and_ends_with_the_same_bytes(house: House) -> None:
    assert (await house.compress("--model", "toy", "--out", "whole.jsonl")).code == 0
    wanted, drawn, kills = set(house.scribe.paid), random.Random(5), 0
    house.scribe.paid.clear()
    while True:
        house.scribe.asked.clear()
        process = await house.start("compress", "t.jsonl", "--config", "short.yaml", "--json", "--model", "toy", "--out", "out.jsonl")
        end = asyncio.create_task(process.communicate())
        asked = asyncio.create_task(house.scribe.asked.wait())
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait({end, asked}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({end}, timeout=drawn.uniform(0, 0.05))
            if not end.done():
                process.send_signal(signal.SIGKILL)
                kills += 1
            _, complaints = await end
        asked.cancel()
        assert process.returncode in (0, -signal.SIGKILL), complaints.decode()
        if (house.folder / "out.jsonl").exists() and not (house.folder / ".out.jsonl.unfinished").exists():
            break  # be it that it was done, and killed before it could say so
    assert kills
    assert set(house.scribe.paid) == wanted
    assert house.scribe.paid.total() - len(wanted) <= 2 * kills, "only what was under way is asked for again"
    assert (house.folder / "out.jsonl").read_bytes() == (house.folder / "whole.jsonl").read_bytes()


async def test_a_budget_stops_it_and_a_larger_one_goes_on(house: House) -> None:
    ended = await house.compress("--model", "toy", "--budget-usd", 3.5 * COST_MICRO_USD / 1_000_000)
    assert (ended.code, ended.output, house.scribe.paid.total()) == (1, "", 3)
    assert ended.complaints.startswith("hermes: the budget of 0.007 USD is used up; the paid summaries are kept")
    ended = await house.compress("--model", "toy", "--budget-usd", 1)
    assert (ended.code, json.loads(ended.output)["resumed"], house.scribe.paid.total()) == (0, True, 8)


async def test_a_graph_has_the_summary_as_a_sample_of_its_own_and_exports_whole(house: House) -> None:
    write(house.folder / "t.jsonl", [graph_line(12)])
    assert (await house.compress("--model", "toy", "--out", "g.jsonl")).code == 0
    chat = MessageGraph.from_json((house.folder / "g.jsonl").read_text())
    [summary] = [response for response in chat.responses() if not response.is_own]
    assert summary.call is not None
    assert list(summary.call.token_ids or ()) == [*range(50)]
    ended = await house.hermes("export", "g.jsonl", "--out", "rows", "--json")
    assert json.loads(ended.output)["tokens"]["trained"] == 50, "the summary has ids, the answers of this chat have none"
    assert verify(house.folder / "rows", [house.folder / "g.jsonl"]).problems == ()


async def test_a_server_that_the_configuration_names_is_asked_with_the_key_that_it_names(house: House) -> None:
    own = f"{CONFIG}\nsummarization: {{model: toy-1, base_url: '{house.url}', api_key_env: SCRIBE_KEY}}\n"
    (house.folder / "short.yaml").write_text(own)
    (house.folder / "hermes.toml").unlink()
    del house.environ["HERMES_BACKENDS_GPU_API_KEY"]
    ended = await house.compress()
    assert (ended.code, ended.complaints) == (0, "")
    assert (json.loads(ended.output)["summarization"]["total_api_calls"], house.scribe.paid.total()) == (8, 8)


async def test_sessions_out_of_the_store_become_compressed_graphs_and_the_store_stays_as_it_was(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    async with vendors() as fakes:
        fakes.vllm.models[:] = ["toy-1"]
        fakes.vllm.otherwise = ToyModel()
        more = {
            "backends": {"gpu": BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key))},
            "models": {"toy": ModelSettings(backend="gpu", id="toy-1", prices=(PriceSettings(input=0.0, output=0.0),))},
            "tiers": {"agents": TierSettings(chain=("toy",), day_tokens=10_000_000)},
            "completions": CompletionsSettings(tier="agents"),
        }
        async with running(database_url, redis_url, has_worker=False, more=more) as service:
            key = await service.key(trains=True)
            said: list[Any] = []
            for number in range(12):
                said.append({"role": "user", "content": f"{number} " + "far and wide " * 12})
                got = await service.post("/v1/chat/completions", {"model": "toy", "messages": said}, key)
                said.append(got.body["choices"][0]["message"])
            ended = await hermes(service, tmp_path, "compress", "--stored", "--out", "short.jsonl", "-t", 700, "--json")
            assert (ended.code, ended.complaints) == (0, "")
            again = await hermes(service, tmp_path, "compress", "--stored", "--dry-run", "--out", "x.jsonl", "-t", 700, "--json")
            assert json.loads(again.output)["over_target"] == 1, "the store still has it as long as it was"
    summary = json.loads(ended.output)["summary"]
    assert (summary["total_trajectories"], summary["trajectories_compressed"]) == (1, 1)
    file = tmp_path / "short.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    chat = MessageGraph.from_json(file.read_text())
    assert chat.previous is not None
    assert [message["content"] for message in chat.previous] == [message["content"] for message in said]
    assert len(chat) < len(said)
    assert not (tmp_path / ".short.jsonl.unfinished").exists(), "nothing of it is left lying about"
