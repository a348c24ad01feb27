"""Cancel a task at one of its awaits, in the moment that libraries handle worst; and a task that hears no cancellation.

For tests of what must end: one cancellation, wherever it comes, ends a loop of ours, and what waits for its end does not wait for ever."""

import asyncio
from collections.abc import Coroutine, Generator
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class Moment(StrEnum):
    """When the cancellation comes, seen from an await."""

    WAITING = "while it waits"
    ANSWERED = "together with what it waited for"
    """A result or a time-out. Before Python 3.12 `asyncio.wait_for` forgets a cancellation that comes then."""


def cancelled_at(place: int, moment: Moment, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run work in a task that is cancelled once: at the await of this number, counted from 0 over everything below it."""
    task = asyncio.get_running_loop().create_task(_run(_Counted(work, place, lambda awaited: _cancel(task, moment, awaited))))
    return task


async def _run(counted: "_Counted[T]") -> T:
    return await counted


def _cancel(task: asyncio.Task[Any], moment: Moment, awaited: "asyncio.Future[Any] | None") -> None:
    if moment is Moment.WAITING or awaited is None:
        asyncio.get_running_loop().call_soon(task.cancel)
    else:
        awaited.add_done_callback(lambda _: task.cancel())  # added before the task's own: it is cancelled, and then woken with a result


class _Counted(Coroutine[Any, Any, T]):
    """A coroutine whose awaits are counted."""

    def __init__(self, work: Coroutine[Any, Any, T], place: int, at_place: Any) -> None:
        self._work, self._left, self._at_place = work, place, at_place

    def __await__(self) -> Generator[Any, Any, T]:
        return self  # type: ignore[return-value]  # it has the methods of one

    def __iter__(self) -> "_Counted[T]":
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._count(self._work.send(value))

    def throw(self, *error: Any) -> Any:
        return self._count(self._work.throw(*error))

    def close(self) -> None:
        self._work.close()

    def _count(self, awaited: Any) -> Any:
        if self._left == 0:
            self._at_place(awaited)
        self._left -= 1
        return awaited


async def deaf(work: Coroutine[Any, Any, T], times: float = 1) -> T:
    """Work that does not hear the first cancellations, as if a library had swallowed them."""
    inner = asyncio.create_task(work)
    while not inner.done():
        try:
            await asyncio.wait([inner])
        except asyncio.CancelledError:
            if times < 1:
                inner.cancel()
            times -= 1
    return inner.result()
