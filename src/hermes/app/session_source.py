"""What a store holds, as sessions to export. Needs neither models nor workers, and a Hermes that runs on the store is not disturbed.

async with open_stored(settings) as stored:
    for session_id in await stored.find(Wanted(account="bali")):
        session = await stored.read(session_id)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from hermes.app.root import open_database_and_keys
from hermes.config import Settings
from hermes.graph import MessageGraph
from hermes.ports.errors import DataDamaged
from hermes.ports.graphs import Graphs
from hermes.ports.sessions import SessionQuery, Sessions
from hermes.ports.transactions import Transactions
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.seal import SealError
from hermes.trajectories.errors import SourceError
from hermes.trajectories.source import ExportSession, check_session


@dataclass(frozen=True, slots=True)
class SessionSource:
    """The sessions of a store. Every call is a transaction of its own, so that nothing is held however long an export takes."""

    transactions: Transactions
    sessions: Sessions
    graphs: Graphs

    async def find(self, wanted: SessionQuery) -> Sequence[UUID]:
        """Return the sessions that are wanted, in the order of their beginning; raise NotThere as Sessions.find does."""
        async with self.transactions.begin() as tx:
            return await self.sessions.find(tx, wanted)

    async def read(self, session_id: UUID) -> ExportSession | SourceError:
        """Return one session under its id, as it is now; a SourceError in its place if it is not what was stored once.

        Where somebody who spoke in it does not allow training, now, every response says so: `consent` is annotated as false, on this
        copy alone. Raises NotThere, and Forgotten when the one was deleted for whom it is sealed."""
        name = str(session_id)
        try:
            async with self.transactions.begin() as tx:
                # Whether somebody was deleted is asked first: their key may still be in this process.
                may_train = await self.sessions.may_train(tx, session_id)
                graph = await self.graphs.load(tx, session_id)
            session = check_session(name, graph, f"session {name}", size=1)  # opens every seal, some of which were still closed
        except (SealError, DataDamaged) as error:
            return SourceError(f"session {name}", str(error))
        if not may_train:
            forbid_training(graph)
        return session


def forbid_training(graph: MessageGraph) -> None:
    """Note on every response that nobody may train on it."""
    for response in graph.responses():
        graph.annotate(response, consent=False)


@asynccontextmanager
async def open_session_source(settings: Settings) -> AsyncIterator[SessionSource]:
    """Open the store that the settings name, as long as the block lasts. Starts the embedded stores if they do not run.

    Brings the schema up to date. Raises StartRefused, or StoreUnavailable when PostgreSQL cannot be reached."""
    async with open_database_and_keys(settings, pool_min=1, pool_max=1) as (_, database, keyring):
        yield SessionSource(database, PostgresSessions(keyring), PostgresGraphs(keyring))
