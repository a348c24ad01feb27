"""Accepting the messages that come at the same time together: one statement and one commit for all of them.

A message that comes alone waits for no other. While a batch is under way, the next one gathers. A batch waits for no lock: a message
comes back as `busy` if another transaction holds its sender or its conversation, and its caller stores it by itself. If a batch fails, its
messages are stored one by one: one that cannot be stored harms no other.

Knows nothing about keys and envelopes: the caller has sealed them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from hermes.ports.inbox import AcceptedMessage
from hermes.ports.runtime import Transaction
from hermes.ports.users import UserChannel
from hermes.stores.postgres.database import Database, fetch_rows
from hermes.stores.postgres.keyring import StoredKey
from hermes.stores.postgres.packed_arrays import bytea_array
from hermes.stores.postgres.queries import load_queries
from hermes.stores.postgres.statement_batch import StatementBatch

SQL = load_queries("inbox")

MessageValues = Mapping[str, Any]
"""A message as `accept_message` takes it: the values of the statement `accept` in inbox.sql."""


class AcceptOutcome(NamedTuple):
    """What `accept_message` returned: its outcome, the message if there is one, and how many waited if it counted them."""

    outcome: str
    accepted: AcceptedMessage | None = None
    waiting: tuple[int, int] | None = None


UNKNOWN = AcceptOutcome("unknown")


class AcceptBatch:
    """Looks up senders and stores their messages, each in a batch with those that come at the same time."""

    def __init__(self, database: Database) -> None:
        self._senders: StatementBatch[UserChannel, list[StoredKey]] = StatementBatch(database, find_sender_keys)
        self._messages: StatementBatch[MessageValues, AcceptOutcome] = StatementBatch(database, accept_messages)

    async def sender_keys(self, sender: UserChannel) -> list[StoredKey]:
        """The rows of data_keys of the user who is this sender; none without such a user. Raises StoreUnavailable."""
        return await self._senders.run(sender)

    async def accept(self, message: MessageValues) -> AcceptOutcome:
        """Store a message, committed when this returns. Raises StoreUnavailable, and what PostgreSQL says of values that it cannot store.

        If the connection is lost, the batch may be committed all the same. The message is then stored again: the event key finds the first
        one, and `turn_id` tells that it is this message and no earlier one."""
        found = await self._messages.run(message, order=(message["account"], message["channel_id"]))
        accepted = found.accepted
        if accepted is not None and not accepted.is_new and accepted.turn_id == message["turn_id"]:
            return found._replace(outcome="new", accepted=AcceptedMessage(*place_of(accepted), is_new=True))
        return found


def place_of(accepted: AcceptedMessage) -> tuple[UUID, UUID, UUID, int]:
    return accepted.turn_id, accepted.conversation_id, accepted.user_id, accepted.seq


async def accept_messages(tx: Transaction, messages: Sequence[MessageValues]) -> list[AcceptOutcome]:
    """Store messages in one statement, in their order, without waiting for a lock."""
    if len(messages) == 1:
        return await fetch_rows(tx, read_accepted, SQL["accept"], {**messages[0], "waits": False})
    rows = [{name: value for name, value in message.items() if name != "envelope"} for message in messages]
    envelopes = bytea_array([message["envelope"] for message in messages])
    values = {"messages": json.dumps(rows, default=str, separators=(",", ":")), "envelopes": envelopes}
    return await fetch_rows(tx, read_accepted, SQL["accept_together"], values)


async def find_sender_keys(tx: Transaction, senders: Sequence[UserChannel]) -> list[list[StoredKey]]:
    found: list[list[StoredKey]] = [[] for _ in senders]
    accounts, platforms, ids = zip(*((sender.account, sender.platform.value, sender.sender_id) for sender in senders), strict=True)
    values = {"accounts": list(accounts), "platforms": list(platforms), "senders": list(ids)}

    def add(*, place: int, **columns: Any) -> None:
        found[place - 1].append(StoredKey(**columns))

    await fetch_rows(tx, add, SQL["keys_of_senders"], values)
    return found


def read_accepted(
    *, outcome: str, turn_id: UUID | None, conversation_id: UUID, user_id: UUID, seq: int, waiting: int | None, waiting_at: int
) -> AcceptOutcome:
    counted = None if waiting is None else (waiting, waiting_at)
    if outcome not in ("new", "known") or turn_id is None:
        return AcceptOutcome(outcome, waiting=counted)
    return AcceptOutcome(outcome, AcceptedMessage(turn_id, conversation_id, user_id, seq, is_new=outcome == "new"), counted)
