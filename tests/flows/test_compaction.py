"""A long conversation over the API, on real stores: it stays within its limit, and the graph keeps every context."""

from uuid import UUID

import pytest

from hermes.config import HistorySettings
from hermes.ports.sessions import SessionQuery
from hermes.router.compaction_policy import ImageTokenCounter
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import ExportSession
from hermes.trajectories.verify import verify
from tests.flows.service import running

pytestmark = pytest.mark.usefixtures("redis_url")

LIMIT = 2_000
TALE = "The ferry to Nusa Penida leaves at eight from Sanur, and it takes forty minutes when the sea is calm. " * 4


async def test_a_long_conversation_is_compacted_and_its_export_is_complete(
    database_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    more = {"history": HistorySettings(max_tokens=LIMIT)}
    async with running(database_url, redis_url, more=more, answer_timeout_s=20.0) as service:
        key = await service.key()
        for number in range(12):
            assert (await service.post("/v1/messages", {"text": f"{number}: {TALE}"}, key)).status == 200
        async with service.database.begin() as tx:
            [session_id] = await service.hermes.adapters.sessions.find(tx, SessionQuery(account="shop"))
            graph = await service.hermes.adapters.graphs.load(tx, session_id)
        assert isinstance(session_id, UUID)
        assert graph.verify()
        assert {edge.kind for edge in graph.edges()} == {"sequential", "compaction"}
        assert ImageTokenCounter().count(list(graph)) < LIMIT
        assert len(list(graph.responses())) == 12
        assert list(graph)[-2]["content"].endswith(f"11: {TALE}")
    out = tmp_path_factory.mktemp("export") / "rows"
    summary = export([ExportSession("one", graph)], out, ExportSettings(format="sharegpt"), FORMATS)
    assert (summary.manifest["samples"], verify(out).ok) == (12, True)
