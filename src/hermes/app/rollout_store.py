"""Copies finished rollouts of a batch into the store, as sealed sessions that `hermes export --account` finds.

The run's files stay the truth. A rollout is copied once it is on disk, under a name of its own, so a second copy of it changes nothing.
Rollouts that were not copied, because of a crash or because the run began without a store, are copied when the run is resumed."""

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
from hermes.trajectories.private_files import open_private_text

STORED_FILE = "stored.jsonl"
"""The file that lists the copied rollouts of a run, with their sessions."""
SET_ASIDE_REASON = "set aside by a batch run"


class RolloutStore:
    """The store of the settings, for the rollouts of one run."""

    def __init__(self, services: BatchServices, folder: RunFolder, *, account: str, user_id: UUID) -> None:
        self._services, self._folder, self._account, self._user_id = services, folder, account, user_id

    async def put(self, rollout: Rollout) -> None:
        """Copy a rollout; return when it is committed."""
        await self._copy(rollout.entry, rollout.graph)

    async def catch_up(self) -> None:
        """Copy the rollouts of the run that are not copied yet; exclude the copies of rollouts that were set aside since from training."""
        known = self._known()
        for placed in self._folder.read_index():
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
            unmarked = [response for response in graph.responses() if not any("exclude" in note for note in response.annotations)]
            for response in unmarked:
                graph.annotate(response, exclude=SET_ASIDE_REASON)
            if unmarked:
                await adapters.graphs.save(tx, session_id, session.head, graph)

    async def _copy(self, entry: RolloutEntry, source: MessageGraph) -> None:
        adapters, name = self._services.adapters, self._name(entry)
        async with self._services.database.begin() as tx:
            found = await adapters.chats.find_or_begin(tx, self._account, self._user_id, name, ())
            graph = await adapters.graphs.load(tx, found.session_id)
            if not len(graph):
                replay(source, graph)
                await adapters.graphs.save(tx, found.session_id, found.head, graph)
        with open_private_text(self._folder.file(STORED_FILE), "a") as lines:
            lines.write(json.dumps([name, str(found.session_id)]) + "\n")

    def _name(self, entry: RolloutEntry) -> str:
        return f"{self._folder.path.name}/{entry.name}" + (f".{entry.attempt}" if entry.attempt else "") + f" ({self._folder.run_id[:8]})"

    def _known(self) -> Mapping[str, str]:
        known: dict[str, str] = {}
        with suppress(FileNotFoundError), self._folder.file(STORED_FILE).open("rb") as lines:
            for line in lines:
                with suppress(ValueError, TypeError):  # half a line, left by a crash: that rollout is copied again, which changes nothing
                    name, session = json.loads(line)
                    known[name] = session
        return known
