"""`/v1/ops`: what operators' programs read and do, over a real server with a real worker and real stores."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from hermes.cli.events import follow
from hermes.config import ApiSettings, Secret, Settings, load
from hermes.ports.events import STREAM_START, EventCursor
from hermes.stores.postgres.database import connection_of
from hermes.stores.seal import new_master_key
from tests.flows.service import Service, running
from tests.flows.test_web import error, eventually, out_of_reach

CONFIDED = "the mangrove password"


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    more = {"api": ApiSettings(max_streams=250)}
    async with running(database_url, redis_url, answer_timeout_s=20.0, ping_s=0.2, more=more) as service:
        yield service


class Reader:
    """A program that follows the stream of events."""

    def __init__(self, service: Service, key: Mapping[str, str], **query: str) -> None:
        self.url, self.key, self.query = f"{service.url}/v1/ops/events", dict(key), query
        self.seen: list[dict[str, Any]] = []
        self.notices: list[str] = []
        self.last_id = ""
        self.connected = asyncio.Event()

    async def follow(self) -> None:
        """Read until the server ends the stream."""
        headers = {**self.key, "Accept": "text/event-stream", **({"Last-Event-ID": self.last_id} if self.last_id else {})}
        async with aiohttp.ClientSession() as client, client.get(self.url, headers=headers, params=self.query) as response:
            assert (response.status, response.headers["X-Accel-Buffering"]) == (200, "no")
            name = ""
            async for line in response.content:
                self.connected.set()
                field, _, value = line.decode().rstrip("\n").partition(": ")
                match field:
                    case "id":
                        self.last_id = value
                    case "event":
                        name = value
                    case "data" if name.startswith("stream."):
                        self.notices.append(name)
                    case "data":
                        self.seen.append(json.loads(value))

    async def has_seen(self, name: str) -> bool:
        return any(event["event"] == name for event in self.seen)


async def started(reader: Reader) -> "asyncio.Task[None]":
    reader.connected.clear()
    task = asyncio.create_task(reader.follow())
    async with asyncio.timeout(60):
        await reader.connected.wait()
    return task


async def left(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def say(service: Service, text: str, account: str = "shop") -> str:
    answer = await service.post("/v1/messages", {"text": text}, await service.key(account))
    assert answer.status == 200
    return str(answer.body["turn_id"])


async def pages(service: Service, key: Mapping[str, str], query: str = "", limit: int = 3) -> list[dict[str, Any]]:
    """Every event, page by page."""
    found: list[dict[str, Any]] = []
    after = "0-0"
    while True:
        page = await service.get(f"/v1/ops/events?after={after}&limit={limit}{query}", key)
        assert (page.status, len(page.body["data"]) <= limit) == (200, True)
        found += page.body["data"]
        after = page.body["next"]
        if not page.body["has_more"]:
            return found


# --- events


async def test_only_a_key_that_names_the_scope_opens_the_operators_routes(service: Service) -> None:
    routes = ("/v1/ops/events", "/v1/ops/fleet", "/v1/ops/fleet/events", "/v1/ops/fleet/hermes/health")
    customers = [await service.key(), await service.key(scopes=["messages", "completions", "users", "runs"])]
    for key in customers:
        for path in routes:
            assert error(await service.get(path, key)) == (403, "wrong_scope", None)
        assert error(await service.post("/v1/ops/fleet/hermes/swap", {"adapter": None}, key)) == (403, "wrong_scope", None)
    for path in routes:
        assert error(await service.get(path)) == (401, "invalid_api_key", None)
        assert (await service.get(path, await service.key(scopes=["ops"]))).status == 200


async def test_pages_have_every_event_once_and_no_words(service: Service) -> None:
    first, second = await say(service, CONFIDED), await say(service, "hello", "villa")
    key = await service.key(scopes=["ops"])
    await eventually(lambda: count_of(service, key, second), wanted=True)
    found = await pages(service, key)
    assert [event["id"] for event in found] == list(dict.fromkeys(event["id"] for event in found))
    assert (await pages(service, key, limit=1_000))[: len(found)] == found  # meanwhile a process may take a chore
    names = [event["event"] for event in found if event["turn_id"] == first]
    assert {"user.resolved", "intent.classified", "tools.gated", "model.called", "credit.charged"} <= set(names)
    assert "mangrove" not in json.dumps(found)
    assert await pages(service, key, f"&turn={second}") == [event for event in found if event["turn_id"] == second]
    calls = await pages(service, key, "&type=model.called&type=tool.invoked&agent=hermes")
    assert [event["turn_id"] for event in calls] == [first, second]
    assert [(event["account"], event["agent"], event["source"], event["facts"]["backend"]) for event in calls] == [
        ("shop", "hermes", "turn", "echo"),
        ("villa", "hermes", "turn", "echo"),
    ]
    assert await pages(service, key, "&agent=bali") == []


async def count_of(service: Service, key: Mapping[str, str], turn_id: str) -> bool:
    return any(event["event"] == "credit.charged" for event in await pages(service, key, f"&turn={turn_id}"))


async def test_a_wrong_cursor_is_refused(service: Service) -> None:
    key = await service.key(scopes=["ops"])
    assert error(await service.get("/v1/ops/events?after=yesterday", key)) == (422, "invalid_cursor", "after")
    assert error(await service.get("/v1/ops/events", {**key, "Last-Event-ID": "x"})) == (422, "invalid_cursor", "after")


async def test_a_stream_shows_what_happens_and_goes_on_where_it_broke_off(service: Service) -> None:
    await say(service, "before the stream")
    reader = Reader(service, await service.key(scopes=["ops"]))
    task = await started(reader)
    first = await say(service, CONFIDED)
    await eventually(lambda: reader.has_seen("credit.charged"), wanted=True)
    await left(task)
    missed = await say(service, "while the reader is away")
    task = await started(reader)
    second = await say(service, "again")
    await eventually(lambda: has_ended(reader, second), wanted=True)
    await left(task)
    ids = [event["id"] for event in reader.seen]
    assert ids == list(dict.fromkeys(ids))
    assert list(dict.fromkeys(event["turn_id"] for event in reader.seen if event["source"] == "turn")) == [first, missed, second]
    everything = await pages(service, reader.key)
    assert reader.seen == [event for event in everything if event["id"] in ids]
    assert {event["turn_id"] for event in everything} - {first, missed, second} != set()
    assert "mangrove" not in json.dumps(reader.seen)


async def has_ended(reader: Reader, turn_id: str) -> bool:
    return any((event["turn_id"], event["event"]) == (turn_id, "credit.charged") for event in reader.seen)


async def test_sixty_readers_see_the_same(service: Service) -> None:
    key = await service.key(scopes=["ops"])
    readers = [Reader(service, key, type="model.called") for _ in range(60)]
    tasks = await asyncio.gather(*(started(reader) for reader in readers))
    assert len(pollers()) == 1
    turn_id = await say(service, "hello")
    async with asyncio.timeout(30):
        for reader in readers:
            while not reader.seen:  # noqa: ASYNC110  # what is looked at is behind a socket
                await asyncio.sleep(0.02)
    assert {event["turn_id"] for reader in readers for event in reader.seen} == {turn_id}
    assert {len(reader.seen) for reader in readers} == {1}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(10):
        while pollers():  # the last reader is gone, so it ends; a reader that leaked would keep it
            await asyncio.wait(pollers(), timeout=1)
    assert (await service.get("/health")).status == 200


def pollers() -> list["asyncio.Task[Any]"]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "events"]


async def test_while_the_database_is_away_a_stream_pauses_and_then_loses_nothing(service: Service, database_url: str) -> None:
    reader = Reader(service, await service.key(scopes=["ops"]))
    task = await started(reader)
    first = await say(service, "one")
    await eventually(lambda: has_ended(reader, first), wanted=True)
    with out_of_reach(database_url):
        await eventually(lambda: noticed(reader), wanted=["stream.paused"])
    second = await say(service, "two")
    await eventually(lambda: has_ended(reader, second), wanted=True)
    await left(task)
    assert reader.notices == ["stream.paused", "stream.resumed"]
    ids = [event["id"] for event in reader.seen]
    assert ids == list(dict.fromkeys(ids))


async def noticed(reader: Reader) -> list[str]:
    return reader.notices


async def test_a_stream_goes_on_at_the_next_web_process(database_url: str, redis_url: str) -> None:
    same_keys = {"master_keys": (Secret(new_master_key()),)}
    async with running(database_url, redis_url, answer_timeout_s=20.0, more=same_keys) as service:
        reader = Reader(service, await service.key(scopes=["ops"]))
        task = await started(reader)
        first = await say(service, "one")
        await eventually(lambda: has_ended(reader, first), wanted=True)
    await task  # the server stopped, and ended the stream
    async with running(database_url, redis_url, answer_timeout_s=20.0, more=same_keys) as service:
        reader.url = f"{service.url}/v1/ops/events"
        second = await say(service, "two")
        task = await started(reader)
        await eventually(lambda: has_ended(reader, second), wanted=True)
        await left(task)
    ids = [event["id"] for event in reader.seen]
    assert ids == list(dict.fromkeys(ids))


async def test_the_command_line_follows_the_stream(service: Service) -> None:
    heard, key = asyncio.Queue[str](), await service.key(scopes=["ops"])

    async def listen(cursor: EventCursor | None) -> None:
        async for event in follow(service.hermes.database, service.hermes.adapters.stream_events, cursor):
            heard.put_nowait(str(event.cursor))

    first = await say(service, "one")
    await eventually(lambda: count_of(service, key, first), wanted=True)
    listening = asyncio.create_task(listen(STREAM_START))
    expected = [event["id"] for event in await pages(service, key)]
    async with asyncio.timeout(10):
        assert [await heard.get() for _ in expected] == expected
        await say(service, "two")
        assert EventCursor.parse(await heard.get()) > EventCursor.parse(expected[-1])
    await left(listening)


# --- the fleet

FLEET = """
[backends.blue]
kind = "scripted"
[backends.green]
kind = "scripted"
[backends.sick]
kind = "plain"
base_url = "http://127.0.0.1:1/v1"

