"""Replays in a real browser: the form, the answer beside the recorded one, batches; and that a live conversation notices nothing."""

import asyncio
import csv
import io
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from hermes.console.replays import conversation_subject
from hermes.ports.operators import Actor, Face, Role
from tests.browser.browser import Page, installed
from tests.browser.console import console_tab, make_operator, token_headers
from tests.fakes.vendors import Say, ToolCall
from tests.flows.replaying import SEARCH, SONNET, Shop, replaying, worker_process, working

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

PICTURES = os.environ.get("HERMES_TEST_PICTURES")
"""A folder for pictures of the pages; not set: none are taken."""


@pytest.fixture
async def shop(database_url: str, redis_url: str) -> AsyncIterator[Shop]:
    async with replaying(database_url, redis_url) as shop:
        yield shop


async def take_pictures(page: Page, name: str) -> None:
    if PICTURES is None:
        return
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 360)):
        await page.size(width, 900)
        await page.color_scheme(scheme)
        Path(PICTURES, f"replay-{name}-{scheme}-{width}.png").write_bytes(await page.picture())  # noqa: ASYNC240  # a few bytes, by hand only
    await page.size(1280, 900)
    await page.color_scheme("light")


async def open_conversation(page: Page, shop: Shop, turn_id: UUID) -> None:
    """Open the content of a turn for the operator of the tab."""
    name = await page.see("document.querySelector('.who').firstChild.textContent")
    operator = await make_operator(shop.service, name=name.strip())
    actor = Actor(operator, Face.CONSOLE)
    source = await shop.console.find_source(actor, turn_id)
    await shop.console.access.open(actor, conversation_subject(source))


async def choose(page: Page, selector: str, value: str) -> None:
    await page.see(f"document.querySelector({selector!r}).value = {value!r}")


async def live_state(shop: Shop) -> list[Any]:
    """What the live conversation and its customer would notice, once every answered turn has its calls."""
    await shop.until("select count(*) from interactions as x where not exists (select from calls where turn_id = x.turn_id)", [(0,)])
    queries = (
        "select count(*) from outbox",
        "select count(*) from credit_entries",
        "select id, head, length, mark from sessions order by id",
        "select count(*) from user_memory",
        "select count(*), sum(micro_usd) from calls where user_id in (select user_id from inbox)",
    )
    return [await shop.ask(query) for query in queries]


async def test_a_replay_beside_a_live_conversation(devtools: int, shop: Shop) -> None:
    """Checks 17 and 18."""
    anthropic = shop.vendors.anthropic
    anthropic.say("", tool_calls=[SEARCH])
    anthropic.say("Two cafes are near you in Ubud, <b>both</b> open now.")
    turn_id = await shop.say("Find me a cafe in Ubud.")
    before = await live_state(shop)
    async with console_tab(devtools, shop.service) as page:
        await page.go(f"{shop.service.url}/console/turns/{turn_id}/replay")
        assert await page.see("document.querySelector('textarea')") is None, "the system text is content"
        await open_conversation(page, shop, turn_id)
        await page.go(f"{shop.service.url}/console/turns/{turn_id}/replay")
        assert "venue_search" in await page.see("document.querySelector('fieldset').innerText")
        await take_pictures(page, "form")

        # The replay waits for its model while the user writes the next message.
        anthropic.hang()
        asked = len(anthropic.requests)
        await choose(page, "select[name=model]", "claude-sonnet")
        await page.click(".replay-form button.main")
        await anthropic.asked(asked + 1, timeout_s=30.0)
        assert anthropic.requests[-1].body["model"] == SONNET
        assert await live_state(shop) == before
        anthropic.say("You are welcome.")
        await shop.say("Thanks!")
        after = await live_state(shop)
        anthropic.say("", tool_calls=[SEARCH])
        anthropic.say("Three cafes are near you in Ubud, and all are open.")
        await shop.console.worker.aclose()  # the hanging call is given up; the worker takes the replay again
        await page.until("document.querySelector('#answer')?.innerText.startsWith('Three cafes')")
        assert await page.see("document.querySelector('#recorded').innerText") == "Two cafes are near you in Ubud, <b>both</b> open now."
        assert "Two" in await page.see("[...document.querySelectorAll('#words del')].map(e => e.innerText).join(' ')")
        assert "Three" in await page.see("[...document.querySelectorAll('#words ins')].map(e => e.innerText).join(' ')")
        assert await live_state(shop) == after, "nothing was sent, no credit was taken, the graph is as it was"
        await take_pictures(page, "done")

        anthropic.say("", tool_calls=[ToolCall("book_delivery", {"pickup": "Ubud", "dropoff": "Canggu", "items": "a cake"})])
        await page.go(f"{shop.service.url}/console/turns/{turn_id}/replay")
        await choose(page, "select[name=model]", "claude-haiku")
        await page.click(".replay-form button.main")
        await page.until("document.querySelector('#why')?.innerText.includes('would call book_delivery')")
        why = await page.see("document.querySelector('#why').innerText")
        assert '"items": "a cake"' in why
        assert "No tool ran" in why
        assert await shop.ask("select count(*) from tool_effects") == [(0,)]
        assert await live_state(shop) == after
        await take_pictures(page, "diverged")

        await page.go(f"{shop.service.url}/console/replays")
        assert await page.see("document.querySelectorAll('#replays tbody tr').length") == 2
        assert page.complaints == []

        [(kept, user_id)] = await shop.ask("select id, user_id from replays where not is_diverged")
        await keep_with_consent(page, shop, kept, user_id)
        assert [row[:3] for row in (await live_state(shop))[2]] == [row[:3] for row in after[2]], "the list is as it was"
        await see_nothing_of_the_forgotten(page, shop, kept, user_id)


