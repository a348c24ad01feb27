"""The schema: made once however many start at once, refused where it does not fit."""

import asyncio

import psycopg
import pytest

from hermes.ports.errors import StoreUnavailable
from hermes.stores.postgres.database import connection_of, open_database
from hermes.stores.postgres.migrate import SchemaRefused, migrate, own_migrations, pending_migrations, queue_migrations


async def test_ten_processes_that_start_at_once_migrate_once(empty_database_url: str) -> None:
    ran = await asyncio.gather(*(migrate(empty_database_url) for _ in range(10)))
    assert sorted(map(len, ran)) == [0] * 9 + [1 + len(own_migrations())]
    assert await migrate(empty_database_url) == []
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("select count(*) from schema_migrations").fetchone() == (len(own_migrations()) + len(queue_migrations()),)


async def test_what_is_pending_is_named(empty_database_url: str) -> None:
    async with open_database(empty_database_url) as database:
        async with database.begin() as tx:
            assert await pending_migrations(connection_of(tx)) == [migration.name for migration in own_migrations()]
        await migrate(empty_database_url)
        async with database.begin() as tx:
            assert await pending_migrations(connection_of(tx)) == []


async def test_a_database_of_a_newer_hermes_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("insert into schema_migrations (name, digest) values ('9999_wings', '')")
    with pytest.raises(SchemaRefused, match=r"newer Hermes \(9999_wings\)"):
        await migrate(database_url)


async def test_a_migration_that_was_changed_afterwards_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("update schema_migrations set digest = 'x' where name = '0001_people'")
    with pytest.raises(SchemaRefused, match="0001_people is not the one that ran"):
        await migrate(database_url)


async def test_a_new_step_of_the_queue_is_run_when_it_comes(database_url: str) -> None:
    name = "queue/03.03.00_01_pre_priority_lock_fetch_job"
    with psycopg.connect(database_url) as connection:  # as if an older version of the queue had been here
        connection.execute("delete from schema_migrations where name = %s", [name])
        connection.execute("drop function procrastinate_fetch_job_v2")
    assert await migrate(database_url) == [name]
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from pg_proc where proname = 'procrastinate_fetch_job_v2'").fetchone() == (1,)


async def test_nobody_there_is_one_clear_line() -> None:
    with pytest.raises(StoreUnavailable, match="PostgreSQL cannot be used"):
        await migrate("host=/nowhere dbname=x connect_timeout=1")
