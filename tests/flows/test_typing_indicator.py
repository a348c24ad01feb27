"""Typing on real connections, shown on phones: by every platform that has such a thing, and within what each of them takes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hermes.channels.platform_client import PlatformHttpClient, open_platform_client
from hermes.delivery.typing_indicator import TypingIndicator
from tests.flows.phones import NAMES, Phones, open_phones

FASTER = 50.0


@pytest.fixture
async def phones() -> AsyncIterator[Phones]:
    async with open_phones(speed=FASTER) as phones:
        yield phones


@pytest.fixture
async def post() -> AsyncIterator[PlatformHttpClient]:
    async with open_platform_client() as post:
        yield post


def typing_to(phones: Phones, post: PlatformHttpClient) -> TypingIndicator:
    """Typing in the platforms' own time."""
    clock = phones.platforms.world.clock
    return TypingIndicator(channels=phones.directory, post=post, pause=lambda seconds: asyncio.sleep(seconds / FASTER), timer=clock.now)


@pytest.mark.parametrize("name", NAMES)
async def test_a_person_sees_that_an_answer_is_on_its_way(phones: Phones, post: PlatformHttpClient, name: str) -> None:
    ada, typing = phones.person(name), typing_to(phones, post)
    message_id = ada.say("find me a sunset bar in Canggu")
    [heard] = await phones.heard(name)
    async with typing.show_during(heard.stored_envelope):
        await phones.platforms.world.changes.wait_until(lambda: ada.typing_shown >= 2, 5)
    await asyncio.sleep(0.1)
    seen = ada.typing_shown
    await asyncio.sleep(30 / FASTER)
    assert ada.typing_shown == seen, "nothing is shown once the answer is there"
    assert [call.status for call in phones.fake(name).requests] == [200] * seen
    assert ada.seen_by_account == ([message_id] if name.startswith("whatsapp") else [])
    assert ada.texts == []


async def test_a_platform_that_has_enough_is_not_asked_again_in_this_turn(phones: Phones, post: PlatformHttpClient) -> None:
    ada, fake, typing = phones.person("telegram"), phones.platforms.telegram, typing_to(phones, post)
    ada.say("hello")
    [heard] = await phones.heard("telegram")
    fake.fail(429, retry_after=20, method="sendChatAction")
    async with typing.show_during(heard.stored_envelope):
        await asyncio.sleep(15 / FASTER)
    async with typing.show_during(heard.stored_envelope):
        await asyncio.sleep(3 / FASTER)
    assert (ada.typing_shown, [call.status for call in fake.requests]) == (0, [429])
