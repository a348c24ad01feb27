"""Start, share and stop the two servers of a data folder.

Every process that needs the servers holds a lease. The first process starts them, the last one to leave stops them. If the last process
is killed, the servers run on; the next process finds them by their pid files and adopts them.

A lease is a locked file, and the kernel releases a process's locks however it ends. The start lock is held only for a moment: while a
process starts or stops servers, or takes or returns a lease."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hermes.stores.embedded.home import (
    Home,
    HomeInUse,
    HomeUnusable,
    ServerFailed,
    StoreUrls,
    give_to_owner,
    home_at,
    make_home,
    make_sockets,
    remove_sockets,
)
from hermes.stores.embedded.process import wait_until
from hermes.stores.embedded.programs import Binaries, ServerUser, choose_server_user, find_binaries
from hermes.stores.embedded.servers import (
    clear_scratch,
    finish_swap,
    postgres_pid,
    start_postgres,
    start_valkey,
    stop_postgres,
    stop_valkey,
    valkey_pid,
)

if sys.platform != "win32":  # find_binaries refuses Windows with a clear message; an ImportError here would come before it
    import fcntl

START_LOCK_TIMEOUT_S = 180.0
"""Longer than the slowest start, so that only a stuck process reaches it."""

HELD_DESCRIPTORS: set[int] = set()
"""Descriptors of this process's leases. Its forks close them."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The pids of the servers of a data folder, None for a server that is down, and the pids of the processes that hold a lease."""

    postgres: int | None
    valkey: int | None
    holders: tuple[int, ...]


ALL_STOPPED = ServerStatus(postgres=None, valkey=None, holders=())


@dataclass(slots=True)
class ServerLease:
    """A lease on running servers. End it with `release`: if the process ends without it, the lease ends but the servers run on."""

    home: Home
    stores: StoreUrls
    _lease: tuple[int, Path] | None = field(repr=False)

    def release(self) -> None:
        """Return the lease, and stop the servers if no other process holds one. A second call does nothing."""
        if self._lease is None:
            return
        with hold_start_lock(self.home):
            return_lease(*self._lease)
            self._lease = None
            stop_unless_held(self.home)


@contextmanager
def run_servers(home: Path) -> Iterator[StoreUrls]:
    """Keep the servers of a data folder ready for use until the block ends. Raises EmbeddedError, as `start` does."""
    held = start(home)
    try:
        yield held.stores
    finally:
        held.release()


def start(home: Path, user: ServerUser | None = None) -> ServerLease:
    """Take a lease on the servers of a data folder and start those that do not run yet; both are ready when this returns.

    Safe to call from several threads and processes at once. `user` is the user that the servers run as; `choose_server_user` chooses it
    by default. Raises PlatformUnsupported, HomeUnusable, HomeInUse or ServerFailed; then no server runs that did not run before."""
    binaries = find_binaries()
    made = make_home(home)
    with hold_start_lock(made):
        refuse_other_machines(made)
        refuse_moved(made)
        try:
            lease = take_lease(made)
            try:
                start_both(made, binaries, user or choose_server_user(made, binaries.postgres))
            except BaseException:
                return_lease(*lease)
                stop_unless_held(made)
                raise
        except OSError as error:
            raise HomeUnusable(
                f"cannot use {made.path} ({error}); free disk space or repair it, or choose another folder with HERMES_HOME"
            ) from error
    return ServerLease(made, made.addresses, lease)


def stop(home: Path, *, even_if_in_use: bool = False) -> ServerStatus:
    """Stop the servers of a data folder, also servers that killed processes left running; return what ran before.

    Raises HomeInUse while another process holds a lease, unless `even_if_in_use` is set."""
    found = home_at(home)
    if not found.start_lock.exists():
        return ALL_STOPPED
    with hold_start_lock(found):
        before = read_status(found)
        refuse_other_machines(found)
        if before.holders and not even_if_in_use:
            raise HomeInUse(f"the stores in {found.path} are in use by pid {', '.join(map(str, before.holders))}; stop those first")
        stop_both(found)
    return before


def status(home: Path) -> ServerStatus:
    """What runs in a data folder; ALL_STOPPED if there is no such folder. Waits while another process starts or stops the servers."""
    found = home_at(home)
    if not found.start_lock.exists():
        return ALL_STOPPED
    with hold_start_lock(found):
        return read_status(found)


