"""The console's costs in a real browser: every sum is the ledger, to the micro-dollar, after turns with all that can cost something."""

import asyncio
import csv
import io
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest

from hermes.config import BackendSettings, CreditSettings, HistorySettings, MemorySettings, NamedTables, Secret, TierSettings
from hermes.config.settings import LlmSettings
from hermes.gateway.spend_sums import HourSummer
from hermes.ports.costs import CostDimension
from hermes.ports.operators import EntryKind, Role
from hermes.stores.postgres.database import connection_of
from tests.browser.browser import Page, installed
from tests.browser.console import console_tab, make_operator, make_secret, token_headers
from tests.fakes.vendors import ToolCall, Vendors, vendors
from tests.flows.service import Service, running
from tests.flows.test_turn_cost import LIMIT, TALE, is_long

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

TOTAL = "Number(document.getElementById('total').dataset.microUsd)"
PATIENCE_S = 30.0


async def ask(service: Service, query: str) -> list[Any]:
    async with service.database.begin() as tx:
        return await (await connection_of(tx).execute(query.encode())).fetchall()


async def sum_up(service: Service) -> int:
    """Make the sums by the hour, and return what the ledger says."""
    await HourSummer(service.database, service.hermes.adapters.spend_sums).sum_recent()
    [(micro_usd,)] = await ask(service, "select sum(micro_usd)::bigint from calls")
    return int(micro_usd)


async def spend(service: Service, v: Vendors) -> None:
    """Have turns that cost something in every way: a model that fails, a summary, tools, what is learnt, completions, a refused call."""
    key = await service.key()
    number = 0
    while not await is_long(service):
        assert (await service.post("/v1/messages", {"text": f"{number}: {TALE}"}, key)).status == 200
        number += 1
    await until_learnt(service, number)  # so that what follows is said to the next turn
    v.anthropic.say("They take the ferry at eight.")  # the summary: the history is too long by now
    v.anthropic.fail(529)
    tools = [ToolCall("venue_search", {"query": "cafe", "area": "Ubud"}), ToolCall("get_nutrition_summary", {}, "c2")]
    v.anthropic.say("", tool_calls=tools)
    v.anthropic.say("Two cafes are near.")
    assert (await service.post("/v1/messages", {"text": f"Find me a cafe in Ubud. {TALE}"}, key)).status == 200
    completion = {"model": "hermes", "messages": [{"role": "user", "content": "hi"}], "user": "grace"}
    assert (await service.post("/v1/chat/completions", completion, key)).status == 200
    await service.hermes.spend.kill_switch("a test", by="test")
    assert (await service.post("/v1/chat/completions", completion, key)).status == 503
    await service.hermes.spend.release(by="test")
    await until_learnt(service, number + 1)
    await service.hermes.gateway.wait_settled()


async def until_learnt(service: Service, turns: int) -> None:
    """Wait until that many messages were learnt from."""
    query = f"select 1 from calls where purpose = 'remember' having count(*) >= {turns}"  # noqa: S608
    async with asyncio.timeout(PATIENCE_S):
        while not await ask(service, query):  # noqa: ASYNC110  # the rows of another task ring no bell
            await asyncio.sleep(0.02)


async def by_value(service: Service, column: str) -> dict[str, int]:
    return dict(await ask(service, f"select coalesce(({column})::text, ''), sum(micro_usd)::bigint from calls group by 1"))  # noqa: S608


async def test_every_dimension_is_the_ledger_to_the_micro_dollar(devtools: int, database_url: str, redis_url: str) -> None:
    async with vendors() as v:
        v.anthropic.models[:] = ["claude-haiku-4-5-20251001", "claude-sonnet-4-6"]
        more = {
            "backends": NamedTables({"anthropic": BackendSettings(base_url=v.anthropic.url, api_key=Secret(v.anthropic.key))}),
            "tiers": NamedTables({"free": TierSettings(chain=("claude-sonnet", "claude-haiku"), day_tokens=10_000_000)}),
            "history": HistorySettings(max_tokens=LIMIT),
            "memory": MemorySettings(),
            "credits": CreditSettings(signup_grant=50),
            "llm": LlmSettings(global_daily_budget_usd=0.005),
        }
        async with running(database_url, redis_url, echoes=False, more=more, answer_timeout_s=60.0) as service:
            await spend(service, v)
            ledger = await sum_up(service)
            purposes = await by_value(service, "purpose")
            assert {"answer", "conclude", "compact", "remember", "completions"} <= {name for name, money in purposes.items() if money}
            assert await ask(service, "select 1 from calls where outcome = 'refused'")
            assert await ask(service, "select 1 from calls where outcome = 'answered' and jsonb_array_length(attempts) > 1")
            headers = await token_headers(service, Role.VIEWER)
            await every_face_has_the_ledger(service, headers, ledger)
            await rows_are_those_of_the_ledger(service, headers)
            await tools_share_the_concluding_call(service, headers)
            async with console_tab(devtools, service, Role.VIEWER) as page:
                await the_page_shows_it(page, service, ledger)
            # A concluding call in the hour before its turn: still every micro-dollar is found once.
            await ask(service, "update calls set created_at = created_at - interval '1 hour' where purpose = 'conclude' returning 1")
            assert await sum_up(service) == ledger
            await every_face_has_the_ledger(service, headers, ledger)
            await an_operator_of_another_account_sees_nothing(service)


