"""A web or a worker of Hermes that kills itself at a named place; until then it does all that `hermes serve` and `hermes worker` do.

    python -m tests.storm.doomed worker commit:inbox.hold after 2

A place is a port call (`journal.finish`), the commit of a transaction, which is named for the first call in it (`commit:inbox.hold`), or
the `send` of an outbox message. It dies when it comes there for so many times."""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from hermes.app.adapters import Adapters
from hermes.app.root import Hermes, open_hermes
from hermes.cli.listeners import open_web_listeners
from hermes.cli.runtime import run, run_until_signal, settings_from, start_log
from hermes.config import Settings
from hermes.ports.outbox import DeliveryResult, OutboxMessage
from hermes.ports.runtime import Transaction, Transactions
from hermes.web import serve_until_cancelled

CALLS: ContextVar[list[str] | None] = ContextVar("calls", default=None)
"""The port calls of the transaction that is open."""
PORTS = (
    *("people", "inbox", "sessions", "graphs", "histories", "credits", "journal", "outbox", "interactions"),
    *("idempotency_keys", "turn_ends"),
)


@dataclass(slots=True)
class Snare:
    """Kills this process at its place."""

    place: str
    is_after: bool
    left: int

    def reached(self, place: str, *, is_after: bool) -> None:
        if (place, is_after) == (self.place, self.is_after):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Snared:
    """A port whose calls are places."""

    def __init__(self, port: Any, name: str, snare: Snare) -> None:
        self._port, self._name, self._snare = port, name, snare

    def __getattr__(self, method: str) -> Any:
        call, place = getattr(self._port, method), f"{self._name}.{method}"
        if not inspect.iscoroutinefunction(call):
            return call

        async def snared(*arguments: Any, **options: Any) -> Any:
            if (calls := CALLS.get()) is not None:
                calls.append(place)
            self._snare.reached(place, is_after=False)
            result = await call(*arguments, **options)
            self._snare.reached(place, is_after=True)
            return result

        return snared


class SnaredTransactions:
    """Transactions that are places by the first call that is made in them, before and after they commit."""

    def __init__(self, inner: Transactions, snare: Snare) -> None:
        self._inner, self._snare = inner, snare

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        calls: list[str] = []
        CALLS.set(calls)
        async with self._inner.begin() as tx:
            yield tx
            CALLS.set(None)
            place = f"commit:{calls[0] if calls else ''}"
            self._snare.reached(place, is_after=False)
        self._snare.reached(place, is_after=True)

    @asynccontextmanager
    async def once(self) -> AsyncIterator[Transaction]:
        async with self._inner.once() as tx:
            yield tx


class SnaredSender:
    """A sender whose sends are places."""

    def __init__(self, send: Callable[[OutboxMessage], Awaitable[DeliveryResult]], snare: Snare) -> None:
        self._send, self._snare = send, snare

    async def send(self, parcel: OutboxMessage) -> DeliveryResult:
        self._snare.reached("send", is_after=False)
        sending = await self._send(parcel)
        self._snare.reached("send", is_after=True)
        return sending


@asynccontextmanager
async def open_doomed(settings: Settings, snare: Snare) -> AsyncIterator[Hermes]:
    """A Hermes with the snare in it."""

    def adjust(parts: Adapters) -> Adapters:
        return replace(parts, **{name: Snared(getattr(parts, name), name, snare) for name in PORTS})

    async with open_hermes(settings, adjust=adjust) as hermes:
        transactions = SnaredTransactions(hermes.database, snare)
        sender = SnaredSender(hermes.outbox_delivery.send, snare)
        courier = replace(hermes.outbox_delivery, transactions=transactions, send=sender.send)
        turns = replace(hermes.turns, services=replace(hermes.turns.services, transactions=transactions, deliver=courier.deliver))
        intake = replace(hermes.intake, transactions=transactions)
        hearing = replace(hermes.inbound, intake=intake)
        yield replace(hermes, intake=intake, turns=turns, outbox_delivery=courier, inbound=hearing)


async def live(role: str, settings: Settings, snare: Snare) -> None:
    listener = open_web_listeners(settings).web if role == "serve" else None
    async with open_doomed(settings, snare) as hermes:
        if listener is None:
            await hermes.run_worker()
        else:
            await serve_until_cancelled(hermes, listener, lambda: None)


def main() -> None:
    role, place, when, nth = sys.argv[1:]
    settings = settings_from(None)
    start_log(settings)
    run(run_until_signal(live(role, settings, Snare(place, when == "after", int(nth)))))


if __name__ == "__main__":
    main()
