"""The data folder: where it is, what lies in it, and where the sockets go.

Nothing outside of it is changed, but for a socket folder in /tmp where its own path is too long for a socket."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from hermes.stores.embedded.errors import HomeUnusable

MAX_SOCKET_PATH_BYTES = 103
"""Bytes of a socket's path that every platform takes: Linux takes 107, macOS 103."""

POSTGRES_SOCKET = ".s.PGSQL.5432"
"""The name that PostgreSQL gives to its socket."""


@dataclass(frozen=True, slots=True)
class StoreUrls:
    """The addresses of the running servers."""

    database_url: str
    redis_url: str


@dataclass(frozen=True, slots=True)
class Home:
    """What lies where. The path is absolute and free of links, so that one folder has one name in every process."""

    path: Path
    sockets: Path

    @property
    def stores(self) -> Path:
        """The folder of everything here; its owner is whom the servers run as."""
        return self.path / "stores"

    @property
    def postgres(self) -> Path:
        return self.stores / "postgres"

    @property
    def postgres_log(self) -> Path:
        return self.stores / "postgres.log"

    @property
    def valkey(self) -> Path:
        return self.stores / "valkey"

    @property
    def valkey_log(self) -> Path:
        return self.stores / "valkey.log"

    @property
    def valkey_pid(self) -> Path:
        return self.stores / "valkey.pid"

    @property
    def leases(self) -> Path:
        return self.stores / "leases"

    @property
    def start_lock(self) -> Path:
        """Locked by whoever starts or stops the servers."""
        return self.stores / "lock"

    @property
    def postgres_socket(self) -> Path:
        return self.sockets / POSTGRES_SOCKET

    @property
    def valkey_socket(self) -> Path:
        return self.sockets / "valkey.sock"

    @property
    def addresses(self) -> StoreUrls:
        return StoreUrls(
            database_url=f"postgresql://hermes@/postgres?host={quote(str(self.sockets), safe='')}",
            redis_url=f"unix://{quote(str(self.valkey_socket))}",
        )


def home_at(path: Path) -> Home:
    """Name the parts of a data folder. Touches nothing."""
    resolved = path.resolve()
    inside = resolved / "stores" / "sockets"
    # A comma in the address of a PostgreSQL means a second server.
    if len(os.fsencode(inside / POSTGRES_SOCKET)) <= MAX_SOCKET_PATH_BYTES and "," not in str(inside):
        return Home(resolved, inside)
    # Not XDG_RUNTIME_DIR or TMPDIR: two processes of one home may differ in them, and would look for each other in vain.
    # Nor would the sockets survive a logout there, while the servers do.
    return Home(resolved, Path("/tmp") / f"hermes-{hashlib.sha256(os.fsencode(resolved)).hexdigest()[:16]}")  # noqa: S108 checked in make_sockets


def make_home(path: Path) -> Home:
    """Create what is missing of a data folder. Folders that it makes, and `stores` in any case, are 0700.

    Raises HomeUnusable if it cannot be written to, or if `stores` belongs to another user."""
    home = home_at(path)
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.stores.mkdir(mode=0o700, exist_ok=True)
        if home.stores.stat().st_uid != os.geteuid() != 0:
            raise HomeUnusable(f"{home.stores} belongs to another user (uid {home.stores.stat().st_uid}); choose your own with HERMES_HOME")
        home.stores.chmod(0o700)
        home.leases.mkdir(mode=0o700, exist_ok=True)
        home.start_lock.touch(mode=0o600)
    except OSError as error:
        raise HomeUnusable(f"cannot write to {home.path} ({error.strerror}); choose a folder of your own with HERMES_HOME") from error
    for part in (home.leases, home.start_lock):
        give_to_owner(part, home)
    return home


def make_sockets(home: Home) -> None:
    """Make the folder of the sockets. In /tmp anybody may have taken its name: then HomeUnusable is raised."""
    try:
        with suppress(FileExistsError):
            home.sockets.mkdir(mode=0o700)
            give_to_owner(home.sockets, home)
    except OSError as error:
        raise HomeUnusable(f"cannot make the socket folder {home.sockets} ({error.strerror}); use a shorter HERMES_HOME") from error
    if not is_private(home.sockets, home):
        raise HomeUnusable(f"{home.sockets} is not a folder of ours alone (0700); remove it, or use a shorter HERMES_HOME")


def remove_sockets(home: Home) -> None:
    """After the servers have stopped: take away what a dead server left, and the folder itself where it lies in /tmp."""
    if not is_private(home.sockets, home):
        return
    for left in (home.postgres_socket, home.sockets / f"{POSTGRES_SOCKET}.lock", home.valkey_socket):
        left.unlink(missing_ok=True)
    if not home.sockets.is_relative_to(home.path):
        home.sockets.rmdir()


def is_private(folder: Path, home: Home) -> bool:
    """Whether that is a folder, not a link, that nobody but the owner of the stores can enter."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700 and found.st_uid == home.stores.stat().st_uid


def give_to_owner(path: Path, home: Home) -> None:
    """Root working in somebody's folder leaves nothing there that its owner cannot use."""
    if os.geteuid() == 0:
        owner = home.stores.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
