"""PostgreSQL alone, for commands that read or change rows: no Redis, no models, no tools, no packs. To import and open it takes a fraction
of what a whole Hermes takes.

async with open_tables(settings) as tables:
    async with tables.database.begin() as tx:
        keys = await tables.api_keys.list(tx)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import psycopg

from hermes.app.home import home_of, master_keys, open_database_address, running_database
from hermes.config import Settings
from hermes.ports.errors import PortError, StartRefused
from hermes.stores.postgres.accounts import PostgresAgents, PostgresApiKeys, PostgresChannelAccounts
from hermes.stores.postgres.alerts import PostgresAlerts
from hermes.stores.postgres.chores import PostgresChores
from hermes.stores.postgres.database import Database, fetch_values, open_database, translate_errors
from hermes.stores.postgres.events import PostgresOperationsEvents
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.processes import PostgresProcesses
from hermes.stores.postgres.queries import migration_names
from hermes.stores.postgres.spend_sums import PostgresSpendSums
from hermes.stores.postgres.spending import PostgresCredits
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeyInvalid, MasterKeys

NAMES_TIMEOUT_S = 2


class SchemaBehind(PortError):
    """The database has not run all migrations of this version; opening a whole Hermes runs them."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The database, the keyring of its data, and the tables that need nothing else."""

    settings: Settings
    database: Database
    keyring: Keyring
    api_keys: PostgresApiKeys
    agents: PostgresAgents
    channel_accounts: PostgresChannelAccounts
    people: PostgresUsers
    credits: PostgresCredits
    outbox: PostgresOutbox
    processes: PostgresProcesses
    chores: PostgresChores
    alerts: PostgresAlerts
    spend_sums: PostgresSpendSums
    stream_events: PostgresOperationsEvents


@asynccontextmanager
async def open_tables(settings: Settings, *, is_checked: bool = True) -> AsyncIterator[Tables]:
    """Open the database of the settings; start it if it is embedded and does not run. Changes no schema.

    `is_checked` False: the caller has just migrated the schema. Raises StartRefused, StoreUnavailable when PostgreSQL cannot be reached,
    and SchemaBehind."""
    try:
        keyring = Keyring(MasterKeys.parse(master_keys(settings, home_of(settings))))
    except MasterKeyInvalid as error:
        raise StartRefused(str(error)) from None
    limits = settings.database
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(open_database_address(settings))
        if is_checked:
            await refuse_old_schema(address, limits.connect_timeout_s)
        database = await stack.enter_async_context(
            open_database(
                address,
                pool_min=1,
                pool_max=1,
                connect_timeout_s=limits.connect_timeout_s,
                statement_timeout_s=limits.statement_timeout_s,
            )
        )
        yield Tables(
            settings,
            database,
            keyring,
            PostgresApiKeys(),
            PostgresAgents(),
            PostgresChannelAccounts(keyring),
            PostgresUsers(keyring),
            PostgresCredits(),
            PostgresOutbox(keyring, keep_dead_s=settings.delivery.dead_letter_ttl_s),
            PostgresProcesses(),
            PostgresChores(),
            PostgresAlerts(),
            PostgresSpendSums(),
            PostgresOperationsEvents(),
        )


async def refuse_old_schema(address: str, connect_timeout_s: float) -> None:
    """Raise SchemaBehind if a migration of this version has not run, and StoreUnavailable if the server cannot be reached.

    On a connection of its own: a pool would try for seconds to reach a server that is not there."""
    limit_s = max(1, round(connect_timeout_s))
    with translate_errors():
        async with await psycopg.AsyncConnection.connect(address, connect_timeout=limit_s, autocommit=True) as connection:
            has_table = await fetch_values(connection, b"select 1 where to_regclass('schema_migrations') is not null")
            done = set(await fetch_values(connection, b"select name from schema_migrations")) if has_table else set()
    if not migration_names() <= done:
        raise SchemaBehind("the database is older than this version of Hermes")


def stored_account_names(settings: Settings) -> list[str]:
    """Return the names of the channel accounts, for a shell that completes one. Starts no store: without a running one there are none."""
    url = running_database(settings)
    if url is None:
        return []
    try:
        with psycopg.connect(url, connect_timeout=NAMES_TIMEOUT_S) as connection:
            return [name for (name,) in connection.execute("select distinct account_id from channel_accounts order by account_id")]
    except psycopg.Error:
        return []
