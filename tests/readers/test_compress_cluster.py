"""Compression on Daft, in its own processes and on a Ray cluster of this machine: the same bytes as without it.

Needs `hermes-graph[batch]`. The cluster is started for these tests, on ports of its own, and ends with them."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.readers.ray_cluster import PATIENCE_S, cluster, free_port  # noqa: F401  # one of them is a fixture

REASON = "needs daft and ray: pip install 'hermes-graph[batch]'"
pytest.importorskip("daft", reason=REASON)
pytest.importorskip("ray", reason=REASON)

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files with long and short rows, and a few that are none."""
    drawn = random.Random(1)
    folder = tmp_path_factory.mktemp("cluster") / "in"
    folder.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        with (folder / name).open("w") as lines:
            for number in range(120):
                turns = [{"from": "human", "value": f"Question {number}"}]
                for turn in range(drawn.choice([1, 4, 30])):
                    turns += [{"from": "gpt", "value": f"Answer {turn} " + "so it is " * 12}, {"from": "human", "value": f"And {turn}?"}]
                lines.write(json.dumps({"conversations": turns, "id": number}) + "\n" if number % 40 != 7 else "nonsense\n")
    return folder


PROGRAM = """
import json, sys
from pathlib import Path
from typing import Any
from hermes.trajectories.compress.analysis import analyse
from hermes.trajectories.compress.chunks import find_inputs
from hermes.trajectories.compress.output import OutputPaths
from hermes.trajectories.compress.run import CompressRun, compress_files
from hermes.trajectories.compress.settings import read_settings
from hermes.trajectories.compress.worker import CompressWork
from hermes.trajectories.engines.local import LocalEngine

if __name__ == "__main__":
    source, out, where = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    settings = read_settings(None, {"compression.target_max_tokens": 500, "compression.summary_target_tokens": 100})
    places = OutputPaths(out, out.with_suffix(".json"), is_folder=True)
    planned, run = (CompressRun(find_inputs(source), CompressWork(settings), places, chunk_bytes=20_000) for _ in range(2))
    if where == "local":
        engine = LocalEngine(1)
    else:
        from hermes.trajectories.engines.daft import DaftEngine
        engine = DaftEngine(None if where == "processes" else where)
    analysis = analyse(planned, engine).to_dict(500)
    compress_files(run, engine)
    print(json.dumps([analysis, run.metrics["summary"]]))
"""


def run(source: Path, out: str, where: str) -> Any:
    """Analyse and compress in a process of its own: Daft works in one place only in each. Return both their numbers."""
    words = [sys.executable, "-c", PROGRAM, source, source.parent / out, where]
    ended = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def written(out: Path) -> list[bytes]:
    files = [*sorted(out.iterdir()), out.with_suffix(".rejected.jsonl"), out.with_suffix(".jsonl")]
    return [b"".join(sorted(file.read_bytes().splitlines(keepends=True))) for file in files]


def test_the_same_rows_and_the_same_numbers_come_out_wherever_the_work_is_done(source: Path, cluster: str) -> None:  # noqa: F811  # the fixture
    numbers = run(source, "plain", "local")
    assert (numbers[1]["trajectories_rejected"], numbers[1]["trajectories_compressed"] > 20) == (6, True)
    for out, where in (("processes", "processes"), ("cluster", cluster)):
        assert run(source, out, where) == numbers
        assert written(source.parent / out) == written(source.parent / "plain")
        for name in ("a.jsonl", "b.jsonl"):
            assert (source.parent / out / name).read_bytes() == (source.parent / "plain" / name).read_bytes(), "in their order, too"


def test_a_cluster_that_is_not_there_is_one_line() -> None:
    program = f"""
from hermes.trajectories.engines.daft import DaftEngine
from hermes.trajectories.errors import TrajectoryError
try:
    list(DaftEngine("ray://127.0.0.1:{free_port()}").map(str, [1]))
except TrajectoryError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert ended.stdout.splitlines()[-1].startswith("no Ray cluster at ray://127.0.0.1:")
