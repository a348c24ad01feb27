"""`kill -9` at random moments, many times: what was finished is there, and no model is asked for it again."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hermes.graph import MessageGraph

ROOT = Path(__file__).parents[4]


def finished(folder: Path) -> set[str]:
    """The samples of the rollouts whose graphs are whole."""
    path = folder / "run" / "graphs.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return {each["sample_id"] for line in lines if line.endswith(b"\n") for each in json.loads(line)["graphs"][-1]["responses"]}


def asked(folder: Path, start: int) -> tuple[set[str], int]:
    """Whom somebody was asked for since a place in the log, and where it ends now."""
    with (folder / "asked.log").open("rb") as log:
        log.seek(start)
        return {*log.read().decode().split()}, log.tell()


def test_killed_at_random_moments_nothing_finished_is_lost_or_made_again(tmp_path: Path) -> None:
    rng, known, read, kills = random.Random(8), set[str](), 0, 0
    (tmp_path / "asked.log").touch()
    while True:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        size = (tmp_path / "asked.log").stat().st_size
        while process.poll() is None and (tmp_path / "asked.log").stat().st_size == size:
            time.sleep(0.005)
        try:
            code = process.wait(rng.random() * 0.12)  # somewhere in its work
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            code, kills = process.wait(), kills + 1
        since, read = asked(tmp_path, read)
        assert not since & known, "what was finished is asked for again"
        now = finished(tmp_path)
        assert known <= now, "what was finished is lost"
        known = now
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert kills >= 5
    lines = (tmp_path / "run" / "graphs.jsonl").read_bytes().splitlines()
    notes = [json.loads(line) for line in (tmp_path / "run" / "rollouts.jsonl").read_bytes().splitlines()]
    assert sorted((note["item"], note["rollout"]) for note in notes) == sorted((f"i{n}", k) for n in range(60) for k in range(5))
    assert [MessageGraph.from_json(line).verify().status for line in lines] == ["ok"] * 300
