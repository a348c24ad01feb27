"""One PostgreSQL and one Valkey on one data folder: create their files, start them, adopt them, stop them. Callers hold the start lock.

Local connections need no password, because only the owner can enter the folder of the sockets; there is no network.

Hermes can do without Valkey's data. Valkey writes it to disk all the same, with one fsync a second, so that caches survive a restart."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hermes.stores.embedded.home import POSTGRES_SOCKET, Home, HomeUnusable, ServerFailed, give_to_owner, home_at, remove_sockets
from hermes.stores.embedded.process import (
    POLL_S,
    end_server,
    find_log_error,
    is_server,
    read_lines,
    read_pid,
    reap,
    server_environment,
    spawn_server,
    wait_until,
)
from hermes.stores.embedded.programs import Binaries, ServerUser

# --- PostgreSQL

POSTGRES_PROGRAM = "postgres"
POSTGRES_READY_TIMEOUT_S = 120.0
"""Recovery after a crash can take long; nothing else limits it."""

ORPHANS_TIMEOUT_S = 10.0

POSTGRES_STOP_SIGNALS = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 5.0))
"""Fast shutdown, then shutdown without a last checkpoint, then kill; the data is safe in all three cases."""

# One syncfs call replaces a thousand fsync calls: initdb on a busy disk takes 0.6 s instead of 4.0 s. Only Linux has it.
SYNC_METHOD = "syncfs" if sys.platform == "linux" else "fsync"

POSTGRES_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # A segment of the log that is no longer needed is deleted, and not kept under another name with what was erased in it.
    "wal_recycle": "off",
    "recovery_init_sync_method": SYNC_METHOD,
    "timezone": "UTC",
    "log_timezone": "UTC",
}
"""Given on the command line, so that a newer Hermes applies its own settings to an older data folder."""


def start_postgres(home: Home, binaries: Binaries, user: ServerUser) -> int:
    """Adopt the server that runs on this folder, or start one; return its pid when it accepts connections. Raises ServerFailed."""
    if pid := adopt_postgres(home):
        return pid
    if not home.postgres.exists():
        make_cluster(home, binaries, user)
    refuse_other_major(home, binaries)
    # A killed server leaves child processes, which end a moment later. Until then PostgreSQL rightly refuses to open the files.
    deadline = time.monotonic() + ORPHANS_TIMEOUT_S
    while (pid := launch_postgres(home, binaries, user)) is None:
        reason = find_log_error(home.postgres_log)
        if "still in use" not in reason or time.monotonic() > deadline:
            raise ServerFailed("PostgreSQL", home.postgres_log, f"did not start: {reason}")
        time.sleep(POLL_S)
    return pid


def refuse_other_major(home: Home, binaries: Binaries) -> None:
    """Raise HomeUnusable for files of another major version, in words of ours: PostgreSQL's own do not say what to do."""
    major = cluster_major(home)
    said = f"the data in {home.path} was made by PostgreSQL {major}, and this Hermes brings {binaries.major}"
    if major is not None and major < binaries.major:
        raise HomeUnusable(f"{said}: run `hermes upgrade`, which keeps the old data")
    if major is not None and major > binaries.major:
        raise HomeUnusable(f"{said}: use a newer version of Hermes")


def cluster_major(home: Home) -> int | None:
    """The major version of PostgreSQL that made the files; None without files."""
    [found] = read_lines(home.postgres / "PG_VERSION")[:1] or [""]
    return int(found) if found.strip().isdigit() else None


def launch_postgres(home: Home, binaries: Binaries, user: ServerUser) -> int | None:
    """Start a server. Return its pid when it accepts connections, or None if it ended; then its log has the reason."""
    new = spawn_server(
        user.command(
            *(binaries.postgres, "-D", home.postgres, "-p", POSTGRES_SOCKET.rpartition(".")[2]),
            *(part for name, value in POSTGRES_SETTINGS.items() for part in ("-c", f"{name}={value}")),
            *("-c", f"unix_socket_directories={quote_folder(home.sockets)}"),
        ),
        home.postgres_log,
        home,
        stale_pid_environment(home),
    )
    is_up = False
    try:
        is_up = wait_until(lambda: is_ready(home, new) or reap(new), POSTGRES_READY_TIMEOUT_S) and is_ready(home, new)
    finally:
        if not is_up:  # also after Ctrl-C: without a pid file, which it may not have written yet, no process would find it later
            end_server(new, POSTGRES_PROGRAM, home.postgres, POSTGRES_STOP_SIGNALS)
    return new if is_up else None


