"""Conversations in the console, in a real browser: the message graph with its lanes, closed and opened, and a long one in windows."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.app.console_conversations import conversations_from
from hermes.config import (
    BackendKind,
    BackendSettings,
    CompletionsSettings,
    HistorySettings,
    ModelSettings,
    PriceSettings,
    Secret,
    TierSettings,
)
from hermes.graph import MessageGraph
from hermes.ports.operators import Actor, Face, Role
from hermes.stores.postgres.database import connection_of
from tests.browser.browser import Page, installed
from tests.browser.console import console_tab, cookie_headers, make_operator, token_headers
from tests.fakes.vendors import Vendors, vendors
from tests.flows.command import hermes
from tests.flows.service import Service, running

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

TALE = "The ferry to Nusa Penida leaves at eight from Sanur, and it takes forty minutes when the sea is calm. " * 4
PRICE = (PriceSettings(input=1.0, output=5.0),)


@dataclass
class House:
    """A running Hermes with a vendor behind its completions API."""

    service: Service
    fakes: Vendors

    async def ask(self, key: dict[str, str], messages: list[Any], answer: str) -> dict[str, Any]:
        self.fakes.vllm.say(answer)
        got = await self.service.post("/v1/chat/completions", {"model": "small", "messages": messages}, key)
        assert got.status == 200, got.body
        message: dict[str, Any] = got.body["choices"][0]["message"]
        return message

    async def newest_session(self) -> UUID:
        async with self.service.database.begin() as tx:
            row = await (await connection_of(tx).execute("select id from sessions order by number desc limit 1")).fetchone()
        assert row is not None
        return UUID(str(row[0]))

    async def open(self, page: Page, session_id: UUID) -> None:
        """Open a conversation's content for the operator of a tab."""
        name = (await page.see("document.querySelector('.who').innerText")).split()[0]
        actor = Actor(await make_operator(self.service, name=name), Face.CONSOLE)
        hermes = self.service.hermes
        conversations = conversations_from(hermes.settings, hermes.database, hermes.keyring)
        await conversations.open(actor, await conversations.find(actor, str(session_id)), "a test")


@asynccontextmanager
async def open_house(database_url: str, redis_url: str) -> AsyncIterator[House]:
    async with vendors() as fakes:
        fakes.vllm.models[:] = ["small-1"]
        own = BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key))
        more = {
            "backends": {"own": own},
            "models": {"small": ModelSettings(backend="own", id="small-1", prices=PRICE)},
            "tiers": {"agents": TierSettings(chain=("small",), day_tokens=1_000_000)},
            "completions": CompletionsSettings(tier="agents"),
            "history": HistorySettings(max_tokens=2_000),
        }
        async with running(database_url, redis_url, more=more, answer_timeout_s=20.0) as service:
            yield House(service, fakes)


@pytest.fixture
async def house(database_url: str, redis_url: str) -> AsyncIterator[House]:
    async with open_house(database_url, redis_url) as house:
        yield house


async def test_an_edited_chat_and_a_compacted_one_are_drawn_with_two_lanes(devtools: int, house: House, tmp_path: Path) -> None:
    chat = await edited_chat(house)
    compacted = await compacted_session(house)
    path = f"{house.service.url}/console/conversations"
    async with console_tab(devtools, house.service) as page:
        await check_edited_chat(page, house, f"{path}/{chat}", chat)
        await check_compacted_session(page, f"{path}/{compacted}")
        await page.go(path)
        assert await page.see("[...document.querySelectorAll('.sessions tbody tr')].map(row => row.cells[2].innerText)") == [
            "rest",
            "completions",
        ]
        await check_file(page, house, chat, tmp_path)
        assert page.complaints == []
    await check_viewer(house, chat)
    await check_api(house, chat)


