"""Hermes' home on this machine: the folder, the stores that run embedded in it, and where it is reached. Its master key is in
master_keys.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psycopg

from hermes.config import Settings, WebSettings, platform_home
from hermes.event_log import get_logger
from hermes.ports.errors import StartRefused
from hermes.stores import embedded
from hermes.stores.embedded.home import home_at

__all__ = [
    "CHAT_KEY_FILE",
    "EVERY_ADDRESS",
    "check_database_address",
    "example_url",
    "home_of",
    "keep_stores",
    "local_url",
    "open_database_address",
    "running_database",
    "start_embedded_stores",
]

log = get_logger(__name__)

CHAT_KEY_FILE = "chat.key"
"""In the home: the API key of `hermes chat` on this machine, readable for its owner only."""
STORE_LOOK_S = 2.0
"""How often `hermes up` looks whether the embedded stores run."""
STORE_RETRY_S = 30.0
"""How long it waits after a store did not start, as on a full disk."""
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # these mean every address of this machine


def home_of(settings: Settings) -> Path:
    """Return the folder in which Hermes keeps its files on this machine."""
    return settings.home or platform_home(os.environ)


async def start_embedded_stores(home: Path) -> embedded.ServerLease:
    """Start the embedded stores. A task that is cancelled meanwhile waits for the start and releases the lease: a lease that is never
    released keeps the stores running."""
    starting = asyncio.ensure_future(asyncio.to_thread(embedded.start, home))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(embedded.EmbeddedError):
            (await starting).release()
        raise
    except embedded.EmbeddedError as error:
        raise StartRefused(str(error)) from error


async def keep_stores(settings: Settings, home: Path) -> None:
    """Start an embedded store again that was killed: the processes that use it would wait for it for ever. Runs until cancelled.

    The caller holds a lease on the stores."""
    wanted = [name for name, url in (("postgres", settings.database_url), ("valkey", settings.redis_url)) if url is None]
    while wanted:
        await asyncio.sleep(STORE_LOOK_S)
        found = await asyncio.to_thread(embedded.status, home)
        gone = [name for name in wanted if getattr(found, name) is None]
        if gone:
            log.warning("store_died", stores=gone)
            try:
                lease = await start_embedded_stores(home)
            except StartRefused as error:
                log.warning("store_not_started", error=str(error), retries_in_s=STORE_RETRY_S)
                await asyncio.sleep(STORE_RETRY_S)
            else:
                await asyncio.to_thread(lease.release)  # the caller's own lease keeps them running


@asynccontextmanager
async def open_database_address(settings: Settings) -> AsyncIterator[str]:
    """Yield the address of PostgreSQL. Without one in the settings, it runs embedded as long as the block lasts. Raises StartRefused."""
    check_database_address(settings)
    if settings.database_url is not None:
        yield settings.database_url.reveal()
        return
    lease = await start_embedded_stores(home_of(settings))
    try:
        yield lease.stores.database_url
    finally:
        await asyncio.shield(asyncio.to_thread(lease.release))


def check_database_address(settings: Settings) -> None:
    """Raise StartRefused for an invalid address. The error does not show the address, which may hold a password."""
    if settings.database_url is not None:
        try:
            psycopg.conninfo.conninfo_to_dict(settings.database_url.reveal())
        except psycopg.Error:
            raise StartRefused("HERMES_DATABASE_URL is no PostgreSQL address; expected postgresql://user@host/database") from None


def running_database(settings: Settings) -> str | None:
    """Return the address of the database without starting it; None if it is embedded and does not run."""
    if settings.database_url is not None:
        return settings.database_url.reveal()
    home = home_of(settings)
    return None if embedded.status(home).postgres is None else home_at(home).addresses.database_url


# --- where this Hermes is reached


def local_url(web: WebSettings) -> str:
    """Return the address of this Hermes on this machine, without a slash at its end."""
    host = EVERY_ADDRESS.get(web.host, web.host)
    return f"http://[{host}]:{web.port}" if ":" in host else f"http://{host}:{web.port}"


def example_url(web: WebSettings) -> str:
    """Return the address to show in an example: the public one, or else the one on this machine."""
    return web.public_url.rstrip("/") if web.public_url is not None else local_url(web)
