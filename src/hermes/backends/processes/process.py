"""A program that runs for one call, in a process group of its own, so that it ends together with all processes it has started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from hermes.http_client import MAX_BODY_BYTES, MIN_TIMEOUT_S, TransportError

END_S = 0.5
"""How long a program may take to end: by itself after its last line, and after SIGTERM."""
MAX_STDERR_BYTES = 2_000
"""How many of the last bytes of standard error are kept."""


class ProgramOutput(asyncio.SubprocessProtocol):
    """Collects a program's output as it comes."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.stderr = b""
        self.has_ended = asyncio.Event()
        self._size = 0

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr = (self.stderr + data)[-MAX_STDERR_BYTES:]
        elif (before := self._size) <= MAX_BODY_BYTES:
            self._size = before + len(data)
            self.pieces.put_nowait(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - a pipe that breaks counts as one that ends
        if fd == 1:
            self.pieces.put_nowait(b"")

    def process_exited(self) -> None:
        self.has_ended.set()


class RunningProgram:
    """A program between its start and its end."""

    def __init__(self, transport: asyncio.SubprocessTransport, output: ProgramOutput, timeout_s: float) -> None:
        self._transport, self._output, self._timeout_s = transport, output, timeout_s
        self._deadline = asyncio.get_running_loop().time() + timeout_s

    async def read_piece(self) -> bytes:
        """The next piece of its output, as soon as there is one; empty at its end. Raises TransportError at the deadline."""
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._output.pieces.get()
        except TimeoutError:
            raise TransportError(f"no whole answer within {self._timeout_s:g} s") from None

    async def exit_code(self) -> int | None:
        """The exit code. Waits up to END_S for the program to end by itself; None if it did not."""
        await self._wait_for_end()
        return self._transport.get_returncode()

    @property
    def last_error_line(self) -> str:
        """The last line that it wrote to standard error."""
        lines = self._output.stderr.decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    async def end(self) -> None:
        """End the program and all processes of its group: SIGTERM, then SIGKILL if it does not end, or if this is interrupted."""
        try:
            if not self._output.has_ended.is_set():
                signal_group(self._transport.get_pid(), signal.SIGTERM)
                await self._wait_for_end()
        finally:
            signal_group(self._transport.get_pid(), signal.SIGKILL)
            self._transport.close()
        await self._output.has_ended.wait()

    async def _wait_for_end(self) -> None:
        try:
            async with asyncio.timeout(END_S):
                await self._output.has_ended.wait()
        except TimeoutError:
            return


@asynccontextmanager
async def run_program(
    command: Sequence[str], *, text: bytes, cwd: Path, environment: Mapping[str, str], timeout_s: float
) -> AsyncIterator[RunningProgram]:
    """Run a program on a text until the block ends. Raises TransportError if the program or the folder does not exist.

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
    """Raise TransportError for a folder that does not exist: otherwise the operating system would say that the program does not."""
    if not cwd.is_dir():
        raise TransportError(f"the working directory {cwd} does not exist")


def write_input(transport: asyncio.SubprocessTransport, text: bytes) -> None:
    """Write the text to the program and then close the pipe; the event loop writes as fast as the program reads."""
    pipe = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))  # uvloop's pipe has another type, and behaves the same
    pipe.write(text)
    pipe.close()  # takes effect after everything is written


def signal_group(pid: int | None, number: signal.Signals) -> None:
    """Send a signal to a program and all processes that it has started."""
    if pid is not None:
        try:
            os.killpg(pid, number)
        except (ProcessLookupError, PermissionError):  # macOS forbids it for a group whose processes are all dead
            return
