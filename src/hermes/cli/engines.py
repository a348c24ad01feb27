"""Which engine a command works on: processes of this machine, Daft, or Daft on a Ray cluster."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hermes.cli import missing_package
from hermes.cli.errors import fail
from hermes.trajectories.engines import ChunkEngine
from hermes.trajectories.engines.local import LocalEngine

LOCAL, DAFT = "local", "daft"
DAFT_ENGINE = "hermes.trajectories.engines.daft"
"""Loaded by name: it needs the extra `batch`."""


@contextmanager
def open_engine(name: str, workers: int) -> Iterator[ChunkEngine]:
    """Open the engine of this name; an unknown one, or one that is not installed, is one line and exit code 2."""
    engine = _engine_named(name, workers)
    # A worker that dies is an error of its pipe, and not our end: there is a draft to clean up, and something to say.
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield engine
    finally:
        signal.signal(signal.SIGPIPE, before)


def _engine_named(name: str, workers: int) -> ChunkEngine:
    if name == LOCAL:
        return LocalEngine(workers)
    if name != DAFT and not name.startswith("ray://"):
        fail(f"unknown engine {name!r}; one of {LOCAL}, {DAFT}, ray://HOST:PORT")
    os.environ.setdefault("DO_NOT_TRACK", "1")  # Daft tells its makers about every start, unless told not to
    try:
        engine: ChunkEngine = importlib.import_module(DAFT_ENGINE).DaftEngine(None if name == DAFT else name)
    except ModuleNotFoundError as error:
        fail(f"--engine {name} needs {missing_package(error)}; install it: pip install 'hermes-graph[batch]'")
    return engine
