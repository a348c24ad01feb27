"""Processes of one home see each other's numbers; one that is dead, stopped or strange is shown as down and holds up no page."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from hermes.ops import process_sockets
from hermes.ops.metrics import Metrics, join_siblings
from hermes.ops.process_sockets import MAX_SOCKET_PATH_BYTES, folder_of

PATIENCE_S = 20.0

SIBLING = """
import asyncio, sys
from pathlib import Path
from hermes.ops.metrics import Metrics, join_siblings

async def main():
    metrics = Metrics()
    metrics.count_turn("answered", "chat")
    async with join_siblings(metrics, Path(sys.argv[1]), "worker"):
        print(metrics.siblings.own, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def sibling(home: Path) -> Iterator["subprocess.Popen[str]"]:
    """A real process with a socket of its own."""
    with subprocess.Popen([sys.executable, "-c", SIBLING, str(home)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("worker-")
            yield process
        finally:
            process.kill()


async def page_of(metrics: Metrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The samples of the page by name and labels. The parser refuses a family that is there twice."""
    page, _ = await metrics.exposition()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    types = [line.split()[2] for line in page.decode().splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def up(page: dict[str, dict[tuple[tuple[str, str], ...], float]]) -> dict[str, float]:
    return {dict(labels)["process"]: value for labels, value in page["hermes_process_up"].items()}


async def test_a_page_shows_every_process_of_the_home_under_its_own_name(tmp_path: Path) -> None:
    web, workers = Metrics(), [Metrics(), Metrics()]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(join_siblings(web, tmp_path, "serve"))
        for metrics in workers:
            await stack.enter_async_context(join_siblings(metrics, tmp_path, "worker"))
        workers[0].count_turn("answered", "chat")
        for _ in range(2):
            workers[1].count_turn("answered", "chat")
        page = await page_of(web)
        assert page["hermes_turns_total"] == {
            (("outcome", "answered"), ("process", "worker-1")): 1,
            (("outcome", "answered"), ("process", "worker-2")): 2,
        }
        assert up(page) == {"serve-1": 1, "worker-1": 1, "worker-2": 1}
        assert not any(name.endswith("_created") for name in page)
        own, _ = await workers[1].own_exposition()
        assert b'hermes_turns_total{outcome="answered",process="worker-2"} 2.0' in own
        assert b"worker-1" not in own
    assert list(folder_of(tmp_path).glob("*.sock")) == []


async def test_a_killed_process_is_down_until_another_takes_its_number(tmp_path: Path) -> None:
    web = Metrics()
    async with join_siblings(web, tmp_path, "serve"):
        with sibling(tmp_path):
            page = await page_of(web)
            assert (up(page), len(page["hermes_turns_total"])) == ({"serve-1": 1, "worker-1": 1}, 1)
        page = await page_of(web)
        assert (up(page), "hermes_turns_total" in page) == ({"serve-1": 1, "worker-1": 0}, False)
        with sibling(tmp_path):
            assert up(await page_of(web)) == {"serve-1": 1, "worker-1": 1}


async def test_what_a_killed_process_left_is_removed_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web = Metrics()
    async with join_siblings(web, tmp_path, "serve"):
        with sibling(tmp_path):
            pass
        assert up(await page_of(web)) == {"serve-1": 1, "worker-1": 0}
        monkeypatch.setattr(process_sockets, "FORGET_DEAD_S", 0.0)
        assert up(await page_of(web)) == {"serve-1": 1}
        assert [path.name for path in folder_of(tmp_path).glob("*.sock")] == ["serve-1.sock"]


async def test_a_stopped_process_does_not_hold_up_the_page(tmp_path: Path) -> None:
    web = Metrics()
    async with join_siblings(web, tmp_path, "serve"):
        assert web.siblings is not None
        web.siblings.timeout_s = 0.3
        with sibling(tmp_path) as process, sibling(tmp_path):
            process.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            page = await page_of(web)
            assert time.monotonic() - began < PATIENCE_S
            assert up(page) == {"serve-1": 1, "worker-1": 0, "worker-2": 1}
            assert [dict(labels)["process"] for labels in page["hermes_turns_total"]] == ["worker-2"]
            process.send_signal(signal.SIGCONT)
            web.siblings.timeout_s = PATIENCE_S
            assert up(await page_of(web)) == {"serve-1": 1, "worker-1": 1, "worker-2": 1}


@pytest.mark.parametrize("nonsense", [b"", b"garbage", b'{"a": 1}', b"[1]", b'[{"name": "x"}]'])
async def test_a_process_that_writes_nonsense_is_down(tmp_path: Path, nonsense: bytes) -> None:
    web = Metrics()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(nonsense)
        writer.close()

    async with join_siblings(web, tmp_path, "serve"):
        server = await asyncio.start_unix_server(answer, folder_of(tmp_path) / "worker-1.sock")
        with capture_logs():
            assert up(await page_of(web)) == {"serve-1": 1, "worker-1": 0}
        server.close()


async def test_the_folder_is_private_and_a_long_home_has_a_short_one(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    for home in (tmp_path, long):
        async with join_siblings(Metrics(), home, "worker"):
            folder = folder_of(home)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            [path] = folder.glob("*.sock")
            assert len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
    assert folder_of(long).parent == Path("/tmp")  # noqa: S108
    for left in folder_of(long).iterdir():
        left.unlink()
    folder_of(long).rmdir()


async def test_a_folder_that_others_can_enter_is_not_used_and_the_process_goes_on(tmp_path: Path) -> None:
    folder_of(tmp_path).mkdir(mode=0o755)
    metrics = Metrics()
    with capture_logs() as logs:
        async with join_siblings(metrics, tmp_path, "worker"):
            page, _ = await metrics.exposition()
    assert b"hermes_loop_blocked_total 0.0" in page
    assert [event["event"] for event in logs] == ["metrics_socket_missing"]


async def test_a_home_that_went_away_hides_only_its_own_number(tmp_path: Path) -> None:
    home = tmp_path / "home"
    metrics = Metrics()
    async with join_siblings(metrics, home, "worker"):
        home.rename(tmp_path / "elsewhere")
        page, _ = await metrics.exposition()
    assert b'hermes_home_free_bytes{process="worker-1"} NaN' in page


async def test_a_reader_that_leaves_early_harms_nothing(tmp_path: Path) -> None:
    metrics = Metrics()
    async with join_siblings(metrics, tmp_path, "worker"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(folder_of(tmp_path) / "worker-1.sock"))
        page, _ = await metrics.exposition()
        assert b'hermes_process_up{process="worker-1"} 1.0' in page
