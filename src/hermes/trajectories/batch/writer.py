"""Write finished rollouts to disk, one write at a time: each write takes all rollouts that ended during the one before."""

from __future__ import annotations

import asyncio

from hermes.trajectories.batch.rollout import Rollout
from hermes.trajectories.batch.run_folder import RunFolder


class RolloutWriter:
    """Writes rollouts to the run folder. Rollouts that end while the disk is busy are written together."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._waiting: list[tuple[Rollout, bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._broken: Exception | None = None

    async def put(self, rollout: Rollout) -> None:
        """Return when the rollout is on disk. If a write failed, raise its error, now and for every later rollout.

        After a failed write the file may end in a torn line, and no more lines may follow."""
        if self._broken is not None:
            raise self._broken
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((rollout, rollout.graph.to_json().encode(), written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_waiting())
        await asyncio.shield(written)

    async def _write_waiting(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._folder.put, [(rollout, text) for rollout, text, _ in taken])
            except Exception as error:  # noqa: BLE001  # raised in every waiting task, so that none waits for ever
                self._broken = error
                for _, _, written in taken + self._waiting:
                    written.set_exception(error)
                return
            for _, _, written in taken:
                written.set_result(None)
