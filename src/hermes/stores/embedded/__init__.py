"""PostgreSQL with pgvector, and Valkey: Hermes starts them on demand from their wheels, in the data folder of this machine's user.

    with embedded.run_servers(home) as stores:
        psycopg.connect(stores.database_url)
        redis.Redis.from_url(stores.redis_url)

Processes of the same home share the servers; the last process to leave stops them. Knows nothing about schemas, settings or async."""

from hermes.stores.embedded.home import EmbeddedError, HomeInUse, HomeUnusable, PlatformUnsupported, ServerFailed, StoreUrls
from hermes.stores.embedded.launcher import ServerLease, ServerStatus, run_servers, start, status, stop

__all__ = [
    "EmbeddedError",
    "HomeInUse",
    "HomeUnusable",
    "PlatformUnsupported",
    "ServerFailed",
    "ServerLease",
    "ServerStatus",
    "StoreUrls",
    "run_servers",
    "start",
    "status",
    "stop",
]
