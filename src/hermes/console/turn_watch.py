"""Watch turns as they begin and end, for the pages that are open in this process: one subscription, however many pages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from hermes.ports.live import TurnNews
from hermes.tasks import end_tasks

MAX_REMEMBERED = 200


class TurnWatch:
    """The newest turns of which there was news, each under a number. Asks for news while it has a reader."""

    def __init__(self, news: TurnNews, on_news: Callable[[], None]) -> None:
        """`on_news` is called after each news."""
        self._news, self._on_news = news, on_news
        self._newest: deque[tuple[int, UUID]] = deque(maxlen=MAX_REMEMBERED)
        self._readers = 0
        self._is_idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.listeners: list[Callable[[], None]] = []
        """Also called after each news: what wakes the readers."""
        self.number = 0
        """How many turns there was news of so far."""

    @property
    def readers(self) -> int:
        return self._readers

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count one reader for as long as the block lasts."""
        self._readers += 1
        self._is_idle.clear()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="watch turns")
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._is_idle.set()

    def since(self, number: int) -> list[UUID]:
        """The turns of which there was news after a number, each once."""
        return list(dict.fromkeys(turn_id for at, turn_id in self._newest if at > number))

    async def aclose(self) -> None:
        """Stop watching."""
        if self._task is not None:
            await end_tasks(self._task)

    async def _watch(self) -> None:
        while self._readers:
            async with self._news.watching(self._hear):
                await self._is_idle.wait()

    def _hear(self, turn_ids: Sequence[UUID]) -> None:
        for turn_id in turn_ids:
            self.number += 1
            self._newest.append((self.number, turn_id))
        for call in (self._on_news, *self.listeners):
            call()
