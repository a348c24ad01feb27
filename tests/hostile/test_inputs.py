"""Some two thousand hostile inputs against a running Hermes: none makes it fail, leak or obey."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

import aiohttp
import pytest
from yarl import URL

from hermes.turn import Platform
from tests.flows.service import Service, running
from tests.flows.test_rooms import open_account
from tests.hostile.inputs import RAW, HostileRequest, hostile_requests, hostile_updates
from tests.hostile.raw import exchange

AT_ONCE = 16
LEAKS = ("Traceback", "psycopg", "site-packages", "root:x:", "postgresql://", "evil.example/latest")
T, R = TypeVar("T"), TypeVar("R")


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(
        database_url, redis_url, has_worker=False, answer_timeout_s=0, per_minute=100_000, refused_per_minute=100_000
    ) as service:
        yield service


async def send_all(inputs: Sequence[T], send: Callable[[T], Awaitable[R]]) -> list[R]:
    """Send all inputs, some at a time."""
    places = asyncio.Semaphore(AT_ONCE)

    async def sent(one: T) -> R:
        async with places:
            return await send(one)

    return await asyncio.gather(*map(sent, inputs))


async def test_no_bytes_make_the_server_fail(service: Service) -> None:
    answers = await send_all(RAW, lambda data: exchange(service.url, data, 20.0))
    for data, (status, answer) in zip(RAW, answers, strict=True):
        assert status < 500, (data[:80], answer[:200])
        assert b"hermes_request_count" not in answer, "no second request is smuggled behind the first"
    assert (await service.get("/health")).status == 200
    assert await service.turns() == 0


async def test_no_request_makes_hermes_fail_or_leak(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    key = await service.key(scopes=["messages", "runs", "completions", "ops", "users"])
    requests = hostile_requests()
    assert len(requests) >= 1_000

    async def send(each: HostileRequest) -> tuple[int, str]:
        headers = {**key, **dict(each.headers)}
        url = URL(service.url + each.path, encoded=True)
        async with service.client.request(each.method, url, data=each.body, headers=headers, allow_redirects=False) as response:
            if response.content_type == "text/event-stream":
                return response.status, ""
            return response.status, await response.text(errors="replace")

    answers = await send_all(requests, send)
    pairs = list(zip(requests, answers, strict=True))
    failed = [(each.path[:100], (each.body or b"")[:200], answer) for each, answer in pairs if answer[0] >= 500]
    assert failed == []
    leaks = [(each.path[:100], leak) for each, (_, text) in pairs for leak in LEAKS if leak in text]
    assert leaks == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert (await service.get("/ready")).status == 200


async def test_no_signed_webhook_makes_hermes_fail_and_no_unsigned_one_is_taken_in(service: Service) -> None:
    whatsapp = {"api_key": "k", "webhook_secrets": "w-secret", "secret_header": "x-secret"}
    instagram = {"instagram_id": "17", "access_token": "t", "app_secrets": "i-secret", "verify_tokens": "v"}
    await open_account(service, Platform.TELEGRAM, {"token": "123456:" + "A" * 35, "secret": "t-secret"})
    await open_account(service, Platform.WHATSAPP, whatsapp)
    await open_account(service, Platform.INSTAGRAM, instagram)
    bodies = list(hostile_updates())
    assert len(bodies) >= 400

    def signed(body: bytes) -> dict[str, dict[str, str]]:
        return {
            "telegram": {"X-Telegram-Bot-Api-Secret-Token": "t-secret"},
            "whatsapp": {"X-Secret": "w-secret"},
            "instagram": {"X-Hub-Signature-256": f"sha256={hmac.digest(b'i-secret', body, hashlib.sha256).hex()}"},
        }

    async def send(body: bytes) -> list[int]:
        statuses = []
        for platform, headers in signed(body).items():
            for sent in (headers, {}):
                async with service.client.post(f"{service.url}/webhooks/{platform}/fake", data=body, headers=sent) as response:
                    statuses.append(response.status)
        return statuses

    answers = await send_all(bodies, send)
    assert {tuple(statuses[1::2]) for statuses in answers} == {(403, 403, 403)}
    unusual = [(body[:200], statuses) for body, statuses in zip(bodies, answers, strict=True) if set(statuses[::2]) != {200}]
    assert unusual == []


async def test_two_readers_of_a_body_never_read_two_things(service: Service) -> None:
    """A proxy or a log that reads JSON by other rules than Hermes must not see another request."""
    key = await service.key()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(aiohttp.ClientSession())
        for body in (b'{"text": "a", "\\u0074ext": "b"}', b'{"text": "a", "user": "x", "us\\u0065r": "y"}', b'{"text": "a", "text": "a"}'):
            async with client.post(
                f"{service.url}/v1/messages", data=body, headers={**key, "Content-Type": "application/json"}
            ) as response:
                assert (response.status, json.loads(await response.read())["error"]["code"]) == (400, "duplicate_name")
