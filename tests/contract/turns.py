"""What the tests of turns share: a message that was accepted, and the claim on it."""

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from hermes.ports.inbox import Claim, Inbox
from hermes.ports.runtime import Transactions
from hermes.ports.users import Users, UserState
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.users import PostgresUsers
from hermes.turn import Envelope, MessageEvent, Platform

on_postgres = pytest.mark.parametrize("adapter", ["postgres"])
"""Marks a test of what only PostgreSQL does: its rows, its seals, its locks and rollbacks."""


@dataclass
class Turns:
    """Makes turns on one adapter."""

    transactions: Transactions
    people: Users
    inbox: Inbox

    async def accept(self, text: str = "hello", *, channel: str = "c1", traceparent: str | None = None) -> UUID:
        """Accept a message and return its turn."""
        event = MessageEvent(platform=Platform.REST, sender_id=channel, text=text)
        envelope = Envelope(event=event, account="shop", channel_id=channel, event_key=str(uuid4()))
        async with self.transactions.begin() as tx:
            await self.people.find_or_create(tx, "shop", Platform.REST, channel, state=UserState.ACTIVE)
            accepted = await self.inbox.accept(tx, envelope, uuid4(), traceparent=traceparent)
        assert accepted is not None
        return accepted.turn_id

    async def claim(self, turn_id: UUID) -> Claim:
        """Claim a turn that waits."""
        async with self.transactions.begin() as tx:
            claim = await self.inbox.claim(tx, turn_id)
        assert isinstance(claim, Claim)
        return claim

    async def new_claim(self, text: str = "hello", *, channel: str = "c1") -> Claim:
        """Accept a message and claim it."""
        return await self.claim(await self.accept(text, channel=channel))


def stored_turns(database: Database, keyring: Keyring) -> Turns:
    return Turns(database, PostgresUsers(keyring), PostgresInbox(keyring))


async def new_turn(database: Database, keyring: Keyring, text: str = "hello", *, channel: str = "c1") -> UUID:
    """Accept a message on PostgreSQL and return its turn."""
    return await stored_turns(database, keyring).accept(text, channel=channel)


async def claim_turn(database: Database, keyring: Keyring, turn_id: UUID) -> Claim:
    """Claim a turn that waits on PostgreSQL."""
    return await stored_turns(database, keyring).claim(turn_id)


async def new_claim(database: Database, keyring: Keyring, text: str = "hello", *, channel: str = "c1") -> Claim:
    """Accept a message on PostgreSQL and claim it."""
    return await stored_turns(database, keyring).new_claim(text, channel=channel)
