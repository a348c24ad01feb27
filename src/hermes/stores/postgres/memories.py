"""Facts, dreams and past messages on PostgreSQL.

Values are sealed. Recall compares facts without opening their texts: keyed digests stand for words, and vectors are sealed too, unless the
operator chose plain ones. What is compared is held opened for some minutes (memory_index.py). A reader of the database can neither read a
word nor test a guess, and a recall opens ten texts instead of thousands."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.rows import args_row

from hermes.event_log import get_logger
from hermes.ports.errors import DataDamaged, UserErased
from hermes.ports.memories import (
    Dream,
    DreamDepth,
    DreamKind,
    DreamReview,
    Embedding,
    Fact,
    FactChange,
    FactOrigin,
    ForgetMark,
    KnownFacts,
    NewFact,
    PastMessage,
    RecallCandidates,
    UnembeddedFact,
)
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_rows, fetch_value, fetch_values, take_connection
from hermes.stores.postgres.inbox import decode_envelope
from hermes.stores.postgres.inbox import seal_label as inbox_label
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.memory_index import HeldIndexes, IndexRow, MemoryIndex, build_index
from hermes.stores.postgres.queries import load_queries
from hermes.stores.postgres.vectors import StoredVector, stored_embedding, vector_columns
from hermes.stores.seal import DataKeys, SealError

log = get_logger(__name__)

SQL = load_queries("memories")
TERM_BYTES = 8
FIRST_ID = UUID(int=0)
ROWS_PER_FETCH = 500
"""Rows that are read before other tasks of the event loop get a turn."""


class PostgresMemories:
    """The port Memories."""

    def __init__(self, keyring: Keyring, *, seals_vectors: bool = True) -> None:
        self._keyring, self._seals_vectors = keyring, seals_vectors
        self._held = HeldIndexes()
        keyring.when_discarded(self._held.drop)

    async def lock(self, tx: Transaction, user_id: UUID) -> None:
        await execute(tx, SQL["lock"], {"user_id": str(user_id)})

    async def has_free(self, tx: Transaction, user_id: UUID) -> bool:
        return bool(await fetch_value(tx, SQL["has_free"], {"user_id": user_id}))

    async def structural(self, tx: Transaction, user_id: UUID, *, now: datetime) -> Sequence[Fact]:
        return await self._facts(tx, "structural", user_id, {"now": now})

    async def live(self, tx: Transaction, user_id: UUID, *, now: datetime) -> Sequence[Fact]:
        return await self._facts(tx, "live", user_id, {"now": now})

    async def all(self, tx: Transaction, user_id: UUID) -> Sequence[Fact]:
        return await self._facts(tx, "all", user_id, {})

    async def candidates(
        self, tx: Transaction, user_id: UUID, embedding: Embedding | None, terms: Sequence[str], *, now: datetime
    ) -> RecallCandidates:
        asked = await self.digests(tx, user_id, terms)
        index = await self._index(tx, user_id, embedding)
        return RecallCandidates(asked, [] if index is None else index.near(embedding, asked, now, None)[0])

    async def near(
        self, tx: Transaction, user_id: UUID, embedding: Embedding | None, terms: Sequence[str], *, now: datetime, limit: int
    ) -> RecallCandidates:
        asked = await self.digests(tx, user_id, terms)
        index = await self._index(tx, user_id, embedding)
        return RecallCandidates(asked, *(([], KnownFacts(0, 0)) if index is None else index.near(embedding, asked, now, limit)))

    async def _index(self, tx: Transaction, user_id: UUID, embedding: Embedding | None) -> MemoryIndex | None:
        """The user's facts, opened: held ones if their version is still the newest, which the statement asks that would read them anew."""
        keys, model = await self._keyring.of(tx, user_id), None if embedding is None else embedding.model
        held = self._held.get(user_id, model)
        cursor = (await take_connection(tx)).cursor(binary=True, row_factory=args_row(IndexRow))
        values = {"user_id": user_id, "held": None if held is None else held.version, "model": model}
        await cursor.execute(SQL["index"], values)
        pages: list[list[IndexRow]] = []
        while rows := await cursor.fetchmany(ROWS_PER_FETCH):
            pages.append(rows)
            await asyncio.sleep(0)  # reading thousands of rows takes a while, and other tasks wait
        if not pages:
            self._held.drop(user_id)
            return None
        version = pages[0][0].version
        if held is None or version != held.version:
            held = await build_index(version, model, pages, keys, user_id)
        if self._keyring.known(user_id) is keys:  # else the user was erased meanwhile, and nothing of theirs is held
            self._held.keep(user_id, held)
        return held

    async def read(self, tx: Transaction, user_id: UUID, fact_ids: Sequence[UUID]) -> Sequence[Fact]:
        found = {fact.id: fact for fact in await self._facts(tx, "read", user_id, {"ids": list(fact_ids)})}
        return [found[fact_id] for fact_id in fact_ids if fact_id in found]

    async def change(self, tx: Transaction, user_id: UUID, changes: Sequence[FactChange], *, now: datetime) -> Sequence[Fact]:
        keys = await self._keyring.of(tx, user_id)
        await execute(tx, SQL["expire"], {"user_id": user_id, "now": now})
        added = []
        for change in changes:
            old = {"user_id": user_id, "ids": list(change.supersedes), "now": now}
            if change.supersedes:
                await execute(tx, SQL["supersede"], old)
            if change.fact is None:
                continue
            row = as_row(change.fact, keys, user_id) | self._vector_columns(change.fact, keys, user_id)
            if not await execute(tx, SQL["add"], {**row, "now": now}):
                continue
            if change.supersedes:
                await execute(tx, SQL["succeed"], {**old, "id": change.fact.id})
            added.append(added_fact(change.fact, now))
        return added

    async def share(self, tx: Transaction, user_id: UUID, turn_id: UUID, fact_ids: Sequence[UUID], *, now: datetime) -> Sequence[Fact]:
        found = [fact for fact in await self.live(tx, user_id, now=now) if fact.id in set(fact_ids)]
        await execute(tx, SQL["share"], {"user_id": user_id, "turn_id": turn_id, "ids": [fact.id for fact in found]})
        return found

    async def unshare(self, tx: Transaction, user_id: UUID, turn_id: UUID, fact_ids: Sequence[UUID]) -> None:
        await execute(tx, SQL["unshare"], {"user_id": user_id, "turn_id": turn_id, "ids": list(fact_ids)})

    async def shared(self, tx: Transaction, user_id: UUID, conversation_id: UUID, *, now: datetime) -> Sequence[Fact]:
        return await self._facts(tx, "shared", user_id, {"conversation_id": conversation_id, "now": now})

    async def delete(self, tx: Transaction, user_id: UUID, fact_id: UUID) -> bool:
        return await execute(tx, SQL["delete"], {"user_id": user_id, "id": fact_id}) > 0

    async def learnt_in(self, tx: Transaction, user_id: UUID, account: str) -> frozenset[UUID]:
        return frozenset(await fetch_values(tx, SQL["learnt_in"], {"user_id": user_id, "account": account}))

    async def erase(self, tx: Transaction, user_id: UUID) -> int:
        return int(await fetch_value(tx, SQL["erase"], {"user_id": user_id}))

    async def mark_forgotten(
        self, tx: Transaction, user_id: UUID, turn_id: UUID | None, marks: Sequence[tuple[str | None, Sequence[str]]]
    ) -> None:
        keys = await self._keyring.of(tx, user_id)
        row = {"user_id": user_id, "turn_id": turn_id}
        await execute(tx, SQL["delete_old_marks"], row)
        for key, terms in marks:
            await execute(tx, SQL["mark"], {**row, "key": key, "terms": pack_terms(keys, user_id, terms)})

    async def forgotten_after(self, tx: Transaction, user_id: UUID, turn_id: UUID) -> Sequence[ForgetMark]:
        return await fetch_rows(tx, read_mark, SQL["marks"], {"user_id": user_id, "turn_id": turn_id})

    async def digests(self, tx: Transaction, user_id: UUID, terms: Sequence[str]) -> Sequence[int]:
        return unpack_terms(pack_terms(await self._keyring.of(tx, user_id), user_id, terms))

    async def unembedded(self, tx: Transaction, model: str, *, after: UUID | None = None, limit: int = 100) -> Sequence[UnembeddedFact]:
        last = after or FIRST_ID
        while True:
            rows = await fetch_rows(tx, FactValue, SQL["unembedded"], {"model": model, "after": last, "limit": limit})
            found = [each for row in rows if (each := await self._unembedded(tx, row)) is not None]
            # Rows that cannot be opened are skipped: a page without one readable row is not the end.
            if found or len(rows) < limit:
                return found
            last = rows[-1].id

    async def _unembedded(self, tx: Transaction, row: FactValue) -> UnembeddedFact | None:
        try:
            [text] = open_texts(await self._keyring.of(tx, row.user_id), row.user_id, [(row.id, row.value)])
        except (UserErased, DataDamaged) as error:
            log.warning("fact_not_opened", user_id=str(row.user_id), fact_id=str(row.id), error=type(error).__name__)
            return None
        return UnembeddedFact(row.user_id, row.id, text)

    async def embed(self, tx: Transaction, user_id: UUID, fact_id: UUID, embedding: Embedding) -> None:
        keys = await self._keyring.of(tx, user_id) if self._seals_vectors else None
        await execute(tx, SQL["embed"], {"user_id": user_id, "id": fact_id, **vector_columns(embedding, keys, user_id, fact_id)})

    async def convert_vectors(self, tx: Transaction, *, after: UUID | None = None, limit: int = 100) -> UUID | None:
        query = "plain_vectors" if self._seals_vectors else "sealed_vectors"
        rows = await fetch_rows(tx, StoredVector, SQL[query], {"after": after or FIRST_ID, "limit": limit})
        for row in rows:
            try:
                found = stored_embedding(row, await self._keyring.of(tx, row.user_id))
            except (UserErased, DataDamaged) as error:
                log.warning("vector_not_opened", user_id=str(row.user_id), fact_id=str(row.id), error=type(error).__name__)
                continue
            if found is not None:
                await self.embed(tx, row.user_id, row.id, found)
        return rows[-1].id if rows else None

    def _vector_columns(self, fact: NewFact, keys: DataKeys, user_id: UUID) -> dict[str, Any]:
        """A structural fact is found by its key alone, so it has no vector."""
        embedding = fact.embedding if fact.key is None else None
        return vector_columns(embedding, keys if self._seals_vectors else None, user_id, fact.id)

    async def _facts(self, tx: Transaction, query: str, user_id: UUID, values: dict[str, Any]) -> Sequence[Fact]:
        keys = await self._keyring.of(tx, user_id)
        rows: list[dict[str, Any]] = await fetch_rows(tx, dict, SQL[query], {**values, "user_id": user_id})
        texts = open_texts(keys, user_id, ((row["id"], row.pop("value")) for row in rows))
        return [read_fact(text=text, **row) for row, text in zip(rows, texts, strict=True)]


