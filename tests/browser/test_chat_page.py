"""The chat page in a real browser, against a real server, worker and stores."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from hermes.packs.concierge import concierge_on
from hermes.stores.postgres.database import connection_of
from tests.browser.browser import Page, installed, tab
from tests.flows.obedient import Obedient
from tests.flows.service import Service, running

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

SAID = "[...document.querySelectorAll('#talk .bubble:not(.dots)')].map((box) => box.textContent)"
IS_WAITING = "document.querySelector('#talk .dots')"


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url) as service:
        yield service


@pytest.fixture
async def page(devtools: int, service: Service) -> AsyncIterator[Page]:
    async with tab(devtools) as page:
        await page.go(service.url)
        yield page


async def say(page: Page, text: str) -> None:
    await page.type(text)
    await page.press("Enter")


async def until_said(page: Page, *texts: str) -> None:
    wanted = str(list(texts)).replace("\\n", "\\\\n")
    await page.until(f"JSON.stringify({SAID}) === JSON.stringify({wanted})")


async def test_an_empty_page_says_what_it_is_and_waits_for_words(page: Page) -> None:
    assert await page.see("document.title") == "Hermes"
    assert (await page.see("document.getElementById('empty').innerText")).startswith("Say something to Hermes\n")
    assert await page.see("document.activeElement.id") == "text"
    await page.press("Enter")
    assert await page.see("document.querySelectorAll('#talk li').length") == 0, "nothing said, nothing sent"


async def test_enter_sends_and_the_answer_appears_below(page: Page, service: Service) -> None:
    service.thinker.may_answer.clear()
    await say(page, "find me a sunset bar")
    await page.until(IS_WAITING)
    assert await page.see(SAID) == ["find me a sunset bar"]
    assert await page.see("document.getElementById('empty').hidden") is True
    assert await page.see("document.getElementById('text').value") == ""
    service.thinker.may_answer.set()
    await until_said(page, "find me a sunset bar", "find me a sunset bar")
    assert await page.see("[...document.querySelectorAll('#talk li')].map((line) => line.className)") == ["mine", "theirs"]
    assert page.complaints == []


async def test_shift_and_enter_start_a_new_line(page: Page, service: Service) -> None:
    await page.type("one")
    await page.press("Enter", shift=True)
    await page.type("two")
    await page.press("Enter")
    await page.until(f"{SAID}.length === 2")
    assert await page.see(SAID) == ["one\ntwo", "one\ntwo"]
    assert service.thinker.asked == ["one\ntwo"]


async def test_messages_said_quickly_keep_their_order_and_each_has_its_answer(page: Page, service: Service) -> None:
    service.thinker.may_answer.clear()
    for number in range(8):
        await say(page, f"number {number}")
    service.thinker.may_answer.set()
    await page.until(f"{SAID}.length === 16")
    assert await page.see(SAID) == [f"number {number}" for number in range(8) for _ in "qa"]
    assert service.thinker.asked == [f"number {number}" for number in range(8)]


async def test_what_somebody_says_is_text_and_never_markup(page: Page) -> None:
    await say(page, "<img src=x onerror=\"document.title='taken'\"><b>bold</b>")
    await page.until(f"{SAID}.length === 2")
    assert await page.see("document.querySelectorAll('#talk img, #talk b').length") == 0
    assert await page.see("document.title") == "Hermes"


async def test_a_reload_shows_what_was_said_and_goes_on_waiting(page: Page, service: Service) -> None:
    await say(page, "first")
    await until_said(page, "first", "first")
    service.thinker.may_answer.clear()
    await say(page, "second")
    await page.until(IS_WAITING)
    await page.see("window.isOld = true")
    await page.do("Page.reload")
    await page.until(f"!window.isOld && {IS_WAITING}")
    assert await page.see(SAID) == ["first", "first", "second"]
    service.thinker.may_answer.set()
    await until_said(page, "first", "first", "second", "second")
    assert service.thinker.asked == ["first", "second"]


async def test_a_message_that_cannot_be_sent_says_so_and_can_be_sent_again(page: Page, service: Service) -> None:
    await page.block("*/web/messages*")
    await say(page, "hello?")
    await page.until("document.querySelector('.mine[data-state=sending] .note')")
    assert await page.see("document.querySelector('.note').innerText") == "Sending…"
    await page.until("document.querySelector('.failed .note button')")
    assert await page.see("document.querySelector('.failed .note').innerText") == "Hermes cannot be reached.Try again"
    assert await service.turns() == 0
    await page.block()
    await page.click(".failed .note button")
    await until_said(page, "hello?", "hello?")
    assert await page.see("document.querySelectorAll('.failed').length") == 0
    assert await service.turns() == 1


async def test_what_is_said_offline_is_sent_when_the_browser_is_back(page: Page, service: Service) -> None:
    await page.offline(True)
    await page.until("document.getElementById('status').innerText.startsWith('You are offline')")
    await say(page, "one")
    await say(page, "two")
    await asyncio.sleep(1.0)
    assert await page.see("[...document.querySelectorAll('.mine')].map((line) => line.dataset.state)") == ["sending", "sending"]
    await page.offline(False)
    await until_said(page, "one", "one", "two", "two")
    assert await page.see("document.getElementById('status').innerText") == ""
    assert service.thinker.asked == ["one", "two"]


async def test_the_end_stays_in_sight_until_somebody_scrolls_up(page: Page) -> None:
    await page.size(390, 640)
    for number in range(12):
        await say(page, f"number {number}")
    await page.until(f"{SAID}.length === 24")
    left = "((room) => room.scrollHeight - room.scrollTop - room.clientHeight)(document.querySelector('main'))"
    await page.until(f"{left} < 2")
    await page.size(390, 400)  # a phone's keyboard opens
    await page.until(f"{left} < 2")
    assert await page.see("document.documentElement.scrollHeight - innerHeight") == 0, "the room scrolls, the page does not"
    await page.see("document.querySelector('main').scrollTop = 0")
    await page.size(390, 640)
    await page.until("document.querySelector('main').scrollTop === 0")


async def test_a_refusal_is_shown_in_the_servers_words(page: Page, service: Service) -> None:
    await page.type("x" * 100_001)
    await page.press("Enter")
    await page.until("document.querySelector('.failed')")
    assert await page.see("document.querySelector('.note').firstChild.textContent") == "text: String should have at most 100000 characters"
    assert await service.turns() == 0


async def test_an_answer_arrives_although_the_connection_was_lost_meanwhile(page: Page, service: Service) -> None:
    service.thinker.may_answer.clear()
    await say(page, "are you there?")
    await page.until(IS_WAITING)
    await page.offline(True)
    await page.until("document.getElementById('status').innerText")
    service.thinker.may_answer.set()
    await asyncio.sleep(0.3)
    await page.offline(False)
    await until_said(page, "are you there?", "are you there?")
    assert await page.see("document.getElementById('status').innerText") == ""


async def test_two_browsers_are_two_visitors(page: Page, devtools: int, service: Service) -> None:
    async with tab(devtools) as other:
        await other.go(service.url)
        await say(page, "mine")
        await say(other, "yours")
        await asyncio.gather(until_said(page, "mine", "mine"), until_said(other, "yours", "yours"))
    async with service.database.pool.connection() as connection:
        rows = await (await connection.execute("select count(distinct channel_id), count(distinct user_id) from conversations")).fetchall()
    assert rows == [(2, 2)]


async def test_everything_has_a_name_for_those_who_do_not_see_it(page: Page) -> None:
    await say(page, "hi")
    await until_said(page, "hi", "hi")
    tree = (await page.do("Accessibility.getFullAXTree"))["nodes"]
    named = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node["ignored"]}
    for wanted in [("textbox", "Your message"), ("button", "Send"), ("log", "Conversation"), ("navigation", "About this server")]:
        assert wanted in named
    assert {name for role, name in named if role == "link"} == {"Health", "Ready", "Metrics", "API"}
    assert [line.split("\n") for line in await page.see("[...document.querySelectorAll('#talk li')].map((line) => line.textContent)")] == [
        ["You said:hi"],
        ["Hermes said:hi"],
    ]
    assert (
        await page.see("document.getElementById('talk').ariaLive ?? document.getElementById('talk').getAttribute('aria-live')") == "polite"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_words_can_be_read_by_day_and_by_night(page: Page, scheme: str) -> None:
    await page.color_scheme(scheme)
    await say(page, "hi")
    await until_said(page, "hi", "hi")
    for selector in (".mine .bubble", ".theirs .bubble", "nav a", "#keys"):
        ink, ground = await page.see(
            f"""((box) => {{
                const ink = getComputedStyle(box).color;
                while (getComputedStyle(box).backgroundColor === 'rgba(0, 0, 0, 0)') box = box.parentElement;
                return [ink, getComputedStyle(box).backgroundColor];
            }})(document.querySelector({selector!r}))"""
        )
        assert contrast(ink, ground) >= 4.5, (selector, ink, ground)
    ground = luminance(await page.see("getComputedStyle(document.body).backgroundColor"))
    assert (ground > 0.8) if scheme == "light" else (ground < 0.05)


@pytest.mark.parametrize("width", [320, 390, 768, 1600])
async def test_the_page_fits_every_width(page: Page, width: int) -> None:
    await page.size(width, 640)
    await say(page, "a-very-long-word-without-any-break" * 20)
    await page.until(f"{SAID}.length === 2")
    assert await page.see("document.documentElement.scrollWidth") <= width
    tops = await page.see("['header', 'main', 'footer'].map((part) => document.querySelector(part).getBoundingClientRect().top)")
    assert all(upper < lower for upper, lower in pairwise(tops))
    bottom = await page.see("document.querySelector('#say').getBoundingClientRect().bottom")
    assert bottom <= 640, "the field is always in sight"


def contrast(one: str, other: str) -> float:
    """The WCAG contrast of two CSS colours."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", color)[:3])
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


async def test_a_reminder_appears_by_itself_once_and_is_still_there_after_a_reload(page: Page, service: Service) -> None:
    await say(page, "one")
    await until_said(page, "one", "one")
    async with service.database.begin() as tx:
        [(user_id, turn_id)] = await (await connection_of(tx).execute("select user_id, turn_id from inbox")).fetchall()
        await concierge_on(service.hermes.packs.services).reminders.add(tx, user_id, turn_id, datetime.now(UTC), "water the plants")
    await service.hermes.background_jobs.proactive.remind(datetime.now(UTC))
    await page.see("askForNews()")
    await page.until(f"{SAID}.length === 3")
    for _ in "again":
        assert "water the plants" in (await page.see(SAID))[2]
        await page.go(service.url)
        await page.until(f"{SAID}.length === 3")
    assert await page.see("[...document.querySelectorAll('#talk li')].map((line) => line.className)") == ["mine", "theirs", "theirs"]


async def test_an_offer_is_approved_with_its_button(devtools: int, database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, models=Obedient()) as service, tab(devtools) as page:
        await page.go(service.url)
        await say(page, "book_delivery")
        await page.until("document.querySelector('.choices')")
        labels = "[...document.querySelectorAll('.choices[aria-label*=\"from Canggu to Canggu\"] button')].map((one) => one.textContent)"
        assert await page.see(labels) == ["Approve", "Don't do it"]
        assert "only the code" in (await page.see(SAID))[-1]
        await page.see("document.querySelector('.choices[aria-label*=\"courier\"] button').click()")
        await page.until("[...document.querySelectorAll('#talk .bubble')].some((box) => box.textContent.includes('Noted as a request'))")
        assert await page.see("document.querySelector('.choices[aria-label*=\"courier\"]')") is None, "it can be pressed once"
        async with service.database.begin() as tx:
            assert await (await connection_of(tx).execute(b"select kind from orders")).fetchall() == [("delivery",)]
        assert page.complaints == []
