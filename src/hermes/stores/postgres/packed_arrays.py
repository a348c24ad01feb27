"""Arrays as PostgreSQL takes them in binary, for statements that write many rows.

psycopg looks at each value of a list to find its type, which costs more than the rest of the statement. Here the caller knows the type."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from uuid import UUID

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

HEAD = Struct(">iiIii")
"""The number of dimensions, whether there are nulls, the type of the elements, how many they are, and the number of the first one."""
EMPTY = Struct(">iiI")
LENGTH, INTEGER, BIGINT = Struct(">i"), Struct(">ii"), Struct(">iq")
BYTEA, INT8, INT4, UUIDS = 17, 20, 23, 2950
"""The types of the elements, by their numbers in PostgreSQL."""
NULL = LENGTH.pack(-1)


class ByteaArray(bytes):
    """A packed `bytea[]`."""


class IntegerArray(bytes):
    """A packed `integer[]`."""


class BigintArray(bytes):
    """A packed `bigint[]`."""


class UuidArray(bytes):
    """A packed `uuid[]`."""


def bytea_array(values: Sequence[bytes | None]) -> ByteaArray:
    pieces = [head_of(BYTEA, len(values))]
    for value in values:
        if value is None:
            pieces.append(NULL)
        else:
            pieces += (LENGTH.pack(len(value)), value)
    return ByteaArray(b"".join(pieces))


def integer_array(values: Sequence[int]) -> IntegerArray:
    return IntegerArray(b"".join([head_of(INT4, len(values)), *(INTEGER.pack(4, value) for value in values)]))


def bigint_array(values: Sequence[int]) -> BigintArray:
    return BigintArray(b"".join([head_of(INT8, len(values)), *(BIGINT.pack(8, value) for value in values)]))


def uuid_array(values: Sequence[UUID]) -> UuidArray:
    size = LENGTH.pack(16)
    return UuidArray(b"".join([head_of(UUIDS, len(values)), *(size + value.bytes for value in values)]))


def head_of(kind: int, count: int) -> bytes:
    return HEAD.pack(1, 1 if kind == BYTEA else 0, kind, count, 1) if count else EMPTY.pack(0, 0, kind)


class PackedDumper(Dumper):
    """Passes packed arrays on as they are."""

    format = Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


def register_packed_arrays(adapters: AdaptersMap) -> None:
    """Make a connection take packed arrays."""
    for kind, oid in ((ByteaArray, 1001), (IntegerArray, 1007), (BigintArray, 1016), (UuidArray, 2951)):
        adapters.register_dumper(kind, type(f"{kind.__name__}Dumper", (PackedDumper,), {"oid": oid}))
