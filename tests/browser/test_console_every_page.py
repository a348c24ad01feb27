"""Every page of the console, in a real browser: the ones of the navigation and one of each kind that they link to.

The pages are found from the routes of the web and from links, so that a new page is looked at without a change here."""

import re
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from hermes.web.console.pages import NAVIGATION, STATIC
from tests.browser.browser import Page, installed
from tests.browser.console import console_tab, cookie_headers
from tests.flows.service import Service, running

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

AXE = (resources.files("axe_core_python") / "axe.min.js").read_text()
ALL_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
PHONE_RULES = ["color-contrast", "scrollable-region-focusable", "aria-hidden-focus", "link-name", "nested-interactive"]
"""The rules whose result is another one on a phone and in the dark."""
HOSTILE = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"> \u202edrow \u2066{{ 7 * 7 }}'
CUT_TEXT = """
[...document.querySelectorAll('#strip > *, table.cards :is(td, th)')]
    .filter((each) => each.offsetParent !== null && each.getClientRects().length > 0 && !each.closest('thead, details:not([open])'))
    .filter((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== 'inline'
        || each.getBoundingClientRect().right > (each.closest('.table') ?? document.querySelector('.search input')).getBoundingClientRect()[
            each.closest('.table') ? 'right' : 'left'] + 1)
    .map((each) => each.textContent.trim().slice(0, 40))
"""
"""What is not wholly seen: figures of the strip behind the search field, cells of a card beyond its edge."""
MAX_PAGE_BYTES, MAX_SCRIPT_BYTES, MAX_REQUESTS = 100 * 1_024, 25 * 1_024, 6


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url) as service:
        yield service


async def test_every_page_is_small_and_can_be_read_by_everyone(devtools: int, service: Service) -> None:
    """Checks 23 and 24: at 360 pixels, in the dark, without another server, by keyboard; axe finds nothing serious; text stays text."""
    key = await service.key()
    for text in (HOSTILE, "find me a sunset bar"):
        assert (await service.post("/v1/messages", {"user": "ann", "text": text}, key)).status == 200
    faults: dict[str, list[str]] = {}
    patterns = console_patterns()
    seen: set[str] = set()
    async with console_tab(devtools, service) as page:
        await page.block("https://*")
        await page.do("Network.setCacheDisabled", cacheDisabled=True)
        waiting = await page_paths(service, patterns)
        assert "/console" in waiting
        while waiting:
            path = waiting.pop(0)
            seen.add(path_kind(path, patterns))
            page.complaints.clear()
            await page.size(1_280, 860)
            await page.color_scheme("light")
            await page.go(service.url + path)
            faults[path] = [*await weigh(page, service), *await look_for_hostile_text(page)]
            if await page.see("document.querySelector('form[action=\"/console/open\"] button') !== null"):
                await open_content(page)
                await page.go(service.url + path)  # the form may lead to a place in the page, and Tab would begin there
                faults[path] += await look_for_hostile_text(page)
            links = await page.see("[...document.querySelectorAll('main a[href^=\"/console\"]')].map((a) => a.pathname + a.search)")
            for link in links:
                kind = path_kind(link, patterns)
                if kind and kind not in {*seen, *(path_kind(other, patterns) for other in waiting)} and await is_page(service, link):
                    waiting.append(link)
            faults[path] += [f"axe, light: {fault}" for fault in await ask_axe(page, ALL_RULES)]
            await page.color_scheme("dark")
            await page.size(360, 740)
            faults[path] += [f"axe, dark, phone: {fault}" for fault in await ask_axe(page, PHONE_RULES)]
            faults[path] += await try_keyboard(page)
            if (width := await page.see("document.documentElement.scrollWidth")) > 360:
                faults[path].append(f"is {width} pixels wide on a phone")
            faults[path] += [f"cuts {cut} on a phone" for cut in await page.see(CUT_TEXT)]
            faults[path] += page.complaints
    assert {path: found for path, found in faults.items() if found} == {}
    assert {item.path for item in NAVIGATION} <= faults.keys()


