"""Hermes' home on this machine: the folder, its master key, the stores that run embedded in it, and where it is reached."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psycopg

from hermes.config import Environment, Settings, WebSettings, platform_home
from hermes.ports.errors import StartRefused
from hermes.stores import embedded
from hermes.stores.embedded.home import home_at
from hermes.stores.seal import new_master_key

__all__ = [
    "CHAT_KEY_FILE",
    "EVERY_ADDRESS",
    "MASTER_KEY_FILE",
    "check_database_address",
    "example_url",
    "home_of",
    "local_url",
    "master_keys",
    "new_master_key",
    "open_database_address",
    "running_database",
    "start_embedded_stores",
]

MASTER_KEY_FILE = "master.key"
CHAT_KEY_FILE = "chat.key"
"""In the home: the API key of `hermes chat` on this machine, readable for its owner only."""
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # these mean every address of this machine


def home_of(settings: Settings) -> Path:
    """Return the folder in which Hermes keeps its files on this machine."""
    return settings.home or platform_home(os.environ)


def master_keys(settings: Settings, home: Path) -> list[str]:
    """Return the master keys as texts. In development Hermes makes one in its home, readable for its owner only. Raises StartRefused in
    production without a key, and if the home cannot be written."""
    if settings.master_keys:
        return [key.reveal() for key in settings.master_keys]
    if settings.environment is not Environment.DEVELOPMENT:
        raise StartRefused("there is no master key: make one with `hermes keys new-master`, keep it safe, and set HERMES_MASTER_KEYS")
    file = home / MASTER_KEY_FILE
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            make_key_file(file)
        return [file.read_text(encoding="ascii")]
    except OSError as error:
        raise StartRefused(f"cannot keep a master key in {home} ({error.strerror}); choose another folder with HERMES_HOME") from error


def make_key_file(file: Path) -> None:
    """Write a new key, whole or not at all, and only if there is none: if several processes start together, the first key counts."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)  # readable for its owner only
    try:
        with os.fdopen(handle, "w", encoding="ascii") as draft:
            draft.write(new_master_key())
            draft.flush()
            os.fsync(draft.fileno())
        try:
            file.hardlink_to(name)
        except FileExistsError:
            return
    finally:
        Path(name).unlink()


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