class PostgresDreams:
    """The port Dreams."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def due(self, tx: Transaction, depth: DreamDepth, period: date, *, after: UUID | None = None, limit: int = 100) -> Sequence[UUID]:
        return await fetch_values(tx, SQL["due"], {"depth": depth, "period": period, "after": after, "limit": limit})

    async def add(self, tx: Transaction, user_id: UUID, depth: DreamDepth, period: date, dreams: Sequence[Dream], *, now: datetime) -> bool:
        keys = await self._keyring.of(tx, user_id)
        night = {"user_id": user_id, "depth": depth, "period": period}
        if not await execute(tx, SQL["begin_night"], {**night, "now": now}):
            return False
        for dream in dreams:
            row = {
                "id": dream.id,
                "kind": dream.kind,
                "key": dream.key,
                "value": seal_text(keys, user_id, dream.id, dream.text),
                "evidence": list(dream.evidence),
                "review": dream.review,
                "reason": dream.reason,
            }
            await execute(tx, SQL["add_dream"], {**night, **row})
        return True

    async def newest(self, tx: Transaction, user_id: UUID, depth: DreamDepth) -> Sequence[Dream]:
        return await self._dreams(tx, "newest_dream", {"user_id": user_id, "depth": depth})

    async def all(self, tx: Transaction, user_id: UUID) -> Sequence[Dream]:
        return await self._dreams(tx, "all_dreams", {"user_id": user_id})

    async def delete(self, tx: Transaction, user_id: UUID, dream_ids: Sequence[UUID]) -> None:
        await execute(tx, SQL["delete_dreams"], {"user_id": user_id, "ids": list(dream_ids)})

    async def review(self, tx: Transaction, user_id: UUID, dream_id: UUID, review: DreamReview, *, reason: str = "") -> bool:
        row = {"user_id": user_id, "id": dream_id, "review": review, "reason": reason}
        return await execute(tx, SQL["review_dream"], row) > 0

    async def _dreams(self, tx: Transaction, query: str, values: dict[str, Any]) -> Sequence[Dream]:
        keys = await self._keyring.of(tx, values["user_id"])
        rows: list[dict[str, Any]] = await fetch_rows(tx, dict, SQL[query], values)
        texts = open_texts(keys, values["user_id"], ((row["id"], row.pop("value")) for row in rows))
        return [read_dream(text=text, **row) for row, text in zip(rows, texts, strict=True)]


class PostgresPastMessages:
    """The port PastMessages: the user's own messages, from the inbox."""

    def __init__(self, keyring: Keyring, *, idle_s: float = 43_200) -> None:
        self._keyring, self._idle_s = keyring, idle_s

    async def last(self, tx: Transaction, user_id: UUID, *, limit: int = 5) -> Sequence[PastMessage]:
        values = {"user_id": user_id, "idle_s": self._idle_s, "limit": limit}
        return list(reversed(await self._messages(tx, "past_messages", values)))

    async def recent(self, tx: Transaction, user_id: UUID, *, besides: UUID | None, limit: int = 100) -> Sequence[PastMessage]:
        return await self._messages(tx, "recent_messages", {"user_id": user_id, "besides": besides or FIRST_ID, "limit": limit})

    async def _messages(self, tx: Transaction, query: str, values: dict[str, Any]) -> list[PastMessage]:
        keys = await self._keyring.of(tx, values["user_id"])
        rows = await fetch_rows(tx, PastRow, SQL[query], values)
        try:
            texts = [decode_envelope(keys.open(inbox_label(row.turn_id), row.envelope)).event.text for row in rows]
        except SealError as error:
            raise DataDamaged from error
        return [PastMessage(text, row.received_at) for text, row in zip(texts, rows, strict=True) if text.strip()]


