"""The real servers, started once for each process of the run; a test that asks for them has a database and a Redis for itself."""

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from hermes.app.packs import migration_folders
from hermes.packs.concierge import PACK
from hermes.soul.fact_keys import use_pack_keys
from hermes.stores import embedded
from hermes.stores.postgres.database import Database, open_database
from hermes.stores.postgres.migrate import migrate
from tests.databases import DatabasePool

numbers = itertools.count(1)

MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108  # a private folder is made in it
MIN_MEMORY_BYTES = 4 * 2**30


LONG = {
    "test_storm.py",
    "test_outages.py",
    "test_service.py",
    "test_order.py",
    "test_machine.py",
    "test_conservation.py",
    "test_credits.py",
    "test_batch.py",
    "test_embedded.py",
    "test_rolling_restart.py",
    "test_moving.py",
}
"""Files with tests that take half a minute each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long tests: at the end of a run one process would work on them alone, and the others would have nothing to do."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(autouse=True)
def concierge_keys() -> None:
    """The memory keys of the concierge, for tests that open no Hermes: a Hermes that opens sets its own."""
    use_pack_keys(PACK.fact_keys)


@pytest.fixture(scope="session")
def servers() -> Iterator[embedded.StoreUrls]:
    """PostgreSQL and Valkey for all tests. In a short folder, because a socket's path must be short; in memory where there is room, because
    a test that makes a database of its own waits mostly for the disk."""
    with tempfile.TemporaryDirectory(prefix="hermes-", dir=data_folder()) as folder, embedded.run_servers(Path(folder) / "home") as stores:
        yield stores


@pytest.fixture(scope="session")
def template(servers: embedded.StoreUrls) -> str:
    """The name of a migrated database with the tables of the concierge, to copy from."""
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        connection.execute("create database hermes_template")
    asyncio.run(migrate(named(servers.database_url, "hermes_template"), migration_folders([PACK])))
    return "hermes_template"


@pytest.fixture(scope="session")
def databases(servers: embedded.StoreUrls, template: str) -> DatabasePool:
    """Migrated databases, to take one from."""
    return DatabasePool(servers.database_url, template)


@pytest.fixture
def database_url(databases: DatabasePool) -> Iterator[str]:
    """A migrated database for this test alone."""
    with databases.take() as url:
        yield url


@pytest.fixture
def empty_database_url(servers: embedded.StoreUrls) -> Iterator[str]:
    """A database without any schema."""
    name = f"empty_{next(numbers)}"
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield named(servers.database_url, name)
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """The same database behind its pool."""
    async with open_database(database_url) as database:
        yield database


@pytest.fixture
def redis_url(servers: embedded.StoreUrls) -> Iterator[str]:
    """An empty Redis. Tests run one after the other, so one is enough."""
    with redis.Redis.from_url(servers.redis_url) as client:
        client.flushall()
        yield servers.redis_url


def named(url: str, database: str) -> str:
    """The address of another database on the same server."""
    return psycopg.conninfo.make_conninfo(url, dbname=database)


def data_folder() -> Path | None:
    """The folder of files in memory, if this machine has one that is large enough; None: the usual temporary folder."""
    has_room = os.access(MEMORY_FOLDER, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY_FOLDER).free >= MIN_MEMORY_BYTES
    return MEMORY_FOLDER if has_room else None
