"""The real servers, started once for the whole run; each test that asks for them gets a database and a Redis number of its own."""

import asyncio
import itertools
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

numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def concierge_keys() -> None:
    """The memory keys of the concierge, for tests that open no Hermes: a Hermes that opens sets its own."""
    use_pack_keys(PACK.fact_keys)


@pytest.fixture(scope="session")
def servers() -> Iterator[embedded.StoreUrls]:
    """PostgreSQL and Valkey for all tests. In a short folder, because a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder, embedded.run_servers(Path(folder) / "home") as stores:
        yield stores


@pytest.fixture(scope="session")
def template(servers: embedded.StoreUrls) -> str:
    """The name of a migrated database with the tables of the concierge, to copy from."""
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        connection.execute("create database hermes_template")
    asyncio.run(migrate(named(servers.database_url, "hermes_template"), migration_folders([PACK])))
    return "hermes_template"


@pytest.fixture
def database_url(servers: embedded.StoreUrls, template: str) -> Iterator[str]:
    """A migrated database of this test's own."""
    name = f"test_{next(numbers)}"
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template} strategy file_copy")
        yield named(servers.database_url, name)
        connection.execute(f"drop database {name} with (force)")


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
