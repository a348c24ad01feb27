"""The answers of this process that their clients have, and that are not recorded yet. A request that shows one waits for its record.

An answer leaves before its record is written, and the records of many answers are made together: so the next request does not wait for the
processor, and the database has one statement for many answers. So the next request of a chat may come
before the record of the last one. By the digests of an answer (of its list, of its words, of what a summary may quote) the request finds
out whether it has to wait."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from uuid import UUID

from hermes.ports.sessions import ChatFingerprint

GATHER_S = 0.02
"""How long an answer waits for others before its record is made. A process that is killed loses the records of about so long."""
MAX_TOGETHER = 8
"""How many records are made before the event loop looks after the requests again."""
MAX_UNWRITTEN = 512
"""With so many answers unwritten, each further one waits for its record: a slow database slows the clients down, and memory stays small."""


class UnwrittenAnswers:
    """Answers that are on their way into the database, by their users and digests."""

    def __init__(self, gather_s: float = GATHER_S) -> None:
        self._gather_s = gather_s
        self._gathered: list[asyncio.Future[None]] = []
        self._timer: asyncio.Handle | None = None
        self._records: defaultdict[UUID, dict[asyncio.Future[None], frozenset[bytes]]] = defaultdict(dict)
        self._count = 0

    @property
    def is_full(self) -> bool:
        return self._count >= MAX_UNWRITTEN

    def has_any(self, user_id: UUID) -> bool:
        return user_id in self._records

    def add(self, user_id: UUID, fingerprint: ChatFingerprint | None, before: ChatFingerprint | None = None) -> Callable[[], None]:
        """Note an answer before its client gets it. The caller calls what is returned when the record is written, or was given up.

        `before` is the fingerprint of the list that grows by the answer: a request that shows that list finds the chat moved on."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        digests = answer_digests(fingerprint) if fingerprint is not None else []
        self._records[user_id][written] = frozenset([*digests, *([before.shown] if before is not None else [])])
        self._count += 1

        def end() -> None:
            self._count -= 1
            records = self._records[user_id]
            del records[written]
            if not records:
                del self._records[user_id]
            written.set_result(None)

        return end

    async def gather(self) -> None:
        """Wait until the record of an answer may be made: for others to come, but not while a request waits for one of them."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._gathered.append(turn)
        if self._timer is None:
            self._timer = loop.call_later(self._gather_s, self._release)
        await turn

    def hurry(self) -> None:
        """Let the records be made that wait for others."""
        if self._timer is not None:
            self._timer.cancel()
            self._release()

    def _release(self) -> None:
        """Let the oldest records be made, a few at a time, so that requests are read meanwhile."""
        taken, self._gathered = self._gathered[:MAX_TOGETHER], self._gathered[MAX_TOGETHER:]
        self._timer = asyncio.get_running_loop().call_soon(self._release) if self._gathered else None
        for turn in taken:
            if not turn.done():
                turn.set_result(None)

    async def wait_for(self, user_id: UUID, shown: Iterable[bytes]) -> None:
        """Wait until all answers of a user that have one of these digests are recorded."""
        records, wanted = self._records.get(user_id), set(shown)
        found = [written for written, digests in records.items() if not wanted.isdisjoint(digests)] if records and wanted else []
        if found:
            self.hurry()
            await asyncio.wait(found)

    async def wait_for_all(self, user_id: UUID) -> None:
        """Wait until all answers that a user has by now are recorded."""
        if user_id in self._records:
            self.hurry()
            await asyncio.wait(list(self._records[user_id]))


def answer_digests(fingerprint: ChatFingerprint) -> list[bytes]:
    """What a request that shows, quotes or rewrites an answer has in common with it."""
    return [fingerprint.shown, fingerprint.echo, *fingerprint.traces.contexts, *fingerprint.traces.spans]
