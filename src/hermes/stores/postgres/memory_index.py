"""What recall compares, of one user, opened: vectors and keyed words of the facts that hold. Held in memory for some minutes.

Opening the vectors of a user with thousands of facts takes longer than all the rest of a recall. Every recall asks the database for the
version of the user's facts, and a held index of another version is dropped. So no fact is found that was forgotten, and none of a user who
was erased. Knows no text of a fact, and no SQL."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from hermes.ports.errors import DataDamaged
from hermes.ports.memories import Embedding, KnownFacts, RecallCandidate
from hermes.stores.postgres.vectors import NUMBER, Vectors, open_vectors, read_plain_vectors
from hermes.stores.seal import DataKeys

MAX_HELD_BYTES = 32 * 1024 * 1024
"""All held indexes of a process together: a fact with 384 numbers takes 1.7 kB, so four users of 5,000 facts or a thousand of 20."""
HELD_S = 300.0
"""How long an index is held after its last use."""


class IndexRow(NamedTuple):
    """A free fact that holds, as the database has it. Without an id: the user has none, or the held index is the newest."""

    version: UUID
    id: UUID | None
    expires_at: datetime | None
    vector: bytes | None
    sealed_vector: bytes | None
    terms: bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class MemoryIndex:
    """The free facts of a user that hold or expire later, newest first; with the vectors of one model."""

    version: UUID
    model: str | None
    """Whose vectors these are; None: no vector was read."""
    ids: list[UUID]
    expires_at_s: NDArray[np.float64]
    embedded: NDArray[np.intp]
    """The places of the facts that have a vector."""
    vectors: Vectors
    """Of length one, in the order of `embedded`."""
    terms: NDArray[np.int64]
    """The words of all facts, one fact after the other."""
    ends: NDArray[np.intp]
    """Where the words of each fact end."""

    @property
    def size(self) -> int:
        """Bytes, nearly."""
        return self.vectors.nbytes + self.terms.nbytes + 160 * len(self.ids)

    def near(
        self, asked: Embedding | None, words: Sequence[int], now: datetime, limit: int | None
    ) -> tuple[list[RecallCandidate], KnownFacts]:
        """The facts that hold and share a word with the question or are among the `limit` nearest, the nearest first; and how many there
        are. Without a limit: all. Raises DataDamaged for vectors of another length."""
        holds = self.expires_at_s > now.timestamp()
        cosines = np.full(len(self.ids), np.nan)
        if asked is not None and len(self.embedded):
            cosines[self.embedded] = self._cosines(asked)
        order = np.argsort(-cosines, kind="stable")  # NaN comes last
        order = order[holds[order]]
        if limit is not None:
            is_chosen = self._sharing(words)
            is_chosen[order[:limit]] = True
            chosen = order[is_chosen[order]]
        else:
            chosen = order
        counts = np.diff(self.ends, prepend=0)
        return list(self._candidates(chosen, cosines)), KnownFacts(int(holds.sum()), int(counts[holds].sum()))

    def _cosines(self, asked: Embedding) -> Vectors:
        vector = np.array(asked.vector, NUMBER)
        if len(vector) != self.vectors.shape[1]:
            raise DataDamaged
        # In one thread: `@` starts one for each core, and these wait in a loop. On two busy cores that took 8 ms instead of 1.
        found: Vectors = np.einsum("ij,j->i", self.vectors, vector)
        return found

    def _sharing(self, words: Sequence[int]) -> NDArray[np.bool_]:
        """Which facts have one of these words."""
        sharing = np.zeros(len(self.ids), np.bool_)
        places = np.flatnonzero(np.isin(self.terms, np.array(words, np.int64)))
        sharing[np.searchsorted(self.ends, places, side="right")] = True
        return sharing

    def _candidates(self, places: NDArray[np.intp], cosines: NDArray[np.float64]) -> Iterator[RecallCandidate]:
        for place, cosine in zip(places.tolist(), cosines[places].tolist(), strict=True):
            words = self.terms[self.ends[place - 1] if place else 0 : self.ends[place]]
            yield RecallCandidate(self.ids[place], None if math.isnan(cosine) else cosine, array("q", words.tobytes()))


async def build_index(version: UUID, model: str | None, pages: Sequence[Sequence[IndexRow]], keys: DataKeys, user_id: UUID) -> MemoryIndex:
    """Open the rows, newest first; one without an id is no fact. After each page other tasks get a turn. Raises DataDamaged."""
    ids: list[UUID] = []
    expires_at_s: list[float] = []
    ends: list[int] = []
    words: list[bytes] = []
    embedded: list[int] = []
    vectors: list[Vectors] = []
    end = 0
    for rows in pages:
        sealed, plain = list[tuple[UUID, bytes]](), list[bytes]()
        places_sealed, places_plain = list[int](), list[int]()
        for row in rows:
            if row.id is None:
                continue
            if row.sealed_vector is not None:
                sealed.append((row.id, row.sealed_vector))
                places_sealed.append(len(ids))
            elif row.vector is not None:
                plain.append(row.vector)
                places_plain.append(len(ids))
            ids.append(row.id)
            expires_at_s.append(math.inf if row.expires_at is None else row.expires_at.timestamp())
            terms = row.terms or b""
            words.append(terms)
            end += len(terms) // 8
            ends.append(end)
        if sealed:
            vectors.append(open_vectors(keys, user_id, sealed))
        if plain:
            vectors.append(read_plain_vectors(plain))
        embedded += places_sealed + places_plain
        await asyncio.sleep(0)
    if len({each.shape[1] for each in vectors}) > 1:
        raise DataDamaged
    return MemoryIndex(
        version,
        model,
        ids,
        np.array(expires_at_s, np.float64),
        np.array(embedded, np.intp),
        np.concatenate(vectors) if vectors else np.empty((0, 0), NUMBER),
        np.frombuffer(b"".join(words), np.int64),
        np.array(ends, np.intp),
    )


class HeldIndexes:
    """The indexes that were used last, within bounds of memory and time."""

    def __init__(self, *, max_bytes: int = MAX_HELD_BYTES, held_s: float = HELD_S) -> None:
        self._max_bytes, self._held_s = max_bytes, held_s
        self._held: OrderedDict[UUID, tuple[float, MemoryIndex]] = OrderedDict()
        self._bytes = 0
        self._sweep: asyncio.TimerHandle | None = None

    def get(self, user_id: UUID, model: str | None) -> MemoryIndex | None:
        """The held index of a user, if it has the vectors of this model. The caller checks its version."""
        held = self._held.get(user_id)
        return held[1] if held is not None and model in {None, held[1].model} else None

    def keep(self, user_id: UUID, index: MemoryIndex) -> None:
        """Hold an index that was just used or read."""
        self.drop(user_id)
        if index.size > self._max_bytes:
            return
        loop = asyncio.get_running_loop()
        self._held[user_id] = (loop.time(), index)
        self._bytes += index.size
        while self._bytes > self._max_bytes:
            self.drop(next(iter(self._held)))
        if self._sweep is None:
            self._sweep = loop.call_later(self._held_s, self._drop_old, loop)

    def drop(self, user_id: UUID) -> None:
        held = self._held.pop(user_id, None)
        if held is not None:
            self._bytes -= held[1].size

    def _drop_old(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drop what was not used for `held_s`, and look again when the next one is due: nothing else does in a process without messages."""
        self._sweep = None
        while self._held:
            used_at, _ = next(iter(self._held.values()))
            if loop.time() - used_at < self._held_s:
                self._sweep = loop.call_at(used_at + self._held_s, self._drop_old, loop)
                return
            self.drop(next(iter(self._held)))
