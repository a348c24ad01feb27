"""The four walks of docs/house.md, walked: every file that a walk names exists, and is entered in the order in which it is named."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from typer.testing import CliRunner

from hermes import CallRecord, MessageGraph
from hermes.channels.fakes import open_platforms
from hermes.cli import build_app
from hermes.config import MemorySettings
from tests.flows.service import running
from tests.flows.test_channels import Town, at_360dialog
from tests.flows.test_completions import open_house
from tests.unit.trajectories.compress.job_files import agent_row, write

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hermes"
PAGE = ROOT / "docs" / "house.md"


def walk(title: str) -> list[str]:
    """The files that the walk with this title names at the start of its numbered lines, in their order."""
    [text] = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return re.findall(r"^\d+\. `([\w/]+\.py)`", text, re.MULTILINE)


class EnteredFiles:
    """The source files in which a function was called, in the order of their first call."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._prefix = f"{SOURCE}/"

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        # "<module>" is the body of a module that is imported just now, which says nothing of the walk.
        if event == "call" and name.startswith(self._prefix) and frame.f_code.co_name != "<module>":
            self.names.setdefault(name.removeprefix(self._prefix))

    @contextmanager
    def watching(self) -> Iterator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def in_order_of(self, files: list[str]) -> list[str]:
        """Those of the files that were entered, in the order in which that happened."""
        return [name for name in self.names if name in set(files)]


@pytest.fixture
async def town(database_url: str, redis_url: str) -> AsyncIterator[Town]:
    more = {"memory": MemorySettings(asks_models=False)}
    async with open_platforms() as platforms, running(database_url, redis_url, echoes=False, more=more) as service:
        platforms.connect(service.url)
        yield Town(service, platforms)


async def test_a_whatsapp_message_walks_as_the_page_says(town: Town) -> None:
    await at_360dialog(town)
    ada = town.platforms.whatsapp.person("Ada")
    entered = EnteredFiles()
    with entered.watching():
        ada.say("find me a sunset bar in Canggu")
        await ada.wait_for_messages(1, timeout_s=120)
        await town.until("select distinct state from outbox", [("sent",)])
    files = walk("A WhatsApp message")
    assert entered.in_order_of(files) == files


async def test_an_api_call_walks_as_the_page_says(database_url: str, redis_url: str) -> None:
    async with open_house(database_url, redis_url) as house:
        entered = EnteredFiles()
        with entered.watching():
            await house.say([{"role": "user", "content": "Capital of Peru?"}], "Lima.")
            await house.service.hermes.gateway.wait_settled()
    files = walk("An API call")
    assert entered.in_order_of(files) == files


def test_an_export_walks_as_the_page_says(tmp_path: Path) -> None:
    chat = MessageGraph([{"role": "user", "content": "Capital of Peru?"}])
    turn = chat.prepare()
    call = CallRecord(model="m", prompt_token_ids=[1, 2], token_ids=[3], logprobs=[-0.1], finish_reason="stop")
    chat.commit(turn, {"role": "assistant", "content": "Lima."}, call=call)
    (tmp_path / "chats.jsonl").write_text(chat.to_json() + "\n", encoding="utf-8")
    assert_walk("An export", "export", tmp_path / "chats.jsonl", "--format", "parquet", "--out", tmp_path / "data", "--workers", "1")


def test_a_compression_walks_as_the_page_says(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", [agent_row(12)])
    assert_walk("A compression", "compress", tmp_path / "t.jsonl", "--target-tokens", "500", "--set", "processing.num_workers=1")


def assert_walk(title: str, *words: object) -> None:
    """Run the command in a process of its own: in this one, caches that earlier tests filled would shorten the walk."""
    program = [sys.executable, "-m", "tests.flows.test_walks", *map(str, words)]
    ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    entered = EnteredFiles()
    entered.names = dict.fromkeys(ended.stdout.splitlines())
    files = walk(title)
    assert entered.in_order_of(files) == files


def run_command(words: list[str]) -> int:
    """Run a command of Hermes, and print the files that it entered, in the order of their first call."""
    app = build_app(words[:1])
    entered = EnteredFiles()
    with entered.watching():
        result = CliRunner().invoke(app, words)
    sys.stderr.write(result.output)
    sys.stdout.write("\n".join(entered.names))
    return result.exit_code


@pytest.mark.parametrize("title", ["A WhatsApp message", "An API call", "An export", "A compression"])
def test_every_file_of_a_walk_exists(title: str) -> None:
    files = walk(title)
    assert files
    assert [name for name in files if not (SOURCE / name).is_file()] == []


def test_a_walk_in_the_wrong_order_is_noticed() -> None:
    entered = EnteredFiles()
    entered.names = dict.fromkeys(["web/webhooks.py", "router/intake.py"])
    assert entered.in_order_of(["router/intake.py", "web/webhooks.py"]) != ["router/intake.py", "web/webhooks.py"]


if __name__ == "__main__":
    sys.exit(run_command(sys.argv[1:]))
