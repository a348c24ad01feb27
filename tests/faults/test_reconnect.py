"""An outage ends for Hermes when it ends: callers that come after it are served, however long it lasted."""

import asyncio
import time

import psycopg
import pytest

from hermes.ports.errors import StoreUnavailable
from hermes.stores.postgres.database import connection_of, open_database


async def test_after_a_long_outage_the_first_to_come_is_served(database_url: str, servers: object) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    outside = psycopg.conninfo.make_conninfo(database_url, dbname="postgres")
    async with open_database(database_url, connect_timeout_s=1.0) as database:
        with psycopg.connect(outside, autocommit=True) as owner:
            owner.execute(f"alter database {name} allow_connections false")
            owner.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
            end = time.monotonic() + 8
            while time.monotonic() < end:
                with pytest.raises(StoreUnavailable):
                    async with database.begin() as tx:
                        await connection_of(tx).execute("select 1")
                await asyncio.sleep(0.2)
            owner.execute(f"alter database {name} allow_connections true")
        began = time.monotonic()
        while True:
            try:
                async with database.begin() as tx:
                    await connection_of(tx).execute("select 1")
                break
            except StoreUnavailable:
                assert time.monotonic() - began < 3, "the pool still waits for its next try"
