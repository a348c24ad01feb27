"""The outbox and the log of interactions on PostgreSQL; bodies sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.errors import Forgotten
from hermes.ports.inbox import Claim, Said
from hermes.ports.outbox import Answer, News, Parcel, ParcelState
from hermes.ports.transactions import Transaction
from hermes.stores.postgres.database import on
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load
from hermes.turn import Platform

SQL = load("outbox")


class PostgresOutbox:
    """The port Outbox. A try that has not ended after `cut_off_s` was cut off: no sender works on one parcel for that long."""

    def __init__(self, keyring: Keyring, *, cut_off_s: float = 120.0) -> None:
        self._keyring, self._cut_off_s = keyring, cut_off_s

    async def put(self, tx: Transaction, claim: Claim, parts: Sequence[str], state: ParcelState = ParcelState.PENDING) -> None:
        keys = await self._keyring.of(tx, claim.user_id)
        row: dict[str, Any] = {"turn_id": claim.turn_id, "conversation_id": claim.conversation_id, "user_id": claim.user_id}
        row |= {"seq": claim.seq, "state": state}
        for part, text in enumerate(parts):
            body = keys.seal(scope(claim.turn_id, part), text.encode())
            await on(tx).execute(SQL["put"], {**row, "part": part, "body": body})

    async def put_news(self, tx: Transaction, said: Said, name: str, text: str, state: ParcelState = ParcelState.PENDING) -> None:
        keys = await self._keyring.of(tx, said.user_id)
        row: dict[str, Any] = {"turn_id": said.turn_id, "conversation_id": said.conversation_id, "user_id": said.user_id}
        row |= {"news": name, "state": state, "body": keys.seal(scope(said.turn_id, 0, name), text.encode())}
        await on(tx).execute(SQL["hold_conversation"], row)
        await on(tx).execute(SQL["put_news"], row)

    async def take_news(self, tx: Transaction, conversation_id: UUID) -> Sequence[News]:
        rows = await (await on(tx).execute(SQL["take_news"], {"conversation_id": conversation_id})).fetchall()
        return await self._opened(tx, sorted(rows))

    async def news(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, after: int = 0, limit: int = 50
    ) -> Sequence[News]:
        wanted = {"account": account, "platform": platform, "channel_id": channel_id, "after": after, "limit": limit}
        return await self._opened(tx, await (await on(tx).execute(SQL["news"], wanted)).fetchall())

    async def _opened(self, tx: Transaction, rows: Sequence[Any]) -> list[News]:
        found = []
        for news_id, turn_id, user_id, name, body, at in rows:
            try:
                keys = await self._keyring.of(tx, user_id)
            except Forgotten:
                continue
            found.append(News(news_id, turn_id, user_id, name, keys.open(scope(turn_id, 0, name), body).decode(), at))
        return found

    async def take(self, tx: Transaction, conversation_id: UUID) -> Parcel | None:
        wanted = {"conversation_id": conversation_id, "cut_off_s": self._cut_off_s}
        row = await (await on(tx).execute(SQL["take"], wanted)).fetchone()
        if row is None:
            return None
        parcel_id, user_id, turn_id, _, seq, part, account, platform, channel_id, body, tries, is_ambiguous, news = row
        keys = await self._keyring.of(tx, user_id)
        text = keys.open(scope(turn_id, part, news), body).decode()
        where = (account, Platform(platform), channel_id)
        return Parcel(parcel_id, turn_id, conversation_id, seq, part, *where, text, tries, is_ambiguous, news)

    async def settle(self, tx: Transaction, parcel: Parcel, state: ParcelState, *, retry_in_s: float | None = None) -> None:
        await on(tx).execute(SQL["settle"], {"id": parcel.id, "tries": parcel.tries, "state": state, "retry_in_s": retry_in_s or 0.0})

    async def stranded(self, tx: Transaction, older_than_s: float) -> Sequence[UUID]:
        limits = {"older_than_s": older_than_s, "cut_off_s": self._cut_off_s}
        rows = await (await on(tx).execute(SQL["stranded"], limits)).fetchall()
        return [row[0] for row in rows]

    async def answer(self, tx: Transaction, turn_id: UUID) -> Answer | None:
        rows = await (await on(tx).execute(SQL["answer"], {"turn_id": turn_id})).fetchall()
        if not rows:
            return None
        keys = await self._keyring.of(tx, rows[0][0])
        text = "".join(keys.open(scope(turn_id, part), body).decode() for _, part, body, _ in rows)
        return Answer(turn_id, text, rows[0][3] or {})

    async def waiting(self, tx: Transaction) -> int:
        row = await (await on(tx).execute(SQL["waiting"])).fetchone()
        return int(row[0]) if row else 0


class PostgresInteractions:
    """The port Interactions."""

    async def add(self, tx: Transaction, claim: Claim, session_id: UUID, meta: Mapping[str, Any]) -> None:
        row = {"turn_id": claim.turn_id, "account": claim.envelope.account, "user_id": claim.user_id, "session_id": session_id}
        await on(tx).execute(SQL["log"], {**row, "platform": claim.envelope.event.platform, "meta": Jsonb(dict(meta))})


def scope(turn_id: UUID, part: int, news: str = "") -> str:
    return f"outbox/{turn_id}/{news}/{part}" if news else f"outbox/{turn_id}/{part}"
