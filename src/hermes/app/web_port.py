"""The port of the settings: its address on this machine, whether it is free, and if not, which program listens there.

A web process of Hermes names itself in the answer of `/health`. If the database of these settings has that process, it is this Hermes."""

from __future__ import annotations

import asyncio
import os
import socket
from enum import StrEnum
from uuid import UUID

import psycopg

from hermes.app.home import CHAT_KEY_FILE, home_of, local_url, running_database
from hermes.config import Settings
from hermes.http_client import HttpClient, TransportError

PROBE_TIMEOUT_S = 2.0
MAX_HEALTH_BYTES = 10_000
PROCESS_HEADER = "X-Hermes-Process"
"""The header of `/health` with the id of the process (`processes.id`)."""


class PortUse(StrEnum):
    """Who has the port."""

    FREE = "free"
    OURS = "ours"
    OTHER_HERMES = "other_hermes"
    TAKEN = "taken"
    FORBIDDEN = "forbidden"
    """This user may not listen there, or the machine has no such address."""


def refuse_port(host: str, port: int) -> OSError | None:
    """Return why Hermes cannot listen there; None if it can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()  # Linux lets two sockets bind one port; only one of them can listen
        except OSError as error:
            return error
    return None


async def find_port_use(settings: Settings) -> PortUse:
    """Return who has the port of the settings. Starts no store: a Hermes that runs has started its own."""
    error = await asyncio.to_thread(refuse_port, settings.web.host, settings.web.port)
    if error is None:
        return PortUse.FREE
    client = HttpClient(connect_timeout_s=PROBE_TIMEOUT_S)
    try:
        return await ask_listener(settings, client)
    except TransportError as lost:
        return PortUse.TAKEN if lost.may_have_arrived or is_taken(error) else PortUse.FORBIDDEN
    finally:
        await client.aclose()


async def ask_listener(settings: Settings, client: HttpClient) -> PortUse:
    """Ask the program at the port which one it is. Raises TransportError."""
    async with client.send("GET", f"{local_url(settings.web)}/health", headers={}, timeout_s=PROBE_TIMEOUT_S) as reply:
        is_hermes = reply.status == 200 and b'"status":"ok"' in (await reply.read(MAX_HEALTH_BYTES)).replace(b" ", b"")
        process = reply.headers.get(PROCESS_HEADER)
    if not is_hermes:
        return PortUse.TAKEN
    is_ours = await is_known_process(settings, process) or await is_known_key(settings, client)
    return PortUse.OURS if is_ours else PortUse.OTHER_HERMES


def is_taken(error: OSError) -> bool:
    return error.errno is not None and "in use" in os.strerror(error.errno).lower()


async def is_known_process(settings: Settings, process: str | None) -> bool:
    """Whether the database of these settings has the process."""
    url = running_database(settings)
    if url is None or process is None:
        return False
    try:
        async with await psycopg.AsyncConnection.connect(url, connect_timeout=round(PROBE_TIMEOUT_S)) as connection:
            found = await connection.execute("select 1 from processes where id = %s", [UUID(process)])
            return await found.fetchone() is not None
    except (psycopg.Error, ValueError):  # it cannot be reached, is older than the table, or this is no id
        return False


async def is_known_key(settings: Settings, client: HttpClient) -> bool:
    """Whether the server takes the key that `hermes chat` of this home has made."""
    try:
        key = (home_of(settings) / CHAT_KEY_FILE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return False
    headers = {"Authorization": f"Bearer {key}"}
    try:
        async with client.send("GET", f"{local_url(settings.web)}/v1/news", headers=headers, timeout_s=PROBE_TIMEOUT_S) as reply:
            return reply.status == 200
    except TransportError:
        return False
