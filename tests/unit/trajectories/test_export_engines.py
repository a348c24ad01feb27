"""`hermes export` on more than one process, as a person runs it."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hermes.cli import build_app
from hermes.trajectories.engines.local import MIN_PARALLEL_CHUNKS
from tests.unit.trajectories.shared_work import GRAPHS, chat_with, write


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(build_app(["export"]), ["export", *map(str, words)], env={"COLUMNS": "300"})
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders with some graphs; the second has so many chunks of them that processes are worth their start."""
    folder = tmp_path_factory.mktemp("engines")
    lines = [line for name in ("each for itself", "broken ones between", "copies that agree") for line in GRAPHS[name]()]
    write(folder / "few", lines)
    write(folder / "many", [*lines[:7], *(chat_with(str(number), 100_000).to_json() for number in range(MIN_PARALLEL_CHUNKS)), *lines[7:]])
    return folder


@pytest.fixture
def folder(graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with these graphs."""
    monkeypatch.chdir(tmp_path)
    for name in ("few", "many"):
        (tmp_path / name).symlink_to(graphs / name)
    return tmp_path


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize(("graphs_of", "form"), [("few", "parquet"), ("many", "sharegpt")])
def test_workers_change_nothing_but_the_time(graphs_of: str, form: str, folder: Path) -> None:
    one, two = (run(graphs_of, "--out", f"{workers}", "--workers", workers, "--format", form) for workers in (1, 2))
    assert one[0] == two[0] == 1, "some lines are no graphs"
    assert two[2] == one[2]
    assert two[1] == one[1].replace("1  ", "2  ", 1).replace("hermes verify 1", "hermes verify 2")
    assert contents(folder / "2") == contents(folder / "1")


def test_the_summary_as_json_is_the_same_too(folder: Path) -> None:
    one, two = (run("few", "--out", f"{workers}", "--workers", workers, "--json", "--format", "trl") for workers in (1, 2))
    assert json.loads(two[1]) == json.loads(one[1])


@pytest.mark.parametrize("given", ["spark", "0", "-1", "2.5"])
def test_unknown_workers_are_one_line(given: str, folder: Path) -> None:
    said = f"hermes: --workers is a number of processes, daft or ray://HOST:PORT, and not {given!r}\n"
    assert run("few", "--out", "out", f"--workers={given}") == (2, "", said)
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("former", "now"),
    [
        (("--engine=local",), ()),
        (("--derived", "include"), ("--include", "derived")),
        (("--derived", "exclude"), ()),
        (("--include-scripted",), ("--include", "scripted")),
    ],
)
def test_a_former_option_still_works_and_names_what_to_write(former: tuple[str, ...], now: tuple[str, ...], folder: Path) -> None:
    _, _, errors = run("few", "--out", "former", *former)
    _, _, errors_now = run("few", "--out", "now", *now)
    option, advice = former[0].partition("=")[0], f"write {' '.join(now)}" if now else "leave it out"
    assert errors == f"hermes: {option} is a former option; {advice}\n{errors_now}"
    assert contents(folder / "former") == contents(folder / "now")


@pytest.mark.parametrize("words", [("--engine", "spark"), ("--engine=spark",)])
def test_the_former_option_of_the_engine_names_the_workers(words: tuple[str, ...]) -> None:
    _, _, errors = run("few", "--out", "out", *words)
    assert errors == (
        "hermes: --engine is a former option; write --workers spark\n"
        "hermes: --workers is a number of processes, daft or ray://HOST:PORT, and not 'spark'\n"
    )


@pytest.mark.skipif(importlib.util.find_spec("daft") is not None, reason="daft is installed here")
@pytest.mark.parametrize("engine", ["daft", "ray://localhost:10001"])
def test_an_engine_that_is_not_installed_says_how_to_get_it(engine: str, folder: Path) -> None:
    said = f"hermes: the engine {engine} needs daft; install it: pip install 'hermes-graph[batch]'\n"
    assert run("few", "--out", "out", "--workers", engine) == (2, "", said)
    assert not (folder / "out").exists()


@pytest.mark.parametrize("words", [("--workers", 2), ("--workers", "daft")])
def test_what_comes_out_of_the_store_is_exported_in_one_process(words: tuple[object, ...], folder: Path) -> None:
    code, _, said = run("--stored", "--out", "out", *words)
    assert (code, said.startswith("hermes: sessions from the store are exported in one process; write them with --save-graphs")) == (
        2,
        True,
    )


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
def test_a_worker_that_is_killed_is_one_line_and_leaves_nothing_behind(folder: Path) -> None:
    words = [sys.executable, "-m", "hermes", "export", "many", "--out", "out", "--workers", "2"]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        os.kill(worker_of(command.pid), signal.SIGKILL)
        _, said = command.communicate(timeout=60)
    assert said.splitlines()[-1:] == ["hermes: a worker process was killed, perhaps because memory ran out; try fewer --workers"]
    assert (command.returncode, sorted(path.name for path in folder.iterdir())) == (1, ["few", "many"])


def worker_of(parent: int) -> int:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        time.sleep(0.01)
    raise TimeoutError("no worker was started")
