"""How the vector of a fact is stored: sealed with the user's key, or plain readable in the database.

A vector tells what its text is about; programs exist that guess the text from it. Rows of both kinds may stand side by side; both are
compared in the process that recalls (memory_index.py)."""

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
PLAIN_NUMBER = np.dtype(">f4")
PLAIN_HEAD_BYTES = 4
"""The dimension, before pgvector's numbers."""
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


def read_plain_vectors(rows: Sequence[bytes]) -> Vectors:
    """The plain vectors of rows as pgvector sends them, one a line, of length one. Raises DataDamaged if their lengths differ."""
    if any(len(each) != len(rows[0]) for each in rows):
        raise DataDamaged
    vectors = np.frombuffer(b"".join(each[PLAIN_HEAD_BYTES:] for each in rows), PLAIN_NUMBER).reshape(len(rows), -1).astype(NUMBER)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit


def stored_embedding(row: StoredVector, keys: DataKeys) -> Embedding | None:
    """The vector of a row, stored in either way. Raises DataDamaged."""
    if row.sealed_vector is not None and row.sealed_model is not None:
        return Embedding(row.sealed_model, open_vectors(keys, row.user_id, [(row.id, row.sealed_vector)])[0].tolist())
    if row.vector is None or row.model is None:
        return None
    return Embedding(row.model, [float(number) for number in row.vector.strip("[]").split(",")])


def vector_text(vector: Sequence[float]) -> str:
    return f"[{','.join(map(repr, vector))}]"
