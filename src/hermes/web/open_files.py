"""How many files a process may have open. Each connection is one."""

from __future__ import annotations

import sys
from contextlib import suppress

RESERVED_FILES = 256
"""Open files that the process needs besides those of its clients."""
WINDOWS_SOCKETS = 512
MAX_FILES = 2**20

if sys.platform == "win32":

    def open_file_limit() -> int:
        return WINDOWS_SOCKETS

    def raise_file_limit(connections: int) -> None:
        """Do nothing: there is no such limit."""

else:
    import resource

    def open_file_limit() -> int:
        """Return how many files this process may have open."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return MAX_FILES if soft == resource.RLIM_INFINITY else soft

    def raise_file_limit(connections: int) -> None:
        """Let this process open as many files as its connections need, as far as the system allows it."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections + RESERVED_FILES
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
