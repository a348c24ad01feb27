"""Every link of every page, for each role, where everything has happened that a page can show; and odd addresses."""

import asyncio
import html
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest
from yarl import URL

from hermes.ports.costs import CostDimension
from hermes.ports.operators import Role
from hermes.web.console.pages import NAVIGATION
from tests.browser.console import cookie_headers, token_headers
from tests.browser.lively import Lively, lively
from tests.flows.service import Service, running

MAX_OF_A_KIND = 1
"""Pages of one kind that are looked at: the same route with the same names of fields. Of tabs, queues and the like each is a kind."""
KINDS = ("tab", "queue", "status", "by", "show", "state", "diff")
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SHARED = {CostDimension.PURPOSE, CostDimension.TOOL}
"""A turn has calls of several purposes and tools: its money is more than their bar's."""
ODD = (
    "x",
    "a%00b",
    "%1b%0a%ff",
    "9223372036854775808",
    "0001-01-01T00:00:00%2B14:00",
    "999999w",
    "%D9%A1",
    "1~9223372036854775808",
    f"9999-12-31T23:59:59-14:00/{'0' * 32}",
    f"99999999999999999999.{'0' * 32}",
)
FIELDS = {
    "/console/turns": ("before", "since", "until", "status", "key", "model", "part"),
    "/console/conversations": ("before", "platform", "user"),
    "/console/conversations/ID": ("from", "row", "whole", "chat", "unfold", "diff", "turn"),
    "/console/costs": ("since", "by"),
    "/console/queues": ("after", "queue", "turn"),
    "/console/people": ("before", "q", "state"),
    "/console/alerts": ("before", "show"),
    "/console/audit": ("before", "action", "user"),
    "/console/replays": ("before",),
    "/console/search": ("q",),
    "/console/turns/ID": ("tab",),
}
"""Fields that are read as a number, a time, an id, or a text that the store looks for."""


@pytest.fixture
async def house(database_url: str, redis_url: str) -> AsyncIterator[Lively]:
    async with lively(database_url, redis_url) as house:
        yield house


async def test_every_link_leads_to_a_page_and_keeps_its_filter(house: Lively) -> None:
    service = house.service
    found = {role: await crawl(service, await cookie_headers(service, role)) for role in Role}
    for role, (seen, faults) in found.items():
        assert faults == [], role
        assert {item.path for item in NAVIGATION} <= seen, role
        kinds = {ID.sub("ID", urlsplit(path).path) for path in seen}
        assert {f"/console/{name}/ID" for name in ("turns", "calls", "conversations", "people", "replays", "replay-batches")} <= kinds, role
    await bars_are_their_turns(service)
    await erased_is_said(house)
    await odd_addresses_are_refused(service, found[Role.OWNER][0])


async def test_a_fresh_home_has_every_page(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        seen, faults = await crawl(service, await cookie_headers(service))
        assert faults == []
        assert {item.path for item in NAVIGATION} <= seen


async def crawl(service: Service, headers: Mapping[str, str]) -> tuple[set[str], list[tuple[object, ...]]]:
    """Follow links from the first page on; return the paths, and what is wrong with them."""
    waiting, seen, kinds = [("/console", "")], {"/console"}, Counter[str]()
    faults: list[tuple[object, ...]] = []
    while waiting:
        path, source = waiting.pop(0)
        async with service.client.get(service.url + path, headers={**headers, "Accept": "text/html"}) as response:
            body = await response.text()
        if response.status != 200:
            faults.append((path, "of", source, response.status))
        anchors = set(re.findall(r'\sid="([^"]+)"', body))
        for link in map(html.unescape, re.findall(r'<a\b[^>]*\shref="([^"]*)"', body)):
            target = urlsplit(urljoin(response.url.path_qs, link))
            if target.path == "/":  # the chat page, where an empty page sends the operator
                continue
            if not target.path.startswith("/console"):
                faults.append((path, "leads away", link))
            elif link.startswith("#") and target.fragment not in anchors:
                faults.append((path, "leads nowhere", link))
            address = target.path + (f"?{target.query}" if target.query else "")
            if address not in seen and kinds[kind := kind_of(target.path, target.query)] < MAX_OF_A_KIND:
                kinds[kind] += 1
                seen.add(address)
                waiting.append((address, path))
    return seen, faults


def kind_of(path: str, query: str) -> str:
    fields = dict(parse_qsl(query))
    return ID.sub("ID", path) + "?" + "&".join(f"{name}={fields[name]}" if name in KINDS else name for name in sorted(fields))


async def bars_are_their_turns(service: Service) -> None:
    """A row of the costs has the money of the turns and calls that it links to."""
    owner, program = await cookie_headers(service), await token_headers(service)
    for by in CostDimension:
        page = (await service.get(f"/console/costs?by={by}&since=24h", owner)).body
        rows = re.findall(r'<tr><th scope="row">(.*?)</th><td[^>]*>\$([\d.]+)</td>', page.partition('class="costs figures')[2], re.DOTALL)
        linked = [(found[1], dollars) for row, dollars in rows if (found := re.search(r'href="(/console/turns[^"]*)"', row))]
        assert linked, by
        for link, dollars in linked:
            turns = (await service.get("/v1/ops/turns?" + html.unescape(link).partition("?")[2], program)).body
            assert turns["next"] is None
            money = sum(row["micro_usd"] for row in turns["data"])
            assert turns["data"], link
            assert money >= round(float(dollars) * 1e6) if by in SHARED else money == round(float(dollars) * 1e6), link


async def erased_is_said(house: Lively) -> None:
    """What is gone is not offered; what was given up has a way back."""
    owner = await cookie_headers(house.service)
    erased, buried = [(await house.service.get(f"/console/turns/{house.turns[name]}", owner)).body for name in ("erased", "buried")]
    assert ("Its user was forgotten" in erased, "/console/open" in erased) == (True, False)
    assert 'href="/console/queues?queue=buried"' in buried


async def odd_addresses_are_refused(service: Service, seen: Iterable[str]) -> None:
    """Each route with every odd value in the place of its id, each field with every odd value, and very long addresses."""
    owner = {**await cookie_headers(service), "Accept": "text/html"}
    routes = {ID.sub("ID", path): path for path in sorted(urlsplit(path).path for path in seen)} | {"/console/search": "/console/search"}
    odd = {f"{routes[route]}?{field}={value}" for route, fields in FIELDS.items() for field in fields for value in ODD}
    odd |= {route.replace("ID", value) for route in routes for value in ODD if "ID" in route}
    odd |= {f"{path}?q={'z' * 30_000}" for path in routes.values()}
    gate = asyncio.Semaphore(4)
    faults: list[tuple[int, str, str]] = []

    async def look(path: str) -> None:
        async with gate, service.client.get(URL(service.url + path, encoded=True), headers=owner, allow_redirects=False) as response:
            body = await response.text(errors="replace")
            if response.status >= 500 or (response.status >= 400 and not body.startswith("<!doctype html>")):
                faults.append((response.status, path[:200], body[:200]))

    await asyncio.gather(*map(look, sorted(odd)))
    assert faults == []
