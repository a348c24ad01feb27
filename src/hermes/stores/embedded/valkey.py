"""One Valkey on one data folder: started, adopted, stopped. Only called by whoever holds the gate.

It holds what may be lost; it is kept all the same, at the price of one fsync a second, so that a restart of Hermes starts warm."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

from hermes.stores.embedded.account import Account
from hermes.stores.embedded.binaries import Binaries
from hermes.stores.embedded.errors import ServerFailed
from hermes.stores.embedded.home import Home, hand_over
from hermes.stores.embedded.process import end, is_server, last_words, pid_in, reap, spawn, wait_until

PROGRAM = "valkey-server"
READY_S = 60.0
ANSWER_S = 5.0
STOP = ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0))


def start_valkey(home: Home, binaries: Binaries, account: Account) -> Callable[[], int]:
    """Adopt the server that runs on this folder, or start one; return at once. The result waits until it answers, and gives its pid.

    So PostgreSQL can start meanwhile. Raises ServerFailed, here or from the wait."""
    if pid := valkey_pid(home):
        if home.valkey_socket.exists() and wait_until(lambda: answers(home), READY_S):
            return lambda: pid
        stop_valkey(home)  # its socket is gone, or it hangs
    home.valkey.mkdir(mode=0o700, exist_ok=True)
    hand_over(home.valkey, home)
    home.valkey_pid.touch(mode=0o600)
    hand_over(home.valkey_pid, home)
    new = spawn(
        account.command(
            *(binaries.valkey, "--dir", home.valkey, "--pidfile", home.valkey_pid, "--daemonize", "no", "--set-proc-title", "no"),
            *("--port", "0", "--unixsocket", home.valkey_socket, "--unixsocketperm", "700"),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        ),
        home.valkey_log,
        home,
    )
    # It writes the same a moment later. Until then, whoever gives up on it must be able to find it.
    home.valkey_pid.write_text(str(new), encoding="utf-8")

    def ready() -> int:
        if not wait_until(lambda: answers(home) or reap(new), READY_S) or not answers(home):
            raise ServerFailed("Valkey", home.valkey_log, f"did not start: {last_words(home.valkey_log)}")
        return new

    return ready


def stop_valkey(home: Home) -> None:
    """Stop the server that runs on this folder, if there is one. Raises ServerFailed if it stays."""
    if (pid := valkey_pid(home)) and not end(pid, PROGRAM, home.valkey, STOP):
        raise ServerFailed("Valkey", home.valkey_log, f"(pid {pid}) does not stop")


def valkey_pid(home: Home) -> int | None:
    """The server that runs on this folder, whoever started it."""
    pid = pid_in(home.valkey_pid)
    return pid if pid and is_server(pid, PROGRAM, home.valkey) else None


def answers(home: Home) -> bool:
    """Whether it has loaded its data and takes commands."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ANSWER_S)
        try:
            probe.connect(str(home.valkey_socket))
            probe.sendall(b"PING\r\n")
            return probe.recv(64).startswith(b"+PONG")
        except OSError:
            return False