def refuse_moved(home: Home) -> None:
    """Raise HomeUnusable if the data was moved to servers: messages that came here now would be missing there."""
    try:
        note = json.loads(home.moved_note.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    raise HomeUnusable(
        f"the data of {home.path} was moved to {note['to']} on {note['at']}; set HERMES_DATABASE_URL and HERMES_REDIS_URL, or delete "
        f"{home.moved_note} to go on with the old data"
    )


def read_status(home: Home) -> ServerStatus:
    return ServerStatus(postgres_pid(home), valkey_pid(home), tuple(holder.pid for holder in holders(home)))


def start_both(home: Home, binaries: Binaries, user: ServerUser) -> None:
    finish_swap(home)  # what a killed restore or upgrade left, before a server opens its files
    clear_scratch(home)
    make_sockets(home)
    valkey_ready = start_valkey(home, binaries, user)
    try:
        start_postgres(home, binaries, user)
    except BaseException:
        # A process that has only just begun is not known as Valkey yet, and would not be stopped.
        with suppress(ServerFailed):
            valkey_ready()
        raise
    valkey_ready()


def stop_unless_held(home: Home) -> None:
    if not holders(home):
        stop_both(home)


def stop_both(home: Home) -> None:
    try:
        stop_valkey(home)
    finally:
        stop_postgres(home)
    remove_sockets(home)


# --- leases: which processes use a data folder


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """A process that uses the data folder. `machine` names the container or machine that its pid belongs to."""

    pid: int
    machine: str


@contextmanager
def hold_start_lock(home: Home) -> Iterator[None]:
    """Only one thread of all processes of this home is in this block at a time. Raises HomeInUse if another does not leave it in time."""
    try:
        descriptor = os.open(home.start_lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise HomeUnusable(f"cannot open {home.start_lock} ({error.strerror}); choose a folder of your own with HERMES_HOME") from error
    try:
        if not wait_until(lambda: is_locked_by_us(descriptor), START_LOCK_TIMEOUT_S):
            raise HomeInUse(
                f"another process has been starting or stopping the stores in {home.path} for {START_LOCK_TIMEOUT_S:.0f} s; "
                "end it, and try again"
            )
        yield
    finally:
        os.close(descriptor)


def take_lease(home: Home) -> tuple[int, Path]:
    """Take a lease; the caller holds the start lock. The lease ends with `return_lease`, with this process or its exec; forks hold none."""
    close_leases_in_forks()
    descriptor, name = tempfile.mkstemp(prefix=f"{os.getpid()}-", dir=home.leases)
    give_to_owner(Path(name), home)
    is_locked_by_us(descriptor)
    os.write(descriptor, f"{os.getpid()} {machine_id()}".encode())
    HELD_DESCRIPTORS.add(descriptor)
    return descriptor, Path(name)


def return_lease(descriptor: int, file: Path) -> None:
    """End a lease; the caller holds the start lock."""
    file.unlink(missing_ok=True)
    HELD_DESCRIPTORS.discard(descriptor)
    os.close(descriptor)


def holders(home: Home) -> list[LeaseHolder]:
    """All processes that hold a lease now; the caller holds the start lock. Deletes the leases of processes that have ended."""
    found = []
    for file in sorted(home.leases.glob("*-*")) if home.leases.is_dir() else []:
        with suppress(FileNotFoundError), file.open("r+", encoding="utf-8") as lease:
            if is_locked_by_us(lease.fileno()):
                file.unlink()
            else:
                pid, _, where = lease.read().partition(" ")
                found.append(LeaseHolder(int(pid or 0), where))
    return found


def refuse_other_machines(home: Home) -> None:
    """Raise HomeInUse if a process of another container or machine uses this folder.

    Its servers cannot be seen from here, and a second PostgreSQL on the same files would destroy the files."""
    for holder in holders(home):
        if holder.machine != machine_id():
            raise HomeInUse(
                f"{home.path} is in use from another container or machine ({holder.machine}); stop Hermes there, or use another HERMES_HOME"
            )


def machine_id() -> str:
    """Names the pid namespace of this process: a container has its own."""
    try:
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def is_locked_by_us(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@cache
def close_leases_in_forks() -> None:
    """Close this process's leases in its forks. A fork shares its parent's locks: a child that does not use the servers would keep
    them running."""

    def close() -> None:
        for descriptor in HELD_DESCRIPTORS:
            os.close(descriptor)
        HELD_DESCRIPTORS.clear()

    os.register_at_fork(after_in_child=close)
