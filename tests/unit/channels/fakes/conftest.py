"""The fake platforms, a receiver of their webhooks, and a client that calls them."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from hermes.channels.fakes import FakePlatforms, open_platforms
from tests.unit.channels.fakes.receiver import Caller, Receiver, receiving


@pytest.fixture
async def platforms() -> AsyncIterator[FakePlatforms]:
    """At a thousand times their usual pace: what takes two minutes takes a tenth of a second."""
    async with open_platforms(speed=1000) as platforms:
        yield platforms


@pytest.fixture
async def still() -> AsyncIterator[FakePlatforms]:
    """As good as standing still, so that only skipped time goes by: for limits and windows."""
    async with open_platforms(speed=0.001) as platforms:
        yield platforms


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


@pytest.fixture
def caller(client: aiohttp.ClientSession, platforms: FakePlatforms) -> Caller:
    return Caller(client, platforms.url)


@pytest.fixture
def still_caller(client: aiohttp.ClientSession, still: FakePlatforms) -> Caller:
    return Caller(client, still.url)