async def keep_with_consent(page: Page, shop: Shop, kept: UUID, user_id: UUID) -> None:
    for _ in range(2):
        await page.go(f"{shop.service.url}/console/replays/{kept}")
        await choose(page, "input[name=reason]", "a better answer")
        await page.click(".action button")
        await page.until("document.querySelector('[role=alert]') || document.querySelector('#replay')?.innerText.includes('Kept in the')")
        if await page.see("document.querySelector('#replay') !== null"):
            return
        assert "does not allow training" in await page.see("document.querySelector('[role=alert]').innerText")
        async with shop.service.database.begin() as tx:
            await shop.service.hermes.adapters.people.allow_training(tx, user_id, trains=True)
    raise AssertionError("it was not kept")


async def see_nothing_of_the_forgotten(page: Page, shop: Shop, kept: UUID, user_id: UUID) -> None:
    """Check 25, for replays."""
    async with shop.service.database.begin() as tx:
        await shop.service.hermes.adapters.people.forget(tx, user_id)
    assert await shop.ask("select count(*) from replays") == [(0,)]
    await page.go(f"{shop.service.url}/console/replays/{kept}")
    assert "Not found" in await page.see("document.querySelector('main').innerText")


async def test_a_batch_is_estimated_confirmed_and_read(devtools: int, shop: Shop) -> None:
    anthropic = shop.vendors.anthropic
    turns = [await shop.say(f"Hello number {number}") for number in range(4)]
    await shop.service.hermes.gateway.wait_settled()
    anthropic.otherwise = lambda body: Say(text=f"ok from {body['model'][:12]}")
    asked = len(anthropic.requests)
    async with console_tab(devtools, shop.service, Role.OPERATOR) as page:
        await page.go(f"{shop.service.url}/console/replays")
        await take_pictures(page, "empty")
        for model in ("claude-haiku", "claude-sonnet"):
            await page.click(f"input[value={model}]")
        await page.click("details button.main")
        await page.until("document.querySelector('h1')?.innerText === 'Estimate'")
        assert "$0.000592" in await page.see("document.querySelector('.tiles').innerText")
        assert len(anthropic.requests) == asked, "an estimate asks no model"
        await take_pictures(page, "plan")
        await page.click(".action button")
        await page.until("document.querySelector('#progress')?.innerText.startsWith('8 of 8')")
        await page.until("document.querySelector('h1').innerText.includes('done')")
        assert len(anthropic.requests) == asked + 8
        assert await page.see("document.querySelectorAll('#turns tbody tr').length") == 4
        await take_pictures(page, "batch")
        text = await page.see("fetch(document.querySelector('a[href$=\"table.csv\"]').href).then(r => r.text())")
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [row["turn_id"] for row in rows] == [str(turn) for turn in reversed(turns)]
        assert {row["claude-sonnet state"] for row in rows} == {"done"}
        assert page.complaints == []

    [(batch_id,)] = await shop.ask("select id from replay_batches")
    headers = await token_headers(shop.service, Role.OPERATOR)
    got = await shop.service.get(f"/v1/ops/replay-batches/{batch_id}", headers)
    assert (got.status, got.body["ended"], [sums["answered"] for sums in got.body["sums"]]) == (200, 8, [4, 4])
    replay_id = got.body["data"][0]["replays"][1]["id"]
    content = await shop.service.get(f"/v1/ops/replays/{replay_id}?content=true", headers)
    assert content.body["data"]["content"]["text"] == "ok from claude-sonne"
    plan = await shop.service.post("/v1/ops/replay-batches", {"models": ["claude-haiku"], "last": 2}, headers)
    assert (plan.status, plan.body["batch_id"], plan.body["turns"]) == (200, None, 2)
    added = await shop.service.post("/v1/ops/replays", {"turn_id": str(turns[0]), "model": "claude-haiku", "answers": 2}, headers)
    assert (added.status, len(added.body["data"])) == (202, 2)
    await asyncio.gather(*(shop.ended(UUID(each["id"])) for each in added.body["data"]))
    listed = await shop.service.get("/v1/ops/replays", headers)
    assert ([each["state"] for each in listed.body["data"]], listed.body["next"]) == (["done", "done"], None)
    viewer = await token_headers(shop.service, Role.VIEWER)
    refused = await shop.service.post("/v1/ops/replays", {"turn_id": str(turns[0]), "model": "claude-haiku"}, viewer)
    assert refused.status == 403
    for body, status in (({"turn_id": str(turns[0]), "model": "nope"}, 422), ({"turn_id": str(batch_id), "model": "claude-haiku"}, 404)):
        assert (await shop.service.post("/v1/ops/replays", body, headers)).status == status