async def edited_chat(house: House) -> UUID:
    key = await house.service.key(account="agents")
    asked = {"role": "user", "content": "where is a sunset bar in Canggu?"}
    first = await house.ask(key, [asked], "Try the beach.")
    followed = [asked, first, {"role": "user", "content": "and for dinner?"}]
    second = await house.ask(key, followed, "The <b>harbour</b>.")
    edited = [{**asked, "content": "where is a sunrise bar in Canggu?"}, first, followed[2], second, {"role": "user", "content": "thanks"}]
    await house.ask(key, edited, "You are welcome.")
    return await house.newest_session()


async def compacted_session(house: House) -> UUID:
    key = await house.service.key()
    for number in range(8):
        assert (await house.service.post("/v1/messages", {"text": f"{number}: {TALE}"}, key)).status == 200
    return await house.newest_session()


async def check_edited_chat(page: Page, house: House, path: str, chat: UUID) -> None:
    await page.go(path)
    assert await page.see("document.querySelector('.graph').innerText.includes('sun')") is False  # closed: no word of it
    marks = "[...document.querySelectorAll('.graph td use')].map(mark => mark.href.baseVal).filter(name => /#[fh]/.test(name))"
    assert await page.see(f"new Set({marks}.map(name => name.slice(2))).size") == 2
    assert await page.see("document.querySelector('.graph path.d title').textContent") == "edit"
    assert await page.see("document.querySelector('.graph .chip.warn').innerText") == "version 1 · edit"
    await house.open(page, chat)
    await page.go(path)
    assert "sunrise" in await page.see("document.querySelector('.graph').innerText")
    assert "<b>harbour</b>" in await page.see("document.querySelector('.graph').innerText")  # text stays text
    await page.click(".graph a.small")
    await page.until("document.querySelector('.diff')")
    changes = await page.see("[...document.querySelectorAll('.diff del, .diff ins')].map(part => part.innerText)")
    assert changes == ["sunset", "sunrise", "thanks", "You are welcome."]
    for number in (1, 2):  # `x` twice: two messages
        await page.see(f"document.querySelector('#m{number}').setAttribute('aria-selected', 'true')")
        await page.see("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'x', bubbles: true}))")
        await page.see(f"document.querySelector('#m{number}')?.removeAttribute('aria-selected')")
    await page.until("location.search.includes('diff=m1%2Cm2')")


async def check_compacted_session(page: Page, path: str) -> None:
    await page.go(path)
    kinds = await page.see("[...document.querySelectorAll('.graph .chip.warn')].map(chip => chip.innerText)")
    assert kinds
    assert all("compaction" in kind for kind in kinds)
    links = await page.see("[...document.querySelectorAll('.graph a[href^=\"/console/turns/\"]')].map(link => link.href)")
    assert len(set(links)) == 8  # every turn is found, without a key, beside a compaction too
    turn = links[-1].rsplit("/", 1)[1]
    await page.go(path.rsplit("/", 1)[0] + f"/{turn}")  # the id of a turn leads to its rows
    await page.until("document.querySelectorAll('tr.marked').length >= 2")


async def check_file(page: Page, house: House, chat: UUID, folder: Path) -> None:
    """`hermes conversation` draws the same in a terminal and into one file that needs nothing else."""
    shown = await hermes(house.service, folder, "conversation", "show", chat)
    assert shown.code == 0, shown.complaints
    assert [line[:3] for line in shown.output.splitlines()[1:4]] == ["  ○", "○ │", "○─╯"]
    assert "[version 1 · edit] user      where is a sunset bar in Canggu?" in shown.output
    assert (await hermes(house.service, folder, "conversation", "show", chat, "--html", "chat.html")).code == 0
    assert (await hermes(house.service, folder, "conversation", "show", chat, "--html", "chat.html")).code == 2  # never over a file
    await page.go(f"file://{folder}/chat.html")
    assert await page.see("[...document.querySelectorAll('td use')].some(mark => mark.href.baseVal === '#f0')")
    assert "Exported by" in await page.see("document.querySelector('footer').innerText")
    assert await page.see("document.scripts.length") == 0
    listed = await hermes(house.service, folder, "conversation", "list", "--platform", "completions", "--json")
    assert [row["session_id"] for row in json.loads(listed.output)["data"]] == [str(chat)]
    assert (await hermes(house.service, folder, "conversation", "show", "nothing")).code == 2
    async with house.service.database.begin() as tx:
        rows = await (await connection_of(tx).execute("select action from audit where face = 'cli' and allowed order by id")).fetchall()
    assert [action for (action,) in rows] == ["content.open", "content.open", "conversation.export"]


