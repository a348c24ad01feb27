"""Processes that outlive the process that started them: start them, recognise them later, end them.

A pid from a file proves nothing, because pids are used again: a process is our server if its command line names the program and our
folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hermes.stores.embedded.home import Home, give_to_owner

POLL_S = 0.01

SPAWNED_PIDS: set[int] = set()
"""Servers that this process started and has not yet seen ended. It waits for no other child process."""


def spawn_server(command: list[str], log: Path, home: Home, environment: Mapping[str, str] | None = None) -> int:
    """Start a server in a session of its own, so that Ctrl-C in our terminal does not reach it; return its pid.

    Its output goes to a new log. The log before it is kept beside it, older ones are overwritten, so that logs do not grow without end."""
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    log.touch(mode=0o600)
    give_to_owner(log, home)
    for earlier in tuple(SPAWNED_PIDS):
        reap(earlier)
    with log.open("ab") as output, Path(os.devnull).open("rb") as nothing:
        pid = os.posix_spawnp(
            command[0],
            command,
            server_environment() | dict(environment or {}),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM],
        )
    SPAWNED_PIDS.add(pid)
    return pid


def server_environment() -> dict[str, str]:
    """The environment of the servers. Without the caller's PG* variables, locale and time zone: a data folder must not depend on them."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"} | kept


def is_server(pid: int, program: str, folder: Path) -> bool:
    """Whether this process runs the program on the folder. False for a dead process, a zombie, or another program with the same pid."""
    reap(pid)
    line, between = command_line(pid)
    before, found, _ = line.partition(os.fsencode(folder) + between)
    # The program may stand anywhere before the folder: for its first milliseconds the process may still run the prefix of ServerUser.
    return bool(found) and any(Path(os.fsdecode(argument)).name == program for argument in before.split(between))


def command_line(pid: int) -> tuple[bytes, bytes]:
    """The arguments of a process, and the byte after each of them; no arguments if it has ended."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes(), b"\0"
        except OSError:
            return b"", b"\0"
    # macOS has no /proc, and its ps joins the arguments with spaces.
    shown = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)  # noqa: S603, S607 ours
    return shown.stdout.replace(b"\n", b" "), b" "


def reap(pid: int) -> bool:
    """Whether this process started this server and it has ended. If so, remove it from the process table."""
    if pid not in SPAWNED_PIDS:
        return False
    try:
        has_ended = os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # in a fork of the process that started it
        has_ended = True
    if has_ended:
        SPAWNED_PIDS.discard(pid)
    return has_ended


def read_pid(file: Path) -> int | None:
    """The pid in the first line of a pid file; None if there is none."""
    first = next(iter(read_lines(file)), "").strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def read_lines(file: Path) -> list[str]:
    """The lines of a file; an empty list if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def end_server(pid: int, program: str, folder: Path, signals: Sequence[tuple[signal.Signals, float]]) -> bool:
    """Send a server one signal after another, and wait the given seconds after each. False if it still runs after the last one."""
    for number, patience_s in signals:
        if not is_server(pid, program, folder):
            return True
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return True
        if wait_until(lambda: not is_server(pid, program, folder), patience_s):
            return True
    return False


def wait_until(is_so: Callable[[], bool], patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def find_log_error(log: Path) -> str:
    """The lines of a log that most likely give the reason of a failure."""
    lines = [line.strip() for line in read_lines(log) if line.strip()]
    grave = [number for number, line in enumerate(lines) if "FATAL" in line or "PANIC" in line or "rror" in line]
    if not grave:
        return lines[-1] if lines else "its log is empty"
    return " ".join(line for line in lines[grave[-1] : grave[-1] + 2] if line is lines[grave[-1]] or "DETAIL" in line)
