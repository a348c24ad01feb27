"""One Valkey on one data folder: start it, adopt it, stop it. Callers hold the start lock.

Hermes can do without its data. Valkey writes it to disk all the same, with one fsync a second, so that caches survive a restart."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

from hermes.stores.embedded.binaries import Binaries
from hermes.stores.embedded.errors import ServerFailed
from hermes.stores.embedded.home import Home, give_to_owner
from hermes.stores.embedded.process import end_server, find_log_error, is_server, read_pid, reap, spawn_server, wait_until
from hermes.stores.embedded.server_user import ServerUser

PROGRAM = "valkey-server"
READY_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 5.0
STOP_SIGNALS = ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0))


def start_valkey(home: Home, binaries: Binaries, user: ServerUser) -> Callable[[], int]:
    """Adopt the server that runs on this folder, or start one, and return a function that waits until it answers and gives its pid.

    A new server is not waited for here, so that PostgreSQL can start meanwhile. Raises ServerFailed, here or from the returned function."""
    if pid := valkey_pid(home):
        if home.valkey_socket.exists() and wait_until(lambda: is_answering(home), READY_TIMEOUT_S):
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
        if not wait_until(lambda: is_answering(home) or reap(new), READY_TIMEOUT_S) or not is_answering(home):
            raise ServerFailed("Valkey", home.valkey_log, f"did not start: {find_log_error(home.valkey_log)}")
        return new

    return ready


def stop_valkey(home: Home) -> None:
    """Stop the server that runs on this folder, if there is one. Raises ServerFailed if it does not stop."""
    if (pid := valkey_pid(home)) and not end_server(pid, PROGRAM, home.valkey, STOP_SIGNALS):
        raise ServerFailed("Valkey", home.valkey_log, f"(pid {pid}) does not stop")


def valkey_pid(home: Home) -> int | None:
    """The pid of the server that runs on this folder, whichever process started it."""
    pid = read_pid(home.valkey_pid)
    return pid if pid and is_server(pid, PROGRAM, home.valkey) else None


def is_answering(home: Home) -> bool:
    """Whether the server has loaded its data and accepts commands."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ANSWER_TIMEOUT_S)
        try:
            probe.connect(str(home.valkey_socket))
            probe.sendall(b"PING\r\n")
            return probe.recv(64).startswith(b"+PONG")
        except OSError:
            return False
