"""Accounts at platforms, on PostgreSQL: each with its sealed credentials."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from hermes.event_log import get_logger
from hermes.ports.channels import ChannelAccount
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import SealError
from hermes.turn import Platform

log = get_logger(__name__)

CHANNEL_ACCOUNTS = load_queries("channel_accounts")


class PostgresChannelAccounts:
    """Accounts at platforms. Each has a data key of its own, wrapped by a master key; it seals the account's credentials.

    Fails closed; running processes send and receive with what they read last."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def put(self, tx: Transaction, account: ChannelAccount) -> bool:
        """Store an account, in place of the one of that platform and name; return whether there was none."""
        place = {"platform": account.platform, "account": account.account}
        await execute(tx, CHANNEL_ACCOUNTS["add_account"], place)
        known: UUID | None = await fetch_value(tx, CHANNEL_ACCOUNTS["known"], place)
        id_ = known or account.id
        if known is None:
            await self._keyring.make(tx, id_)
        sealed = (await self._keyring.of(tx, id_)).seal(seal_label(id_), json.dumps(dict(account.about)).encode())
        await execute(tx, CHANNEL_ACCOUNTS["put"], {**place, "id": id_, "is_polled": account.is_polled, "about": sealed})
        return known is None

    async def get(self, tx: Transaction, platform: Platform, account: str) -> ChannelAccount:
        """Return an account; raise NotFound."""
        row = await fetch_row(tx, SealedAccount, CHANNEL_ACCOUNTS["get"], {"platform": platform, "account": account})
        if row is None:
            raise NotFound(f"there is no {platform} account {account}")
        return await self._read(tx, row)

    async def list(self, tx: Transaction) -> Sequence[ChannelAccount]:
        """Return all accounts, by platform and name. An account whose key is missing is left out, and logged."""
        found = []
        for row in await fetch_rows(tx, SealedAccount, CHANNEL_ACCOUNTS["list"]):
            try:
                found.append(await self._read(tx, row))
            except (SealError, UserErased) as error:
                log.warning("channel_account_unreadable", platform=row.platform, account=row.account, error=type(error).__name__)
        return found

    async def mark(self, tx: Transaction) -> str:
        """Return a text that is different after every change, so that a process knows when to read the accounts again."""
        return str(await fetch_value(tx, CHANNEL_ACCOUNTS["mark"]))

    async def remove(self, tx: Transaction, platform: Platform, account: str) -> bool:
        """Delete an account and its credentials; False if there was none. Conversations stay."""
        removed: UUID | None = await fetch_value(tx, CHANNEL_ACCOUNTS["remove"], {"platform": platform, "account": account})
        if removed is not None:
            await self._keyring.discard(tx, removed)
        return removed is not None

    async def _read(self, tx: Transaction, row: SealedAccount) -> ChannelAccount:
        about = json.loads((await self._keyring.of(tx, row.id)).open(seal_label(row.id), row.about))
        return ChannelAccount(platform=Platform(row.platform), account=row.account, about=about, is_polled=row.is_polled, id=row.id)


class SealedAccount(NamedTuple):
    """A channel account as it is stored."""

    id: UUID
    platform: str
    account: str
    is_polled: bool
    about: bytes


def seal_label(id_: UUID) -> str:
    return f"channel_accounts/{id_}"
