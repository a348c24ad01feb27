"""A plan exchanges models for all traffic of all processes, without a restart: tried by some chats, then by all, and taken back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes.config import BackendKind, BackendSettings, ModelSettings, Secret, TierSettings
from hermes.stores.postgres.database import connection_of
from hermes.stores.seal import new_master_key
from tests.browser.console import token_headers
from tests.fakes.vendors import Vendors, vendors
from tests.flows.command import hermes
from tests.flows.service import Got, Service, running
from tests.flows.test_completions import PRICE

PLAN = "/v1/ops/models/plan"


class Two:
    """Two processes of one Hermes, on one database."""

    def __init__(self, one: Service, two: Service, fakes: Vendors, key: dict[str, str], ops: dict[str, str]) -> None:
        self.one, self.two, self.fakes, self.key, self.ops = one, two, fakes, key, ops

    async def complete(self, service: Service, text: str = "hi", model: str = "hermes") -> str:
        """The backend that answered."""
        body = {"model": model, "messages": [{"role": "user", "content": text}]}
        got = await service.post("/v1/chat/completions", body, self.key)
        assert got.status == 200, got.body
        backend: str = got.body["hermes"]["backend"]
        return backend

    async def complete_many(self, service: Service, chats: int) -> list[str]:
        return [await self.complete(service, f"chat {number}") for number in range(chats)]

    async def change(self, **body: Any) -> Got:
        got = await self.one.post(PLAN, body, self.ops)
        await asyncio.gather(*(service.hermes.planner.refresh() for service in (self.one, self.two)))  # else a second later
        return got

    async def rows(self, query: str) -> Sequence[tuple[Any, ...]]:
        for service in (self.one, self.two):
            await service.hermes.gateway.wait_settled()
        async with self.one.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode())).fetchall()


@asynccontextmanager
async def open_two(database_url: str, redis_url: str) -> AsyncIterator[Two]:
    async with vendors() as fakes:
        fakes.vllm.models[:] = ["old-1"]
        fakes.openai.models[:] = ["new-1", "dear-1"]
        more = {
            "master_keys": (Secret(new_master_key()),),
            "backends": {
                "rented": BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key)),
                "own": BackendSettings(kind=BackendKind.OPENAI, base_url=fakes.openai.url, api_key=Secret(fakes.openai.key)),
            },
            "models": {
                "old": ModelSettings(backend="rented", id="old-1", prices=PRICE),
                "new": ModelSettings(backend="own", id="new-1", prices=PRICE),
                "dear": ModelSettings(backend="own", id="dear-1"),
            },
            "tiers": {
                "free": TierSettings(chain=("old",), day_tokens=1_000_000),
                "agents": TierSettings(chain=("old",), day_tokens=1_000_000),
            },
        }
        async with (
            running(database_url, redis_url, echoes=False, more=more) as one,
            running(database_url, redis_url, echoes=False, has_worker=False, more=more) as two,
        ):
            yield Two(one, two, fakes, await one.key(tier="agents"), await token_headers(one))


@pytest.fixture
async def house(database_url: str, redis_url: str) -> AsyncIterator[Two]:
    async with open_two(database_url, redis_url) as found:
        yield found


async def test_models_are_exchanged_for_some_chats_then_for_all_and_taken_back(house: Two, tmp_path: Path) -> None:
    chats = 40
    assert await house.complete_many(house.two, 2) == ["rented"] * 2
    tried = await house.change(old="old", new="new", share=30, reason="a try")
    assert tried.body.get("version") == 1, tried.body
    first = await house.complete_many(house.one, chats)
    assert first == await house.complete_many(house.two, chats), "a chat has its models in every process"
    assert 0 < first.count("own") < chats
    assert (await house.change(share=60)).body["version"] == 2
    wider = await house.complete_many(house.two, chats)
    assert first.count("own") < wider.count("own") < chats
    assert all(after == "own" for before, after in zip(first, wider, strict=True) if before == "own"), "a chat stays where it is"
    assert (await house.change(share=100)).body["percent"] == 100
    assert await house.complete_many(house.two, 5) == ["own"] * 5
    assert await house.complete(house.two, model="old") == "own", "the model that was exchanged may still be asked for by its name"
    turn = await house.one.post("/v1/messages", {"text": "find me a bar", "user": "ada"}, await house.one.key())
    assert turn.status == 200
    plans = await house.rows("select source, backend, plan, count(*) from calls group by 1, 2, 3 order by 1, 2, 3")
    assert [row[:3] for row in plans] == [
        ("completions", "own", 1),
        ("completions", "own", 2),
        ("completions", "own", 3),
        ("completions", "rented", None),
        ("router", "own", 3),
    ]
    ended = await hermes(house.one, tmp_path, "models", "plan", "--json")
    assert '"version": 3' in ended.output, ended.complaints
    assert (await house.change(roll_back=True)).body["chains"] == {}
    assert await house.complete_many(house.two, 2) == ["rented"] * 2
    assert (await house.change(roll_back=True)).body["chains"] == {"agents": ["new"], "free": ["new"]}
    audit = await house.rows("select action, operator, facts from audit where action = 'models.plan' order by at")
    assert len(audit) == 5
    listed = (await house.one.get("/v1/ops/models", house.ops)).body
    assert listed["plan"]["version"] == 5
    [new] = [model for model in listed["data"] if model["name"] == "new"]
    assert (new["places"], new["usd_in"], new["state"], new["failures_today"]) == (["free 1", "agents 1"], 1.0, "ok", 0)
    assert new["answers_today"] > chats
    assert new["p50_ms"] is not None


async def test_a_swap_of_the_agents_adapter_reaches_clients_that_leave_the_model_to_hermes(house: Two, tmp_path: Path) -> None:
    await house.one.hermes.fleet.swap("hermes", "new", by="ada")
    await house.two.hermes.fleet.refresh()
    assert await house.complete(house.two) == "own"
    assert await house.complete(house.two, model="old") == "rented", "a client that names a model gets it"
    house.fakes.openai.fail(403)
    assert await house.complete(house.two) == "rented", "the chain stands behind the adapter"
    await house.two.hermes.gateway.wait_settled()
    models = (await house.one.get("/v1/ops/models", house.ops)).body["data"]
    [new] = [model for model in models if model["name"] == "new"]
    assert (new["state"], new["error"], new["failures_today"], new["since"] < new["next_probe_at"]) == ("open", "Unauthorized", 1, True)
    listed = await hermes(house.one, tmp_path, "models")
    assert listed.code == 0, listed.complaints
    [line] = [line for line in listed.output.splitlines() if line.startswith("claude-sonnet")]
    # The command has settings of its own, without a key, so the stand-in of development is behind the name.
    assert line.split()[:4] == ["claude-sonnet", "scripted", "pro", "1,"]
    assert " ok " in line


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"old": "old", "new": "nev"}, 404, "did you mean new"),
    ({"old": "new", "new": "old"}, 409, "no chain has the model new"),
    ({"tier": "agents", "chain": ["dear"]}, 409, "there is no price for dear-1"),
    ({"tier": "agents", "chain": ["new", "new"]}, 409, "each once"),
    ({"tier": "agents", "chain": ["old"]}, 409, "the chains are like that already"),
    ({"tier": "agenst", "chain": ["new"]}, 404, "did you mean agents"),
    ({"share": 50}, 409, "no plan is on trial"),
    ({"roll_back": True}, 409, "there is no plan"),
    ({"tier": "agents", "old": "old"}, 422, "Give one of"),
]


async def test_a_plan_that_cannot_hold_changes_nothing(house: Two) -> None:
    for body, status, why in REFUSED:
        got = await house.change(**body)
        assert (got.status, why in str(got.body)) == (status, True), (body, got.body)
    house.fakes.openai.key = "changed"
    assert "HTTP 401" in (await house.change(old="old", new="new")).body["error"]["message"], "its backend is not well"
    assert house.one.hermes.planner.newest is None
    assert await house.rows("select version from model_plans") == []
