"""OpenAI's own client in an existing agent's loop, pointed at a Hermes as an operator runs it; then `hermes export` and `hermes verify`.

The same proof as tests/flows/test_agent_loop.py, from outside: `hermes up` with its own stores in a process tree of its own, a vLLM behind
it, and nothing between agent and Hermes but the address and the key."""

import asyncio
import json
import os
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp: pip install aiohttp")
pytest.importorskip("pyarrow", reason="needs pyarrow: pip install pyarrow")

from tests.fakes.vendors import vendors
from tests.flows.agent_loop import TASKS, Agent, Complete, trained
from tests.flows.toy_model import ToyModel

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs

PYTHON = Path(__file__).parents[2] / ".venv" / "bin" / "python"
"""Hermes runs where it is installed with all of its parts; this test may run where only OpenAI's client is."""
PATIENCE_S = 60

SETTINGS = """
[web]
port = 0

[backends.gpu]
kind = "vllm"
base_url = "{url}"

[models.toy]
backend = "gpu"
id = "toy-1"
prices = [{{input = 0, output = 0}}]

[tiers.agents]
chain = ["toy"]
day_tokens = 10_000_000

[completions]
tier = "agents"
"""


@dataclass
class Up:
    """`hermes up` in a folder."""

    folder: Path
    environ: dict[str, str]

    async def hermes(self, *words: str) -> str:
        """Run another command beside it; return its output."""
        process = await asyncio.create_subprocess_exec(
            *(PYTHON, "-m", "hermes", *words),
            cwd=self.folder,
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, complaints = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode == 0, complaints.decode()
        return output.decode()

    async def url(self) -> str:
        """Where it listens, once it does."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                lines = (self.folder / "log").read_text(encoding="utf-8").splitlines()
                events = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
                for event in events:
                    if event["event"] == "web_ready":
                        return str(event["url"])
                await asyncio.sleep(0.1)


@asynccontextmanager
async def up(backend_url: str, backend_key: str) -> AsyncIterator[Up]:
    """Run Hermes as long as the block lasts. In a short folder, because a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as name:
        folder = Path(name)
        (folder / "hermes.toml").write_text(SETTINGS.format(url=backend_url), encoding="utf-8")
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "PYTHON"))},
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
            "HERMES_HOME": str(folder / "home"),
            "HERMES_BACKENDS_GPU_API_KEY": backend_key,
            "HERMES_LOG_FORMAT": "json",
        }
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(PYTHON, "-m", "hermes", "up"), cwd=folder, env=environ, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            yield Up(folder, environ)
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), PATIENCE_S)


def whole(client: Any) -> Complete:
    async def complete(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> dict[str, Any]:
        answer = await client.chat.completions.create(model="toy", messages=messages, **({"tools": tools} if tools else {}))
        message: dict[str, Any] = answer.choices[0].message.model_dump()  # with all of its nulls, as many agents send it back
        return message

    return complete


def streamed(client: Any) -> Complete:
    collecting = pytest.importorskip("openai.lib.streaming.chat").ChatCompletionStreamState

    async def complete(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> dict[str, Any]:
        state = collecting()
        stream = await client.chat.completions.create(model="toy", messages=messages, stream=True, **({"tools": tools} if tools else {}))
        async for chunk in stream:
            state.handle_chunk(chunk)
        message: dict[str, Any] = state.get_final_completion().choices[0].message.to_dict()
        return message

    return complete


def test_an_agent_with_openais_client_is_trained_on_exactly_what_it_did() -> None:
    openai = pytest.importorskip("openai", reason="needs openai: pip install openai")
    if not PYTHON.exists():
        pytest.skip(f"needs {PYTHON}: scripts/setup")

    async def main() -> None:
        model = ToyModel()
        async with vendors() as fakes, up(fakes.vllm.url, fakes.vllm.key) as hermes:
            fakes.vllm.models[:] = ["toy-1"]
            fakes.vllm.otherwise = model
            base_url = await hermes.url() + "v1"
            key = json.loads(await hermes.hermes("keys", "create", "my-agent", "--trains", "--json"))["secret"]
            record = []
            async with openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
                for complete in (whole, streamed):
                    agent = Agent(complete(client))
                    assert await agent.work(TASKS) == "You said: good night"
                    record += agent.record
            assert (len(record), Counter(record)) == (46, Counter(model.returned))

            exported = await hermes.hermes("export", "--since", "1h", "--format", "parquet", "-o", "rows", "--json")
            await hermes.hermes("verify", "rows")
            assert json.loads(exported)["excluded"] == {}
            assert trained(hermes.folder / "rows") == Counter(record)

    asyncio.run(main())
