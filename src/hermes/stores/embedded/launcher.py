"""Start, share and stop the two servers of a data folder.

Every process that needs the servers holds a lease. The first process starts them, the last one to leave stops them. If the last process
is killed, the servers run on; the next process finds them by their pid files and adopts them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hermes.stores.embedded.binaries import Binaries, find_binaries
from hermes.stores.embedded.errors import HomeInUse, HomeUnusable
from hermes.stores.embedded.home import Home, StoreUrls, home_at, make_home, make_sockets, remove_sockets
from hermes.stores.embedded.leases import hold_start_lock, holders, refuse_other_machines, return_lease, take_lease
from hermes.stores.embedded.postgres import postgres_pid, start_postgres, stop_postgres
from hermes.stores.embedded.server_user import ServerUser, choose_server_user
from hermes.stores.embedded.valkey import start_valkey, stop_valkey, valkey_pid


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


def read_status(home: Home) -> ServerStatus:
    return ServerStatus(postgres_pid(home), valkey_pid(home), tuple(holder.pid for holder in holders(home)))


def start_both(home: Home, binaries: Binaries, user: ServerUser) -> None:
    make_sockets(home)
    valkey_ready = start_valkey(home, binaries, user)
    start_postgres(home, binaries, user)
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
