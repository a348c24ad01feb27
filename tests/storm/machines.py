"""What can be struck: the processes of Hermes, each started again when it dies, and the two servers behind them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from hermes.stores import embedded

ROOT = Path(__file__).parents[2]
COMMANDS = {"web": "serve", "worker": "worker"}
PAUSE_S = 0.5
"""Before a process is started again, as `hermes up` does it."""
BAD_INPUT = 2
CUT = """
select pg_terminate_backend(pid) from (
    select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() order by random() limit %s
) as some"""


class Refused(AssertionError):
    """A process does not start, and never will."""


@dataclass(slots=True)
class Machine:
    """One process of Hermes: `hermes serve` or `hermes worker`, kept alive."""

    role: str
    number: int
    environ: Mapping[str, str]
    folder: Path
    process: asyncio.subprocess.Process | None = None
    doom: Sequence[str] = ()
    """Where the next one that is started dies."""
    deaths: list[tuple[float, int]] = field(default_factory=list)
    """When one died, and how."""
    _log_begins: int = 0
    """Where the log of the one begins that runs now."""

    @property
    def log(self) -> Path:
        return self.folder / f"{self.role}-{self.number}.log"

    async def keep_alive(self) -> None:
        """Run it, and start it again when it dies, until cancelled; then kill it."""
        try:
            while True:
                code = await self._run_once()
                self.deaths.append((time.monotonic(), code))
                if code == BAD_INPUT:
                    raise Refused(f"{self.role} does not start:\n{self.last_words()}")
                await asyncio.sleep(PAUSE_S)
        finally:
            self.strike(signal.SIGKILL)
            if self.process is not None:
                await self.process.wait()

    def strike(self, blow: int) -> bool:
        """Send it a signal; whether there was anybody."""
        if self.process is None or self.process.returncode is not None:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, blow)
            return True
        return False

    @property
    def is_ready(self) -> bool:
        """Whether the one that runs now has said that it is."""
        return self.process is not None and self.process.returncode is None and f'"{self.role}_ready"'.encode() in self._words()

    def last_words(self, lines: int = 20) -> str:
        return "\n".join(self._words().decode(errors="replace").splitlines()[-lines:])

    def _words(self) -> bytes:
        with self.log.open("rb") as log:
            log.seek(self._log_begins)
            return log.read()

    async def _run_once(self) -> int:
        doom, self.doom = self.doom, ()
        role = COMMANDS[self.role]
        command = ["tests.storm.doomed", role, *doom] if doom else ["hermes", role]
        with self.log.open("ab") as log:
            self._log_begins = log.tell()
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *command),
                env=dict(self.environ),
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return await self.process.wait()


@dataclass(slots=True)
class Servers:
    """PostgreSQL and Valkey of the storm's own."""

    home: Path
    held: embedded.ServerLease

    @classmethod
    def start(cls, home: Path) -> Servers:
        return cls(home, embedded.start(home))

    @property
    def addresses(self) -> embedded.StoreUrls:
        return self.held.stores

    def stop(self) -> None:
        self.held.release()

    async def restart(self, server: str, blow: int, after_s: float) -> None:
        """End one by a signal, and start it again after a while."""
        pid = await asyncio.to_thread(self._pid, server)
        if pid is not None:
            os.kill(pid, blow)
        await asyncio.sleep(after_s)
        while await asyncio.to_thread(self._pid, server) == pid:  # noqa: ASYNC110  # one that ends in an orderly way takes its time
            await asyncio.sleep(0.05)
        again = await asyncio.to_thread(embedded.start, self.home)
        before, self.held = self.held, again
        await asyncio.to_thread(before.release)

    async def hang(self, server: str, for_s: float) -> None:
        """Stop one, and let it go on after a while."""
        pid = await asyncio.to_thread(self._pid, server)
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(for_s)
            os.kill(pid, signal.SIGCONT)

    async def empty_redis(self) -> None:
        async with Redis.from_url(self.addresses.redis_url, socket_timeout=2.0) as client:
            with suppress(RedisError, OSError):
                await client.flushall()

    async def cut_connections(self, database_url: str, count: int) -> None:
        """Drop some connections of Hermes, whoever has them."""
        with suppress(psycopg.Error):
            async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, connect_timeout=2) as connection:
                await connection.execute(CUT, [count])

    def _pid(self, server: str) -> int | None:
        pid: int | None = getattr(embedded.status(self.home), server)
        return pid