class FactValue(NamedTuple):
    """The sealed text of a fact."""

    id: UUID
    user_id: UUID
    value: bytes


class PastRow(NamedTuple):
    """An earlier message as the inbox has it."""

    turn_id: UUID
    envelope: bytes
    received_at: datetime


def seal_text(keys: DataKeys, user_id: UUID, row_id: UUID, text: str) -> bytes:
    """Seal a text for its row. The row's id is sealed with it, so that a value moved to another row of the same user is noticed."""
    return keys.seal(seal_label(user_id), row_id.bytes + text.encode())


def open_texts(keys: DataKeys, user_id: UUID, rows: Iterable[tuple[UUID, bytes]]) -> list[str]:
    """The texts of rows. All rows of a user have one label, so that thousands are opened in milliseconds. Raises DataDamaged."""
    listed = list(rows)
    try:
        plain = keys.open_all(seal_label(user_id), [value for _, value in listed])
    except SealError as error:
        raise DataDamaged from error
    if any(each[:16] != row_id.bytes for each, (row_id, _) in zip(plain, listed, strict=True)):
        raise DataDamaged
    return [each[16:].decode() for each in plain]


def seal_label(user_id: UUID) -> str:
    return f"memory/{user_id}"


def pack_terms(keys: DataKeys, user_id: UUID, terms: Sequence[str]) -> bytes:
    """The words of a text as keyed digests, in order; a repeated word has a digest each time."""
    digest: Callable[[str], bytes] = lambda term: keys.digest(f"{seal_label(user_id)}/terms", term.encode())[:TERM_BYTES]  # noqa: E731
    return b"".join(map(digest, terms))


