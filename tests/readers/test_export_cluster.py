"""Export on Daft, in its own processes and on a Ray cluster of this machine: the same bytes as in one process.

Needs `hermes-graph[batch]`. The cluster is started for these tests and ends with them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.readers.ray_cluster import PATIENCE_S, cluster  # noqa: F401  # the second is a fixture
from tests.unit.trajectories.shared_work import GRAPHS, write

REASON = "needs daft and ray: pip install 'hermes-graph[batch]'"
pytest.importorskip("daft", reason=REASON)
pytest.importorskip("ray", reason=REASON)

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs

PROGRAM = """
import json, sys
from pathlib import Path
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.parallel_export import export_on
from hermes.trajectories.source import FileSessions, find_files

if __name__ == "__main__":
    source, out, where = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    sessions, broken = FileSessions(find_files([source])), {}
    for kind in sys.argv[4:]:
        settings = ExportSettings(format=kind)
        if where == "here":
            summary = export(sessions, out / kind, settings, FORMATS)
        else:
            from hermes.trajectories.engines.daft import DaftEngine
            engine = DaftEngine(None if where == "processes" else where)
            summary = export_on(engine, sessions, out / kind, settings, FORMATS, chunk_bytes=2_000)
        broken[kind] = [str(error) for error in summary.broken]
    print(json.dumps(broken))
"""


def exported(source: Path, out: Path, where: str, formats: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, bytes]]:
    """Export in a process of its own: Daft works in one place only in each. Return what was broken, and every file."""
    words: list[Any] = [sys.executable, "-c", PROGRAM, source, out, where, *formats]
    ended = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    return json.loads(ended.stdout.splitlines()[-1]), files


EACH_FOR_ITSELF = ("each for itself", "broken ones between")
CASES = {
    "each for itself": (EACH_FOR_ITSELF, ("parquet", "tree", "sharegpt", "trl")),
    "copies": ((*EACH_FOR_ITSELF, "clashes", "copies that disagree"), ("parquet", "openai")),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_bytes_come_out_wherever_the_work_is_done(case: str, cluster: str, tmp_path: Path) -> None:  # noqa: F811  # the fixture
    graphs, formats = CASES[case]
    write(tmp_path / "graphs", [line for name in graphs for line in GRAPHS[name]()])
    expected = exported(tmp_path / "graphs", tmp_path / "here", "here", formats)
    assert {len(broken) for broken in expected[0].values()} == {4 if case == "each for itself" else 3}
    for out, where in (("processes", "processes"), ("cluster", cluster)):
        assert exported(tmp_path / "graphs", tmp_path / out, where, formats) == expected
