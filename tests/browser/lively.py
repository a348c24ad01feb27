"""A Hermes in which everything has happened that a page of the console can show."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from hermes.config import (
    BackendSettings,
    CompletionsSettings,
    CreditSettings,
    InboxSettings,
    MemorySettings,
    NamedTables,
    Secret,
    TierSettings,
    WorkSettings,
)
from hermes.gateway.spend_sums import HourSummer
from hermes.ports.users import UserState
from hermes.stores.postgres.database import connection_of
from hermes.turn import Envelope, MessageEvent, Platform
from tests.browser.console import token_headers
from tests.fakes.vendors import ToolCall, Vendors, vendors
from tests.flows.service import Service, running, stopped

HAIKU, SONNET = "claude-haiku-4-5-20251001", "claude-sonnet-4-6"
SEARCH = ToolCall("venue_search", {"query": "cafe", "area": "Ubud"})
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Lively:
    """The service, and the ids of what happened."""

    service: Service
    vendors: Vendors
    turns: dict[str, UUID]
    """By what happened to them: answered, fell_over, failed, erased, undelivered, expired, waiting, buried."""
    replay_id: UUID

    async def ask(self, query: str, **values: Any) -> list[Any]:
        return await ask(self.service, query, **values)


async def ask(service: Service, query: str, **values: Any) -> list[Any]:
    async with service.database.begin() as tx:
        cursor = await connection_of(tx).execute(query.encode(), values)
        return await cursor.fetchall() if cursor.description else []


async def until(service: Service, query: str, **values: Any) -> None:
    """Wait until a query finds a row."""
    async with asyncio.timeout(PATIENCE_S):
        while not await ask(service, query, **values):  # noqa: ASYNC110  # the rows of another task ring no bell
            await asyncio.sleep(0.02)


@asynccontextmanager
async def lively(database_url: str, redis_url: str) -> AsyncIterator[Lively]:
    async with vendors() as v:
        v.anthropic.models[:] = [HAIKU, SONNET]
        more = {
            "backends": NamedTables({"anthropic": BackendSettings(base_url=v.anthropic.url, api_key=Secret(v.anthropic.key))}),
            "tiers": NamedTables({"free": TierSettings(chain=("claude-sonnet", "claude-haiku"), day_tokens=10_000_000)}),
            "completions": CompletionsSettings(tier="free"),
            "credits": CreditSettings(signup_grant=1_000),
            "memory": MemorySettings(asks_models=False),
            "inbox": InboxSettings(max_attempts=1),
            "work": WorkSettings(drain_s=0.1, sweep_s=0.1, heartbeat_s=0.2, stalled_after_s=1.0),
        }
        async with running(database_url, redis_url, has_worker=False, echoes=False, more=more, answer_timeout_s=60.0) as service:
            worker = asyncio.create_task(service.hermes.run_worker())
            try:
                turns = await talk(service, v)
                await chat(service)
                replay_id = await replay(service, v, turns["answered"])
            finally:
                await stopped(worker)
            turns |= await leave_work(service)
            await spoil(service, turns)
            await HourSummer(service.database, service.hermes.adapters.spend_sums).sum_recent()
            yield Lively(service, v, turns, replay_id)


async def talk(service: Service, v: Vendors) -> dict[str, UUID]:
    """Have one turn of each kind, each of a person of its own, but for the second."""
    key, other = await service.key("shop"), await service.key("bali")

    async def say(text: str, user: str, key: dict[str, str] = key) -> UUID:
        got = await service.post("/v1/messages", {"text": text, "user": user}, key)
        assert "turn_id" in got.body, got.body
        return UUID(got.body["turn_id"])

    v.anthropic.say("", tool_calls=[SEARCH])
    v.anthropic.say("Two cafes are near.")
    turns = {"answered": await say("Find me a cafe in Ubud", "ada+1&x=1#é")}
    v.anthropic.fail(529)
    turns["fell_over"] = await say("and a bar", "ada+1&x=1#é")
    v.anthropic.fail(400)
    turns["failed"] = await say("and a club", "grace")
    turns["erased"] = await say("forget me", "lena", other)
    turns["undelivered"] = await say("hello", "made", other)
    turns["expired"] = await say("long ago", "wayan")
    return turns


async def chat(service: Service) -> None:
    """Chat as a program does, and change the first message."""
    key = await service.key("shop", scopes=["completions"])
    messages = [{"role": "user", "content": "Where is the best surf?"}]
    for following in ("And for a beginner?", "Which months?"):
        got = await service.post("/v1/chat/completions", {"model": "hermes", "messages": messages, "user": "guide"}, key)
        assert got.status == 200, got.body
        messages += [{"role": "assistant", "content": got.body["choices"][0]["message"]["content"]}, {"role": "user", "content": following}]
    messages[0] = {"role": "user", "content": "Where is the best surf near Canggu?"}
    assert (await service.post("/v1/chat/completions", {"model": "hermes", "messages": messages, "user": "guide"}, key)).status == 200


async def replay(service: Service, v: Vendors, turn_id: UUID) -> UUID:
    """Replay a turn with another model, and a batch of all."""
    v.anthropic.say("", tool_calls=[ToolCall("venue_search", {"query": "bar", "area": "Ubud"})])
    headers = await token_headers(service)
    made = await service.post(
        "/v1/ops/replays", {"turn_id": str(turn_id), "model": "claude-haiku"}, {**headers, "X-Hermes-Reason": "a test"}
    )
    assert made.status in (200, 201, 202), made.body
    batch = await service.post(
        "/v1/ops/replay-batches", {"last": 3, "models": ["claude-haiku"], "confirm": True}, {**headers, "X-Hermes-Reason": "a test"}
    )
    assert batch.status in (200, 201, 202), batch.body
    await until(service, "select 1 where not exists (select from replays where state in ('waiting', 'running'))")
    [(replay_id,)] = await ask(service, "select id from replays where batch_id is null limit 1")
    return UUID(str(replay_id))


async def leave_work(service: Service) -> dict[str, UUID]:
    """Messages that no worker takes: one waits, one was given up."""
    found = {}
    for name in ("waiting", "buried"):
        event = MessageEvent(platform=Platform.TELEGRAM, sender_id=f"+62812345674{name}", text="are you there")
        envelope = Envelope(event=event, account="bali", channel_id=name, event_key=str(uuid4()))
        found[name] = (await service.hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)).turn_id
    await ask(
        service,
        "update inbox set state = 'dead', ended_at = now(), reason = 'gave up at attempt 2' where turn_id = %(id)s",
        id=found["buried"],
    )
    return found


async def spoil(service: Service, turns: dict[str, UUID]) -> None:
    """A dead letter, an empty journal, an erased person, alerts."""
    await ask(
        service,
        "update outbox set state = 'dead', died_at = now(), outcome = 'unauthorized', reason = 'token revoked' where turn_id = %(id)s",
        id=turns["undelivered"],
    )
    await ask(service, "update run_events set request = null, result = null where turn_id = %(id)s", id=turns["expired"])
    [(user_id,)] = await ask(service, "select user_id from inbox where turn_id = %(id)s", id=turns["erased"])
    async with service.database.begin() as tx:
        await service.hermes.adapters.people.forget(tx, UUID(str(user_id)))
    await ask(
        service,
        "insert into alerts (event, subject, level, facts) values ('breaker_opened', 'telegram/bali', 'critical', '{\"failures\": 10}'),"
        " ('oldest_waiting', '', 'warning', '{}')",
    )
