"""Five questions, two clicks each: what is broken, why this answer, why this cost, who waits, what another model would have said."""

from collections.abc import AsyncIterator

import pytest

from tests.browser.browser import Page, installed
from tests.browser.console import console_tab
from tests.browser.lively import Lively, lively

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

WHY = "document.querySelector('#why').textContent"
PATH = "location.pathname"


@pytest.fixture
async def house(database_url: str, redis_url: str) -> AsyncIterator[Lively]:
    async with lively(database_url, redis_url) as house:
        yield house


async def click(page: Page, selector: str) -> None:
    """Click a link or a button, and wait for the page behind it."""
    await page.see("window.isOld = true")
    await page.click(selector)
    await page.until("!window.isOld && document.readyState === 'complete'")


async def test_two_clicks_answer_each_question(devtools: int, house: Lively) -> None:
    turns = {name: str(turn_id) for name, turn_id in house.turns.items()}
    async with console_tab(devtools, house.service) as page:
        live = f"{house.service.url}/console"

        await page.until("document.querySelector('.tile.bad')")
        await click(page, ".tile a[href*='status=failed']")
        await click(page, f"#rows tr[data-id='{turns['failed']}'] a")
        assert "no answer: claude-sonnet refused the request as invalid" in await page.see(WHY)

        await page.go(live)
        await click(page, ".side a[href='/console/turns']")
        await click(page, f"#rows tr[data-id='{turns['fell_over']}'] a")
        assert (await page.see(WHY)).startswith("claude-haiku answered after claude-sonnet failed with 529; ")
        assert await page.see("document.querySelector('.causes').checkVisibility()")
        assert "claude-sonnet failed with 529" in await page.see("document.querySelector('#s8').innerText")

        await page.go(live)
        await click(page, ".side a[href='/console/costs']")
        await click(page, "table.costs tbody th a")
        assert await page.see("document.querySelectorAll('#rows > tr').length") == 6
        assert await page.see("[...document.querySelectorAll('td[data-label=Cost]')].map((cell) => cell.innerText)") == [
            *["$0.000111"] * 3,
            "$0.00",
            "$0.000037",
            "$0.000222",
        ]

        await page.go(live)
        await click(page, ".side a[href='/console/queues']")
        await click(page, f"a[href='/console/turns/{turns['waiting']}']")
        assert "no worker is alive" in await page.see(WHY)

        await page.go(f"{live}/turns/{turns['answered']}")
        await click(page, "form[action='/console/open'] button")
        await click(page, ".turn-links a[href$='/replay']")
        await click(page, "form button.main")
        assert (await page.see(PATH)).startswith("/console/replays/")
        assert page.complaints == []
