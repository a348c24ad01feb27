"""Traces as a collector receives them: one trace for each message, across processes, and nothing of a turn depends on them.

`HERMES_WRITE_GOLDEN=1 pytest tests/flows/test_traces.py` writes golden_spans.json anew; its difference is what changed for operators."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes.app.root import Hermes, open_hermes
from hermes.channels.fakes import FakePlatforms, open_platforms
from hermes.channels.telegram.fake.people import TelegramPerson
from hermes.config import BackendSettings, DeliverySettings, InboxSettings, Secret, TierSettings
from hermes.ops.trace_export import open_traces
from hermes.ports.channels import ChannelAccount
from hermes.stores.postgres.database import connection_of
from hermes.turn import Platform
from tests.fakes.otlp_collector import OtlpCollector, SeenSpan, collecting
from tests.fakes.vendors import Cut, ToolCall, Vendors, vendors
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

    async def execute(self, statement: str) -> None:
        async with self.web.database.begin() as tx:
            await connection_of(tx).execute(statement.encode())

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
            t.ada.say("I'm vegan. Find me a sunset bar in Canggu for her birthday")
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


async def test_a_delivery_by_a_later_worker_belongs_to_the_same_trace(database_url: str, redis_url: str, collector: OtlpCollector) -> None:
    async with town(database_url, redis_url, delivery=DeliverySettings(queue_s=(1.0, 1.0, 1.0))) as t:
        t.platforms.telegram.fail(status=429, retry_after=11, method="sendMessage")  # too long to wait for within the call
        async with t.worker():
            t.ada.say("hello")
            await t.until("select state, failures from outbox", [("pending", 1)])
            await t.settled()
        await t.execute("update outbox set not_before = now() - interval '1 hour', touched_at = now() - interval '1 hour'")
        async with t.worker():
            await t.ada.wait_for_messages(1, timeout_s=20)
            await t.until("select state from outbox", [("sent",)])
    [trace] = [spans for spans in traces_of(collector.spans) if spans[0].name == "accept telegram"]
    deliveries = [span for span in trace if span.name == "deliver telegram"]
    assert [span.attributes["hermes.outcome"] for span in deliveries] == ["rate_limited", "sent"]
    assert {span.parent for span in deliveries} == {trace[0].id}
    assert len({span.resource["service.instance.id"] for span in trace}) == 3, "the web process and both workers"


async def test_a_turn_that_is_driven_again_is_a_further_child_of_its_accept(
    database_url: str, redis_url: str, collector: OtlpCollector
) -> None:
    async with town(database_url, redis_url) as t, t.worker():
        await t.execute("alter table interactions rename to interactions_gone")
        t.ada.say("hello")
        await t.until("select attempts > 1 from inbox", [(True,)])  # the last step fails, and the worker drives the turn again
        await t.execute("alter table interactions_gone rename to interactions")
        await t.ada.wait_for_messages(1, timeout_s=30)
        await t.settled()
    [trace] = [spans for spans in traces_of(collector.spans) if spans[0].name == "accept telegram"]
    turns = [span for span in trace if span.name == "invoke_workflow handle_message"]
    assert {span.parent for span in turns} == {trace[0].id}
    assert [span.attributes["hermes.attempt"] for span in turns] == list(range(1, len(turns) + 1))
    assert (len(turns) > 1, turns[0].is_error, turns[-1].is_error) == (True, True, False)
    assert sum(span.name.startswith("chat") for span in trace) == 1, "the model was asked once, and the journal knew the answer"


async def test_items_that_are_joined_are_linked(database_url: str, redis_url: str, collector: OtlpCollector) -> None:
    async with town(database_url, redis_url, inbox=InboxSettings(burst_s=1.0)) as t:
        for text in ("find me", "a sunset bar"):
            t.ada.say(text)
        await t.until("select count(*) from inbox", [(2,)])
        async with t.worker():
            await t.ada.wait_for_messages(1, timeout_s=20)
    [turn] = [span for span in collector.spans if span.name == "invoke_workflow handle_message"]
    accepts = [span.trace for span in sorted(collector.spans, key=lambda span: span.started) if span.name == "accept telegram"]
    assert [turn.trace, *turn.links] == accepts


async def test_a_completion_is_a_trace_whole_or_streamed(database_url: str, redis_url: str, collector: OtlpCollector) -> None:
    async with town(database_url, redis_url) as t:
        key = await t.web.key(tier="free")
        for stream in (False, True):
            t.vendors.anthropic.say("hello there", tokens_in=10, tokens_out=2)
            body = {"model": "hermes", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
            got = await t.web.post("/v1/chat/completions", body, key)
            assert got.status == 200, got.body
        t.vendors.anthropic.say("one two three", cut=Cut.RESET)
        broken = await t.web.post("/v1/chat/completions", {**body, "stream": True}, key)
        assert "error" in str(broken.body)
    whole, streamed, cut = [tree(spans) for spans in traces_of(collector.spans)]
    assert names(whole) == names(streamed) == names(cut) == [("accept completions", ["chat claude-sonnet-4-6"])]
    for [root] in (whole, streamed):
        [chat] = root["children"]
        assert (chat["attributes"]["gen_ai.usage.output_tokens"], "is_error" in chat, "is_error" in root) == (2, False, False)
        assert root["attributes"]["session.id"] == "<id>"
    [root] = cut
    assert (root["attributes"]["error.type"], root["children"][0]["attributes"]["error.type"]) == ("CutShort", "CutShort")
    assert collector.faults == []


# --- content


async def test_texts_are_in_the_spans_only_if_the_operator_captures_content(
    database_url: str, redis_url: str, collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    async with town(database_url, redis_url) as t:
        t.vendors.anthropic.say("", tool_calls=[ToolCall("venue_search", {"query": "sunset bar"}, id="toolu_1")])
        t.vendors.anthropic.say("Salt & Ember it is.")
        async with t.worker():
            t.ada.say("find me a sunset bar in Canggu")
            await t.ada.wait_for_messages(1, timeout_s=20)
    spans = {span.name: span.attributes for span in sorted(collector.spans, key=lambda span: span.started)}
    turn, chat, tool = (
        spans["invoke_workflow handle_message"],
        spans["chat claude-sonnet-4-6"],
        spans["execute_tool venue_search"],
    )
    assert (spans["accept telegram"]["input.value"], turn["output.value"]) == ("find me a sunset bar in Canggu", "Salt & Ember it is.")
    assert "sunset bar in Canggu" in turn["gen_ai.input.messages"]
    assert "Salt & Ember it is." in turn["gen_ai.output.messages"]
    said = json.loads(chat["gen_ai.input.messages"])
    assert [message["role"] for message in said] == ["user", "assistant", "tool"]
    assert said[1]["parts"][-1]["name"] == "venue_search"
    assert "Salt & Ember it is." in chat["gen_ai.output.messages"]
    assert "gen_ai.system_instructions" in chat
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"query": "sunset bar"}
    assert tool["gen_ai.tool.call.result"]


# --- whatever becomes of the collector, turns go on


@pytest.mark.parametrize("fault", ["refuses", "hangs", "is away"])
async def test_a_collector_that_fails_changes_nothing_and_holds_no_process(
    database_url: str, redis_url: str, collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("hermes.ops.trace_export.FLUSH_S", 0.5)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    collector.status, collector.is_hanging = (503, False) if fault == "refuses" else (200, fault == "hangs")
    if fault == "is away":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    loop = asyncio.get_running_loop()
    async with town(database_url, redis_url) as t:
        async with t.worker():
            for number in range(3):
                t.ada.say(f"hello {number}")
                await t.ada.wait_for_messages(number + 1, timeout_s=20)
            await t.settled()
            ending = loop.time()
        assert loop.time() - ending < 3.0
        assert await t.ask("select distinct meta ->> 'outcome' from interactions") == [("answered",)]
    assert collector.spans == []
    assert (collector.requests > 0) is (fault != "is away")


async def test_a_sampler_decides_for_all_processes(
    database_url: str, redis_url: str, collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    async with town(database_url, redis_url) as t:
        t.ada.say("I'm vegan. Find me a sunset bar")
        await t.until("select right(traceparent, 1) in ('1', '3') from inbox", [(False,)])  # the lowest bit says whether it is sampled
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
        async with t.worker():
            await t.ada.wait_for_messages(1, timeout_s=20)
            await t.settled()
    assert [span.name for span in collector.spans] == ["remember"], "only what begins a trace of its own"


async def test_off_stores_no_trace(database_url: str, redis_url: str) -> None:
    async with open_platforms(), running(database_url, redis_url) as service:
        await service.post("/v1/messages", {"text": "hello"}, await service.key())
        async with service.database.begin() as tx:
            [row] = await (await connection_of(tx).execute("select traceparent from inbox")).fetchall()
    assert tuple(row) == (None,)