def adopt_postgres(home: Home) -> int | None:
    """The pid of a server that another process left running, once it accepts connections; None if there is no such server."""
    if (pid := postgres_pid(home)) is None:
        return None
    wait_until(lambda: is_ready(home, pid) or postgres_pid(home) is None, POSTGRES_READY_TIMEOUT_S)
    if accepts_connections(home):
        return postgres_pid(home)
    stop_postgres(home)  # its socket is gone, as after a clean-up of /tmp: no client can reach it
    return None


def stop_postgres(home: Home) -> None:
    """Stop the server that runs on this folder, if there is one. Raises ServerFailed if it does not stop."""
    if (pid := postgres_pid(home)) and not end_server(pid, POSTGRES_PROGRAM, home.postgres, POSTGRES_STOP_SIGNALS):
        raise ServerFailed("PostgreSQL", home.postgres_log, f"(pid {pid}) does not stop")


def postgres_pid(home: Home) -> int | None:
    """The pid of the server that runs on this folder, whichever process started it."""
    pid = read_pid(home.postgres / "postmaster.pid")
    return pid if pid and is_server(pid, POSTGRES_PROGRAM, home.postgres) else None


def make_cluster(home: Home, binaries: Binaries, user: ServerUser) -> None:
    """Create the database files under another name first, so that a folder called postgres is always complete.

    The name is new each time: a process that was killed here leaves its folder behind, and perhaps an initdb that still writes to it."""
    for abandoned in home.stores.glob("postgres.new-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    place = Path(tempfile.mktemp(prefix="postgres.new-", dir=home.stores))  # noqa: S306 initdb makes it, in a private folder
    command = user.command(
        *(binaries.initdb, "-D", place, "--username=hermes", "--encoding=UTF8", "--locale=C"),
        *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),  # the same order of words on every machine
        *("--auth-local=trust", "--auth-host=reject", f"--sync-method={SYNC_METHOD}"),
    )
    made = subprocess.run(command, capture_output=True, check=False, env=server_environment(), stdin=subprocess.DEVNULL)  # noqa: S603 our own arguments
    if made.returncode != 0:
        home.postgres_log.write_bytes(made.stdout + made.stderr)
        raise ServerFailed("PostgreSQL", home.postgres_log, f"could not create its files: {find_log_error(home.postgres_log)}")
    place.rename(home.postgres)
    sync_folder(home.stores)


# --- a new cluster takes the place of the old one (rebuild.py); here, because a start completes what a killed process left

SCRATCH_NAME = "rebuild"
KEPT_PREFIX = "postgres.kept-"


def scratch_home(home: Home) -> Home:
    """The folder in which a new cluster grows: a data folder of its own inside this one."""
    return home_at(home.stores / SCRATCH_NAME)


def clear_scratch(home: Home) -> None:
    """Stop the server of a new cluster that was not completed, and delete its files."""
    scratch = scratch_home(home)
    if scratch.path.exists():
        stop_postgres(scratch)
        if scratch.stores.exists():
            remove_sockets(scratch)
        shutil.rmtree(scratch.path)


