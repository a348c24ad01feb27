"""The page `/docs` in a real browser, against a real server: readable at any width, and nothing is loaded from elsewhere."""

from collections.abc import AsyncIterator

import pytest

from tests.browser.browser import Page, installed, tab
from tests.browser.test_chat_page import contrast
from tests.flows.service import Service, running

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url, has_worker=False) as service:
        yield service


@pytest.fixture
async def page(devtools: int, service: Service) -> AsyncIterator[Page]:
    async with tab(devtools) as page:
        await page.go(f"{service.url}/docs")
        yield page


async def test_the_page_describes_the_api_and_obeys_its_own_policy(page: Page) -> None:
    assert "GET /health" in await page.see("[...document.querySelectorAll('article h3')].map((each) => each.textContent)")
    assert "POST /v1/messages" in await page.see("document.querySelector('nav').innerText.replace(/\\s+/g, ' ')")
    assert await page.see("getComputedStyle(document.querySelector('article')).borderRadius") == "8px", "its style was refused"
    assert await page.see("performance.getEntriesByType('resource').filter((each) => !each.name.endsWith('/favicon.ico')).length") == 0
    assert [complaint for complaint in page.complaints if "favicon" not in complaint and "404" not in complaint] == []
    await page.see("document.querySelector('nav a[href=\"#post-v1-messages\"]').click()")
    assert await page.see("location.hash") == "#post-v1-messages"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1_200])
async def test_it_can_be_read_on_a_phone_and_in_the_dark(page: Page, width: int, scheme: str) -> None:
    await page.size(width, 800)
    await page.color_scheme(scheme)
    assert await page.see("document.documentElement.scrollWidth") <= width, "it scrolls sideways"
    for selector, ground in (("article p", "article"), ("th", "article"), ("article em", "article"), ("nav a b", "body")):
        colors = [f"getComputedStyle(document.querySelector('{selector}')).color"]
        colors.append(f"getComputedStyle(document.querySelector('{ground}')).backgroundColor")
        assert contrast(*[await page.see(color) for color in colors]) >= 4.5, selector
