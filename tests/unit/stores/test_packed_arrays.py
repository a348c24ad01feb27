"""Arrays are packed as psycopg packs them, which looks at each value first."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer
from psycopg.types.numeric import Int4, Int8

from hermes.stores.postgres.packed_arrays import MAX_SHORT, bigint_array, bytea_array, integer_array, uuid_array

BLOBS = st.binary(max_size=40) | st.integers(MAX_SHORT - 1, MAX_SHORT + 1).map(bytes)
HAS_NULLS = slice(4, 8)
"""Where an array says whether it has nulls. PostgreSQL looks for itself, so a packed `bytea[]` always says so."""


def dumped(values: Sequence[Any]) -> bytes:
    """An array in binary as psycopg writes it."""
    [written] = Transformer().dump_sequence([list(values)], [PyFormat.BINARY])
    assert written is not None
    return bytes(written)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1))
def test_integers(values: list[int]) -> None:
    assert integer_array(values) == dumped([Int4(value) for value in values])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_bigints(values: list[int]) -> None:
    assert bigint_array(values) == dumped([Int8(value) for value in values])


@given(st.lists(st.uuids(), min_size=1))
def test_uuids(values: list[UUID]) -> None:
    assert uuid_array(values) == dumped(values)


@given(st.lists(BLOBS | st.none(), min_size=1).filter(lambda values: any(value is not None for value in values)))
def test_bytes_and_nulls(values: list[bytes | None]) -> None:
    expected = bytearray(dumped(values))
    expected[HAS_NULLS] = bytes([0, 0, 0, 1])
    assert bytea_array(values) == expected


def test_empty_arrays_have_their_type() -> None:
    packed = [bytea_array([]), integer_array([]), bigint_array([]), uuid_array([])]
    assert [int.from_bytes(array[8:], "big") for array in packed] == [17, 23, 20, 2950]
    assert {array[:8] for array in packed} == {bytes(8)}
