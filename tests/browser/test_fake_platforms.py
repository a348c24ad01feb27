"""The page of the fake platforms in a real browser: a user talks, sees what arrives, and breaks things."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from hermes.channels.fakes import FakePlatforms, open_platforms
from tests.browser.browser import Page, installed, tab

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

LINES = "[...document.querySelectorAll('#talk li')].map((line) => [line.className, line.innerText])"


@pytest.fixture
async def platforms() -> AsyncIterator[FakePlatforms]:
    async with open_platforms() as platforms:
        for platform in (platforms.telegram, platforms.whatsapp, platforms.instagram):
            platform.person("Ada")
        yield platforms


@pytest.fixture
async def page(devtools: int, platforms: FakePlatforms) -> AsyncIterator[Page]:
    async with tab(devtools) as page:
        await page.go(f"{platforms.url}/")
        await page.until("document.querySelectorAll('#people li').length === 1")
        yield page


async def say(page: Page, text: str) -> None:
    await page.click("#text")
    await page.type(text)
    await page.press("Enter")


async def test_what_is_said_goes_out_and_what_arrives_is_shown_with_its_markup(page: Page, platforms: FakePlatforms) -> None:
    telegram = platforms.telegram
    await say(page, "find me a sunset bar")
    await page.until(f"{LINES}.length === 1")
    [ada] = telegram.people.values()
    assert [entry.text for entry in ada.talk] == ["find me a sunset bar"]
    entities = [{"type": "bold", "offset": 3, "length": 4}, {"type": "text_link", "offset": 8, "length": 3, "url": "https://a.example/"}]
    async with aiohttp.ClientSession() as client:
        body = {"chat_id": ada.id, "text": "👩 Deck <b>", "entities": entities}
        async with client.post(f"{platforms.url}/bot{telegram.token}/sendMessage", json=body) as answer:
            assert answer.status == 200
    await page.until(f"{LINES}.length === 2")
    assert await page.see(LINES) == [["mine", "find me a sunset bar"], ["theirs", "👩 Deck <b>"]]
    inside = "document.querySelector('#talk .theirs .bubble').innerHTML"
    assert await page.see(inside) == ('👩 <b>Deck</b> <a href="https://a.example/" rel="noreferrer" target="_blank">&lt;b&gt;</a>'), (
        "what came is text, whatever it looks like"
    )
    assert page.complaints == []


async def test_a_fault_is_cued_and_its_copy_is_seen(page: Page, platforms: FakePlatforms) -> None:
    await page.see("[...document.querySelectorAll('#platforms button')].find((one) => one.innerText.includes('360dialog')).click()")
    await page.until("document.querySelector('#without-number').hidden === false")
    await say(page, "halo")
    await page.until(f"{LINES}.length === 1")
    await page.see("document.getElementById('kind').selectedIndex = 4")  # delivers the message, and breaks the connection
    await page.click("#fault button[type=submit]")
    await page.until("document.querySelector('#faults li')?.innerText === 'reset, 1 time'")
    [ada] = platforms.whatsapp.people.values()
    body = {"messaging_product": "whatsapp", "to": ada.id, "text": {"body": "*one* snake_case_word"}}
    headers = {"D360-API-KEY": platforms.whatsapp.key}
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientOSError):
            await client.post(f"{platforms.url}/messages", json=body, headers=headers)
        async with client.post(f"{platforms.url}/messages", json=body, headers=headers) as answer:
            assert answer.status == 200
    await page.until(f"{LINES}.length === 3")
    assert await page.see(LINES) == [
        ["mine", "halo"],
        ["theirs", "one snake_case_word\n\nthe sender got no answer from the platform"],
        ["theirs", "one snake_case_word\n\ncopy 2"],
    ]
    assert await page.see("document.querySelectorAll('#talk .bubble b').length") == 2
    assert await page.see("document.querySelectorAll('#faults li').length") == 0
    assert page.complaints == []


async def test_somebody_new_joins_and_blocks(page: Page, platforms: FakePlatforms) -> None:
    await page.click("#name")
    await page.type("Bob")
    await page.press("Enter")
    await page.until("document.getElementById('who').innerText === 'Bob'")
    await page.click("#block")
    await page.until("document.getElementById('block').innerText === 'Unblock'")
    bob = list(platforms.telegram.people.values())[-1]
    assert (bob.name, bob.is_blocking) == ("Bob", True)
    assert page.complaints == []
