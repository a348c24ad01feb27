"""The token trie against a naive one: a set of prefixes."""

from array import array
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from hermes.trajectories.trie import Trie


@dataclass(frozen=True)
class Sequence:
    ids: tuple[int, ...]

    @property
    def tokens(self) -> bytes:
        return array("i", self.ids).tobytes()


def ids(data: bytes) -> tuple[int, ...]:
    return tuple(array("i", data))


SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple).map(Sequence), max_size=12)


@given(SEQUENCES)
def test_leaves_are_the_sequences_that_no_other_extends(sequences: list[Sequence]) -> None:
    found = [ids(path[-1].source[: path[-1].end]) for path, _ in Trie(sequences).leaves()]
    all_ids = {sequence.ids for sequence in sequences}
    expected = {one for one in all_ids if not any(other != one and other[: len(one)] == one for other in all_ids)}
    assert (len(found), set(found)) == (len(expected), expected)


@given(SEQUENCES)
def test_every_unique_prefix_is_one_token_of_one_node(sequences: list[Sequence]) -> None:
    prefixes = {sequence.ids[:length] for sequence in sequences for length in range(1, len(sequence.ids) + 1)}
    seen = []
    for path, shared in Trie(sequences).leaves():
        for node in path[shared:]:
            seen += [ids(node.source[:end]) for end in range(node.start + 4, node.end + 4, 4)]
    assert (len(seen), set(seen)) == (len(prefixes), prefixes)


@given(SEQUENCES)
def test_every_item_ends_at_the_node_of_its_sequence(sequences: list[Sequence]) -> None:
    found = []
    for path, shared in Trie(sequences).leaves():
        for node in path[shared:]:
            assert all(item.ids == ids(node.source[: node.end]) for item in node.items)
            found += node.items
    assert sorted(map(id, found)) == sorted(map(id, sequences))


def test_comes_depth_first_in_the_order_of_insertion() -> None:
    sequences = [Sequence(ids) for ids in ((1, 2, 3), (5,), (1, 2, 4), (1, 9), (5, 6))]
    leaves = [ids(path[-1].source[: path[-1].end]) for path, _ in Trie(sequences).leaves()]
    assert leaves == [(1, 2, 3), (1, 2, 4), (1, 9), (5, 6)]


def test_finds_where_long_sequences_part() -> None:
    base = list(range(100_000))
    for at in (0, 1, 49_999, 65_536, 99_999):
        other = [*base[:at], -1, *base[at + 1 :]]
        trie = Trie([Sequence(tuple(base)), Sequence(tuple(other))])
        paths = [[(node.start // 4, node.end // 4) for node in path] for path, _ in trie.leaves()]
        assert paths == ([[(0, at), (at, 100_000)]] * 2 if at else [[(0, 100_000)]] * 2)
