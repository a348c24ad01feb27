"""An event loop in a thread of its own, for a command whose main thread belongs to the terminal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractAsyncContextManager, contextmanager
from threading import Thread
from typing import Any, Self, TypeVar

from hermes.cli.runtime import new_event_loop

T = TypeVar("T")


class BackgroundLoop:
    """An event loop in a thread. It runs as long as the `with` block lasts."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="hermes-chat", daemon=True)

    def __enter__(self) -> Self:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # if the server disconnects, the connection fails, and the process goes on
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it. If the caller is interrupted, the coroutine is cancelled."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    @contextmanager
    def hold_open(self, opening: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Keep a context manager open on the loop. One task opens and closes it: some libraries require that."""
        is_over, is_open = asyncio.Event(), Future[T]()

        async def hold() -> None:
            async with opening as opened:
                is_open.set_result(opened)
                await is_over.wait()

        holding = asyncio.run_coroutine_threadsafe(hold(), self._loop)
        try:
            either: list[Future[Any]] = [is_open, holding]
            wait(either, return_when=FIRST_COMPLETED)
            if not is_open.done():
                holding.result()  # raises the error of the opening
            yield is_open.result()
        finally:
            self._loop.call_soon_threadsafe(is_over.set)
            holding.result()
