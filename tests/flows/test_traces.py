"""Traces as a collector receives them: one trace for each message, across processes, and nothing of a turn depends on them.

`HERMES_WRITE_GOLDEN=1 pytest tests/flows/test_traces.py` writes golden_spans.json anew; the difference shows what changed for an operator."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hermes.app import Hermes, open_hermes
from hermes.channels.fakes import FakePlatforms, open_platforms
from hermes.channels.telegram.fake.people import TelegramPerson
from hermes.config import BackendSettings, DeliverySettings, Secret, TierSettings
from hermes.ops.trace_export import open_traces
from hermes.ports.channels import ChannelAccount
from hermes.stores.postgres.database import connection_of
from hermes.turn import Platform
from tests.fakes.otlp_collector import OtlpCollector, SeenSpan, collecting
from tests.fakes.vendors import ToolCall, Vendors, vendors
from tests.flows.service import Service, running, stopped

pytestmark = pytest.mark.usefixtures("redis_url")

GOLDEN = Path(__file__).parent / "golden_spans.json"
UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
DIGEST_TEXT = re.compile(r"[0-9a-f]{16}")
MEASURED = {"hermes.waited_s"}


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OtlpCollector]:
    async with collecting() as collector:
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        yield collector


@dataclass(frozen=True)
class Town:
    """A web process, worker processes on the same stores, a vendor's models, and Ada with Telegram."""

    web: Service
    platforms: FakePlatforms
    vendors: Vendors
    ada: TelegramPerson

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Hermes]:
        """A second process, as far as Hermes can tell. Its spans have arrived when the block ends."""
        async with AsyncExitStack() as stack:
            hermes = await stack.enter_async_context(open_hermes(self.web.hermes.settings, open_tracer=open_traces))
            stack.push_async_callback(stopped, asyncio.create_task(hermes.run_worker()))
            yield hermes

    async def ask(self, query: str) -> list[tuple[Any, ...]]:
        async with self.web.database.begin() as tx:
            return [tuple(row) for row in await (await connection_of(tx).execute(query.encode())).fetchall()]

    async def until(self, query: str, expected: list[tuple[Any, ...]]) -> None:
        for _ in range(400):
            if (found := await self.ask(query)) == expected:
                return
            await asyncio.sleep(0.05)
        assert found == expected

    async def settled(self) -> None:
        await self.until("select count(*) from procrastinate_jobs", [(0,)])


@asynccontextmanager
async def town(database_url: str, redis_url: str, **more: Any) -> AsyncIterator[Town]:
    async with vendors() as fakes, open_platforms() as platforms:
        settings = {
            "backends": {"anthropic": BackendSettings(base_url=fakes.anthropic.url, api_key=Secret(fakes.anthropic.key))},
            "tiers": {"free": TierSettings(chain=("claude-sonnet", "claude-haiku"))},
            **more,
        }
        async with running(database_url, redis_url, echoes=False, has_worker=False, open_tracer=open_traces, more=settings) as web:
            platforms.connect(web.url)
            bot = platforms.telegram
            about = {"token": bot.token, "secret": bot.secret, "base_url": platforms.url, "is_open": "yes"}
            async with web.database.begin() as tx:
                account = ChannelAccount(platform=Platform.TELEGRAM, account="fake", about=about)
                await web.hermes.adapters.channel_accounts.put(tx, account)
            await web.hermes.account_channels.refresh()
            yield Town(web, platforms, fakes, bot.person("Ada"))


def traces_of(spans: Iterable[SeenSpan]) -> list[list[SeenSpan]]:
    """The spans by trace, oldest first."""
    found: dict[str, list[SeenSpan]] = {}
    for span in sorted(spans, key=lambda span: span.started):
        found.setdefault(span.trace, []).append(span)
    return list(found.values())


def tree(spans: list[SeenSpan], parent: str = "") -> list[dict[str, Any]]:
    """A trace as a tree, without ids and times."""
    return [
        {
            "name": span.name,
            "kind": span.kind,
            **({"is_error": True} if span.is_error else {}),
            **({"links": len(span.links)} if span.links else {}),
            "attributes": {name: shown(name, value) for name, value in sorted(span.attributes.items())},
            **({"children": children} if (children := tree(spans, span.id)) else {}),
        }
        for span in spans
        if span.parent == parent
    ]


def shown(name: str, value: Any) -> Any:
    if name in MEASURED:
        return "<measured>"
    if isinstance(value, str) and (UUID_TEXT.fullmatch(value) or DIGEST_TEXT.fullmatch(value)):
        return "<id>"
    return value


def names(nodes: list[dict[str, Any]]) -> list[Any]:
    return [(node["name"], names(node["children"])) if "children" in node else node["name"] for node in nodes]


async def test_one_message_is_one_trace_from_the_webhook_to_the_delivered_answer(
    database_url: str, redis_url: str, collector: OtlpCollector
) -> None:
    async with town(database_url, redis_url) as t:
        model = t.vendors.anthropic
        async with t.worker():
            t.ada.say("Remember that my daughter's birthday is May 5")
            await t.ada.wait_for_messages(1, timeout_s=20)
            await t.settled()
            model.fail(529)
            model.say("", tool_calls=[ToolCall("venue_search", {"area": "Canggu", "query": "sunset bar"}, id="toolu_1")], tokens_in=812)
            model.say("Salt & Ember it is.", tokens_in=900, tokens_out=20, cached=100)
            t.ada.say("find me a sunset bar in Canggu for her birthday")
            received = await t.ada.wait_for_messages(2, timeout_s=20)
            assert received[1].text == "Salt & Ember it is."
            await t.settled()
    assert collector.faults == []
    found = traces_of(collector.spans)
    [second] = [spans for spans in found if any(span.name == "execute_tool venue_search" for span in spans)]
    assert len({span.resource["service.instance.id"] for span in second}) == 2, "two processes wrote to it"
    written = tree(second)
    if os.environ.get("HERMES_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    assert written == json.loads(GOLDEN.read_text(encoding="utf-8"))
    texts = json.dumps([[span.attributes, span.resource] for span in collector.spans])
    assert not any(word in texts for word in ("daughter", "sunset", "Salt", "May 5")), "no content"
    # Learning from the message is a trace of its own, which refers to this one.
    jobs = [span for spans in found for span in spans if span.name == "remember"]
    assert [(job.parent, job.links) for job in jobs if job.links == (second[0].trace,)] == [("", (second[0].trace,))]
