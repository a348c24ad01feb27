"""The command `hermes` without the second that it takes to import Hermes.

`preloaded_hermes()` returns the words that stand for `python -m hermes` in tests that run many commands to their end. They start a process
of their own each time: a small client hands its arguments, variables, folder and streams to a server that has imported Hermes, and the
server forks. Not for commands that a test kills: the signal would reach the client only.

    python -m tests.preloaded SOCKET    runs the server"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
CLIENT = Path(__file__).with_name("preloaded_client.py")
START_TIMEOUT_S = 60


@cache
def preloaded_hermes() -> tuple[str, ...]:
    """Start the server of this process if it does not run yet; return the words of the command."""
    folder = tempfile.TemporaryDirectory(prefix="hermes-")
    place = f"{folder.name}/socket"
    server = subprocess.Popen([sys.executable, "-m", "tests.preloaded", place], cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True)

    def stop() -> None:
        server.kill()
        server.wait()
        folder.cleanup()

    atexit.register(stop)
    deadline = time.monotonic() + START_TIMEOUT_S
    while not Path(place).exists():
        assert server.poll() is None, "the server of preloaded commands ended"
        assert time.monotonic() < deadline, "the server of preloaded commands does not start"
        time.sleep(0.02)
    return (sys.executable, "-I", "-S", str(CLIENT), place)


def serve(place: str) -> None:
    """Fork a process for each client. It runs the command, and a second one tells the client its exit code. Ends with its starter, whose
    end of the standard input is closed then, however it ended."""
    cli = import_module("hermes.cli")
    for part in cli.COMMAND_MODULES:
        import_module(part.module)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies: the second process waits for the first
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{place}.new")
        listening.listen(64)
        Path(f"{place}.new").rename(place)
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            client, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                answer(client)
            client.close()


def answer(client: socket.socket) -> NoReturn:
    """Run the command of one client. In a process of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
    while not data.endswith(b"\n"):
        data += client.recv(1 << 20)
    command = os.fork()
    if command == 0:
        client.close()
        run(json.loads(data), streams)
    for stream in streams:
        os.close(stream)
    client.sendall(f"{command}\n".encode())
    _, status = os.waitpid(command, 0)
    client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def run(order: dict[str, object], streams: list[int]) -> NoReturn:
    """Be the command `hermes` with these arguments, variables, folder and streams."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(0, "r", encoding="utf-8", closefd=False),
        os.fdopen(1, "w", encoding="utf-8", closefd=False),
        os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False),
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(str(order["folder"]))
    os.environ.clear()
    os.environ.update(dict(order["environ"]))  # type: ignore[call-overload]
    sys.argv = [str(ROOT / "src/hermes/__main__.py"), *list(order["words"])]  # type: ignore[call-overload]
    sys.modules["__main__"].__package__ = "hermes"  # so that usage lines say `python -m hermes`
    code: object = 1
    try:
        import_module("hermes.cli").main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001  # as the interpreter does at its end
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)  # no further: libraries would wait for threads that a fork lacks


if __name__ == "__main__":
    serve(sys.argv[1])
