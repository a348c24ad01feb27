"""The platforms as takers of answers: each call is answered at once as the platform would, and counted. Checks nothing.

Not the strict stand-in of `hermes platforms fake`: that one looks at every field, and would be what is measured."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

MARK = re.compile(rb"heard (m\d+)")
"""What the scripted model says of each message, so that its answer is known again."""


@dataclass(slots=True)
class Taken:
    """What arrived."""

    marks: Counter[bytes] = field(default_factory=Counter)
    """How often each message was answered."""
    others: Counter[str] = field(default_factory=Counter)
    """What arrived and answers no message: apologies, and the like."""
    calls: int = 0
    """Sends so far, over everything that was counted."""
    first_at: float = 0.0
    last_at: float = 0.0
    url: str = ""

    def take(self, path: str, body: bytes) -> dict[str, Any]:
        """Count a call, and answer it."""
        said = json.loads(body)
        if path.endswith("/sendChatAction") or "sender_action" in said or "typing_indicator" in said:
            return {"ok": True, "result": True, "success": True, "recipient_id": "0"}
        self.calls += 1
        self.last_at = time.monotonic()
        self.first_at = self.first_at or self.last_at
        found = MARK.search(body)
        if found is None:
            self.others[body.decode(errors="replace")[:300]] += 1
        else:
            self.marks[found[1]] += 1
        return answer(path, said, self.calls)

    def forget(self) -> None:
        """Begin to count anew."""
        self.marks.clear()
        self.others.clear()
        self.first_at = self.last_at = 0.0

    async def until(self, count: int, *, patience_s: float = 60.0) -> None:
        """Wait until so many messages were answered; SystemExit when none was for a while."""
        last, since = -1, time.monotonic()
        while len(self.marks) < count:
            if len(self.marks) != last:
                last, since = len(self.marks), time.monotonic()
            elif time.monotonic() - since > patience_s:
                raise SystemExit(f"{len(self.marks)} of {count} messages were answered, and for {patience_s:.0f} s no other one")
            await asyncio.sleep(0.05)

    @property
    def twice(self) -> int:
        """How many answers too many arrived."""
        return self.marks.total() - len(self.marks)


def answer(path: str, said: dict[str, Any], number: int) -> dict[str, Any]:
    if path.startswith("/bot"):
        chat = {"id": said["chat_id"], "type": "private"}
        return {"ok": True, "result": {"message_id": number, "date": int(time.time()), "chat": chat, "text": said["text"]}}
    if "recipient" in said:
        return {"recipient_id": said["recipient"]["id"], "message_id": f"aWdfZAG1faXRlb{number:012d}ZD"}
    contact = {"input": said["to"], "wa_id": said["to"]}
    return {"messaging_product": "whatsapp", "contacts": [contact], "messages": [{"id": f"wamid.HBgM{number:012d}=="}]}


class Connection(asyncio.Protocol):
    """One client. Requests have a Content-Length, and the next one comes when the last was answered."""

    def __init__(self, taken: Taken) -> None:
        self._taken, self._received = taken, b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        top = self._received[:end].lower()
        length = int(top.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        if len(self._received) < end + 4 + length:
            return
        path, body = self._received.split(b" ", 2)[1].decode(), self._received[end + 4 :]
        self._received = b""
        told = json.dumps(self._taken.take(path, body)).encode()
        assert self._transport is not None
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))


@asynccontextmanager
async def open_taking() -> AsyncIterator[Taken]:
    """Platforms that take everything, as long as the block lasts; in this process."""
    taken = Taken()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(taken), "127.0.0.1", 0)
    taken.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield taken
    finally:
        server.close()
