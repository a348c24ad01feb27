"""The way of finished rollouts to the disk: one trip at a time, each with everything that ended while the one before it was under way."""

from __future__ import annotations

import asyncio

from hermes.trajectories.batch.rollout import Rollout
from hermes.trajectories.batch.run_folder import RunFolder


class RolloutWriter:
    """Keeps rollouts for whoever waits: those that end while the disk is busy go together, in one trip."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._waiting: list[tuple[Rollout, bytes, asyncio.Future[None]]] = []
        self._trip: asyncio.Task[None] | None = None
        self._broken: Exception | None = None

    async def put(self, rollout: Rollout) -> None:
        """Return when the rollout is on disk; raise what kept it from there, and the same for every later one.

        Behind a torn line nothing can be written."""
        if self._broken is not None:
            raise self._broken
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((rollout, rollout.graph.to_json().encode(), kept))
        if self._trip is None or self._trip.done():
            self._trip = asyncio.create_task(self._go())
        await asyncio.shield(kept)

    async def _go(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._folder.put, [(rollout, text) for rollout, text, _ in taken])
            except Exception as error:  # noqa: BLE001  # whatever it is, it is raised where somebody waits; nobody waits for ever
                self._broken = error
                for _, _, kept in taken + self._waiting:
                    kept.set_exception(error)
                return
            for _, _, kept in taken:
                kept.set_result(None)
