"""MCP servers as a source of tools, against a real one in a process of its own."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes.ports.tools import ToolCall, ToolUser
from hermes.tools.executor import Toolbox
from hermes.tools.gate import Gate
from hermes.tools.mcp import McpServer, McpServers, McpTimeouts, open_servers
from tests.unit.tools.people import MemoryOffers, MemoryOutcomes, MemoryTransactions, later, somebody

SERVER = (sys.executable, str(Path(__file__).with_name("mcp_server.py")))
QUICK = McpTimeouts(connect_s=20.0, retry_s=0.1, ping_s=0.3, call_s=20.0)
"""Looks after a connection often, and gives a busy machine time to answer."""
NAMES = ["small_add", "small_note", "small_pay", "small_fail", "small_sleep", "small_die", "small_environment"]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Where the server writes what it did."""
    return tmp_path / "notes"


@asynccontextmanager
async def boxed(*servers: McpServer, timeouts: McpTimeouts = QUICK) -> AsyncIterator[tuple[Toolbox, McpServers]]:
    effects = MemoryTransactions()
    async with open_servers(servers, timeouts=timeouts) as source:
        yield (
            Toolbox(
                own=(),
                gate_=Gate(),
                transactions=effects,
                outcomes=MemoryOutcomes(effects),
                offers=MemoryOffers(effects),
                scan=lambda _: None,
                more_tools=source.tools,
                timeout_s=20.0,
            ),
            source,
        )


async def ask(tools: Toolbox, name: str, user: ToolUser | None = None, index: int = 0, **arguments: Any) -> tuple[str, bool]:
    result = await tools.run(ToolCall("c", name, json.dumps(arguments)), index, user or somebody())
    return result.text, result.is_error


def written(notes: Path) -> str:
    return notes.read_text()


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await is_so():  # noqa: ASYNC110  # it happens in another process
            await asyncio.sleep(0.02)


async def until_there(source: McpServers, count: int = len(NAMES)) -> None:
    async def is_there() -> bool:
        return len(source.tools()) == count

    await until(is_there)


async def test_a_servers_tools_are_listed_under_its_name_and_called(notes: Path) -> None:
    async with boxed(McpServer(name="small", command=SERVER, env={"NOTES": str(notes)})) as (tools, source):
        await source.ready(within_s=20)
        assert [tool.name for tool in source.tools()] == NAMES
        [add, *_] = tools.gate("lights off", language="en", warm=None, has_tool_history=False).schemas
        assert (add["function"]["name"], add["function"]["description"]) == ("small_add", "Add two numbers.")
        assert add["function"]["parameters"]["required"] == ["a", "b"]
        assert await ask(tools, "small_add", a=1, b=2, colour="red") == ("3", False)
        assert await ask(tools, "small_add", a=1) == ("Error: b is missing; ask the user if you do not know", True)
        assert (await ask(tools, "small_fail"))[1]
        assert await ask(tools, "small_add", a=2, b=2) == ("4", False)  # it only refused one call


async def test_what_a_server_changes_it_changes_once(notes: Path) -> None:
    async with boxed(McpServer(name="small", command=SERVER, env={"NOTES": str(notes)}, confirm=("pay",))) as (tools, source):
        await source.ready(within_s=20)
        user = somebody()
        assert await ask(tools, "small_note", user, text="tea") == ("noted tea", False)
        assert await ask(tools, "small_note", user, text="tea") == ("noted tea", False)
        offer, _ = await ask(tools, "small_pay", user, 1, amount=5)
        assert offer.startswith('Offer: small_pay with {"amount": 5}\nNothing is ordered yet.')
        code = offer.split("confirmation_code ")[1].split()[0]
        assert await ask(tools, "small_pay", later(user), confirmation_code=code) == ("noted paid 5", False)
    assert written(notes) == "tea\npaid 5\n"


