"""Finished rollouts as sessions of the store, beside their files: sealed as everything there is, and found by `hermes export --account`.

The files are the truth. A rollout is copied when it is on disk, under a name of its own; copied twice it is there once. What was not copied
before a crash, or was made before anybody asked for it, is copied when the run goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from uuid import UUID

from hermes.app.batch_model import BatchServices
from hermes.graph import MessageGraph
from hermes.trajectories.batch.replay import replay
from hermes.trajectories.batch.rollout import Rollout, RolloutEntry
from hermes.trajectories.batch.run_folder import RunFolder

STORED_FILE = "stored.jsonl"
"""Which rollouts of a run were copied, and the sessions that have them."""
SET_ASIDE_REASON = "set aside by a batch run"


class RolloutStore:
    """The store of the settings, for one run."""

    def __init__(self, services: BatchServices, folder: RunFolder, *, account: str, user_id: UUID) -> None:
        self._services, self._folder, self._account, self._user_id = services, folder, account, user_id

    async def put(self, rollout: Rollout) -> None:
        """Copy a rollout; return when it is committed."""
        await self._copy(rollout.entry, rollout.graph)

    async def catch_up(self) -> None:
        """Copy every rollout of the run that was not copied yet, and let nobody train on copies of those that were set aside since."""
        known = self._known()
        for placed in self._folder.placed():
            if self._name(placed.entry) not in known:
                await self._copy(placed.entry, MessageGraph.from_json(self._folder.graph_line(placed)))
        for entry in self._folder.entries_aside():
            if self._name(entry) in known:
                await self._exclude(UUID(known[self._name(entry)]))

    async def _exclude(self, session_id: UUID) -> None:
        adapters = self._services.adapters
        async with self._services.database.begin() as tx:
            session = await adapters.sessions.get(tx, session_id)
            graph = await adapters.graphs.load(tx, session_id)
            fresh = [response for response in graph.responses() if not any("exclude" in note for note in response.annotations)]
            for response in fresh:
                graph.annotate(response, exclude=SET_ASIDE_REASON)
            if fresh:
                await adapters.graphs.save(tx, session_id, session.head, graph)

    async def _copy(self, entry: RolloutEntry, source: MessageGraph) -> None:
        adapters, name = self._services.adapters, self._name(entry)
        async with self._services.database.begin() as tx:
            found = await adapters.chats.named(tx, self._account, self._user_id, name, ())
            graph = await adapters.graphs.load(tx, found.session_id)
            if not len(graph):
                replay(source, graph)
                await adapters.graphs.save(tx, found.session_id, found.head, graph)
        with self._folder.file(STORED_FILE).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps([name, str(found.session_id)]) + "\n")

    def _name(self, entry: RolloutEntry) -> str:
        return f"{self._folder.path.name}/{entry.name}" + (f".{entry.attempt}" if entry.attempt else "") + f" ({self._folder.run_id[:8]})"

    def _known(self) -> Mapping[str, str]:
        known: dict[str, str] = {}
        with suppress(FileNotFoundError), self._folder.file(STORED_FILE).open("rb") as lines:
            for line in lines:
                with suppress(ValueError, TypeError):  # a torn line is a copy that is made once more, and is there once
                    name, session = json.loads(line)
                    known[name] = session
        return known
