"""How the processes of one home find each other's metrics: each has a small number among those of its role, and answers on a socket.

    HERMES_HOME/metrics/worker-1.lock     locked by the process that is worker 1, until it ends, however it ends
    HERMES_HOME/metrics/worker-1.sock     a client connects, and reads the process's families until the end

The socket is answered by the event loop, so a process whose loop is blocked does not answer. A process that stops removes its socket; one
that was killed leaves it, and is shown as down until another process takes its number, or for FORGET_DEAD_S. Monitoring never stops the
service: a process that cannot have a socket logs that, and goes on without."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from prometheus_client.metrics_core import Metric

from hermes.ops.metrics_page import decode_families, encode_families

log = structlog.get_logger()

FOLDER = "metrics"
MAX_SOCKET_PATH_BYTES = 103
"""The longest path of a socket that every platform accepts: Linux accepts 107 bytes, macOS 103."""
MAX_PROCESSES = 64
"""The processes of one role that have a number."""
SIBLING_TIMEOUT_S = 2.0
"""How long a page waits for the others. A loop that is blocked for longer is a fault, and its process counts as down."""
MAX_PAGE_BYTES = 16_000_000
FORGET_DEAD_S = 600.0
"""How long a killed process is shown as down if no other takes its number."""

ReadFamilies = Callable[[], Iterable[Metric]]


@dataclass(slots=True)
class Siblings:
    """The other processes of this home."""

    folder: Path
    own: str
    """The name of this process: it does not ask itself."""
    timeout_s: float = SIBLING_TIMEOUT_S
    _dead_since: dict[str, float] = field(default_factory=dict)

    async def read(self) -> dict[str, list[Metric] | None]:
        """Return the families of each by its name; None for one that is dead, or did not answer in time. Does not raise."""
        names = sorted(path.stem for path in self.folder.glob("*.sock") if path.stem != self.own)
        found = await asyncio.gather(*(self._ask(name) for name in names))
        return {name: families for name, (families, is_known) in zip(names, found, strict=True) if is_known}

    async def _ask(self, name: str) -> tuple[list[Metric] | None, bool]:
        path = self.folder / f"{name}.sock"
        try:
            async with asyncio.timeout(self.timeout_s):
                families = decode_families(await read_socket(path))
        except FileNotFoundError:
            return None, False  # it stopped a moment ago
        except ConnectionRefusedError:
            return None, not self._forget(name)
        except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            log.warning("metrics_not_read", process=name, error=type(error).__name__)
            return None, True
        self._dead_since.pop(name, None)
        return families, True

    def _forget(self, name: str) -> bool:
        """Remove what a dead process left, if it has been dead for long; False if it has not."""
        since = self._dead_since.setdefault(name, time.monotonic())
        if time.monotonic() - since < FORGET_DEAD_S:
            return False
        self._dead_since.pop(name)
        with suppress(OSError):
            lock = take_lock(self.folder / f"{name}.lock")
            if lock is None:
                return False
            try:
                (self.folder / f"{name}.sock").unlink(missing_ok=True)
            finally:
                os.close(lock)
        return True


async def read_socket(path: Path) -> bytes:
    """Read a socket to its end. Raises OSError; ValueError for a page without end."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        page = b""
        while chunk := await reader.read(1 << 20):
            page += chunk
            if len(page) > MAX_PAGE_BYTES:
                raise ValueError("the page is too long")
        return page
    finally:
        writer.close()


@asynccontextmanager
async def open_process_socket(home: Path, role: str, families: ReadFamilies) -> AsyncIterator[Siblings | None]:
    """Take a number for this process, and answer on its socket until the block ends. Yield its siblings; None if it has no socket."""
    try:
        folder = make_folder(home)
        name, lock = take_number(folder, role)
    except OSError as error:
        log.warning("metrics_socket_missing", reason=error.strerror or str(error))
        yield None
        return
    path = folder / f"{name}.sock"
    path.unlink(missing_ok=True)  # of a process that was killed

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # a reader that lost its patience
            writer.write(encode_families(families()))
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, path)
    try:
        yield Siblings(folder, name)
    finally:
        # The socket goes first: as long as it is there, the lock says to which process it belongs.
        path.unlink(missing_ok=True)
        server.close()
        os.close(lock)


# --- the folder and the numbers


def make_folder(home: Path) -> Path:
    """Make the private folder of the sockets. Raises OSError if it cannot be made, or is not private."""
    folder = folder_of(home)
    with suppress(FileExistsError):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) != 0o700 or found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not a private folder of this user (mode 0700)")
    return folder


def folder_of(home: Path) -> Path:
    """Where the sockets are: in the home, or in /tmp if the home's path is too long for a socket."""
    resolved = home.resolve()
    inside = resolved / FOLDER
    if len(os.fsencode(inside / f"worker-{MAX_PROCESSES}.sock")) <= MAX_SOCKET_PATH_BYTES:
        return inside
    # Not TMPDIR: two processes of one home may have different values. `make_folder` refuses a folder that another user made.
    return Path("/tmp") / f"hermes-metrics-{hashlib.sha256(os.fsencode(resolved)).hexdigest()[:16]}"  # noqa: S108


def take_number(folder: Path, role: str) -> tuple[str, int]:
    """Return the name of this process, `worker-1`, with the first number that is free, and its locked file. Raises OSError."""
    for number in range(1, MAX_PROCESSES + 1):
        name = f"{role}-{number}"
        lock = take_lock(folder / f"{name}.lock")
        if lock is not None:
            return name, lock
    raise OSError(f"all {MAX_PROCESSES} numbers of {role} are taken")


def take_lock(path: Path) -> int | None:
    """Lock a file; return its descriptor, or None if another process has it. The kernel gives the lock back when the process ends."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        os.close(lock)
        raise
    return lock
