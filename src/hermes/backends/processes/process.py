"""A program that runs for one call, in a process group of its own, so that it ends together with whatever it has started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from hermes.backends.http_client import MAX_BODY_BYTES, MIN_TIMEOUT_S, TransportError

END_S = 0.5
"""How long a program may take to end: by itself after its last word, and when it is told to."""
MAX_STDERR_BYTES = 2_000
"""How much is kept of what it says on standard error."""


class ProgramOutput(asyncio.SubprocessProtocol):
    """What a program says, as it comes."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.last_words = b""
        self.has_ended = asyncio.Event()
        self._size = 0

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.last_words = (self.last_words + data)[-MAX_STDERR_BYTES:]
        elif (before := self._size) <= MAX_BODY_BYTES:
            self._size = before + len(data)
            self.pieces.put_nowait(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - a pipe that breaks is one that ends
        if fd == 1:
            self.pieces.put_nowait(b"")

    def process_exited(self) -> None:
        self.has_ended.set()


class RunningProgram:
    """A program between its start and its end."""

    def __init__(self, transport: asyncio.SubprocessTransport, output: ProgramOutput, timeout_s: float) -> None:
        self._transport, self._output, self._timeout_s = transport, output, timeout_s
        self._deadline = asyncio.get_running_loop().time() + timeout_s

    async def more(self) -> bytes:
        """The next piece of its output, as soon as there is one; empty at its end. Raises Lost at the deadline."""
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._output.pieces.get()
        except TimeoutError:
            raise TransportError(f"no whole answer within {self._timeout_s:g} s") from None

    async def exit_code(self) -> int | None:
        """How it ended, after a moment in which it may do so by itself; None if it did not."""
        await self._ends_by_itself()
        return self._transport.get_returncode()

    @property
    def last_words(self) -> str:
        """The last line that it wrote to standard error."""
        lines = self._output.last_words.decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    async def end(self) -> None:
        """See to it that nothing of it is left: it is told to end, and killed with its group if it does not, or if this is interrupted."""
        try:
            if not self._output.has_ended.is_set():
                signal_group(self._transport.get_pid(), signal.SIGTERM)
                await self._ends_by_itself()
        finally:
            signal_group(self._transport.get_pid(), signal.SIGKILL)
            self._transport.close()
        await self._output.has_ended.wait()

    async def _ends_by_itself(self) -> None:
        try:
            async with asyncio.timeout(END_S):
                await self._output.has_ended.wait()
        except TimeoutError:
            return


@asynccontextmanager
async def run_program(
    command: Sequence[str], *, text: bytes, cwd: Path, environment: Mapping[str, str], timeout_s: float
) -> AsyncIterator[RunningProgram]:
    """Run a program on a text until the block ends. Raises Lost if there is no such program.

    The text goes to its standard input, so that its length has no limit and no list of processes shows it."""
    require_folder(cwd)
    try:
        transport, output = await asyncio.get_running_loop().subprocess_exec(
            ProgramOutput, *command, cwd=cwd, env=dict(environment), start_new_session=True
        )
    except OSError as error:
        raise TransportError(f"{command[0]} cannot be run ({error.strerror}); is it installed?") from None
    program = RunningProgram(transport, output, max(timeout_s, MIN_TIMEOUT_S))
    try:
        write_input(transport, text)
        yield program
    finally:
        await program.end()


def require_folder(cwd: Path) -> None:
    """Raise Lost for a folder that is not there; starting in it would say that the program is not."""
    if not cwd.is_dir():
        raise TransportError(f"the working directory {cwd} is not there")


def write_input(transport: asyncio.SubprocessTransport, text: bytes) -> None:
    """Hand the text over and close the pipe behind it; the loop writes as the program reads."""
    pipe = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))  # uvloop's is none, and behaves like one
    pipe.write(text)
    pipe.close()  # after what is still to be written


def signal_group(pid: int | None, word: signal.Signals) -> None:
    """Send a signal to a program and everything that it has started."""
    if pid is not None:
        try:
            os.killpg(pid, word)
        except (ProcessLookupError, PermissionError):  # macOS forbids it for a group of which only the dead are left
            return
