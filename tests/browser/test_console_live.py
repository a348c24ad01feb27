"""The Live page and the list of turns in a real browser: what happens appears by itself, and a viewer sees no word and no whole number."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hermes.ports.events import EventCursor, EventPage
from hermes.ports.operators import EntryKind, Role
from hermes.ports.runtime import Transaction
from hermes.ports.timeline import PLOT
from hermes.ports.users import UserState
from hermes.stores.postgres.events import PostgresOperationsEvents
from hermes.time_ids import shorten_id
from hermes.turn import Envelope, MessageEvent, Platform
from tests.browser.browser import Page, installed
from tests.browser.console import console_tab, cookie_headers, make_operator, make_secret, token_headers
from tests.flows.service import Service, running

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

PHONE = "+6281234567431"
NO_REDIS = "redis://127.0.0.1:1/0"
ROW_IDS = "[...document.querySelectorAll('#rows > tr')].map((row) => row.dataset.id)"


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url, echoes=False) as service:
        yield service


async def say(service: Service, text: str, user: str = "ann") -> str:
    """Send a message, wait for its answer, and return its turn."""
    got = await service.post("/v1/messages", {"text": text, "user": user}, await service.key())
    assert got.status == 200, got.body
    return str(got.body["turn_id"])


async def phone(service: Service, text: str) -> None:
    """Take in a WhatsApp message, and wait until its turn has ended."""
    envelope = Envelope(
        event=MessageEvent(platform=Platform.WHATSAPP, sender_id=PHONE, text=text), account="bali", channel_id=PHONE, event_key=text
    )
    accepted = await service.hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)
    async with asyncio.timeout(20):
        while not await rows(service, "select 1 from interactions where turn_id = %s", accepted.turn_id):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def rows(service: Service, query: str, *values: Any) -> list[Any]:
    async with service.database.pool.connection() as connection:
        return await (await connection.execute(query.encode(), values)).fetchall()


async def test_the_list_shows_turns_and_a_viewer_no_word_and_no_whole_number(devtools: int, service: Service) -> None:
    """Check 7, for the list, the Live page, the strip and the search."""
    await say(service, "where is the zebra crossing")
    await phone(service, "my allergy is pineapple")
    key = await service.key()
    body = {"model": "default", "messages": [{"role": "user", "content": "zebra again"}]}
    assert (await service.post("/v1/chat/completions", body, key)).status in {200, 404}
    for role, sees_number in ((Role.VIEWER, False), (Role.OPERATOR, True)):
        async with console_tab(devtools, service, role) as page:
            seen = ""
            for path in ("/console", "/console/turns", "/console/turns?status=completions", f"/console/search?q={PHONE[:6]}"):
                await page.go(service.url + path)
                seen += await page.see("document.documentElement.outerHTML")
            seen += (await service.get("/console/strip", await cookie_headers(service, role))).body
            assert not any(word in seen for word in ("zebra", "pineapple", "allergy"))
            assert (PHONE in seen) == sees_number
            assert sees_number or "+62•••431" in seen
            assert page.complaints == []
    headers = await token_headers(service, Role.VIEWER)
    got = await service.get("/v1/ops/turns?platform=whatsapp", headers)
    [turn] = got.body["data"]
    assert (turn["sender"], turn["account"], turn["outcome"]) == ("+62•••431", "bali", "answered")
    assert tuple(turn["steps_us"]) == PLOT
    assert "pineapple" not in json.dumps(got.body)


async def test_filters_are_in_the_address_and_wrong_ones_say_so(devtools: int, service: Service) -> None:
    first = await say(service, "one")
    await say(service, "two", user="ben")
    async with console_tab(devtools, service) as page:
        await page.go(f"{service.url}/console/turns")
        assert len(await page.see(ROW_IDS)) == 2
        assert await page.see("document.querySelectorAll('#rows .spark rect').length") == 20
        [[user]] = await rows(service, "select user_id from interactions where turn_id = %s", first)
        await page.go(f"{service.url}/console/turns?user={user}&since=1h")
        assert await page.see(ROW_IDS) == [first]
        assert await page.see("document.querySelector('.cli code').innerText") == f"hermes turns list --user {user} --since 1h"
        await page.go(f"{service.url}/console/turns?status=failed")
        assert await page.see("document.querySelector('.empty .title').innerText") == "No turn matches"
        await page.go(f"{service.url}/console/turns?status=failedd")
        assert "did you mean failed?" in await page.see("document.querySelector('[role=alert]').innerText")
        await page.go(f"{service.url}/console/search?q={shorten_id(first)}")
        assert await page.see("location.pathname") == f"/console/turns/{first}"
    headers = await token_headers(service)
    assert (await service.get("/v1/ops/turns?statuss=failed", headers)).body["error"]["code"] == "unknown_filter"
    assert (await service.get("/v1/ops/turns?before=x", headers)).status == 422
    page_one = (await service.get("/v1/ops/turns?limit=1", headers)).body
    page_two = (await service.get(f"/v1/ops/turns?limit=1&before={page_one['next']}", headers)).body
    assert [turn["id"] for turn in page_two["data"]] == [first]
    assert page_two["next"] is None
    overview = (await service.get("/v1/ops/overview", headers)).body["data"]
    assert (overview["turns"], overview["failed"], overview["waiting"]) == (2, 0, 0)
    assert [process["role"] for process in overview["processes"]] == ["worker"]


async def test_an_operator_of_one_account_sees_no_other(service: Service) -> None:
    await say(service, "one")
    operator = await make_operator(service, Role.OWNER, name="narrow", accounts=frozenset({"bali"}))
    headers = await token_headers(service, Role.OWNER)
    assert len((await service.get("/v1/ops/turns", headers)).body["data"]) == 1
    narrow = await token_headers_of(service, operator.name)
    assert (await service.get("/v1/ops/turns", narrow)).body["data"] == []
    overview = (await service.get("/v1/ops/overview", narrow)).body["data"]
    assert (overview["turns"], overview["spend_today_micro_usd"], overview["alerts"]) == (0, None, [])


async def test_the_stream_resumes_behind_its_last_event_and_needs_a_session(service: Service) -> None:
    turn_id = await say(service, "one")
    assert (await service.get("/console/events")).status == 401
    headers = {**await cookie_headers(service, Role.VIEWER), "Last-Event-ID": "0-0"}
    async with asyncio.timeout(15), service.client.get(f"{service.url}/console/events", headers=headers) as response:
        assert response.content_type == "text/event-stream"
        seen = b""
        while turn_id.encode() not in seen:
            seen = await response.content.readline()
    assert json.loads(seen.removeprefix(b"data: ")).keys() == {"turns"}


async def token_headers_of(service: Service, name: str) -> dict[str, str]:
    operator = await make_operator(service, name=name)
    return {"Authorization": f"Bearer {await make_secret(service, operator, EntryKind.TOKEN)}"}


async def appears(page: Page, condition: str, limit_s: float) -> float:
    """Wait until the page shows it, and return how long that took."""
    began = time.monotonic()
    await page.until(condition)
    took_s = time.monotonic() - began
    assert took_s < limit_s
    return took_s


NO_POLL = "window.setInterval = () => 0"
"""From now on the page reads itself again only if its stream says that something changed."""
HAS_READ = "performance.getEntriesByType('resource').some((one) => one.name.includes('part='))"
"""The page has read itself a moment after its stream was opened, as it always does."""


class NothingStored(PostgresOperationsEvents):
    """A store whose stream shows nothing new: what appears then has come over Redis."""

    async def read(self, tx: Transaction, after: EventCursor, *, limit: int) -> EventPage:  # the port's
        return EventPage([], after, is_last=True)


@pytest.mark.parametrize(("redis", "limit_s"), [("", 1.0), (NO_REDIS, 3.0)], ids=["with Redis", "without Redis"])
async def test_a_turn_on_one_process_appears_on_another(
    devtools: int, database_url: str, redis_url: str, redis: str, limit_s: float
) -> None:
    """Check 21: the worker and a web here, the operator at another web, which hears of the turn from Redis alone, or from the store."""
    address = redis or redis_url
    adapters = {} if redis else {"stream_events": NothingStored()}
    async with (
        running(database_url, address) as answering,
        running(database_url, address, has_worker=False, adapters=adapters) as watched,
    ):
        await say(answering, "before")
        async with console_tab(devtools, watched) as page:
            no_poll = await page.do("Page.addScriptToEvaluateOnNewDocument", source=NO_POLL)
            await page.go(f"{watched.url}/console/turns")
            await page.until("document.querySelector('.live-state.on')")
            await page.until(HAS_READ)
            if not redis:
                await wait_until_watched(answering)
            turn_id = await say(answering, "after")
            await appears(page, "!document.querySelector('#show-new').hidden", limit_s)
            assert await page.see("document.querySelector('#show-new').innerText") == "1 new"
            assert turn_id not in await page.see(ROW_IDS)
            await page.click("#show-new")
            assert (await page.see(ROW_IDS))[0] == turn_id
            # What is under way appears too, and leaves again. The Live page also looks by itself: not every step of a turn is news.
            await page.do("Page.removeScriptToEvaluateOnNewDocument", **no_poll)
            await page.go(f"{watched.url}/console")
            answering.thinker.may_answer.clear()
            asked = asyncio.create_task(say(answering, "slowly"))
            await page.until("document.querySelector('.dots .now title')?.textContent === 'call_model'")
            answering.thinker.may_answer.set()
            await asked
            await page.until("!document.querySelector('.dots')")
            # A hidden tab lets its stream go, and takes it up again.
            for is_hidden, state in (("true", "paused"), ("false", "live")):
                await page.see(f"Object.defineProperty(document, 'hidden', {{configurable: true, get: () => {is_hidden}}})")
                await page.see("document.dispatchEvent(new Event('visibilitychange'))")
                await page.until(f"document.querySelector('.live-state').innerText === '{state}'")
            assert page.complaints == []


async def wait_until_watched(service: Service) -> None:
    """Wait until the worker knows that an operator watches: it looks every two seconds."""
    async with asyncio.timeout(10):
        while not service.hermes.adapters.turn_news.is_watched:  # noqa: ASYNC110  # a flag, and no bell
            await asyncio.sleep(0.05)
