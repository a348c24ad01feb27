"""A proxy before a real PostgreSQL that loses a connection at a chosen moment: before the server reads a request, or after it committed."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import psycopg

SOCKET = ".s.PGSQL.5432"
READY = b"Z\x00\x00\x00\x05I"
"""The end of the server's answer, outside a transaction: what it was asked is committed or rolled back."""


class Loss(StrEnum):
    """When the connection is lost."""

    BEFORE_THE_SERVER_READ = "before the server read"
    AFTER_THE_COMMIT = "after the commit"


@dataclass
class LossyProxy:
    """Loses the next connection whose client sends the marker."""

    server: Path
    url: str
    marker: bytes = b""
    loss: Loss = Loss.AFTER_THE_COMMIT
    lost: int = 0
    links: set[asyncio.Task[Any]] = field(default_factory=set)

    def lose(self, marker: bytes, loss: Loss) -> None:
        self.marker, self.loss, self.lost = marker, loss, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (link := asyncio.current_task()) is not None:
            self.links.add(link)
            link.add_done_callback(self.links.discard)
        upstream_reader, upstream = await asyncio.open_unix_connection(str(self.server))
        marked = asyncio.Event()
        ends = [
            asyncio.create_task(self._ask(reader, upstream, marked)),
            asyncio.create_task(self._answer(upstream_reader, writer, marked)),
        ]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in ends:
            task.cancel()
        for each in (writer, upstream):
            each.close()
            with suppress(OSError):
                await each.wait_closed()

    async def _ask(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter, marked: asyncio.Event) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65_536):
                if self.marker and self.marker in chunk:
                    self.marker, self.lost = b"", self.lost + 1
                    if self.loss is Loss.BEFORE_THE_SERVER_READ:
                        return
                    marked.set()
                upstream.write(chunk)
                await upstream.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, marked: asyncio.Event) -> None:
        kept = b""
        with suppress(OSError):
            while chunk := await reader.read(65_536):
                if marked.is_set():
                    kept += chunk
                    if READY in kept:
                        return
                    continue
                writer.write(chunk)
                await writer.drain()


@asynccontextmanager
async def lossy_proxy(url: str) -> AsyncIterator[LossyProxy]:
    """A proxy before the server of this address, which is on a unix socket."""
    found = psycopg.conninfo.conninfo_to_dict(url)
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        port = found.get("port") or 5432
        proxy = LossyProxy(Path(str(found["host"])) / f".s.PGSQL.{port}", psycopg.conninfo.make_conninfo(url, host=folder, port=5432))
        server = await asyncio.start_unix_server(proxy.serve, Path(folder) / SOCKET)
        try:
            yield proxy
        finally:
            server.close()
            if proxy.links:  # the clients are gone, so these end
                await asyncio.wait(proxy.links, timeout=10)
