"""The nursery of workers for all tests of this folder, and a house for each of them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hermes.stores.embedded import StoreUrls
from tests.faults.house import House, Nursery, open_house


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where workers come from. At its end all of them end."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
async def house(nursery: Nursery, database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """A house on the shared servers, with a database of its own."""
    async with open_house(nursery, tmp_path, StoreUrls(database_url, redis_url)) as house:
        yield house
