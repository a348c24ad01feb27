"""`hermes up` as its operator starts it: embedded stores and two workers, beside a model that costs money and a Telegram."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from hermes.channels.fakes import FakePlatforms, open_platforms
from hermes.stores import embedded
from hermes.stores.seal import new_master_key
from tests.fakes.vendors import Vendors, vendors

PATIENCE_S = 60.0
BOT = "bali"

SETTINGS = """
[backends.house]
kind = "plain"
base_url = "{url}"

[models.house]
backend = "house"
id = "{model}"
prices = [{{input = 1, output = 5}}]

[tiers.free]
chain = ["house"]

[completions]
tier = "free"

[memory]
asks_models = false

[llm]
global_daily_budget_usd = 5

[fleet]
daily_usd = 4

[work]
processes = 2
"""


@dataclass(frozen=True)
class RunningUp:
    """A running tree, what stands around it, and a client."""

    folder: Path
    environ: dict[str, str]
    process: "asyncio.subprocess.Process"
    vendors: Vendors
    platforms: FakePlatforms
    client: aiohttp.ClientSession

    @property
    def home(self) -> Path:
        return Path(self.environ["HERMES_HOME"])

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the tree has logged under a name."""
        lines = (line for line in (self.folder / "log").read_text(encoding="utf-8").splitlines() if line.startswith("{"))
        return [event for event in map(json.loads, lines) if event["event"] == name]

    @property
    def url(self) -> str:
        return str(self.events("web_ready")[0]["url"]).rstrip("/")

    async def until(self, is_so: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        """Wait for a condition; the log is shown if it never comes true."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    found = is_so()
                    if found if isinstance(found, bool) else await found:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            log = (self.folder / "log").read_text(encoding="utf-8")
            raise AssertionError(f"not in time: {what}\n{log[-3000:]}") from None

    async def command(self, *words: str) -> str:
        """Run `hermes` beside it; return what it wrote."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hermes", *words), env=self.environ, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, complaints = await process.communicate()
        assert process.returncode == 0, complaints.decode()
        return output.decode()

    async def key(self) -> dict[str, str]:
        """A new API key, as the headers that carry it."""
        created = json.loads(await self.command("keys", "create", "test", "--account", "shop", "--json"))
        return {"Authorization": f"Bearer {created['secret']}"}

    async def post(self, path: str, body: object, headers: dict[str, str]) -> tuple[int, Any]:
        async with self.client.post(self.url + path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        async with self.client.get(self.url + path, headers=headers) as response:
            return response.status, await response.text()


@asynccontextmanager
async def running_up(**variables: str) -> AsyncIterator[RunningUp]:
    """Run the tree until the block ends; `variables` are more of its settings."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as name:  # short, because a socket's path must be short
        folder = Path(name)
        async with vendors() as models, open_platforms(speed=50) as platforms, aiohttp.ClientSession() as client:
            settings = SETTINGS.format(url=models.openai.url, model=models.openai.models[0])
            (folder / "hermes.toml").write_text(settings, encoding="utf-8")
            environ = {
                **{each: value for each, value in os.environ.items() if not each.startswith("HERMES_")},
                "HERMES_HOME": str(folder / "home"),
                "HERMES_CONFIG": str(folder / "hermes.toml"),
                "HERMES_WEB_PORT": "0",
                "HERMES_WEB_PROCESSES": "1",
                "HERMES_MASTER_KEYS": new_master_key(),
                "HERMES_LOG_FORMAT": "json",
                "HERMES_BACKENDS_HOUSE_API_KEY": models.openai.key,
                **variables,
            }
            with (folder / "log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "hermes", "up"), env=environ, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            tree = RunningUp(folder, environ, process, models, platforms, client)
            try:
                await tree.until(lambda: bool(tree.events("web_ready")) and len(tree.events("worker_ready")) == 2, "the tree is ready")
                yield tree
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                await process.wait()
                embedded.stop(tree.home, even_if_in_use=True)
