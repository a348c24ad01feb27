"""`hermes up` with two web processes on one port: both answer, the operator is told once, and a killed one is replaced while the other
answers."""

import asyncio
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from hermes.app.web_port import PROCESS_HEADER
from hermes.cli.listeners import inherit_web_listeners
from hermes.cli.supervisor import count_web_processes
from hermes.config import load
from tests.flows.running_up import RunningUp, running_up
from tests.flows.test_metrics import scrape

TWO = {"HERMES_WEB_PROCESSES": "2", "HERMES_WEB_METRICS_PORT": "0"}
MAX_CONNECTIONS = 200


async def answering(tree: RunningUp) -> str:
    """The process that answers on a new connection."""
    async with aiohttp.ClientSession() as client, client.get(f"{tree.url}/health") as response:
        assert response.status == 200
        return response.headers[PROCESS_HEADER]


async def is_answered_by_two(tree: RunningUp) -> bool:
    """Whether two processes answer, of many connections that are open at once."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def ask() -> str:
            async with client.get(f"{tree.url}/health") as response:
                return response.headers[PROCESS_HEADER]

        return len(set(await asyncio.gather(*(ask() for _ in range(MAX_CONNECTIONS))))) == 2


def web_pids(tree: RunningUp) -> list[int]:
    """The web processes of the tree: those whose command inherits the listening sockets."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if b"--listen-fds" in (entry / "cmdline").read_bytes() and str(tree.home).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return sorted(found)


async def test_both_answer_on_one_port_and_the_operator_is_told_once() -> None:
    async with running_up(**TWO) as tree:
        await tree.until(lambda: len(tree.events("web_ready")) == 2, "both web processes are ready")
        assert len({event["url"] for event in tree.events("web_ready")}) == 1
        assert len(tree.events("metrics_ready")) == 1
        assert (tree.folder / "log").read_text(encoding="utf-8").count("Hermes is ready") == 1
        await tree.until(lambda: is_answered_by_two(tree), "both answer")

        async def is_whole() -> bool:
            up = (await scrape(tree))["hermes_process_up"]
            return {dict(labels)["process"] for labels in up} == {"serve-1", "serve-2", "worker-1", "worker-2"}

        await tree.until(is_whole, "each shows the numbers of all")
        key = await tree.key()
        told = await asyncio.gather(*(tree.post("/v1/messages", {"text": "hello", "user": f"u{at}"}, key) for at in range(20)))
        assert {status for status, _ in told} == {200}, "whichever process took the message, its answer comes back there"


async def test_while_a_killed_one_is_replaced_no_new_client_is_refused() -> None:
    async with running_up(**TWO) as tree:
        await tree.until(lambda: is_answered_by_two(tree), "both answer")
        first = web_pids(tree)
        os.kill(first[0], signal.SIGKILL)
        broken, asked = 0, 0
        while len(tree.events("web_ready")) < 3:
            asked += 1
            try:
                await answering(tree)
            except aiohttp.ServerDisconnectedError:
                broken += 1  # it had been accepted by the process that was killed
            except aiohttp.ClientConnectorError as error:
                pytest.fail(f"a client was refused: {error}")
            await asyncio.sleep(0.01)
        assert asked > 10
        assert broken <= 1
        await tree.until(lambda: is_answered_by_two(tree), "both answer again")
        assert len(set(web_pids(tree)) - set(first)) == 1
        port = int(tree.url.rsplit(":", 1)[1])
        tree.process.send_signal(signal.SIGTERM)
        assert await tree.process.wait() == 0
        assert web_pids(tree) == []
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0, "nothing listens any more"


def test_a_web_process_hands_its_port_to_no_server_that_it_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken_over = os.dup(listener.fileno())
        os.set_inheritable(taken_over, True)  # as it comes to a child
        inherited = inherit_web_listeners(str(taken_over))
        assert not inherited.web.get_inheritable()
        inherited.close()


def test_two_where_there_are_cores_for_them_unless_the_settings_name_a_number() -> None:
    cores = len(os.sched_getaffinity(0))
    assert count_web_processes(load({})) == min(2, cores)
    assert count_web_processes(load({"HERMES_WEB_PROCESSES": "3"})) == 3