[models.blue]
backend = "blue"
[models.green]
backend = "green"
[models.sick]
backend = "sick"
prices = [{input = 1.0, output = 1.0}]

[tiers.free]
chain = ["blue"]
"""


@pytest.fixture
async def fleet(database_url: str, redis_url: str, tmp_path: Any) -> AsyncIterator[Service]:
    (tmp_path / "hermes.toml").write_text(FLEET)
    chosen: Settings = load({"HERMES_HOME": str(tmp_path)}, file=tmp_path / "hermes.toml")
    more = {"backends": chosen.backends, "models": chosen.models, "tiers": chosen.tiers}
    async with running(database_url, redis_url, has_worker=False, echoes=False, more=more) as service:
        yield service


async def test_the_fleet_is_listed_with_health_and_spend(fleet: Service) -> None:
    key = await fleet.key(scopes=["ops"])
    async with fleet.database.begin() as tx:
        await connection_of(tx).execute(
            "insert into agents (name, adapter, cwd) values ('bali', 'sick', '/srv/bali'), ('old', 'gone', null)"
        )
        await connection_of(tx).execute(
            "insert into calls (id, account_id, source, tier, model, tokens_in, tokens_out, cache_read, cache_write, cache_write_1h,"
            " micro_usd, is_estimated, cache_hit, outcome, latency_ms, day, agent)"
            " select gen_random_uuid(), 'shop', 'router', 'free', 'm', 1, 1, 0, 0, 0, 1500, false, false, 'answered', 1, day, 'bali'"
            " from unnest(array[(now() at time zone 'utc')::date, '2020-01-01']) as day"
        )
    [bali, hermes, old] = (await fleet.get("/v1/ops/fleet", key)).body["data"]
    assert (bali["name"], bali["adapter"], bali["epoch"], bali["cwd"], bali["health"], bali["spend_today_usd"]) == (
        "bali",
        "sick",
        0,
        "/srv/bali",
        "error",
        0.0015,
    )
    [checked] = bali["adapters"]
    assert sorted(checked["checks"][0]) == ["code", "hint", "level", "message"]
    assert (hermes["name"], hermes["adapter"], hermes["health"], hermes["models"], hermes["spend_today_usd"]) == (
        "hermes",
        None,
        "ok",
        ["blue"],
        0.0,
    )
    assert (old["health"], old["adapters"][0]["checks"][0]["code"], old["models"]) == ("error", "not_in_settings", [])
    health = await fleet.get("/v1/ops/fleet/bali/health", key)
    assert (health.body["agent"], health.body["health"], health.body["adapters"]) == ("bali", "error", bali["adapters"])
    assert error(await fleet.get("/v1/ops/fleet/balli/health", key)) == (404, "agent_not_found", "agent")


async def test_an_agents_spend_is_capped_over_http(fleet: Service) -> None:
    key, path = await fleet.key(scopes=["ops"]), "/v1/ops/fleet/hermes/cap"
    assert error(await fleet.post(path, {"daily_usd": 5}, await fleet.key())) == (403, "wrong_scope", None)
    for wrong in (-1, "5", 1e300):
        assert error(await fleet.post(path, {"daily_usd": wrong}, key))[0] == 422
    for cap in (0.07, 0, None):
        assert (await fleet.post(path, {"daily_usd": cap}, key)).body == {"agent": "hermes", "daily_cap_usd": cap}
        listed = (await fleet.get("/v1/ops/fleet", key)).body
        assert [agent["daily_cap_usd"] for agent in listed["data"]] == [cap]
        assert (listed["daily_cap_usd"], listed["spend_today_usd"]) == (None, 0)
        expected = {} if cap is None else {"hermes": round(cap * 1_000_000)}
        assert fleet.hermes.fleet.caps() == expected  # at once in this process, so that its next call obeys it
    assert error(await fleet.post("/v1/ops/fleet/nobody/cap", {"daily_usd": 5}, key)) == (404, "agent_not_found", "agent")


async def test_an_adapter_is_swapped_refused_and_rolled_back_over_http(fleet: Service) -> None:
    key, path = await fleet.key(scopes=["ops"]), "/v1/ops/fleet/hermes/swap"
    done = await fleet.post(path, {"adapter": "green"}, key)
    assert (done.status, done.body["outcome"], done.body["from"], done.body["to"]) == (200, "swapped", None, "green")
    assert (await fleet.post(path, {"adapter": "green"}, key)).body["outcome"] == "unchanged"
    assert error(await fleet.post(path, {"adapter": "sick"}, key)) == (409, "adapter_refused", None)
    await fleet.hermes.spend.kill_switch("a test", "ada")
    assert error(await fleet.post(path, {"adapter": "blue"}, key)) == (409, "adapter_rolled_back", None)
    assert (await fleet.post(path, {"adapter": None, "canary": False}, key)).body["outcome"] == "swapped"
    assert error(await fleet.post(path, {"adapter": "gren"}, key)) == (404, "adapter_not_found", "adapter")
    assert error(await fleet.post("/v1/ops/fleet/nobody/swap", {"adapter": "blue"}, key)) == (404, "agent_not_found", "agent")
    assert error(await fleet.post(path, {"adaptor": "blue"}, key))[0] == 422
    events = (await fleet.get("/v1/ops/fleet/events?limit=10", key)).body["data"]
    kinds = [(event["kind"], event["to"], event["by"]) for event in reversed(events)]
    assert kinds == [
        ("adapter_swapped", "green", "key test"),
        ("adapter_refused", "sick", "key test"),
        ("adapter_swapped", "blue", "key test"),
        ("adapter_rolled_back", "green", "key test"),
        ("adapter_swapped", None, "key test"),
    ]
    await eventually(lambda: swaps(fleet, key), wanted=["swapped", "refused", "swapped", "rolled_back", "swapped"])


async def swaps(fleet: Service, key: Mapping[str, str]) -> list[str]:
    return [event["event"].removeprefix("adapter.") for event in await pages(fleet, key) if event["source"] == "fleet"]
