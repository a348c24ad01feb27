"""The cache of answers on whole turns: one sample for equal small talk of one user, and none where anything else decides the answer."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from hermes.config import BackendKind, BackendSettings, ModelSettings, PriceSettings, Secret, TierSettings
from hermes.stores.postgres.database import connection_of
from tests.fakes.script import Say
from tests.fakes.vendors import Vendors, vendors
from tests.flows.service import Service, running

CLOCK_TIME = re.compile(r"\d\d:\d\d")
SAVED_USD = (12 * 1 + 5 * 5) / 1_000_000


class Guest:
    """A user of the API who writes on several channels, to a model at a vendor's."""

    def __init__(self, service: Service, fakes: Vendors, key: Mapping[str, str]) -> None:
        self._service, self.vendor, self._key = service, fakes.vllm, key

    async def say(self, text: str, channel: str, user: str = "ann") -> dict[str, Any]:
        got = await self._service.post("/v1/messages", {"text": text, "user": user, "channel": channel}, self._key)
        assert got.status == 200, got.body
        return dict(got.body)

    async def ask(self, query: str) -> list[Any]:
        async with self._service.database.begin() as tx:
            return list(await (await connection_of(tx).execute(query.encode())).fetchall())

    async def metric(self, name: str) -> float:
        page = str((await self._service.get("/metrics")).body)
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(f"{name}{{"))


@pytest.fixture
async def guest(database_url: str, redis_url: str) -> AsyncIterator[Guest]:
    async with vendors() as fakes:
        fakes.vllm.models[:] = ["small-1"]
        fakes.vllm.otherwise = lambda _: Say(text=f"answer {len(fakes.vllm.requests)}", tokens_in=12, tokens_out=5)
        more = {
            "backends": {"own": BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key))},
            "models": {"small": ModelSettings(backend="own", id="small-1", prices=(PriceSettings(input=1.0, output=5.0),))},
            "tiers": {"free": TierSettings(chain=("small",), day_tokens=1_000_000)},
        }
        async with running(database_url, redis_url, echoes=False, more=more) as service:
            yield Guest(service, fakes, await service.key(trains=True))


async def test_good_morning_on_three_channels_is_one_call_of_the_vendor(guest: Guest) -> None:
    said = await asyncio.gather(*[guest.say("good morning", channel) for channel in ("phone", "watch", "desk")])
    said.append(await guest.say("good morning", "tablet"))
    assert (len(guest.vendor.requests), {each["text"] for each in said}) == (1, {"answer 1"})
    [question] = [message["content"] for message in guest.vendor.requests[0].body["messages"] if message["role"] == "user"]
    assert CLOCK_TIME.search(question) is None, "the minute does not matter for a greeting"
    assert sorted((each["cache_hit"], each["cost_usd"], each["saved_usd"]) for each in said) == [
        (False, SAVED_USD, 0.0),
        *[(True, 0.0, SAVED_USD)] * 3,
    ]
    rows = await guest.ask("select micro_usd, tokens, cache_hit from calls order by cache_hit")
    assert rows == [(37, 17, False), *[(0, 0, True)] * 3]
    assert (await guest.metric("hermes_llm_cache_hits_total"), await guest.metric("hermes_llm_cache_saved_usd_total")) == (
        3,
        pytest.approx(3 * SAVED_USD),
    )
    samples = await guest.ask("select count(*) from graph_samples")
    assert samples == [(1,)], "a copy is no sample"


async def test_no_answer_is_copied_where_more_than_the_words_decides(guest: Guest) -> None:
    for text in ("good morning", "good morning"):
        await guest.say(text, "phone")  # the second has another history
    assert len(guest.vendor.requests) == 2
    await guest.say("good morning", "phone", user="bob")
    assert len(guest.vendor.requests) == 3, "another user"
    for channel in ("watch", "desk"):
        await guest.say("find me a sunset bar in Canggu", channel)
    assert len(guest.vendor.requests) == 5, "a request with tools"
    assert await guest.ask("select count(*) from calls where cache_hit") == [(0,)]
