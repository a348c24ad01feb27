"""A message graph as rows: the pure part."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.graph.node import Node
from hermes.stores.postgres.graph_rows import ADDRESS_BYTES, BodyKind, SessionCipher, is_append, list_splices, replay_log
from hermes.stores.seal import DataKeys, SealBroken, new_data_key

POOL = [Node(role="user", content="equal, but each an object of its own") for _ in range(12)]
LISTS = st.lists(st.sampled_from(range(12)), unique=True).map(lambda places: [POOL[place] for place in places])


def splices(old: str, new: str) -> list[tuple[int, int, str]]:
    """The same with letters for nodes."""
    nodes = {letter: Node(role="user", content=letter) for letter in {*old, *new}}
    found = list_splices([nodes[letter] for letter in old], [nodes[letter] for letter in new])
    return [(start, stop, "".join(node["content"] for node in put)) for start, stop, put in found]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", []),
        ("abc", "abc", []),
        ("", "ab", [(0, 0, "ab")]),
        ("abc", "", [(0, 3, "")]),
        ("abc", "abcde", [(3, 3, "de")]),
        ("abcd", "axcd", [(1, 2, "x")]),
        ("abcd", "axcde", [(1, 2, "x"), (4, 4, "e")]),
        ("abcdef", "xbcdey", [(0, 1, "x"), (5, 6, "y")]),
        ("abcdef", "acdf", [(1, 2, ""), (4, 5, "")]),
        ("abc", "cba", [(0, 2, ""), (3, 3, "ba")]),
    ],
)
def test_lists_differ_where_they_were_edited(old: str, new: str, expected: list[tuple[int, int, str]]) -> None:
    assert splices(old, new) == expected


@given(old=LISTS, new=LISTS)
def test_splices_turn_one_list_into_the_other_by_identity(old: list[Node], new: list[Node]) -> None:
    changed: list[Any] = list(old)
    for start, stop, put in reversed(list_splices(old, new)):
        changed[start:stop] = put
    assert list(map(id, changed)) == list(map(id, new))


def test_putting_all_new_nodes_at_the_end_is_an_append_and_nothing_else_is() -> None:
    a, b, c = POOL[:3]
    assert is_append([], 5, [])
    assert is_append([(5, 5, [a, b])], 5, [a, b])
    assert not is_append([(5, 5, [a, b])], 5, [a, c])
    assert not is_append([(5, 5, [a])], 5, [a, b])
    assert not is_append([(4, 5, [a])], 5, [a])
    assert not is_append([(4, 5, [])], 5, [])


def test_the_log_gives_the_current_list_and_numbers_are_given_once() -> None:
    a, b, c, d = (letter.encode() * ADDRESS_BYTES for letter in "abcd")
    addresses, listed = replay_log([a + b, c, d + a, b""], [None, None, [[0, 1, [3]], [3, 3, [4]]], [[1, 2, []]]])
    assert (addresses, listed) == ([a, b, c, d, a], [3, 2, 4])


def test_what_is_sealed_as_one_kind_or_for_one_session_opens_as_no_other() -> None:
    keys, session_id = DataKeys({1: new_data_key()}), uuid4()
    cipher = SessionCipher(keys, session_id)
    sealed = cipher.seal(BodyKind.NOTE, b"1")
    assert (cipher.open(BodyKind.NOTE, sealed), cipher.open_json(BodyKind.NOTE, [sealed, sealed])) == (b"1", [1, 1])
    with pytest.raises(SealBroken):
        cipher.open(BodyKind.SAMPLE, sealed)
    with pytest.raises(SealBroken):
        SessionCipher(keys, uuid4()).open(BodyKind.NOTE, sealed)
    addresses = {
        cipher.address(BodyKind.NOTE, b"1"),
        cipher.address(BodyKind.SAMPLE, b"1"),
        SessionCipher(keys, uuid4()).address(BodyKind.NOTE, b"1"),
    }
    assert (len(addresses), {len(address) for address in addresses}) == (3, {ADDRESS_BYTES})
