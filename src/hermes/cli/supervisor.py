"""`hermes up`: the stores, one web process, and workers, kept alive together.

The parent holds the stores, so a restart of a child never stops them. Children end when the parent ends, even if it is killed: each child
watches a pipe that the parent holds."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from hermes.app import home_of, open_stores
from hermes.cli.errors import BAD_INPUT
from hermes.config import Settings

log = structlog.get_logger()

STEADY_S = 10.0
"""After a child ran this long, its next failure counts as the first."""
MAX_PAUSE_S = 10.0
GRACE_S = 5.0
"""How much longer than `work.drain_s` a child may take to stop."""


async def supervise(settings: Settings, config: Path | None) -> int:
    """Run all processes until a signal stops them; return the exit code."""
    roles = ["serve", *(["worker"] * settings.work.processes)]
    stopping, killing = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        (killing if stopping.is_set() else stopping).set()  # a second signal kills the children

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with open_stores(settings, home_of(settings)):
        children = [ChildProcess(role, config, stopping, killing, settings.work.drain_s + GRACE_S) for role in roles]
        codes = await asyncio.gather(*(child.keep_alive() for child in children))
    return next((code for code in codes if code), 0)


@dataclass(slots=True)
class ChildProcess:
    """One child process. The parent starts it again when it dies."""

    role: str
    config: Path | None
    stopping: asyncio.Event
    killing: asyncio.Event
    stop_timeout_s: float
    """How long the child may take to stop; then the parent kills it, and another worker takes its turns over."""

    async def keep_alive(self) -> int:
        """Run the child until everything stops. Bad settings stop everything: a restart would not help."""
        failures = 0
        while not self.stopping.is_set():
            began = time.monotonic()
            code = await self._run_once()
            if self.stopping.is_set():
                return 0
            if code == BAD_INPUT:
                self.stopping.set()
                return code
            failures = 1 if time.monotonic() - began > STEADY_S else failures + 1
            pause_s = min(0.5 * 2 ** (failures - 1), MAX_PAUSE_S)
            log.warning("process_died", role=self.role, code=code, restarts_in_s=pause_s)
            await self._sleep(pause_s)
        return 0

    async def _run_once(self) -> int:
        options = ["--config", str(self.config)] if self.config else []
        command = [sys.executable, "-m", "hermes", self.role, "--with-parent", *options]
        # A session of its own: Ctrl-C in the terminal reaches only the parent, which then stops the children.
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, start_new_session=True)
        died = asyncio.create_task(process.wait())
        stopped = asyncio.create_task(self.stopping.wait())
        await asyncio.wait({died, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not died.done():
            process.terminate()
            killed = asyncio.create_task(self.killing.wait())
            await asyncio.wait({died, killed}, timeout=self.stop_timeout_s, return_when=asyncio.FIRST_COMPLETED)
            killed.cancel()
            if not died.done():
                log.warning("process_killed", role=self.role, pid=process.pid)
                process.kill()
        return await died

    async def _sleep(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self.stopping.wait()
        except TimeoutError:
            return