def finish_swap(home: Home) -> None:
    """Put the new cluster of the note in the place of the old one; without a note there is nothing to do.

    Any part of it may be done already: first the old cluster steps aside, then the new one takes its name, then the note goes."""
    try:
        swap = json.loads(home.swap_note.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    new = home.stores / swap["new"]
    if new.exists():
        if home.postgres.exists():
            home.postgres.rename(home.stores / swap["kept"])
        new.rename(home.postgres)
    if swap["clears_valkey"]:
        shutil.rmtree(home.valkey, ignore_errors=True)
    sync_folder(home.stores)
    home.swap_note.unlink()
    sync_folder(home.stores)
    clear_scratch(home)


def write_durably(file: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    draft = file.with_name(f"{file.name}.new")
    with draft.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    draft.replace(file)
    sync_folder(file.parent)


def is_ready(home: Home, pid: int) -> bool:
    """Whether the server accepts connections: it writes so into line 8 of its pid file."""
    lines = read_lines(home.postgres / "postmaster.pid")
    return lines[:1] == [str(pid)] and [line.strip() for line in lines[7:8]] == ["ready"]


def accepts_connections(home: Home) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(home.postgres_socket))
        except OSError:
            return False
    return True


def stale_pid_environment(home: Home) -> dict[str, str]:
    """Tell PostgreSQL that the pid in its files may now belong to another program; otherwise it takes that program for a running server
    and refuses to start.

    Deleting the file would help too, but by this file PostgreSQL finds child processes of a killed server that still write."""
    lock = home.sockets / f"{POSTGRES_SOCKET}.lock"
    pid = read_pid(home.postgres / "postmaster.pid")
    if read_pid(lock) != pid:
        lock.unlink(missing_ok=True)
    return {"PG_GRANDPARENT_PID": str(pid)} if pid else {}


def quote_folder(folder: Path) -> str:
    """A folder as one entry of PostgreSQL's list of folders."""
    return '"{}"'.format(str(folder).replace('"', '""'))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- Valkey

VALKEY_PROGRAM = "valkey-server"
VALKEY_READY_TIMEOUT_S = 60.0
VALKEY_ANSWER_TIMEOUT_S = 5.0
VALKEY_STOP_SIGNALS = ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0))


def start_valkey(home: Home, binaries: Binaries, user: ServerUser) -> Callable[[], int]:
    """Adopt the server that runs on this folder, or start one, and return a function that waits until it answers and gives its pid.

    A new server is not waited for here, so that PostgreSQL can start meanwhile. Raises ServerFailed, here or from the returned function."""
    if pid := valkey_pid(home):
        if home.valkey_socket.exists() and wait_until(lambda: is_answering(home), VALKEY_READY_TIMEOUT_S):
            return lambda: pid
        stop_valkey(home)  # its socket is gone, or it hangs
    home.valkey.mkdir(mode=0o700, exist_ok=True)
    give_to_owner(home.valkey, home)
    home.valkey_pid.touch(mode=0o600)
    give_to_owner(home.valkey_pid, home)
    new = spawn_server(
        user.command(
            *(binaries.valkey, "--dir", home.valkey, "--pidfile", home.valkey_pid, "--daemonize", "no", "--set-proc-title", "no"),
            *("--port", "0", "--unixsocket", home.valkey_socket, "--unixsocketperm", "700"),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        ),
        home.valkey_log,
        home,
    )
    # The server writes the same a moment later. Until then, a process that stops waiting for it must be able to find it.
    home.valkey_pid.write_text(str(new), encoding="utf-8")

    def ready() -> int:
        if not wait_until(lambda: is_answering(home) or reap(new), VALKEY_READY_TIMEOUT_S) or not is_answering(home):
            raise ServerFailed("Valkey", home.valkey_log, f"did not start: {find_log_error(home.valkey_log)}")
        return new

    return ready


def stop_valkey(home: Home) -> None:
    """Stop the server that runs on this folder, if there is one. Raises ServerFailed if it does not stop."""
    if (pid := valkey_pid(home)) and not end_server(pid, VALKEY_PROGRAM, home.valkey, VALKEY_STOP_SIGNALS):
        raise ServerFailed("Valkey", home.valkey_log, f"(pid {pid}) does not stop")


def valkey_pid(home: Home) -> int | None:
    """The pid of the server that runs on this folder, whichever process started it."""
    pid = read_pid(home.valkey_pid)
    return pid if pid and is_server(pid, VALKEY_PROGRAM, home.valkey) else None


def is_answering(home: Home) -> bool:
    """Whether the server has loaded its data and accepts commands."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(VALKEY_ANSWER_TIMEOUT_S)
        try:
            probe.connect(str(home.valkey_socket))
            probe.sendall(b"PING\r\n")
            return probe.recv(64).startswith(b"+PONG")
        except OSError:
            return False
