"""Writes sessions or exports them, in a process of its own and with the Hermes of any commit (PYTHONPATH says which).

python one_export.py write KIND COUNT FILE
python one_export.py export FORMAT FILE OUT REPEATS       prints what the fastest export took, as JSON"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import time
from pathlib import Path

from exports.sessions import write_sessions
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import FileSessions


def run(kind: str, file: Path, out: Path, repeats: int) -> dict[str, float]:
    """Export several times; the last export is kept, so that the caller can read it."""
    took: list[tuple[float, float]] = []
    for _ in range(repeats):
        if out.exists():
            shutil.rmtree(out)
        gc.collect()
        start, cpu_start = time.perf_counter(), time.process_time()
        summary = export(FileSessions([file]), out, ExportSettings(format=kind), FORMATS)
        took.append((time.process_time() - cpu_start, time.perf_counter() - start))
    cpu_s, seconds = min(took)
    return {"cpu_s": cpu_s, "seconds": seconds, "rows": summary.manifest["rows"], "peak_mb": peak_mb()}


def peak_mb() -> float:
    """Return the most memory that this process held at any time, in MB."""
    status = Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write_sessions(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        print(json.dumps(run(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))))