async def test_a_batch_survives_the_kill_of_a_worker_and_pays_each_answer_once(database_url: str, redis_url: str) -> None:
    """Check 19: 20 turns against 2 models. The first worker is killed while two of its calls are open."""
    async with replaying(database_url, redis_url, has_worker=False) as shop:
        anthropic = shop.vendors.anthropic
        async with working(shop):
            await asyncio.gather(*(shop.say(f"Hello number {number}", user=f"user {number}") for number in range(20)))
        headers = await token_headers(shop.service, Role.OPERATOR)
        asked = len(anthropic.requests)
        for number in range(10):
            anthropic.say(f"Answer {number}")
        anthropic.hang()
        anthropic.hang()
        body = {"models": ["claude-haiku", "claude-sonnet"], "last": 20, "confirm": True}
        added = await shop.service.post("/v1/ops/replay-batches", body, headers)
        assert (added.status, added.body["replayable"]) == (200, 20), added.body
        path = f"/v1/ops/replay-batches/{added.body['batch_id']}"
        with worker_process(shop) as worker:
            await anthropic.asked(asked + 12, timeout_s=60.0)
            assert anthropic.active == 2, "two at a time"
            worker.kill()
        stored = await shop.ask("select id, ended_at from replays where state = 'done' order by id")
        assert len(stored) == 10

        async with working(shop):
            await shop.until("select state from replay_batches", [("done",)])
        batch = (await shop.service.get(path, headers)).body
        assert (batch["total"], batch["ended"]) == (40, 40)
        assert {each["state"] for row in batch["data"] for each in row["replays"]} == {"done"}
        assert len(anthropic.requests) - asked == 42
        assert anthropic.abandoned == 2, "the calls of the killed worker never ended, so they were asked again"
        await shop.service.hermes.gateway.wait_settled()
        paid = await shop.ask("select count(*), sum(micro_usd) from calls where purpose = 'replay'")
        assert paid == [(40, batch["micro_usd"])]
        again = await shop.ask("select id, ended_at from replays where state = 'done' order by id")
        assert set(stored) <= set(again), "what was stored stays as it was"
        assert await shop.ask("select count(*) from replays where attempt > 1") == [(2,)]
