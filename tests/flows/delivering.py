"""Delivery put together on real stores and a real connection: what tests share, and a process that dies between a send and its note.

python -m tests.flows.delivering DATABASE_URL MASTER_KEY CONVERSATION BOT_API_URL
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from redis.asyncio import Redis

from hermes.channels.platform_client import PlatformHttpClient, open_platform_client
from hermes.delivery.channel_sender import ChannelSender
from hermes.delivery.outbox_delivery import OutboxDelivery, SettlementWriter
from hermes.delivery.receipts import ReceiptHandler
from hermes.ops.metrics import LogAlerts, Metrics
from hermes.ports.inbox import Claim
from hermes.ports.outbox import DeliveryResult, OutboxMessage
from hermes.ports.users import UserState
from hermes.router.outbox import render_text
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Database, connection_of, open_database
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.journal import PostgresJournal
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.redis.breakers import RedisBreakers
from hermes.stores.seal import MasterKeys
from hermes.testing.memory import MemoryBreakers
from hermes.turn import Envelope, MessageEvent, Platform
from tests.fakes.simple_channel import SimpleChannel
from tests.flows.directory import Directory


@dataclass(slots=True)
class Clock:
    """The time, which a test can move."""

    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass
class HouseAlerts:
    """The alerts of one process, kept and logged."""

    house: House

    def alert(self, event: str, **facts: object) -> None:
        self.house.alerted.append(event)
        LogAlerts(self.house.metrics).alert(event, **facts)

    def end(self, event: str, **facts: object) -> None:
        self.house.ended.append(event)
        LogAlerts(self.house.metrics).end(event, **facts)


@dataclass
class House:
    """One process that delivers."""

    database: Database
    keyring: Keyring
    post: PlatformHttpClient
    url: str
    redis: Redis | None = None
    cap: int = 5_000
    has_receipts: bool = False
    clock: Clock = field(default_factory=Clock)
    alerted: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    slept_s: float = 0.0
    """What would have been waited for."""

    def __post_init__(self) -> None:
        self.metrics, self.credits, self.inbox = Metrics(), PostgresCredits(), PostgresInbox(self.keyring)
        self.people, self.journal = PostgresUsers(self.keyring), PostgresJournal(self.keyring)
        self.outbox = PostgresOutbox(self.keyring, cut_off_s=60, cap=self.cap)
        self.settlement = SettlementWriter(self.credits, self.journal, HouseAlerts(self))
        breakers = MemoryBreakers(self.clock) if self.redis is None else RedisBreakers(self.redis, self.clock)
        self.channels = Directory([SimpleChannel(url=self.url, has_receipts=self.has_receipts)])
        self.dispatch = ChannelSender(
            channels=self.channels,
            post=self.post,
            breakers=breakers,
            alerts=HouseAlerts(self),
            meter=self.metrics,
            clock=self.clock,
            pause=self.pause,
            timer=lambda: time.monotonic() + self.slept_s,
        )
        self.outbox_delivery = OutboxDelivery(self.database, self.outbox, self.dispatch.send, self.settlement)
        self.receipts = ReceiptHandler(
            transactions=self.database,
            tracking=self.outbox.tracking,
            dead_letters=self.outbox.dead_letters,
            settlement=self.settlement,
            meter=self.metrics,
        )

    async def pause(self, seconds: float) -> None:
        self.slept_s += seconds

    async def hear(self, text: str = "hi", chat: str = "42") -> Claim:
        """Take a message in, reserve its credit, and claim its turn."""
        event = MessageEvent(platform=Platform.TELEGRAM, sender_id=chat, text=text)
        envelope = Envelope(event=event, account="bali", channel_id=chat, event_key=str(uuid4()))
        async with self.database.begin() as tx:
            user, is_new = await self.people.find_or_create(tx, "bali", Platform.TELEGRAM, chat, state=UserState.ACTIVE)
            if is_new:
                await self.credits.grant(tx, user.id, 10, f"signup:{user.id}")
            receipt = await self.inbox.accept(tx, envelope, uuid4())
            assert receipt is not None
            claim = await self.inbox.claim(tx, receipt.turn_id)
            await self.credits.reserve(tx, user.id, receipt.turn_id)
        assert isinstance(claim, Claim)
        return claim

    async def end(self, claim: Claim, answer: str) -> None:
        """End a turn, as `record` does."""
        async with self.database.begin() as tx:
            await self.credits.post(tx, claim.turn_id)
            await self.outbox.put(tx, claim, render_text(claim.envelope, answer, self.channels))
            await self.inbox.finish(tx, claim)

    async def answer(self, answer: str, chat: str = "42") -> Claim:
        """A whole turn."""
        claim = await self.hear(chat=chat)
        await self.end(claim, answer)
        await self.outbox_delivery.deliver(claim.conversation_id)
        return claim

    async def time_passes(self) -> None:
        """Whatever waits is due now, and whoever was at it has died."""
        async with self.database.begin() as tx:
            await connection_of(tx).execute(
                "update outbox set not_before = least(not_before, now()), touched_at = touched_at - interval '2 min' "
                "where state in ('pending', 'attempting')"
            )

    async def sweep(self) -> list[UUID]:
        """Deliver what is due, as a worker's sweep has it done."""
        async with self.database.begin() as tx:
            stranded = list(await self.outbox.stranded_conversations(tx, 10))
        for conversation_id in stranded:
            await self.outbox_delivery.deliver(conversation_id)
        return stranded

    async def rows(self, query: str, *values: Any) -> list[Any]:
        async with self.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode(), values)).fetchall()

    async def events(self, claim: Claim) -> list[tuple[str, dict[str, Any]]]:
        async with self.database.begin() as tx:
            return [(event.type, dict(event.facts)) for event in await self.journal.read(tx, claim.turn_id)]

    async def available(self, claim: Claim) -> int:
        async with self.database.begin() as tx:
            assert await self.credits.audit(tx) == []
            return (await self.credits.balance(tx, claim.user_id)).available

    def sends(self) -> dict[str, float]:
        """How many tries ended how."""
        found = [sample for family in self.metrics.registry.collect() for sample in family.samples]
        return {sample.labels["outcome"]: sample.value for sample in found if sample.name == "hermes_sends_total"}


@asynccontextmanager
async def open_house(database_url: str, master_key: str, url: str, **options: Any) -> AsyncIterator[House]:
    async with open_database(database_url, pool_min=1, pool_max=8) as database, open_platform_client() as post:
        yield House(database, Keyring(MasterKeys.parse([master_key])), post, url, **options)


async def die_after_sending(database_url: str, master_key: str, conversation: str, url: str) -> None:
    async with open_house(database_url, master_key, url) as house:

        async def send_and_die(parcel: OutboxMessage) -> DeliveryResult:
            await house.dispatch.send(parcel)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("still alive")

        await replace(house.outbox_delivery, send=send_and_die).deliver(UUID(conversation))


if __name__ == "__main__":
    asyncio.run(die_after_sending(*sys.argv[1:]))
