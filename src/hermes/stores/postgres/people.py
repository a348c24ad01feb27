"""Users and their channels on PostgreSQL."""

from __future__ import annotations

import secrets
from typing import Any
from uuid import UUID

from hermes.ports.errors import Forgotten, NotThere
from hermes.ports.people import User, UserState
from hermes.ports.transactions import Transaction
from hermes.stores.postgres.database import on
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load
from hermes.turn import Platform

SQL = load("people")


class PostgresPeople:
    """The port People. Newcomers are met under a lock of their own address, so that two first messages make one user."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def meet(self, tx: Transaction, account: str, platform: Platform, sender_id: str, *, state: UserState) -> tuple[User, bool]:
        address = {"account": account, "platform": platform, "sender_id": sender_id}
        known = await self._find(tx, address)
        if known is not None:
            return known, False
        await on(tx).execute(SQL["lock_newcomer"], {"newcomer": f"{platform}/{account}/{sender_id}"})
        known = await self._find(tx, address)
        if known is not None:
            return known, False
        await on(tx).execute(SQL["add_account"], address)
        row = await (await on(tx).execute(SQL["add_user"], {"state": state, "referral_code": secrets.token_hex(5)})).fetchone()
        user = as_user(row)
        await self._keyring.make(tx, user.id)
        await on(tx).execute(SQL["add_channel"], {**address, "user_id": user.id})
        return user, True

    async def get(self, tx: Transaction, user_id: UUID) -> User:
        row = await (await on(tx).execute(SQL["get"], {"user_id": user_id})).fetchone()
        if row is None:
            raise NotThere(f"there is no user {user_id}")
        return as_user(row)

    async def activate(self, tx: Transaction, user_id: UUID) -> None:
        await self._change(tx, "activate", {"user_id": user_id})

    async def allow_training(self, tx: Transaction, user_id: UUID, *, trains: bool) -> None:
        await self._change(tx, "allow_training", {"user_id": user_id, "trains": trains})

    async def forget(self, tx: Transaction, user_id: UUID) -> None:
        await self.get(tx, user_id)
        await self._keyring.discard(tx, user_id)
        # Conversations before what lies below them, as everywhere.
        for query in ("forget", "forget_channels", "forget_conversations", "forget_event_keys", "forget_addresses", "forget_memory"):
            await on(tx).execute(SQL[query], {"user_id": user_id})

    async def _find(self, tx: Transaction, address: dict[str, str]) -> User | None:
        row = await (await on(tx).execute(SQL["find_by_channel"], address)).fetchone()
        return None if row is None else as_user(row)

    async def _change(self, tx: Transaction, query: str, values: dict[str, Any]) -> None:
        if await (await on(tx).execute(SQL[query], values)).fetchone() is None:
            await self.get(tx, values["user_id"])
            raise Forgotten


def as_user(row: Any) -> User:
    """Read a row of the user columns, in the order in which every query here selects them."""
    user_id, state, tier, language, referral_code, trains = row
    return User(user_id, UserState(state), tier, language, referral_code, trains)
