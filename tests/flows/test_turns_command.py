"""`hermes turns list` and `tail`: the list of the console at the command line."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.flows.command import environ_of, hermes
from tests.flows.service import Service, running


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url) as service:
        yield service


async def say(service: Service, text: str) -> str:
    got = await service.post("/v1/messages", {"text": text, "user": "ann"}, await service.key())
    assert got.status == 200
    return str(got.body["turn_id"])


async def test_turns_are_listed_for_people_and_programs(service: Service, tmp_path: Path) -> None:
    empty = await hermes(service, tmp_path, "turns", "list")
    assert (empty.code, empty.output) == (0, "No turn matches.\n")
    first, second = await say(service, "one"), await say(service, "two")
    shown = await hermes(service, tmp_path, "turns", "list")
    assert shown.output.index(second) < shown.output.index(first)
    assert "answered" in shown.output
    page = json.loads((await hermes(service, tmp_path, "turns", "list", "--limit", "1", "--json")).output)
    assert ([turn["id"] for turn in page["data"]], page["open"], page["looked_through"]) == ([second], [], None)
    rest = json.loads((await hermes(service, tmp_path, "turns", "list", "--before", page["next"], "--json")).output)
    assert ([turn["id"] for turn in rest["data"]], rest["next"]) == ([first], None)
    refused = await hermes(service, tmp_path, "turns", "list", "--status", "fialed")
    assert (refused.code, refused.complaints.strip()) == (2, "hermes: --status 'fialed' is unknown; did you mean failed?")


async def test_tail_shows_turns_as_they_end_and_stops_quietly(service: Service, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hermes", "turns", "tail", "--json"),
        env=environ_of(service, tmp_path),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(30):
        assert b"Waiting for turns" in await process.stderr.readline()
        line = asyncio.ensure_future(process.stdout.readline())
        said = []
        while not line.done():  # the first one may end before the command asked where the stream ends
            said.append(await say(service, "hello"))
            await asyncio.wait({line}, timeout=2.0)
        assert json.loads(await line)["id"] in said
        process.send_signal(signal.SIGINT)
        assert (await process.wait(), await process.stderr.read()) == (0, b"")
