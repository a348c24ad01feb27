"""A chunk is done whole: Ctrl-C waits for its end, instead of coming between an event loop and what was to run on it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def run_whole(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to the end; raise KeyboardInterrupt after it if somebody pressed Ctrl-C meanwhile."""
    with _undisturbed():
        return asyncio.run(main())


@contextmanager
def _undisturbed() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt
