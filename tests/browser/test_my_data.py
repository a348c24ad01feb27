"""The panel "What do you know about me?" of the chat page, in a real browser, against a real server and stores."""

from collections.abc import AsyncIterator

import pytest

from hermes.ports.users import UserChannel
from hermes.turn import Platform
from tests.browser.browser import Page, installed, tab
from tests.browser.test_chat_page import contrast, say, until_said
from tests.flows.my_data import change_diet, dream, learn
from tests.flows.service import Service, running

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")

IS_OPEN = "document.getElementById('known').open"
FACTS = "[...document.querySelectorAll('#facts li > div')].map((box) => [...box.children].map((each) => each.textContent))"
TOLD = "document.getElementById('known-status').textContent"
FOCUS = "document.activeElement.ariaLabel ?? document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url) as service:
        yield service


@pytest.fixture
async def page(devtools: int, service: Service) -> AsyncIterator[Page]:
    async with tab(devtools) as page:
        await page.go(service.url)
        yield page


async def visitor_of(service: Service) -> UserChannel:
    """The one visitor there is."""
    async with service.database.pool.connection() as connection:
        [[sender]] = await (await connection.execute("select sender_id from user_channels where platform = 'web'")).fetchall()
    return UserChannel("web", Platform.WEB, sender)


async def known(page: Page, service: Service, *texts: str) -> UserChannel:
    """Say something, and be known by it."""
    await say(page, "hello")
    await until_said(page, "hello", "hello")
    visitor = await visitor_of(service)
    await learn(service, visitor, *texts)
    return visitor


async def open_panel(page: Page) -> None:
    await page.click("#ask")
    await page.until(f"{IS_OPEN} && {TOLD} !== 'Looking…'")


async def test_of_somebody_who_has_said_nothing_nothing_is_known(page: Page) -> None:
    await open_panel(page)
    assert await page.see(TOLD) == "Nothing. You have not said anything yet."
    assert await page.see(FACTS) == []
    assert await page.see("document.getElementById('offers').hidden") is True
    await page.click("#close")
    assert await page.see(IS_OPEN) is False


async def test_every_fact_is_shown_with_where_it_comes_from(page: Page, service: Service) -> None:
    visitor = await known(page, service, "has a dog called Bruno")
    await change_diet(service, visitor)
    await dream(service, visitor)
    await open_panel(page)
    day = await page.see("day.format(new Date('2026-11-15T12:00:00Z'))")
    assert await page.see(FACTS) == [
        ["has a dog called Bruno", f"You said so, {day}"],
        ["diet: vegan", f"You had it noted, {day}"],
    ]
    assert await page.see("[...document.querySelectorAll('#before li > div > *')].map((each) => each.textContent)") == [
        "diet: vegetarian",
        f"You said so, {day}, until {day}",
    ]
    assert await page.see("[...document.querySelectorAll('#concluded li')].map((each) => each.textContent)") == ["goes out on Fridays"]
    assert await page.see("document.getElementById('kept').textContent") == "Also kept: 1 message. You have 99 credits."
    assert page.complaints == []


async def test_rows_of_every_pack_are_counted(page: Page) -> None:
    kept = "{facts: 3, conversations: 1, messages: 2, price_watchers: 1, meals: 0, rain_alarms: 4}"
    assert await page.see(f"counts({kept})") == "2 messages, 1 price watcher, 4 rain alarms"
    assert await page.see("counts({facts: 3, conversations: 1, messages: 0})") == "nothing"


async def test_it_says_how_often_operators_opened_what_the_visitor_wrote(page: Page) -> None:
    assert await page.see("[0, 1, 3].map(opened)") == [
        "",
        " The operators of this service opened what you wrote once.",
        " The operators of this service opened what you wrote 3 times.",
    ]


async def test_one_fact_is_forgotten_and_the_others_stay(page: Page, service: Service) -> None:
    await known(page, service, "likes tea", "has a dog", "lives in Lisbon")
    await open_panel(page)
    await page.click("#facts li:nth-child(2) button")
    await page.until(f"{FACTS}.length === 2")
    assert [text for text, _ in await page.see(FACTS)] == ["likes tea", "lives in Lisbon"]
    assert await page.see(TOLD) == "Forgotten."
    assert await page.see(FOCUS) == "Forget: lives in Lisbon", "who goes through the list goes on where they were"
    await page.do("Page.reload")
    await page.until("document.readyState === 'complete' && typeof look === 'function'")
    await open_panel(page)
    assert [text for text, _ in await page.see(FACTS)] == ["likes tea", "lives in Lisbon"]


async def test_the_panel_is_worked_with_the_keyboard_alone(page: Page, service: Service) -> None:
    await known(page, service, "likes tea", "has a dog")
    await page.press("Tab")  # from the field to the button that sends
    await page.press("Tab")
    assert await page.see(FOCUS) == "What do you know about me?"
    await page.press("Enter")
    await page.until(f"{IS_OPEN} && {FACTS}.length === 2")
    assert await page.see(FOCUS) == "Close"
    await page.press("Tab")
    assert await page.see(FOCUS) == "Forget: likes tea"
    await page.press("Enter")
    await page.until(f"{FACTS}.length === 1")
    assert await page.see(FOCUS) == "Forget: has a dog"
    await page.press("Enter")
    await page.until(f"{FACTS}.length === 0")
    assert await page.see(FOCUS) == "Close"
    assert await page.see(TOLD) == "Forgotten."
    for kind in ("keyDown", "keyUp"):
        await page.do("Input.dispatchKeyEvent", type=kind, key="Escape", code="Escape", windowsVirtualKeyCode=27)
    assert await page.see(IS_OPEN) is False
    assert await page.see(FOCUS) == "What do you know about me?", "back where they came from"


async def test_all_facts_are_forgotten_only_after_a_second_word(page: Page, service: Service) -> None:
    await known(page, service, "likes tea", "has a dog")
    await open_panel(page)
    await page.click("#forget-all")
    assert await page.see("document.getElementById('question').textContent") == (
        "Forget everything that is listed here? Hermes begins a new conversation then."
    )
    assert await page.see(FOCUS) == "No, keep it", "the harmless answer comes first"
    await page.press("Enter")
    assert await page.see("document.getElementById('sure').hidden") is True
    assert len(await page.see(FACTS)) == 2
    await page.click("#forget-all")
    await page.click("#yes")
    await page.until(f"{FACTS}.length === 0 && {TOLD} === 'Forgotten.'")
    assert await page.see("document.getElementById('forget-all').hidden") is True
    assert await page.see("document.querySelectorAll('#talk li').length") == 2


async def test_who_is_forgotten_is_somebody_new_afterwards(page: Page, service: Service) -> None:
    first = await known(page, service, "likes tea")
    await open_panel(page)
    await page.click("#forget-me")
    await page.click("#yes")
    await page.until(f"!{IS_OPEN}")
    assert await page.see("document.getElementById('status').innerText") == "You are forgotten. If you write here now, you are a new user."
    assert await page.see("document.querySelectorAll('#talk li').length") == 0
    assert await page.see("document.getElementById('empty').hidden") is False
    assert await page.see("sessionStorage.getItem('hermes.talk')") == "[]"
    assert await page.see("document.activeElement.id") == "text"
    await say(page, "hello again")
    await until_said(page, "hello again", "hello again")
    second = await visitor_of(service)
    assert second != first
    async with service.database.pool.connection() as connection:
        rows = await (await connection.execute("select state, count(*) from users group by state order by state")).fetchall()
    assert rows == [("active", 1), ("deleted", 1)]
    assert page.complaints == []


async def test_what_cannot_be_reached_is_said_and_nothing_seems_forgotten(page: Page, service: Service) -> None:
    await known(page, service, "likes tea")
    await open_panel(page)
    await page.block("*/web/my-data*")
    await page.click("#facts button")
    await page.until(f"{TOLD} === 'Hermes cannot be reached.'")
    assert [text for text, _ in await page.see(FACTS)] == ["likes tea"]
    assert await page.see("document.querySelector('#facts button').disabled") is False
    await page.click("#forget-me")
    await page.click("#yes")
    await page.until("!document.getElementById('offers').hidden")
    assert (await page.see(IS_OPEN), await page.see(TOLD)) == (True, "Hermes cannot be reached.")
    await page.block()
    await page.click("#facts button")
    await page.until(f"{FACTS}.length === 0")


async def test_a_fact_is_text_and_never_markup(page: Page, service: Service) -> None:
    await known(page, service, "<img src=x onerror=\"document.title='taken'\">")
    await open_panel(page)
    assert await page.see("document.querySelectorAll('#facts img').length") == 0
    assert await page.see("document.title") == "Hermes"


@pytest.mark.parametrize("width", [320, 1100])
async def test_the_panel_works_from_right_to_left(page: Page, service: Service, width: int) -> None:
    await known(page, service, "يعيش في دبي ولديه كلب", "a-very-long-word-without-any-break" * 8)
    await page.see("document.documentElement.dir = 'rtl'")
    await page.size(width, 640)
    await open_panel(page)
    assert await page.see("document.documentElement.scrollWidth") <= width
    assert await page.see("document.getElementById('known').scrollWidth <= document.getElementById('known').clientWidth")
    for line in (1, 2):
        text, button = await page.see(
            f"['div', 'button'].map((part) => document.querySelector('#facts li:nth-child({line}) > ' + part).getBoundingClientRect().left)"
        )
        assert button < text, "the button is at the end of the line, which is left"
    direction = "[...document.querySelectorAll('#facts span')].map((each) => getComputedStyle(each).direction)"
    assert await page.see(direction) == ["rtl", "ltr"], "each fact reads in its own direction"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_panel_can_be_read_by_day_and_by_night(page: Page, service: Service, scheme: str) -> None:
    await page.color_scheme(scheme)
    await known(page, service, "likes tea")
    await open_panel(page)
    for selector in ("#facts span", "#facts small", "#facts button", "#kept", "#forget-me", "#ask"):
        ink, ground = await page.see(
            f"""((box) => {{
                const ink = getComputedStyle(box).color;
                while (getComputedStyle(box).backgroundColor === 'rgba(0, 0, 0, 0)') box = box.parentElement;
                return [ink, getComputedStyle(box).backgroundColor];
            }})(document.querySelector({selector!r}))"""
        )
        assert contrast(ink, ground) >= 4.5, (selector, ink, ground)


async def test_the_panel_has_a_name_and_so_has_every_button(page: Page, service: Service) -> None:
    await known(page, service, "likes tea")
    await open_panel(page)
    tree = (await page.do("Accessibility.getFullAXTree"))["nodes"]
    named = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node["ignored"]}
    for wanted in [
        ("dialog", "What Hermes knows about you"),
        ("list", "Facts"),
        ("button", "Close"),
        ("button", "Forget: likes tea"),
        ("button", "Forget these facts"),
        ("button", "Forget me"),
    ]:
        assert wanted in named
