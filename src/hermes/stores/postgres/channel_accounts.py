"""Channel accounts on PostgreSQL. Each has a data key of its own, wrapped by a master key; it seals the account's tokens and secrets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import structlog

from hermes.ports.channels import ChannelAccount
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import SealError
from hermes.turn import Platform

log = structlog.get_logger()

SQL = load_queries("channel_accounts")


class PostgresChannelAccounts:
    """The port ChannelAccounts."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def put(self, tx: Transaction, account: ChannelAccount) -> bool:
        place = {"platform": account.platform, "account": account.account}
        await connection_of(tx).execute(SQL["add_account"], place)
        known = await (await connection_of(tx).execute(SQL["known"], place)).fetchone()
        id_ = known[0] if known else account.id
        if known is None:
            await self._keyring.make(tx, id_)
        sealed = (await self._keyring.of(tx, id_)).seal(seal_label(id_), json.dumps(dict(account.about)).encode())
        await connection_of(tx).execute(SQL["put"], {**place, "id": id_, "is_polled": account.is_polled, "about": sealed})
        return known is None

    async def get(self, tx: Transaction, platform: Platform, account: str) -> ChannelAccount:
        row = await (await connection_of(tx).execute(SQL["get"], {"platform": platform, "account": account})).fetchone()
        if row is None:
            raise NotFound(f"there is no {platform} account {account}")
        return await self._read(tx, row)

    async def list(self, tx: Transaction) -> Sequence[ChannelAccount]:
        found = []
        for row in await (await connection_of(tx).execute(SQL["list"])).fetchall():
            try:
                found.append(await self._read(tx, row))
            except (SealError, UserErased) as error:
                log.warning("channel_account_unreadable", platform=row[1], account=row[2], error=type(error).__name__)
        return found

    async def mark(self, tx: Transaction) -> str:
        [[mark]] = await (await connection_of(tx).execute(SQL["mark"])).fetchall()
        return str(mark)

    async def remove(self, tx: Transaction, platform: Platform, account: str) -> bool:
        row = await (await connection_of(tx).execute(SQL["remove"], {"platform": platform, "account": account})).fetchone()
        if row is not None:
            await self._keyring.discard(tx, row[0])
        return row is not None

    async def _read(self, tx: Transaction, row: Any) -> ChannelAccount:
        id_, platform, account, is_polled, sealed = row
        about = json.loads((await self._keyring.of(tx, id_)).open(seal_label(id_), sealed))
        return ChannelAccount(platform=Platform(platform), account=account, about=about, is_polled=is_polled, id=id_)


def seal_label(id_: Any) -> str:
    return f"channel_accounts/{id_}"
