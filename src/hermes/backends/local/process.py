"""Start the engine, learn where it listens, and end it. Blocks: call it in a thread.

A process of its own, because loading a model holds Python's lock (half a second for the smallest one), because llama.cpp answers some
faults by ending its process, and because only the end of a process gives all memory back."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ENGINE_PATH = Path(__file__).with_name("engine.py")
MAX_LOAD_S = 300.0
"""How long a model may take to load; a large model may be on a slow disk."""
END_S = 2.0
INHERITED_VARIABLES = ("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
"""The environment variables that the engine gets: none of them is a secret."""


class EngineFailed(Exception):
    """The engine did not start. The message says why, in one line."""


@dataclass(frozen=True, slots=True)
class LlamaEngine:
    """A running model: its address, its key and its process."""

    address: str
    key: str
    process: subprocess.Popen[bytes]

    @property
    def is_running(self) -> bool:
        """Whether the process still runs. Removes a process that has ended from the process table."""
        return self.process.poll() is None

    def end(self) -> None:
        """End the process, whatever it is doing. Its memory is free when this returns."""
        end_process(self.process)


def start_engine(model: Path, *, threads: int, context: int) -> LlamaEngine:
    """Run a model and wait until it takes requests. Raises EngineFailed, and leaves no process then."""
    options = {"model": str(model), "name": model.stem, "threads": threads, "context": context}
    command = [sys.executable, "-P", str(ENGINE_PATH), json.dumps(options)]
    environment = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    try:
        # A session of its own, so that answers in progress finish when the operator presses Ctrl-C in the terminal of Hermes.
        process = subprocess.Popen(  # noqa: S603 - our own program, by its path
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise EngineFailed(f"the engine cannot be started ({error.strerror})") from error
    try:
        message = read_first_line(process.stdout)
        return LlamaEngine(message["address"], message["key"], process)
    except (KeyError, ValueError):
        end_process(process)
        raise EngineFailed(f"llama.cpp cannot load the model {model.name}, or there is not enough memory for it") from None
    except BaseException:
        end_process(process)
        raise


def read_first_line(output: IO[bytes] | None) -> Mapping[str, str]:
    """The line that the engine prints when it is ready. Raises ValueError if it ends without one, EngineFailed if it takes too long."""
    if output is None or not select.select([output], [], [], MAX_LOAD_S)[0]:
        raise EngineFailed(f"the model did not load within {MAX_LOAD_S:g} s")
    message: Mapping[str, str] = json.loads(output.readline())
    return message


def end_process(process: subprocess.Popen[bytes]) -> None:
    with process:  # closes its pipes, and waits for its end
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
