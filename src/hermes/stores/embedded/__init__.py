"""PostgreSQL with pgvector, and Valkey: Hermes starts them on demand from their wheels, in the data folder of this machine's user.

    with embedded.run_servers(home) as stores:
        psycopg.connect(stores.database_url)
        redis.Redis.from_url(stores.redis_url)

Processes of the same home share the servers; the last process to leave stops them. Knows nothing about schemas, settings or async."""

from hermes.stores.embedded.home import EmbeddedError, HomeInUse, HomeUnusable, PlatformUnsupported, ServerFailed, StoreUrls
from hermes.stores.embedded.launcher import ServerLease, ServerStatus, run_servers, start, status, stop
from hermes.stores.embedded.programs import POSTGRES_MAJOR
from hermes.stores.embedded.rebuild import (
    Rebuild,
    UnusedDatabase,
    data_major,
    discard_kept,
    hold_unused,
    kept_databases,
    kept_vaults,
    note_vault,
    rebuild_database,
)

__all__ = [
    "POSTGRES_MAJOR",
    "EmbeddedError",
    "HomeInUse",
    "HomeUnusable",
    "PlatformUnsupported",
    "Rebuild",
    "ServerFailed",
    "ServerLease",
    "ServerStatus",
    "StoreUrls",
    "UnusedDatabase",
    "data_major",
    "discard_kept",
    "hold_unused",
    "kept_databases",
    "kept_vaults",
    "note_vault",
    "rebuild_database",
    "run_servers",
    "start",
    "status",
    "stop",
]
