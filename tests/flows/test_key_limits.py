"""The limits of an API key at every door: in dollars, tokens and calls, by model, network and time; whatever user its client names."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from hermes.config import BackendKind, BackendSettings, CompletionsSettings, ModelSettings, PriceSettings, Secret, TierSettings
from hermes.ports.errors import StoreUnavailable
from hermes.ports.key_limits import KeyLimits
from hermes.ports.key_use import KeyUsage
from hermes.stores.postgres.database import connection_of
from tests.fakes.vendors import Vendors, vendors
from tests.flows.service import Got, Service, running

CHAT = "/v1/chat/completions"
PRICE = (PriceSettings(input=1.0, output=5.0),)


@dataclass(frozen=True)
class Doors:
    """A running Hermes whose models cost money, in one tier for all doors."""

    service: Service
    vendors: Vendors

    async def key(self, **limits: Any) -> tuple[UUID, dict[str, str]]:
        async with self.service.database.begin() as tx:
            api_keys = self.service.hermes.adapters.api_keys
            key, secret = await api_keys.create(tx, "test", "shop", limits=KeyLimits(**limits))
        return key.id, {"Authorization": f"Bearer {secret}"}

    async def chat(self, key: Mapping[str, str], user: str = "ann", **about: Any) -> Got:
        body = {"model": "hermes", "user": user, "max_tokens": 20, "messages": [{"role": "user", "content": "hello"}], **about}
        while (answer := await self.service.post(CHAT, body, key)).status == 503:  # noqa: ASYNC110  # as OpenAI's clients do
            await asyncio.sleep(0.2)
        return answer

    async def say(self, key: Mapping[str, str], user: str = "ann") -> Got:
        return await self.service.post("/v1/messages", {"text": "hello", "user": user}, key)

    async def spent(self, key_id: UUID) -> tuple[int, int]:
        """What the rows of its calls have cost, and the counters say, in micro-dollars."""
        await self.service.hermes.gateway.wait_settled()
        async with self.service.database.begin() as tx:
            query = "select coalesce(sum(micro_usd), 0)::bigint from calls where api_key_id = %s"
            [[cost]] = await (await connection_of(tx).execute(query, (key_id,))).fetchall()
        return cost, (await self.used(key_id)).day_micro_usd

    async def used(self, key_id: UUID) -> KeyUsage:
        while True:
            try:
                return await self.service.hermes.adapters.key_use.used(key_id)
            except StoreUnavailable:
                await asyncio.sleep(0.2)  # the machine is busy


@pytest.fixture
async def doors(database_url: str, redis_url: str) -> AsyncIterator[Doors]:
    async with vendors() as fakes:
        fakes.vllm.models[:] = ["small-1"]
        fakes.openai.models[:] = ["spare-1"]
        tier = TierSettings(chain=("small", "spare"), day_tokens=1_000_000_000)
        more = {
            "backends": {
                "own": BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key)),
                "spare": BackendSettings(kind=BackendKind.OPENAI, base_url=fakes.openai.url, api_key=Secret(fakes.openai.key)),
            },
            "models": {
                "small": ModelSettings(backend="own", id="small-1", prices=PRICE),
                "spare": ModelSettings(backend="spare", id="spare-1", prices=PRICE),
            },
            "tiers": {"agents": tier, "free": tier},
            "completions": CompletionsSettings(tier="agents", max_choices=4, deadline_s=5.0),
        }
        async with running(database_url, redis_url, echoes=False, more=more, trusted_proxies=("127.0.0.1",)) as service:
            yield Doors(service, fakes)


def error(answer: Got) -> tuple[int, str, str, str | None]:
    problem = answer.body["error"]
    return answer.status, problem["type"], problem["code"], problem["param"]


QUOTA = (429, "insufficient_quota", "insufficient_quota", None)
RATE = (429, "rate_limit_exceeded", "rate_limit_exceeded", None)


async def test_a_hundred_calls_at_once_in_the_names_of_a_hundred_users_never_overspend_a_key(doors: Doors) -> None:
    key_id, key = await doors.key(day_micro_usd=1_000)  # a call may cost about 120 micro-dollars, and then costs less
    got = await asyncio.gather(*(doors.chat(key, f"user-{number}", stream=number % 3 == 0) for number in range(100)))
    outcomes = Counter(answer.status if answer.status == 200 else error(answer) for answer in got)
    assert set(outcomes) == {200, QUOTA}
    cost, counted = await doors.spent(key_id)
    assert 0 < cost == counted <= 1_000
    one_by_one = [(await doors.chat(key, f"user-{number}")).status for number in range(60)]
    assert {*one_by_one} == {200, 429}
    cost, counted = await doors.spent(key_id)
    assert 850 < cost == counted <= 1_000, "one more might not have fitted"


async def test_rotating_the_user_does_not_renew_the_tokens_of_a_key(doors: Doors) -> None:
    _, key = await doors.key(day_tokens=40)
    got = [await doors.chat(key, f"user-{number}") for number in range(40)]
    assert Counter(answer.status for answer in got) == {200: 1, 429: 39}
    refused = got[-1]
    assert error(refused) == QUOTA
    assert (refused.headers["x-should-retry"], 0 < int(refused.headers["Retry-After"]) <= 86_400) == ("false", True)
    assert refused.body["error"]["message"].startswith("The API key's tokens a day are spent until ")


async def test_messages_and_runs_are_refused_at_the_door_and_their_turns_are_paid_by_the_key(doors: Doors) -> None:
    key_id, key = await doors.key(day_tokens=3_000)
    doors.vendors.vllm.say("hello Ann", tokens_in=1_000, tokens_out=500)
    answer = await doors.say(key)
    assert (answer.status, answer.body["text"]) == (200, "hello Ann")
    assert (await doors.used(key_id)).day_tokens == 1_500
    # A whole turn may need more than is left: it is answered with Hermes' own words, and costs nothing.
    second = await doors.say(key, "bob")
    assert (second.status, second.body["tokens_in"]) == (200, 0)
    _, spent = await doors.key(day_tokens=30)
    doors.vendors.vllm.say("hi", tokens_in=25, tokens_out=5)
    assert (await doors.chat(spent)).status == 200
    await doors.service.hermes.gateway.wait_settled()
    before = await doors.service.turns()
    got = [await doors.say(spent), await doors.service.post("/v1/runs", {"input": "hi"}, spent), await doors.chat(spent)]
    assert [error(answer) for answer in got] == [QUOTA] * 3
    assert await doors.service.turns() == before


async def test_rates_say_when_to_come_again(doors: Doors) -> None:
    _, often = await doors.key(minute_requests=3)
    _, much = await doors.key(minute_tokens=40)
    got = [await doors.chat(often), await doors.say(often), await doors.chat(often, n=2), await doors.chat(often), await doors.say(often)]
    assert [answer.status for answer in got] == [200, 200, 200, 429, 429]
    assert [error(answer) for answer in got[3:]] == [RATE, RATE]
    assert [1 <= int(answer.headers["Retry-After"]) <= 61 for answer in got[3:]] == [True, True]
    assert "x-should-retry" not in got[3].headers
    assert (await doors.service.get("/v1/models", often)).status == 200, "looking something up does not count"
    doors.vendors.vllm.say("hi", tokens_in=20, tokens_out=5)
    got = [await doors.chat(much), await doors.chat(much), await doors.chat(much, max_tokens=50)]
    assert [answer.status for answer in got] == [200, 429, 429]
    assert (error(got[1]), error(got[2])) == (RATE, RATE)
    assert (1 <= int(got[1].headers["Retry-After"]) <= 61, got[2].headers["x-should-retry"]) == (True, "false")


async def test_calls_at_once_are_limited_and_a_turn_waits_for_its_place(doors: Doors) -> None:
    key_id, key = await doors.key(calls_at_once=1)
    doors.vendors.vllm.hang()
    hanging = asyncio.create_task(doors.chat(key))
    async with asyncio.timeout(5):
        while (await doors.used(key_id)).calls_at_once == 0:  # noqa: ASYNC110  # what is looked at is behind a socket
            await asyncio.sleep(0.02)
    refused = await doors.chat(key, "bob")
    assert (error(refused), refused.headers["Retry-After"]) == (RATE, "1")
    turn = asyncio.create_task(doors.say(key, "cid"))
    await asyncio.sleep(0.3)
    hanging.cancel()
    answered = await turn
    assert (answered.status, answered.body["backend"], answered.body["tokens_out"] > 0) == (200, "own", True)
    await doors.service.hermes.gateway.wait_settled()
    assert (await doors.used(key_id)).calls_at_once == 0


async def test_a_key_is_for_its_models_networks_and_time(doors: Doors) -> None:
    now = datetime.now(UTC)
    _, spare = await doors.key(models=["spare"])
    _, nothing = await doors.key(models=["gone"])
    _, near = await doors.key(networks=["127.0.0.0/8"])
    _, far = await doors.key(networks=["10.0.0.0/8", "::ffff:192.168.0.0/112", "2001:db8::/32"])
    _, over = await doors.key(expires_at=now - timedelta(seconds=1))
    assert (await doors.chat(spare)).body["model"] == "spare-1"
    assert error(await doors.chat(spare, model="small")) == (403, "permission_error", "model_not_allowed", "model")
    assert error(await doors.chat(nothing)) == (403, "permission_error", "model_not_allowed", "model")
    models = [each["id"] for each in (await doors.service.get("/v1/models", spare)).body["data"]]
    assert models == ["hermes", "spare"]
    assert (await doors.say(spare)).body["backend"] == "spare", "the turns of its messages, too"
    assert (await doors.chat(near)).status == 200
    assert error(await doors.chat(far)) == (403, "permission_error", "wrong_network", None)
    for forwarded, status in (
        ("10.1.2.3", 200),
        ("192.168.0.9", 200),
        ("2001:db8::7", 200),
        ("9.9.9.9, 10.1.2.3", 200),
        ("10.1.2.3, 9.9.9.9", 403),
    ):
        # The server trusts this proxy: of the addresses that it names, the last one is whom it saw itself.
        assert (await doors.chat({**far, "X-Forwarded-For": forwarded})).status == status, forwarded
    expired = await doors.chat(over)
    assert (error(expired)[:3], "WWW-Authenticate" in expired.headers) == ((401, "authentication_error", "expired_api_key"), True)
    assert (await doors.say(over)).status == 401


async def test_a_client_that_calls_one_after_the_other_is_never_refused_for_a_call_that_it_has_the_answer_of(doors: Doors) -> None:
    _, alone = await doors.key(calls_at_once=1)
    assert [(await doors.chat(alone)).status for _ in range(12)] == [200] * 12
    messages: list[dict[str, Any]] = []
    for number in range(6):
        messages.append({"role": "user", "content": f"question {number} of them"})
        answer = await doors.chat(alone, messages=messages)
        assert answer.status == 200
        messages.append(answer.body["choices"][0]["message"])
    key_id, poor = await doors.key(day_micro_usd=400)
    assert [(await doors.chat(poor)).status for _ in range(8)] == [200] * 8
    spent, counted = await doors.spent(key_id)
    assert 0 < spent == counted <= 400