def unpack_terms(terms: bytes | None) -> array[int]:
    numbers = array("q")
    numbers.frombytes(terms or b"")
    return numbers


def as_row(fact: NewFact, keys: DataKeys, user_id: UUID) -> dict[str, Any]:
    """The columns of a fact, without those of its vector. A structural fact is found by its key alone, so it has no digest and terms."""
    is_free = fact.key is None
    return {
        "id": fact.id,
        "user_id": user_id,
        "key": fact.key,
        "value": seal_text(keys, user_id, fact.id, fact.text),
        "source_turn": fact.source_turn,
        "origin": fact.origin,
        "confidence": fact.confidence,
        "expires_at": fact.expires_at,
        "digest": keys.digest(f"{seal_label(user_id)}/facts", (fact.canonical or fact.text).encode()) if is_free else None,
        "terms": pack_terms(keys, user_id, fact.terms) if is_free else None,
    }


def added_fact(fact: NewFact, now: datetime) -> Fact:
    return Fact(
        id=fact.id,
        text=fact.text,
        key=fact.key,
        origin=fact.origin,
        source_turn=fact.source_turn,
        confidence=fact.confidence,
        valid_from=now,
        expires_at=fact.expires_at,
    )


def read_mark(*, key: str | None, terms: bytes | None, is_same_turn: bool) -> ForgetMark:
    return ForgetMark(key, unpack_terms(terms), is_same_turn)


def read_fact(*, origin: str, confidence: float, **columns: Any) -> Fact:
    return Fact(origin=FactOrigin(origin), confidence=round(confidence, 6), **columns)  # confidence is stored as a float of four bytes


def read_dream(*, kind: str, evidence: Sequence[UUID], review: str, depth: str, **columns: Any) -> Dream:
    return Dream(kind=DreamKind(kind), evidence=tuple(evidence), review=DreamReview(review), depth=DreamDepth(depth), **columns)