async def check_viewer(house: House, chat: UUID) -> None:
    got = await house.service.get(f"/console/conversations/{chat}", await cookie_headers(house.service, Role.VIEWER))
    assert got.status == 200
    assert "sunrise" not in got.body
    listed = await house.service.get("/console/conversations", await cookie_headers(house.service, Role.VIEWER))
    assert str(chat) in listed.body


async def check_api(house: House, chat: UUID) -> None:
    headers = await token_headers(house.service, Role.OPERATOR)
    closed = await house.service.get(f"/v1/ops/conversations/{chat}/graph", headers)
    assert [(row["lane"], row["is"]) for row in closed.body["data"]][:3] == [(1, "context"), (0, "context"), (0, "context")]
    assert "sunrise" not in str(closed.body)
    same = await house.service.get(f"/v1/ops/conversations/{chat}/graph", {**headers, "If-None-Match": closed.headers["ETag"]})
    assert same.status == 304
    opened = await house.service.get(f"/v1/ops/conversations/{chat}/graph?content=true", {**headers, "X-Hermes-Reason": "a test"})
    assert "sunrise" in str(opened.body)
    assert [sample["model"] for row in opened.body["data"] for sample in row["samples"]] == ["small-1"]
    listed = await house.service.get("/v1/ops/conversations?limit=1", headers)
    assert (len(listed.body["data"]), listed.body["next"] is not None) == (1, True)
    viewer = await token_headers(house.service, Role.VIEWER)
    assert (await house.service.get(f"/v1/ops/conversations/{chat}/graph?content=true", viewer)).status == 403
    assert (await house.service.get(f"/v1/ops/conversations/{uuid4()}/graph", headers)).status == 404


async def test_ten_thousand_messages_come_in_windows(devtools: int, house: House) -> None:
    session_id = await long_session(house)
    headers = await cookie_headers(house.service)
    path = f"/console/conversations/{session_id}"
    first = await house.service.get(path, headers)
    others = [await house.service.get(f"{path}?from={start}", headers) for start in (200, 4_000, 9_800)]
    assert first.body.count("<tr id=") + first.body.count('<tr class="fold"') == 200
    assert all(got.body.count("<tr id=") >= 150 for got in others)
    assert len(first.body.encode()) < 68 * 1024
    async with console_tab(devtools, house.service) as page:
        await page.go(house.service.url + path)
        await page.click('.pager a[rel="next"]')
        await page.until("document.querySelector('tr[id]')?.id !== 'm0' && location.search === '?from=200'")
        assert page.complaints == []


async def long_session(house: House) -> UUID:
    """A session with a list of 10,000 messages and 200 kept versions."""
    service = house.service
    await service.post("/v1/messages", {"text": "hi"}, await service.key("long"))
    session_id = await house.newest_session()
    graphs = service.hermes.adapters.graphs
    async with service.database.begin() as tx:
        graph = await graphs.load(tx, session_id)
        head = graph.head
        await asyncio.to_thread(grow, graph)
        await graphs.save(tx, session_id, head, graph)
    return session_id


def grow(graph: MessageGraph) -> None:
    for number in range(1, 5_000):
        graph.append({"role": "user", "content": f"question {number}"})
        graph.append({"role": "assistant", "content": f"answer {number}"})
        if number % 25 == 24 or number == 4_999:
            graph.replace(2 * ((number * 7919) % (number - 1)), {"role": "user", "content": f"other {number}"})
