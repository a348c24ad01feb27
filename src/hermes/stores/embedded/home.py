"""The data folder: where it is, what lies in it, and where the sockets go.

The embedded stores write nothing outside it, with one exception: a socket folder in /tmp, if the path of the data folder is too long for a
socket."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

MAX_SOCKET_PATH_BYTES = 103
"""The longest path of a socket that every platform accepts: Linux accepts 107 bytes, macOS 103."""

POSTGRES_SOCKET = ".s.PGSQL.5432"
"""The name that PostgreSQL gives to its socket."""

OWN_SERVERS_HINT = "or use servers of your own: HERMES_DATABASE_URL and HERMES_REDIS_URL"


# --- errors: every message is one line that tells the user what to do


class EmbeddedError(Exception):
    """The embedded stores cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class PlatformUnsupported(EmbeddedError):
    """This machine, or this user of it, cannot run the servers."""


class HomeUnusable(EmbeddedError):
    """The data folder cannot be written to, or belongs to another user."""


class HomeInUse(EmbeddedError):
    """Other processes hold the data folder."""


class ServerFailed(EmbeddedError):
    """A server did not start or did not stop; the message gives the reason and names its log."""

    def __init__(self, server: str, log: Path, reason: str) -> None:
        super().__init__(f"{server} {reason}; its log is {log}")
        self.server = server
        self.log = log


# --- the folder


@dataclass(frozen=True, slots=True)
class StoreUrls:
    """The addresses of the running servers."""

    database_url: str
    redis_url: str


@dataclass(frozen=True, slots=True)
class Home:
    """The paths in a data folder. `path` is absolute and without symbolic links, so that one folder has one name in every process."""

    path: Path
    sockets: Path

    @property
    def stores(self) -> Path:
        """The folder that holds all the rest. The servers run as its owner."""
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
        """The file that a process locks while it starts or stops the servers."""
        return self.stores / "lock"

    @property
    def swap_note(self) -> Path:
        """Names the new database that takes the place of `postgres`, while that is not complete."""
        return self.stores / "swap.json"

    @property
    def moved_note(self) -> Path:
        """Says where the data lives now, after it was moved to servers."""
        return self.stores / "moved.json"

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
    """Name the parts of a data folder. Creates and changes nothing."""
    resolved = path.resolve()
    inside = resolved / "stores" / "sockets"
    # A comma in a PostgreSQL address means a second server.
    if len(os.fsencode(inside / POSTGRES_SOCKET)) <= MAX_SOCKET_PATH_BYTES and "," not in str(inside):
        return Home(resolved, inside)
    # Not XDG_RUNTIME_DIR or TMPDIR: two processes of one home may have different values, and would not find each other's sockets.
    # There a logout also deletes the sockets, while the servers run on.
    return Home(resolved, Path("/tmp") / f"hermes-{hashlib.sha256(os.fsencode(resolved)).hexdigest()[:16]}")  # noqa: S108 checked in make_sockets


def make_home(path: Path) -> Home:
    """Create the missing parts of a data folder. New folders have mode 0700; `stores` gets it in any case.

    Raises HomeUnusable if the folder cannot be written to, or if `stores` belongs to another user."""
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
    """Make the folder of the sockets. Raises HomeUnusable if it cannot be made, or if another user took its name in /tmp."""
    try:
        with suppress(FileExistsError):
            home.sockets.mkdir(mode=0o700)
            give_to_owner(home.sockets, home)
    except OSError as error:
        raise HomeUnusable(f"cannot make the socket folder {home.sockets} ({error.strerror}); use a shorter HERMES_HOME") from error
    if not is_private(home.sockets, home):
        raise HomeUnusable(f"{home.sockets} is not a private folder of Hermes (mode 0700); remove it, or use a shorter HERMES_HOME")


def remove_sockets(home: Home) -> None:
    """After the servers have stopped: remove the files that a dead server left, and the folder itself if it is in /tmp."""
    if not is_private(home.sockets, home):
        return
    for left in (home.postgres_socket, home.sockets / f"{POSTGRES_SOCKET}.lock", home.valkey_socket):
        left.unlink(missing_ok=True)
    if not home.sockets.is_relative_to(home.path):
        home.sockets.rmdir()


def is_private(folder: Path, home: Home) -> bool:
    """Whether this is a folder, not a link, that only the owner of the stores can enter."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700 and found.st_uid == home.stores.stat().st_uid


def give_to_owner(path: Path, home: Home) -> None:
    """As root, give a path to the owner of the stores, so that root leaves no file that this owner cannot use."""
    if os.geteuid() == 0:
        owner = home.stores.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
