"""Files without an end, and files that other people of the machine must not read."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.trajectories.batch.run_folder import RunFolder
from hermes.trajectories.formats import FORMATS
from tests.unit.test_cli_trajectories import run, save_graphs

ENDLESS = (Path("/dev/zero"), Path("/dev/urandom"))
pytestmark = pytest.mark.skipif(not ENDLESS[0].exists(), reason="no such devices on this machine")


@pytest.mark.parametrize("file", ENDLESS, ids=str)
def test_a_file_without_an_end_is_one_line_and_no_wait(file: Path, tmp_path: Path) -> None:
    for words in (
        ("graph", file),
        ("graph", "--list", file),
        ("graph", file, "--json"),
        ("export", file, "--out", tmp_path / "rows"),
        ("import", file, "--out", tmp_path / "graphs.jsonl"),
        ("compress", file),
        ("verify", file),
    ):
        code, output, errors = run(*words)
        assert (code, output, errors.count("\n")) == (2, "", 1), (words, errors)
        assert str(file) in errors
    assert list(tmp_path.iterdir()) == []


def test_standard_input_without_an_end_is_one_line() -> None:
    for sent in ("yes ''", "yes '{'"):
        command = f"ulimit -v 6000000; {sent} | {sys.executable} -m hermes graph -"
        done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr.count("\n"), "standard input" in done.stderr) == (2, 1, True), done.stderr


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(each.stat().st_mode) for each in [folder, *folder.rglob("*")]}


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("format_", sorted(FORMATS))
def test_only_its_owner_reads_an_export(tmp_path: Path, format_: str) -> None:
    graphs = save_graphs(tmp_path / "graphs")
    for words in ((), ("--workers", "2")):
        out = tmp_path / f"out{len(words)}"
        assert run("export", graphs, "--out", out, "--format", format_, *words)[0] == 0
        assert modes(out) == {0o700, 0o600}


@pytest.mark.usefixtures("open_umask")
def test_only_their_owner_reads_what_other_commands_write(tmp_path: Path) -> None:
    rows = tmp_path / "t.jsonl"
    turns = [{"from": "human", "value": "word " * 400}, {"from": "gpt", "value": "answer " * 400}]
    rows.write_text(json.dumps({"conversations": turns}) + "\n")
    assert run("import", rows, "--out", tmp_path / "imported.jsonl")[0] == 0
    assert run("compress", rows, "--target-tokens", "100", "--out", tmp_path / "short.jsonl", "--set", "processing.num_workers=1")[0] == 0
    assert run("demo", "--no-pause", "--save", tmp_path / "demo.json")[0] == 0
    assert run("graph", tmp_path / "demo.json", "--svg", tmp_path / "demo.svg")[0] == 0
    with_batch = tmp_path / "run"
    folder = RunFolder.open(with_batch, {"model": "m"}, may_go_on=False)
    folder.put([])
    folder.write("summary.json", ["{}"])
    folder.close()
    rows.unlink()
    assert modes(with_batch) == {0o700, 0o600}
    found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir() if each.is_file()}
    assert set(found) >= {"imported.jsonl", "short.jsonl", "demo.json", "demo.svg"}
    assert set(found.values()) == {0o600}, found