async def test_in_a_room_a_server_has_no_tools_but_those_that_the_operator_named(notes: Path) -> None:
    silent, named = (McpServer(name=name, command=SERVER, env={"NOTES": str(notes)}) for name in ("silent", "named"))
    async with boxed(silent, replace(named, shared=("note",))) as (tools, source):
        await until_there(source, 2 * len(NAMES))
        room = tools.for_room()
        schemas = room.gate("lights off", language="en", warm=None, has_tool_history=False).schemas
        assert [schema["function"]["name"] for schema in schemas] == ["named_note"]
        assert (await ask(room, "silent_add", a=1, b=2))[1]
        assert await ask(room, "named_note", text="tea") == ("noted tea", False)


async def test_a_server_gets_no_variable_that_it_was_not_given(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_MASTER_KEYS", "secret")
    async with boxed(McpServer(name="small", command=SERVER, env={"NOTES": str(notes)})) as (tools, source):
        await source.ready(within_s=20)
        names, _ = await ask(tools, "small_environment")
    assert "NOTES" in names
    assert "HERMES" not in names


async def test_a_server_that_dies_comes_back_and_hurts_no_other(notes: Path) -> None:
    frail = McpServer(name="frail", command=SERVER, env={"NOTES": str(notes)})
    sound = McpServer(name="sound", command=SERVER, env={"NOTES": str(notes)})
    missing = McpServer(name="missing", command=("/nowhere/to/be/found",))
    async with boxed(missing, frail, sound) as (tools, source):
        await until_there(source, 2 * len(NAMES))
        died, is_error = await ask(tools, "frail_die")
        assert (died.split(":")[1], is_error) == (" frail did not answer as it should", True)
        assert await ask(tools, "sound_add", a=1, b=2) == ("3", False)

        async def is_back() -> bool:
            return await ask(tools, "frail_add", a=1, b=2) == ("3", False)

        await until(is_back)


async def test_a_call_that_takes_too_long_is_given_up(notes: Path) -> None:
    small = McpServer(name="small", command=SERVER, env={"NOTES": str(notes)})
    async with boxed(small, timeouts=replace(QUICK, call_s=1.0)) as (tools, source):
        await source.ready(within_s=20)
        text, is_error = await ask(tools, "small_sleep", seconds=2.5)
        assert (is_error, text.startswith("Error: ")) == (True, True)


@pytest.fixture
def address(notes: Path) -> Iterator[tuple[str, list[Any]]]:
    """A server over HTTP; the list holds how to stop and start it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start() -> subprocess.Popen[bytes]:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([*SERVER, str(port)], env={"NOTES": str(notes), "PATH": ""}, **quiet)

    running = [start()]
    yield f"http://127.0.0.1:{port}/mcp", [running, start]
    for process in running:
        process.kill()
        process.wait()


async def test_a_server_over_http_is_a_server_too_and_may_restart(address: tuple[str, list[Any]], notes: Path) -> None:
    url, [running, start] = address
    async with boxed(McpServer(name="small", url=url)) as (tools, source):
        await until_there(source)
        assert [tool.name for tool in source.tools()] == NAMES
        user = somebody()
        assert await ask(tools, "small_add", a=1, b=2) == ("3", False)
        assert await ask(tools, "small_note", user, text="tea") == ("noted tea", False)
        running[0].kill()
        running[0].wait()
        await until_there(source, 0)
        assert (await ask(tools, "small_add", a=1, b=2))[1]
        running.append(start())
        await until_there(source)
        assert await ask(tools, "small_add", a=3, b=2) == ("5", False)
    assert written(notes) == "tea\n"


def test_a_server_is_a_command_or_an_address() -> None:
    for wrong in ({}, {"command": ("a",), "url": "http://b"}):
        with pytest.raises(ValueError, match="either a command or a url"):
            McpServer(name="small", **wrong)  # type: ignore[arg-type]


async def test_two_servers_of_one_name_are_refused() -> None:
    twice = [McpServer(name="small", command=("a",)), McpServer(name="small", command=("b",))]
    with pytest.raises(ValueError, match="same name"):
        async with open_servers(twice):
            pass
