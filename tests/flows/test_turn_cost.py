"""What a turn costs is everything that it caused: the summary of its history, models that failed, tools, attempts that were cut off, and
what was learned from its message."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from hermes.config import BackendSettings, CreditSettings, HistorySettings, MemorySettings, NamedTables, Secret, TierSettings
from hermes.gateway.spend_sums import HourSummer
from hermes.ports.sessions import SessionQuery
from hermes.ports.spending import SpendDimension, ToolTotals
from hermes.router.compaction_policy import ImageTokenCounter
from hermes.stores.postgres.database import connection_of
from hermes.trajectories.compress.settings import CompressionSettings
from tests.fakes.vendors import ToolCall, vendors
from tests.flows.service import Service, running, stopped

TALE = "The ferry to Nusa Penida leaves at eight from Sanur, and it takes forty minutes when the sea is calm. " * 4
LIMIT = 1_500
PATIENCE_S = 30.0


@asynccontextmanager
async def working(service: Service) -> AsyncIterator[None]:
    worker = asyncio.create_task(service.hermes.run_worker())
    try:
        yield
    finally:
        await stopped(worker)


async def ask(service: Service, query: str) -> list[Any]:
    async with service.database.begin() as tx:
        return await (await connection_of(tx).execute(query.encode())).fetchall()


async def is_long(service: Service) -> bool:
    """Whether the history will be compacted before the next answer."""
    adapters = service.hermes.adapters
    async with service.database.begin() as tx:
        sessions = await adapters.sessions.find(tx, SessionQuery(account="shop"))
        graphs = [await adapters.graphs.load(tx, session_id) for session_id in sessions]
    return any(ImageTokenCounter().count(list(graph)) > LIMIT * CompressionSettings().live.trigger_share for graph in graphs)


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110  # the rows of another task ring no bell
            await asyncio.sleep(0.02)


async def test_a_turns_cost_is_the_sum_of_all_calls_that_it_caused(database_url: str, redis_url: str) -> None:
    async with vendors() as v:
        v.anthropic.models[:] = ["claude-haiku-4-5-20251001", "claude-sonnet-4-6"]
        more = {
            "backends": NamedTables({"anthropic": BackendSettings(base_url=v.anthropic.url, api_key=Secret(v.anthropic.key))}),
            "tiers": NamedTables({"free": TierSettings(chain=("claude-sonnet", "claude-haiku"), day_tokens=10_000_000)}),
            "history": HistorySettings(max_tokens=LIMIT),
            "memory": MemorySettings(),
            "credits": CreditSettings(signup_grant=50),
        }
        async with running(database_url, redis_url, has_worker=False, echoes=False, more=more, answer_timeout_s=60.0) as service:
            key = await service.key()
            async with working(service):
                number = 0
                while not await is_long(service):
                    reply = await service.post("/v1/messages", {"text": f"{number}: {TALE}"}, key)
                    assert reply.status == 200, reply.body
                    number += 1
                learned = f"select 1 from calls where purpose = 'remember' having count(*) = {number}"  # noqa: S608
                await until(lambda: ask(service, learned))
            # The summary is made by the first model. Then it fails, and the second one hangs until its worker is stopped.
            seen = len(v.anthropic.requests)
            v.anthropic.say("They take the ferry at eight.")
            v.anthropic.fail(529)
            v.anthropic.hang()
            sending = asyncio.create_task(service.post("/v1/messages", {"text": f"I'm vegan. Find me a cafe in Ubud. {TALE}"}, key))
            async with working(service):
                await v.anthropic.asked(seen + 3, timeout_s=PATIENCE_S)
            v.anthropic.fail(529)
            v.anthropic.say("", tool_calls=[ToolCall("search_venues", {"query": "cafe", "area": "Ubud"})])
            v.anthropic.say("Two cafes are near.")
            v.anthropic.say('{"facts": []}')
            async with working(service):
                answer = await sending
                assert answer.status == 200, answer.body
                turn = answer.body["turn_id"]

                learned = f"select 1 from calls where turn_id = '{turn}' and purpose = 'remember'"  # noqa: S608
                await until(lambda: ask(service, learned))
            await service.hermes.gateway.wait_settled()
            columns = "purpose, outcome, error, agent, platform, api_key_id is not null, jsonb_array_length(attempts), micro_usd > 0"
            rows = await ask(service, f"select {columns} from calls where turn_id = '{turn}' order by created_at")  # noqa: S608
            whose = ("hermes", "rest", True)
            assert rows == [
                ("compact", "answered", None, *whose, 1, True),
                ("answer", "cancelled", "CancelledError", *whose, 1, True),
                ("answer", "answered", None, *whose, 2, True),
                ("conclude", "answered", None, *whose, 1, True),
                ("remember", "answered", None, *whose, 1, True),
            ]
            [(micro_usd,)] = await ask(service, f"select sum(micro_usd) from calls where turn_id = '{turn}'")  # noqa: S608
            async with service.database.begin() as tx:
                assert (await service.hermes.adapters.calls.cost_of_turn(tx, turn)).micro_usd == micro_usd
            run = (await service.get(f"/v1/runs/{turn}", key)).body
            [(tokens_in, tokens_out)] = await ask(service, f"select sum(tokens_in), sum(tokens_out) from calls where turn_id = '{turn}'")  # noqa: S608
            usage = {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
            assert (run["usage"], run["cost_usd"]) == (usage, float(micro_usd) / 1_000_000), "compaction and learning too"
            # The interaction has the price of the answer alone: it is written before the message is learned from.
            [(cost_usd,)] = await ask(service, f"select (meta ->> 'cost_usd')::float from interactions where turn_id = '{turn}'")  # noqa: S608
            assert 0 < cost_usd * 1_000_000 < micro_usd
            [(has_key,)] = await ask(service, f"select api_key_id is not null from inbox where turn_id = '{turn}'")  # noqa: S608
            assert has_key
            await sums_are_the_ledger(service)


async def sums_are_the_ledger(service: Service) -> None:
    sums, now = service.hermes.adapters.spend_sums, datetime.now(UTC)
    await HourSummer(service.database, sums).sum_recent()
    window = {"since": now - timedelta(days=1), "until": now + timedelta(hours=1)}
    async with service.database.begin() as tx:
        by_purpose = {totals.value: totals.micro_usd for totals in await sums.spend_by(tx, SpendDimension.PURPOSE, **window)}
        tools = await sums.tools_by(tx, **window)
    rows = await ask(service, "select purpose, sum(micro_usd)::bigint from calls group by 1")
    assert by_purpose == dict(rows)
    assert set(by_purpose) == {"compact", "answer", "conclude", "remember"}
    [facts] = [row[0] for row in await ask(service, "select facts from run_events where step = 'run_tools'")]
    assert tools == [ToolTotals(facts["name"], 1, int(facts["is_error"]), facts["ms"], facts["ms"])]
