"""The engine that does the work of a command: processes of this machine, Daft, or Daft on a Ray cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hermes.cli.commands import LazyParts
from hermes.cli.output import fail, missing_package
from hermes.trajectories.engines import ChunkEngine
from hermes.trajectories.engines.local import LocalEngine

LOCAL, DAFT, RAY = "local", "daft", "ray://"


def parse_workers(given: str) -> tuple[str, int]:
    """Return the engine that `--workers` names, and how many processes it has: as many as you say on this machine, else it decides."""
    if given == DAFT or given.startswith(RAY):
        return given, 1
    if not (given.isascii() and given.isdecimal() and int(given) > 0):
        fail(f"--workers is a number of processes, daft or ray://HOST:PORT, and not {given!r}")
    return LOCAL, int(given)


@contextmanager
def open_engine(name: str, workers: int, parts: LazyParts) -> Iterator[ChunkEngine]:
    """Open the engine of this name. If it is unknown or not installed, print one line and exit with code 2."""
    engine = _engine_named(name, workers, parts)
    # If a worker dies, writing to its pipe fails. SIGPIPE must not kill this process: it removes the draft and prints the error.
    old_handler = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield engine
    finally:
        signal.signal(signal.SIGPIPE, old_handler)


def _engine_named(name: str, workers: int, parts: LazyParts) -> ChunkEngine:
    if name == LOCAL:
        return LocalEngine(workers)
    if name != DAFT and not name.startswith(RAY):
        fail(f"unknown engine {name!r}; one of {LOCAL}, {DAFT}, ray://HOST:PORT")
    os.environ.setdefault("DO_NOT_TRACK", "1")  # without it, Daft reports every start to its makers
    try:
        return parts.new_daft_engine(None if name == DAFT else name)
    except ModuleNotFoundError as error:
        fail(f"the engine {name} needs {missing_package(error)}; install it: pip install 'hermes-graph[batch]'")
