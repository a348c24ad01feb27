"""Leases: which processes use a data folder. Each holds a locked file, and the kernel releases a process's locks however it ends.

The start lock is held only for a moment: while a process starts or stops servers, or takes or returns a lease."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hermes.stores.embedded.errors import HomeInUse, HomeUnusable
from hermes.stores.embedded.home import Home, give_to_owner
from hermes.stores.embedded.process import wait_until

if sys.platform != "win32":  # find_binaries refuses Windows with a clear message; an ImportError here would come before it
    import fcntl

START_LOCK_TIMEOUT_S = 180.0
"""Longer than the slowest start, so that only a stuck process reaches it."""

HELD_DESCRIPTORS: set[int] = set()
"""Descriptors of this process's leases. Its forks close them."""


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
