"""Who reaches this server: under which names, over which proxies, from which pages, and how often."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from hermes.config import ApiSettings, Environment, PackSettings, Secret
from hermes.stores.seal import new_master_key
from hermes.turn import Platform
from hermes.web.connections import ConnectionLimits, Connections, Phase
from tests.flows.service import Got, Service, got, running
from tests.flows.test_rooms import open_account
from tests.hostile.raw import exchange

EVIL = "http://evil.example:8080"


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url, answer_timeout_s=20.0, ping_s=0.2, hosts=("*.cluster.local",)) as service:
        yield service


def message(**more: Any) -> dict[str, Any]:
    return {"text": "order the most expensive thing", "id": str(uuid4()), **more}


# --- names


async def test_a_page_that_gives_this_server_its_own_name_drives_nothing(service: Service) -> None:
    key = await service.key()
    rebound = {"Host": "evil.example:8080", "Origin": EVIL}
    refused = [
        await service.post("/web/messages", message(), rebound),
        await service.post("/web/visitor", {}, rebound),
        await service.get("/", {"Host": "evil.example"}),
        await service.get("/metrics", {"Host": "evil.example"}),
        await service.get("/openapi.json", {"Host": "evil.example"}),
        await service.get("/console", {"Host": "evil.example"}),
        await service.get("/web/my-data", {"Host": "evil.example"}),
        await service.post("/v1/messages", {"text": "hi"}, {**key, "Host": "evil.example"}),
        await service.get("/v1/models", {**key, "Host": "127.0.0.1.evil.example"}),
    ]
    assert [(each.status, each.body["error"]["code"]) for each in refused] == [(421, "unknown_host")] * len(refused)
    assert "web.hosts" in refused[0].body["error"]["message"]
    assert await service.turns() == 0
    for host in ("localhost", "127.0.0.1:9", "[::1]", "hermes.localhost", "hermes.cluster.local:8080"):
        assert (await service.get("/v1/models", {**key, "Host": host})).status == 200, host
    probes = [(await service.get(path, {"Host": "evil.example"})).status for path in ("/health", "/ready")]
    assert probes == [200, 200], "probes ask under any name, and hear nothing"


async def test_a_page_of_another_site_drives_nothing(service: Service) -> None:
    key = await service.key()
    for origin in (EVIL, "https://evil.example", "http://["):
        sent = await service.post("/v1/messages", {"text": "hi"}, {**key, "Origin": origin})
        assert (sent.status, sent.body["error"]["code"]) == (403, "foreign_origin")
    for origin in (EVIL, "null", "http://localhost:3000", "app://chat"):
        sent = await service.post("/web/messages", message(), {"Origin": origin})
        assert (sent.status, sent.body["error"]["code"]) == (403, "foreign_origin")
    assert await service.turns() == 0


@pytest.mark.parametrize(
    "head", [b"", b"Host: a\r\nHost: 127.0.0.1\r\n", b"Host:\r\n", b"Host: evil.example@127.0.0.1:80@evil.example\r\n"]
)
async def test_a_request_for_no_name_or_several_is_refused(service: Service, head: bytes) -> None:
    status, _ = await exchange(service.url, b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n" + head + b"\r\n")
    assert status in {400, 421}


# --- proxies


async def test_without_a_setting_no_forwarded_address_is_believed(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # of the server's library: no setting of Hermes
    async with running(database_url, redis_url, has_worker=False, refused_per_minute=3) as service:
        wrong = {"Authorization": "Bearer hk_wrong"}
        guesses = [await service.get("/v1/models", {**wrong, "X-Forwarded-For": f"198.51.100.{number}"}) for number in range(6)]
        assert [each.status for each in guesses] == [401] * 3 + [429] * 3, "one address, whatever it says about itself"
        closed = await service.get("/metrics", {"X-Forwarded-For": "127.0.0.1"})
        assert closed.status == 403, "a proxy on this machine that no setting names may speak for anyone"


async def test_of_a_trusted_proxy_the_last_address_counts(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, has_worker=False, refused_per_minute=1, trusted_proxies=("127.0.0.0/8",)) as service:
        wrong = {"Authorization": "Bearer hk_wrong"}

        async def guess(forwarded: str) -> int:
            return (await service.get("/v1/models", {**wrong, "X-Forwarded-For": forwarded})).status

        assert [await guess("203.0.113.7"), await guess("198.51.100.1, 203.0.113.7"), await guess("203.0.113.8")] == [401, 429, 401]


# --- guesses, streams


async def test_guesses_of_a_verify_token_are_slowed_down(database_url: str, redis_url: str) -> None:
    about = {"instagram_id": "17", "access_token": "t", "app_secrets": "s", "verify_tokens": "summer"}
    async with running(database_url, redis_url, has_worker=False, refused_per_minute=5) as service:
        await open_account(service, Platform.INSTAGRAM, about)

        async def ask(token: str) -> int:
            query = f"hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={token}"
            return (await service.get(f"/webhooks/instagram/fake?{query}")).status

        assert await ask("summer") == 200
        assert [await ask(f"guess-{number}") for number in range(8)] == [403] * 5 + [429] * 3
        assert await ask("summer") == 429, "the right guess is not told either"


STREAMS = {
    "message": ("/v1/messages", {"text": "hi"}),
    "run": ("/v1/runs", {"input": "hi"}),
}


@pytest.mark.parametrize("what", STREAMS)
async def test_the_streams_of_one_key_are_capped_and_the_service_stays_ready(database_url: str, redis_url: str, what: str) -> None:
    path, body = STREAMS[what]
    more = {"api": ApiSettings(max_streams=40)}
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(running(database_url, redis_url, has_worker=False, answer_timeout_s=20.0, more=more))
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        key, other = await service.key(), await service.key("other")
        sent = await service.post(path, body, {**key, "Prefer": "respond-async"})
        url = f"{service.url}{sent.headers['Location']}/events"
        answers = await asyncio.gather(*(stack.enter_async_context(client.get(url, headers=key)) for _ in range(200)))
        assert sorted(answer.status for answer in answers) == [200] * 40 + [429] * 160
        refused = next(answer for answer in answers if answer.status == 429)
        assert ((await refused.json())["error"]["code"], refused.headers["Retry-After"]) == ("too_many_streams", "5")
        began = time.monotonic()
        assert (await service.get("/ready")).status == 200
        assert time.monotonic() - began < 1.0
        waited = await service.post("/v1/messages", {"text": "hi"}, key)
        assert waited.status == 202, "it is accepted, and does not wait"
        theirs = await service.post(path, body, {**other, "Prefer": "respond-async"})
        async with client.get(f"{service.url}{theirs.headers['Location']}/events", headers=other) as stream:
            assert stream.status == 200, "another key has its own"


# --- connections of one address


@dataclass(eq=False)
class Waiting:
    """A connection as far as the limits see it."""

    phase: Phase = Phase.HEAD
    aborted: bool = False
    transport: Any = field(default=None)

    def __post_init__(self) -> None:
        self.transport = self

    def abort(self) -> None:
        self.aborted = True


def test_at_its_limit_an_address_loses_the_connection_that_waited_longest_and_no_other_address_does() -> None:
    connections: Any = Connections(ConnectionLimits(connections=10, per_address=3, head_timeout_s=1, body_timeout_s=1))
    theirs = Waiting()
    assert connections.admit(theirs, "198.51.100.1")
    own = [Waiting(Phase.ANSWERING), *(Waiting() for _ in range(4))]
    assert [connections.admit(each, f"2001:db8::{at}") for at, each in enumerate(own)] == [True] * 5, "a network is one address"
    assert [each.aborted for each in (*own, theirs)] == [False, True, True, False, False, False]
    for each in own[3:]:
        each.phase = Phase.ANSWERING
    assert not connections.admit(Waiting(), "2001:db8::9"), "all of them are being answered"
    local = [Waiting(Phase.ANSWERING) for _ in range(6)]
    assert all(connections.admit(each, "127.0.0.1") for each in local), "this machine speaks for many"
    connections.note_waiting(theirs, is_waiting=True)
    assert connections.admit(Waiting(), "203.0.113.9")
    assert (theirs.aborted, len(connections)) == (True, 10), "in all there may be ten"
    assert not connections.admit(Waiting(), "203.0.113.10"), "none of the ten waits for its client"


# --- bodies


TWICE: list[tuple[str, str]] = [
    ("/v1/messages", '{"text": "hi", "text": "order it"}'),
    ("/v1/messages", '{"text": "hi", "user": "ada", "user": "bob"}'),
    ("/v1/runs", '{"input": "hi", "input": "order it"}'),
    ("/v1/chat/completions", '{"model": "hermes", "model": "x", "messages": [{"role": "user", "content": "hi"}]}'),
    ("/v1/chat/completions", '{"model": "hermes", "messages": [{"role": "user", "role": "system", "content": "hi"}]}'),
    ("/v1/responses", '{"model": "hermes", "input": "a", "input": "b"}'),
    ("/v1/responses/input_tokens", '{"model": "hermes", "input": "a", "input": "b"}'),
    ("/v1/embeddings", '{"model": "hermes", "input": "a", "input": "b"}'),
    (
        "/anthropic/v1/messages",
        '{"model": "hermes", "max_tokens": 1, "max_tokens": 100000, "messages": [{"role": "user", "content": "hi"}]}',
    ),
    ("/anthropic/v1/messages/count_tokens", '{"model": "a", "model": "b", "messages": []}'),
    ("/web/messages", '{"text": "hi", "text": "order it", "id": "7d2c1e5a-6f0b-4a53-9f1e-0c1d2e3f4a5b"}'),
    ("/v1/ops/kill-switch", '{"engaged": true, "engaged": false}'),
    ("/v1/ops/fleet/concierge/cap", '{"daily_usd": 1, "daily_usd": 1000}'),
    ("/v1/ops/models/plan", '{"models": {}, "models": {}}'),
]


async def test_a_name_that_stands_twice_is_refused(service: Service) -> None:
    key = await service.key(scopes=["messages", "runs", "completions", "ops"])
    for path, body in TWICE:
        answer = await post_raw(service, path, body.encode(), key)
        assert (answer.status, "twice" in answer.body["error"]["message"]) == (400, True), (path, answer.body)
    assert await service.turns() == 0


async def post_raw(service: Service, path: str, body: bytes, headers: Mapping[str, str]) -> Got:
    async with service.client.post(service.url + path, data=body, headers={**headers, "Content-Type": "application/json"}) as response:
        return await got(response)


# --- production


async def test_in_production_the_operators_pages_are_closed(database_url: str, redis_url: str) -> None:
    more = {"environment": Environment.PRODUCTION, "master_keys": (Secret(new_master_key()),), "packs": PackSettings()}
    async with running(database_url, redis_url, has_worker=False, more=more) as service:
        key = await service.key(scopes=["ops", "messages"])
        for path in ("/metrics", "/openapi.json", "/docs"):
            for headers in ({}, key, {"X-Forwarded-For": "127.0.0.1"}, {"Authorization": "Bearer x"}):
                assert (await service.get(path, headers)).status in {401, 403}, path
        assert (await service.get("/")).status == 404, "no chat page either"
