"""PostgreSQL alone, for commands that read or change rows: no Redis, no models, no tools, no packs. To import and open it takes a fraction
of what a whole Hermes takes. Each store is loaded when a command first uses it: a command that lists API keys loads nothing about users
or deliveries.

async with open_tables(settings) as tables:
    async with tables.database.begin() as tx:
        keys = await tables.api_keys.list(tx)
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

import psycopg

from hermes.app.home import open_database_address, running_database
from hermes.config import Settings
from hermes.ports.errors import PortError
from hermes.stores.postgres.database import Database, fetch_values, open_database, translate_errors
from hermes.stores.postgres.queries import migration_names

if TYPE_CHECKING:
    from hermes.app import master_keys  # noqa: F401  # loaded by its name below
    from hermes.stores.postgres.agents import PostgresAgents
    from hermes.stores.postgres.alerts import PostgresAlerts
    from hermes.stores.postgres.api_keys import PostgresApiKeys
    from hermes.stores.postgres.channel_accounts import PostgresChannelAccounts
    from hermes.stores.postgres.chores import PostgresChores
    from hermes.stores.postgres.credits import PostgresCredits
    from hermes.stores.postgres.keyring import Keyring
    from hermes.stores.postgres.model_plans import PostgresModelPlans
    from hermes.stores.postgres.outbox import PostgresOutbox
    from hermes.stores.postgres.processes import PostgresProcesses
    from hermes.stores.postgres.spend_sums import PostgresSpendSums
    from hermes.stores.postgres.users import PostgresUsers

NAMES_TIMEOUT_S = 2
MASTER_KEYS = "hermes.app.master_keys"


class SchemaBehind(PortError):
    """The database has not run all migrations of this version; opening a whole Hermes runs them."""


@dataclass(frozen=True)  # without slots, for the cached keyring
class Tables:
    """The database, the keyring of its data, and the tables that need nothing else."""

    settings: Settings
    database: Database

    @cached_property
    def keyring(self) -> Keyring:
        """The keyring; for commands that open sealed rows. Raises StartRefused without a right master key."""
        made: Keyring = importlib.import_module(MASTER_KEYS).keyring_from(self.settings)
        return made

    @property
    def api_keys(self) -> PostgresApiKeys:
        made: PostgresApiKeys = _load_store("api_keys").PostgresApiKeys()
        return made

    @property
    def agents(self) -> PostgresAgents:
        made: PostgresAgents = _load_store("agents").PostgresAgents()
        return made

    @property
    def model_plans(self) -> PostgresModelPlans:
        made: PostgresModelPlans = _load_store("model_plans").PostgresModelPlans()
        return made

    @property
    def channel_accounts(self) -> PostgresChannelAccounts:
        made: PostgresChannelAccounts = _load_store("channel_accounts").PostgresChannelAccounts(self.keyring)
        return made

    @property
    def people(self) -> PostgresUsers:
        made: PostgresUsers = _load_store("users").PostgresUsers(self.keyring)
        return made

    @property
    def credits(self) -> PostgresCredits:
        made: PostgresCredits = _load_store("credits").PostgresCredits()
        return made

    @property
    def outbox(self) -> PostgresOutbox:
        made: PostgresOutbox = _load_store("outbox").PostgresOutbox(self.keyring, keep_dead_s=self.settings.delivery.dead_letter_ttl_s)
        return made

    @property
    def processes(self) -> PostgresProcesses:
        made: PostgresProcesses = _load_store("processes").PostgresProcesses()
        return made

    @property
    def chores(self) -> PostgresChores:
        made: PostgresChores = _load_store("chores").PostgresChores()
        return made

    @property
    def alerts(self) -> PostgresAlerts:
        made: PostgresAlerts = _load_store("alerts").PostgresAlerts()
        return made

    @property
    def spend_sums(self) -> PostgresSpendSums:
        made: PostgresSpendSums = _load_store("spend_sums").PostgresSpendSums()
        return made


@asynccontextmanager
async def open_tables(settings: Settings, *, is_checked: bool = True) -> AsyncIterator[Tables]:
    """Open the database of the settings; start it if it is embedded and does not run. Changes no schema.

    `is_checked` False: the caller has just migrated the schema. Raises StartRefused, StoreUnavailable when PostgreSQL cannot be reached,
    and SchemaBehind."""
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
        yield Tables(settings, database)


def _load_store(name: str) -> ModuleType:
    return importlib.import_module(f"hermes.stores.postgres.{name}")


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
