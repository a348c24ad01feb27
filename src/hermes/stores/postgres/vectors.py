"""How the vector of a fact is stored: sealed with the user's key, or plain for PostgreSQL to compare.

A vector tells what its text is about; programs exist that guess the text from it. A sealed one is compared here: for each message that
recalls something, all vectors of its user are opened. Rows of both kinds may stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from hermes.ports.errors import DataDamaged
from hermes.ports.memories import Embedding
from hermes.stores.seal import DataKeys, SealError

NO_VECTOR = {"vector": None, "model": None, "dimension": None, "sealed_vector": None, "sealed_model": None}
ID_BYTES = 16
NUMBER = np.dtype("<f4")
Vectors = NDArray[np.float32]


class StoredVector(NamedTuple):
    """The vector of a fact as a row has it."""

    id: UUID
    user_id: UUID
    vector: str | None
    model: str | None
    sealed_vector: bytes | None
    sealed_model: str | None


def vector_label(user_id: UUID) -> str:
    return f"memory/{user_id}/vectors"


def vector_columns(embedding: Embedding | None, keys: DataKeys | None, user_id: UUID, fact_id: UUID) -> dict[str, Any]:
    """The columns of a fact's vector: sealed with these keys, or plain without keys."""
    if embedding is None:
        return NO_VECTOR
    if keys is None:
        return {**NO_VECTOR, "vector": vector_text(embedding.vector), "model": embedding.model, "dimension": len(embedding.vector)}
    plain = fact_id.bytes + np.array(embedding.vector, NUMBER).tobytes()
    return {**NO_VECTOR, "sealed_vector": keys.seal(vector_label(user_id), plain), "sealed_model": embedding.model}


def open_vectors(keys: DataKeys, user_id: UUID, rows: Sequence[tuple[UUID, bytes]]) -> Vectors:
    """The vectors of rows, one a line. Raises DataDamaged, also for one that was moved from another row or has another length."""
    try:
        plain = keys.open_all(vector_label(user_id), [sealed for _, sealed in rows])
    except SealError as error:
        raise DataDamaged from error
    if any(each[:ID_BYTES] != row_id.bytes or len(each) != len(plain[0]) for each, (row_id, _) in zip(plain, rows, strict=True)):
        raise DataDamaged
    return np.frombuffer(b"".join(each[ID_BYTES:] for each in plain), NUMBER).reshape(len(plain), -1)


def cosines(asked: Sequence[float], vectors: Vectors) -> list[float]:
    """The cosines of vectors of length one to another. Raises DataDamaged for vectors of another length."""
    if vectors.shape[1] != len(asked):
        raise DataDamaged
    found: list[float] = (vectors @ np.array(asked, NUMBER)).tolist()
    return found


def stored_embedding(row: StoredVector, keys: DataKeys) -> Embedding | None:
    """The vector of a row, stored in either way. Raises DataDamaged."""
    if row.sealed_vector is not None and row.sealed_model is not None:
        return Embedding(row.sealed_model, open_vectors(keys, row.user_id, [(row.id, row.sealed_vector)])[0].tolist())
    if row.vector is None or row.model is None:
        return None
    return Embedding(row.model, [float(number) for number in row.vector.strip("[]").split(",")])


def vector_text(vector: Sequence[float]) -> str:
    return f"[{','.join(map(repr, vector))}]"
