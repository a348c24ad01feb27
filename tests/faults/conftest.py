"""The nursery of workers for all tests of this folder, and a house for each of them."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hermes.stores.embedded import StoreUrls
from hermes.stores.seal import new_master_key
from tests.faults.house import QUICK, House, Nursery, open_house
from tests.faults.tree import Tree


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


@pytest.fixture
def environ() -> Iterator[dict[str, str]]:
    """The settings of a service that has its home and its port for itself. In a short folder, because a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        script = Path(folder) / "echo.toml"
        script.write_text('otherwise = "{words}"', encoding="utf-8")
        yield {
            **{name: value for name, value in os.environ.items() if not name.startswith("HERMES_")},
            **QUICK,
            "HERMES_HOME": str(Path(folder) / "home"),
            "HERMES_WEB_PORT": "0",
            "HERMES_MASTER_KEYS": new_master_key(),
            "HERMES_LOG_FORMAT": "json",
            "HERMES_LLM_SCRIPT": str(script),
        }


@pytest.fixture
def tree(environ: dict[str, str]) -> Iterator[Tree]:
    tree = Tree(Path(environ["HERMES_HOME"]), environ)
    try:
        yield tree
    finally:
        tree.clear_away()
