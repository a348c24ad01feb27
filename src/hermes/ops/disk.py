"""The disk of the data folder: each process looks at its own machine's, and raises an alert before it is full."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from hermes.ports.runtime import Alerts
from hermes.tasks import stop_if_cancelled

CLEAR_POINTS = 2.0
"""The alert ends when this many percentage points below the limit are in use, so that it does not come and go."""


class DiskWatch:
    """Watches one disk."""

    def __init__(
        self, folder: Path, alerts: Alerts, *, limit_percent: float, usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage
    ) -> None:
        """`usage` returns the bytes of a folder's disk: all, used and free."""
        self._folder, self._alerts, self._limit_percent, self._usage = folder, alerts, limit_percent, usage
        self._is_full = False

    def look(self) -> None:
        """Raise or end the alert. A disk that cannot be read is none."""
        try:
            folder = next(path for path in (self._folder, *self._folder.parents) if path.exists())
            total, _, free = self._usage(folder)
        except OSError:
            return
        used_percent = 100 * (total - free) / total if total else 0.0
        host = socket.gethostname()
        if used_percent > self._limit_percent - (CLEAR_POINTS if self._is_full else 0.0):
            self._is_full = True
            self._alerts.alert("disk_nearly_full", host=host, used_percent=round(used_percent, 1), free_bytes=free)
        elif self._is_full:
            self._is_full = False
            self._alerts.end("disk_nearly_full", host=host)

    async def run(self, *, every_s: float = 60.0) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.to_thread(self.look)
            stop_if_cancelled()
            await asyncio.sleep(every_s)
