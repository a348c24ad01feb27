"""Reads the sessions of a store for an export. Needs neither models nor workers.

May run beside a Hermes of the same version: both share the embedded stores, and the schema is up to date already. A newer version first
brings the schema up to date, as its `hermes up` would.

async with open_session_source(settings) as source:
    for session_id in await source.find(SessionQuery(account="bali")):
        session = await source.read(session_id)
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
from hermes.ports.runtime import Transactions
from hermes.ports.sessions import Graphs, SessionQuery, Sessions
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.seal import SealError
from hermes.trajectories.errors import SourceError
from hermes.trajectories.source import ExportSession, check_session


@dataclass(frozen=True, slots=True)
class SessionSource:
    """The sessions of a store. Every call is a transaction of its own, so that a long export holds no locks."""

    transactions: Transactions
    sessions: Sessions
    graphs: Graphs

    async def find(self, query: SessionQuery) -> Sequence[UUID]:
        """Return the ids of the sessions, the oldest first; raise NotFound for an unknown name or account."""
        async with self.transactions.begin() as tx:
            return await self.sessions.find(tx, query)

    async def read(self, session_id: UUID) -> ExportSession | SourceError:
        """Return one session as it is now. If its data is damaged, return (do not raise) a SourceError in its place.

        If one of its speakers does not allow training now, every response of the returned copy is annotated with `consent` false. Raises
        NotFound if there is no such session, and UserErased if the session's owner was deleted."""
        name = str(session_id)
        try:
            async with self.transactions.begin() as tx:
                # First, because it notices a deleted owner: the owner's key may still be cached in this process.
                may_train = await self.sessions.may_train(tx, session_id)
                graph = await self.graphs.load(tx, session_id)
            # Reads every message, so a sealed message that cannot be opened raises SealError here. A stored session counts 1 for progress.
            session = check_session(name, graph, f"session {name}", size=1)
        except (SealError, DataDamaged) as error:
            return SourceError(f"session {name}", str(error))
        if not may_train:
            forbid_training(graph)  # `session` holds this graph
        return session


def forbid_training(graph: MessageGraph) -> None:
    """Annotate every response of the graph with `consent` false."""
    for response in graph.responses():
        graph.annotate(response, consent=False)


@asynccontextmanager
async def open_session_source(settings: Settings) -> AsyncIterator[SessionSource]:
    """Open the store of the settings for as long as the block lasts. Starts the embedded stores if they do not run.

    Brings the schema up to date. Raises StartRefused, or StoreUnavailable when PostgreSQL cannot be reached."""
    async with open_database_and_keys(settings, pool_min=1, pool_max=1) as (_, database, keyring):
        yield SessionSource(database, PostgresSessions(keyring), PostgresGraphs(keyring))
