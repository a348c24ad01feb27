"""A run that is killed again and again, at random points, by SIGKILL: it pays for no summary twice, and ends as if nothing had happened."""

import asyncio
import hashlib
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.trajectories.compress.job_files import agent_row, rows, write

PROGRAM = Path(__file__).with_name("killed_job.py")
PATIENCE_S = 120


class Server:
    """A model behind HTTP that counts what it is paid for, and tells when it is asked."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self.on_request: Callable[[], None] = lambda: None
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.on_request()
        await asyncio.sleep(0.01)
        self.answered[asked["sample_id"]] += 1  # from here on it is paid for, whoever gets to hear the answer
        digest = hashlib.sha256(str(asked["messages"]).encode()).hexdigest()
        return web.json_response({"text": f"What was said comes to {digest}."})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    app = web.Application()
    app.router.add_post("/", found.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}/"
    yield found
    await runner.cleanup()


async def run(server: Server, source: Path, out: Path, at_once: int, *, killed_at: int | None = None, delay_s: float = 0.0) -> int:
    """Run until it ends, or kill it a moment after so many requests; return the exit code."""
    words = [sys.executable, PROGRAM, server.url, source, out, at_once]
    process = await asyncio.create_subprocess_exec(*map(str, words), stderr=asyncio.subprocess.PIPE)
    left = killed_at

    def kill() -> None:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)

    def count() -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if left == 0:
                asyncio.get_running_loop().call_later(delay_s, kill)

    server.on_request = count
    async with asyncio.timeout(PATIENCE_S):
        _, complaints = await process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), complaints.decode()
    return process.returncode


@pytest.mark.parametrize("at_once", [1, 4])
async def test_killed_at_random_points_it_pays_once_and_ends_with_the_same_bytes(tmp_path: Path, server: Server, at_once: int) -> None:
    drawn = random.Random(at_once)
    lines = [agent_row(drawn.choice([1, 12, 14]), prompt_index=number) for number in range(30)]
    source = write(tmp_path / "t.jsonl", [*lines, "nonsense"])
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert await run(server, source, whole, at_once) == 0
    wanted = Counter(server.answered)
    assert set(wanted.values()) == {1}
    server.answered.clear()
    kills = 0
    while not out.exists() or (tmp_path / ".out.jsonl.unfinished").exists():
        ended = await run(server, source, out, at_once, killed_at=drawn.randint(1, 6), delay_s=drawn.uniform(0, 0.03))
        kills += ended != 0
    assert kills >= 3
    assert set(server.answered) == set(wanted)
    again = sum(server.answered.values()) - len(wanted)
    assert again <= kills * at_once, "only what was under way is asked for again"
    assert out.read_bytes() == whole.read_bytes()
    assert out.with_suffix(".rejected.jsonl").read_bytes() == whole.with_suffix(".rejected.jsonl").read_bytes() == b"nonsense\n"
    assert rows(tmp_path / "out.metrics.jsonl") == rows(tmp_path / "whole.metrics.jsonl")
