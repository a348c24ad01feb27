"""Sockets that speak HTTP as they like, for what no client library would send."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class RawConnection:
    """A connection to a server, without a protocol."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_all(self, within_s: float = 10.0) -> bytes:
        """What the server sends until it closes the connection."""
        with suppress(ConnectionError):
            async with asyncio.timeout(within_s):
                return await self.reader.read()
        return b""

    async def is_closed(self, within_s: float) -> bool:
        try:
            await self.read_all(within_s)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.writer.transport.abort()


async def connect(url: str) -> RawConnection:
    parts = urlsplit(url)
    return RawConnection(*await asyncio.open_connection(parts.hostname, parts.port))


async def exchange(url: str, data: bytes, within_s: float = 10.0) -> tuple[int, bytes]:
    """Send bytes, and return the status and the whole answer; 0 if there was none."""
    connection = await connect(url)
    try:
        with suppress(ConnectionError):
            await connection.send(data)
        answer = await connection.read_all(within_s)
    finally:
        connection.close()
    return status_of(answer), answer


def status_of(answer: bytes) -> int:
    first = answer.partition(b"\r\n")[0].split(b" ")
    return int(first[1]) if len(first) > 1 and first[0].startswith(b"HTTP/") else 0