async def test_a_page_is_compressed_and_repeats_no_secret(service: Service) -> None:
    cookie = await cookie_headers(service)
    page = await service.get("/console/settings", {**cookie, "Accept-Encoding": "gzip"})
    assert (page.status, page.headers.get("Content-Encoding")) == (200, "gzip")
    plain = await service.get("/console/settings", {**cookie, "Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    tokens = [re.findall(r'name="form_token" value="([^"]+)"', body) for body in (page.body, plain.body)]
    assert tokens[0]
    assert set(tokens[0]).isdisjoint(tokens[1]), "a compressed page repeats a secret"
    assert "Content-Encoding" not in (await service.get("/openapi.json", {"Accept-Encoding": "gzip"})).headers


async def test_an_error_is_a_page_for_a_person_and_json_for_a_program(service: Service) -> None:
    cookie = await cookie_headers(service)
    page = await service.get("/console/nowhere", {**cookie, "Accept": "text/html,application/xhtml+xml"})
    assert (page.status, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert "There is no such page." in page.body
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    assert (await service.get("/console/nowhere", cookie)).body["error"]["code"] == "not_found"
    assert (await service.get("/v1/nowhere", {"Accept": "text/html"})).body["error"]["code"] == "not_found"


def test_all_scripts_of_a_page_stay_small() -> None:
    assert len(STATIC["console.js"].body) < 15 * 1_024, "parts add scripts of their own, and a page may have 25 KiB"
    assert b"style=" not in b"".join(file.body for name, file in STATIC.items() if name.endswith(".js")), (
        "the policy refuses style attributes"
    )


# --- which pages there are


def console_patterns() -> dict[str, re.Pattern[str]]:
    """The routes that show something, by their paths. Another test sees to it that the file has all of them."""
    lines = (Path(__file__).parents[1] / "contract_names.txt").read_text().splitlines()
    paths = [line.removeprefix("route GET ") for line in lines if line.startswith("route GET /console")]
    return {path: re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in paths if not path.startswith("/console/static/")}


async def page_paths(service: Service, patterns: dict[str, re.Pattern[str]]) -> list[str]:
    """The routes without parameters that answer with a whole page."""
    return [path for path in patterns if "{" not in path and await is_page(service, path)]


async def is_page(service: Service, path: str) -> bool:
    """Whether an owner gets a whole page there: no file, no part of a page, no stream, no way to another page."""
    async with service.client.get(service.url + path, headers=await cookie_headers(service), allow_redirects=False) as response:
        is_html = response.headers.get("Content-Type", "").startswith("text/html")
        return is_html and response.status == 200 and (await response.text()).startswith("<!doctype html>")


def path_kind(path: str, patterns: dict[str, re.Pattern[str]]) -> str:
    """The route of a path; a path without parameters before one that has them."""
    bare = path.partition("?")[0]
    return bare if bare in patterns else next((kind for kind, pattern in patterns.items() if pattern.fullmatch(bare)), "")


# --- what is looked at


async def open_content(page: Page) -> None:
    """Press Open, as an operator does, and wait for the page that shows the content."""
    await page.see("window.isBeforeOpening = true")
    if await page.see("document.querySelector('form[action=\"/console/open\"] input[name=reason]') !== null"):
        await page.see("document.querySelector('form[action=\"/console/open\"] input[name=reason]').value = 'a test looks at it'")
    await page.click('form[action="/console/open"] button')
    await page.until("!window.isBeforeOpening && document.readyState === 'complete'")


async def weigh(page: Page, service: Service) -> list[str]:
    """What the page loaded, cold: from here alone, few and small files."""
    await page.until("!document.querySelector('#strip') || document.querySelector('#strip').dataset.was !== undefined")
    loaded: list[dict[str, Any]] = await page.see(
        "['navigation', 'resource'].flatMap((kind) => performance.getEntriesByType(kind)).map((each) => "
        "({name: each.name, bytes: each.transferSize, plain: each.decodedBodySize, kind: each.initiatorType}))"
    )
    faults = [f"loads {each['name']}" for each in loaded if not each["name"].startswith(service.url)]
    if (total := sum(each["bytes"] for each in loaded)) > MAX_PAGE_BYTES:
        faults.append(f"weighs {total} bytes")
    if (scripts := sum(each["plain"] for each in loaded if each["kind"] == "script")) > MAX_SCRIPT_BYTES:
        faults.append(f"has {scripts} bytes of scripts")
    requests = [each["name"] for each in loaded if "/icon.svg" not in each["name"]]  # the tab's icon: later, and once for all pages
    if len(requests) > MAX_REQUESTS:
        faults.append(f"makes {len(requests)} requests: {requests}")
    return faults


async def look_for_hostile_text(page: Page) -> list[str]:
    faults = []
    if await page.see("window.hacked !== undefined"):
        faults.append("runs a script of a message")
    if await page.see("/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.innerText)"):
        faults.append("lets a message change the direction of the text around it")
    return faults


async def ask_axe(page: Page, rules: list[str]) -> list[str]:
    """What axe finds serious or critical in the page as it is now."""
    await page.see(f"window.axe === undefined ? ((module, define) => {{ {AXE} }})() : 0")
    options = {"runOnly": rules, "resultTypes": ["violations"]}
    report = await page.see(
        f"axe.run(document, {options!r}).then((found) => found.violations.filter((each) => ['serious', 'critical'].includes(each.impact))"
        ".map((each) => each.id + ' ' + each.nodes.slice(0, 3).map((node) => node.target + ' ' + node.failureSummary).join('; ')))"
    )
    assert isinstance(report, list)
    return report


async def try_keyboard(page: Page) -> list[str]:
    """The skip link comes first and leads to the content, every control can be reached, and `?` shows the keys."""
    faults = []
    if not await page.see("document.querySelector('.skip') !== null"):
        return faults  # a page outside the frame
    await page.see("document.activeElement.blur(), getSelection().removeAllRanges(), scrollTo(0, 0)")
    await page.press("Tab")
    if await page.see("document.activeElement.className") != "skip":
        faults.append("the first Tab does not reach the skip link")
    await page.press("Enter")
    if await page.see("document.activeElement.id") != "main":
        faults.append("the skip link does not lead to the content")
    unreachable = "[...document.querySelectorAll('main :is(a[href], button, input:not([type=hidden]), select, textarea, summary)')]"
    faults += await page.see(f"{unreachable}.filter((each) => each.tabIndex < 0).map((each) => 'no key reaches ' + each.outerHTML)")
    await strike(page, "?")
    if not await page.see("document.querySelector('dialog[open]') !== null"):
        faults.append("? shows no help")
    await page.see("document.querySelector('dialog[open]')?.close()")
    return faults


async def strike(page: Page, key: str) -> None:
    """Type one character outside of a field."""
    await page.do("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
    await page.do("Input.dispatchKeyEvent", type="keyUp", key=key)