async def every_face_has_the_ledger(service: Service, headers: dict[str, str], ledger: int) -> None:
    for dimension in (*CostDimension, "platform"):
        answer = await service.get(f"/v1/ops/costs?by={dimension}&since=2d", headers)
        assert answer.status == 200, answer.body
        assert sum(row["micro_usd"] for row in answer.body["data"]) == answer.body["micro_usd"] == ledger, dimension
        assert sum(bar["micro_usd"] for bar in answer.body["bars"]) == ledger, dimension


async def rows_are_those_of_the_ledger(service: Service, headers: dict[str, str]) -> None:
    columns = {"purpose": "purpose", "model": "coalesce(answered_by, model)", "agent": "agent", "channel": "platform", "tier": "tier"}
    for by, column in {**columns, "key": "api_key_id", "user": "user_id", "account": "account_id", "day": "created_at::date"}.items():
        rows = (await service.get(f"/v1/ops/costs?by={by}&since=2d", headers)).body["data"]
        assert {row[by]: row["micro_usd"] for row in rows} == await by_value(service, column), by


async def tools_share_the_concluding_call(service: Service, headers: dict[str, str]) -> None:
    rows = {row["tool"]: row for row in (await service.get("/v1/ops/costs?by=tool&since=2d", headers)).body["data"]}
    [(concluded,)] = await ask(service, "select sum(micro_usd)::bigint from calls where purpose = 'conclude'")
    names = [name for (name,) in await ask(service, "select facts ->> 'name' from run_events where step = 'run_tools' order by index")]
    assert len(names) == 2
    assert [rows[name]["micro_usd"] for name in names] == [concluded // 2, concluded - concluded // 2]
    assert [rows[name]["runs"] for name in names] == [1, 1]


async def the_page_shows_it(page: Page, service: Service, ledger: int) -> None:
    dollars = f"${ledger / 1_000_000:,.6f}"
    for by in ("agent", "user", "tool", "purpose", "day"):
        await page.go(f"{service.url}/console/costs?by={by}&since=7d")
        assert await page.see(TOTAL) == ledger
        assert await page.see("document.getElementById('total').innerText") == dollars
        bars = "document.querySelectorAll('details tbody tr').length"
        assert await page.see(bars) == 7
        assert await page.see("[...document.querySelectorAll('.bars a')].length > 0")
    # The line of the cap, the budget of today, and a bar that leads to its turns.
    assert "daily cap $0.005, with its 80 %" in await page.see("document.querySelector('.legend').innerText")
    assert "everything" in await page.see("document.getElementById('budgets').nextElementSibling.innerText")
    await page.go(f"{service.url}/console/costs?by=purpose&since=7d")
    rows = await page.see("[...document.querySelectorAll('table.costs tbody tr')].map((row) => row.querySelector('th').innerText.trim())")
    path, _, query = (await page.see("document.querySelector('.bars a').getAttribute('href')")).partition("?")
    wanted = dict(parse_qsl(query))
    since, until = (datetime.fromisoformat(wanted[name]) for name in ("since", "until"))
    assert (path, wanted["purpose"], until - since) == ("/console/turns", rows[0], timedelta(days=1))
    assert set(rows) == {"answer", "conclude", "compact", "remember", "completions"}
    text = await page.see("fetch('/console/costs.csv?by=purpose&since=7d').then((answer) => answer.text())")
    assert sum(int(row["micro_usd"]) for row in csv.DictReader(io.StringIO(text))) == ledger
    assert page.complaints == []


async def an_operator_of_another_account_sees_nothing(service: Service) -> None:
    for account, is_seen in (("elsewhere", False), ("shop", True)):
        operator = await make_operator(service, Role.OWNER, name=account, accounts=frozenset({account}))
        secret = await make_secret(service, operator, EntryKind.TOKEN)
        for dimension in CostDimension:
            body = (await service.get(f"/v1/ops/costs?by={dimension}&since=2d", {"Authorization": f"Bearer {secret}"})).body
            assert ((body["micro_usd"] > 0), body["budgets"]) == (is_seen, []), dimension


async def test_what_cannot_be_read_is_said_and_an_empty_page_names_the_next_command(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        headers = await token_headers(service, Role.VIEWER)
        answer = await service.get("/v1/ops/costs?by=moon", headers)
        assert (answer.status, answer.body["error"]["code"]) == (422, "invalid_costs")
        assert (await service.get("/v1/ops/costs?since=soon", headers)).status == 422
        key = await service.key()
        assert (await service.get("/v1/ops/costs", key)).status == 403
