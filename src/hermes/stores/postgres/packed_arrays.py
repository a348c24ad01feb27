"""Arrays as PostgreSQL takes them in binary, for statements that write many rows.

psycopg looks at each value of a list to find its type, which costs more than the rest of the statement. Here the caller knows the type."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack
from uuid import UUID

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

HEAD = Struct(">iiIii")
"""The number of dimensions, whether there are nulls, the type of the elements, how many they are, and the number of the first one."""
EMPTY = Struct(">iiI")
BYTEA, INT8, INT4, UUIDS = 17, 20, 23, 2950
"""The types of the elements, by their numbers in PostgreSQL."""
pack_length = Struct(">i").pack
NULL = pack_length(-1)
MAX_SHORT = 512
SHORT = tuple(pack_length(length) for length in range(MAX_SHORT))
"""The lengths of short values, packed: most values are short."""


class ByteaArray(bytes):
    """A packed `bytea[]`."""


class IntegerArray(bytes):
    """A packed `integer[]`."""


class BigintArray(bytes):
    """A packed `bigint[]`."""


class UuidArray(bytes):
    """A packed `uuid[]`."""


# Each element is its length and its value.


def bytea_array(values: Sequence[bytes | None]) -> ByteaArray:
    pieces = [head_of(BYTEA, len(values))]
    for value in values:
        if value is None:
            pieces.append(NULL)
        else:
            length = len(value)
            pieces += (SHORT[length] if length < MAX_SHORT else pack_length(length), value)
    return ByteaArray(b"".join(pieces))


def integer_array(values: Sequence[int]) -> IntegerArray:
    return IntegerArray(head_of(INT4, len(values)) + pack(f">{2 * len(values)}i", *with_length(4, values)))


def bigint_array(values: Sequence[int]) -> BigintArray:
    return BigintArray(head_of(INT8, len(values)) + pack(">" + "iq" * len(values), *with_length(8, values)))


def with_length(length: int, values: Sequence[int]) -> list[int]:
    """The length before each value."""
    both = [length] * (2 * len(values))
    both[1::2] = values
    return both


def uuid_array(values: Sequence[UUID]) -> UuidArray:
    size = pack_length(16)
    return UuidArray(b"".join([head_of(UUIDS, len(values)), *[size + value.int.to_bytes(16, "big") for value in values]]))


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
